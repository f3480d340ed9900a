"""The rules of the skirmish, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamarckian.errors import ConfigError
from lamarckian.mdp.batch_game import RowStep
from lamarckian.mdp.core import Arrays
from lamarckian.mdp.games import Skirmish
from lamarckian.mdp.games.skirmish import ATTACK, BACK, FORWARD, IDLE, LEFT, MARCH, RIGHT


def ready(num: int = 1, **options: Any) -> Skirmish:
    game = Skirmish(num, **{"units_per_side": 2, **options})
    game.reset(np.arange(num))
    return game


def put(game: Skirmish, left: list[list[float]], right: list[list[float]], **health: Any) -> None:
    game._place[0, 0], game._place[0, 1] = left, right
    for name, values in health.items():
        game._health[0, int(name == "blue")] = values
    game._look()


def act(
    red: list[int], blue: list[int], at: tuple[Any, Any] = ([1, 1], [1, 1])
) -> dict[str, Arrays]:
    return {
        "red": {"order": np.array(red), "target": np.array(at[0])},
        "blue": {"order": np.array(blue), "target": np.array(at[1])},
    }


STILL = act([IDLE, IDLE], [IDLE, IDLE])
APART = ([[2.0, 2.0], [2.0, 14.0]], [[14.0, 2.0], [14.0, 14.0]])
DUEL = ([[8.0, 8.0], [0.0, 0.0]], [[10.0, 8.0], [16.0, 16.0]])  # the seats 0 face each other


def test_sides_start_as_mirror_images() -> None:
    game = ready(5, units_per_side=4)
    red, blue = game._place[:, 0], game._place[:, 1]
    np.testing.assert_allclose(red[..., 0], 16.0 - blue[..., 0], rtol=1e-6)
    np.testing.assert_array_equal(red[..., 1], blue[..., 1])
    for name in ("own", "others", "others_mask"):
        left, right = game.observe("red").inputs[name], game.observe("blue").inputs[name]
        np.testing.assert_allclose(left, right, atol=1e-6)


def test_moves_are_seen_from_the_own_side() -> None:
    game = ready()
    put(game, *APART)
    game.step(act([FORWARD, LEFT], [FORWARD, RIGHT]))
    assert game._place[0].tolist() == [[[3.0, 2.0], [2.0, 13.0]], [[13.0, 2.0], [14.0, 15.0]]]
    put(game, [[0.0, 2.0], [16.0, 0.0]], APART[1])
    game.step(act([BACK, LEFT], [IDLE, IDLE]))
    assert game._place[0, 0].tolist() == [[0.0, 2.0], [16.0, 0.0]]


def test_headings_are_cut_to_length_one() -> None:
    game = ready(heading=True)
    put(game, *APART)
    actions = act([MARCH, MARCH], [MARCH, IDLE])
    actions["red"]["heading"] = np.array([[1.0, 1.0], [0.0, -0.5]], np.float32)
    actions["blue"]["heading"] = np.array([[1.0, 0.0], [1.0, 0.0]], np.float32)
    game.step(actions)
    half = 2**-0.5
    np.testing.assert_allclose(game._place[0, 0], [[2 + half, 2 + half], [2.0, 13.5]], rtol=1e-6)
    np.testing.assert_allclose(game._place[0, 1], [[13.0, 2.0], [14.0, 14.0]], rtol=1e-6)


def test_an_attack_in_reach_takes_health_and_needs_a_pause() -> None:
    game = ready()
    put(game, *DUEL)
    legal = game.observe("red").legal
    assert legal["order"].tolist() == [[True] * 6, [True] * 5 + [False]]
    assert legal["target"].tolist() == [[False, True, False], [True, False, False]]
    steps = game.step(act([ATTACK, IDLE], [IDLE, IDLE]))
    np.testing.assert_allclose(game._health[0], [[1.0, 1.0], [0.85, 1.0]], rtol=1e-6)
    np.testing.assert_allclose(steps["red"].rewards, [[0.15, 0], [0, 0]], atol=1e-6)
    np.testing.assert_allclose(steps["blue"].rewards, [[-0.15, 0], [0, 0]], atol=1e-6)
    for _ in range(2):  # the pause: not legal, and ignored if tried
        assert not game.observe("red").legal["order"][0, ATTACK]
        game.step(act([ATTACK, IDLE], [IDLE, IDLE]))
        np.testing.assert_allclose(game._health[0, 1], [0.85, 1.0], rtol=1e-6)
    assert game.observe("red").legal["order"][0, ATTACK]


def test_overkill_is_shared_and_both_may_strike_at_once() -> None:
    game = ready()
    put(game, [[8, 8], [8, 9]], [[10, 8], [16, 16]], red=[0.1, 1.0], blue=[0.2, 1.0])
    steps = game.step(act([ATTACK, ATTACK], [ATTACK, IDLE]))
    # two blows of 0.15 at 0.2 of health: 0.1 each; the struck one strikes back in the same tick
    np.testing.assert_allclose(steps["red"].rewards[:, 0], [0.1 - 0.1, 0.1], atol=1e-6)
    np.testing.assert_allclose(steps["blue"].rewards[:, 0], [0.1 - 0.2, 0.0], atol=1e-6)
    assert steps["red"].terminated.tolist() == [True, False]
    assert steps["blue"].terminated.tolist() == [True, False]
    assert game.alive("red").tolist() == game.alive("blue").tolist() == [False, True]
    assert np.isnan(steps["red"].outcomes["result"][0])
    assert steps["red"].outcome(0).keys() == {"dealt", "kills", "lifetime", "activeness"}
    assert steps["red"].outcome(0)["kills"] == 1.0
    assert steps["red"].outcomes["kills"].tolist() == [1.0, 1.0]


def finish(game: Skirmish) -> dict[str, RowStep]:
    """The red unit of seat 1 is dead; seat 0 kills the last blue one."""
    put(game, [[8, 8], [8, 9]], [[10, 8], [16, 16]], red=[0.5, 0.0], blue=[0.1, 0.0])
    if not game.dead_watch:
        game._present[0, :, 1] = False
    game._look()
    return game.step(act([ATTACK, IDLE], [IDLE, IDLE]))


def test_the_last_blow_ends_the_match() -> None:
    game = ready()
    steps = finish(game)
    np.testing.assert_allclose(steps["red"].rewards, [[0.1, 1.0], [0, 0]], atol=1e-6)
    np.testing.assert_allclose(steps["blue"].rewards, [[-0.1, -1.0], [0, 0]], atol=1e-6)
    assert steps["red"].terminated.tolist() == [True, False]
    # (0.5 - 0 + 2) / 4
    assert steps["red"].outcomes["score"][0] == 0.625
    assert steps["blue"].outcomes["score"][0] == 0.375
    assert steps["red"].outcomes["result"][0] == 1.0
    assert steps["blue"].outcomes["result"][0] == -1.0
    assert game.alive("red").all()  # a new match
    assert (game._health == 1.0).all()


def test_pitfalls_ma_02_team_reward_after_death_is_an_option() -> None:
    steps = finish(ready(dead_watch=True))
    np.testing.assert_allclose(steps["red"].rewards, [[0.1, 1.0], [0, 1.0]], atol=1e-6)
    np.testing.assert_allclose(steps["blue"].rewards, [[-0.1, -1.0], [0, -1.0]], atol=1e-6)
    assert steps["red"].terminated.all()
    assert steps["blue"].outcomes["result"].tolist() == [-1.0, -1.0]


def test_watchers_may_only_idle_and_nothing_they_do_counts() -> None:
    game = ready(dead_watch=True)
    put(game, *DUEL, red=[1.0, 0.0])
    assert game.alive("red").tolist() == [True, True]
    legal = game.observe("red").legal
    assert legal["order"][1].tolist() == [True] + [False] * 5
    assert legal["target"][1].tolist() == [True, False, False]
    before = game._place.copy()
    game.step(act([IDLE, FORWARD], [IDLE, IDLE]))
    np.testing.assert_array_equal(game._place, before)


def test_rows_of_the_dead_are_ignored() -> None:
    games = [ready(), ready()]
    for n, game in enumerate(games):
        put(game, *DUEL, red=[1.0, 0.0])
        game._present[0, 0, 1] = False
        game._look()
        steps = game.step(act([IDLE, (FORWARD, ATTACK)[n]], [ATTACK, IDLE], ([1, n + 1], [1, 1])))
        assert steps["red"].rewards[1].tolist() == [0.0, 0.0]
        assert not steps["red"].terminated[1]
    for name in games[0]._SAVED:
        np.testing.assert_array_equal(getattr(games[0], name), getattr(games[1], name), name)


def test_pitfalls_ma_11_the_dead_leave_the_filler_in_the_central_state() -> None:
    game = ready()
    put(game, *DUEL, red=[1.0, 0.0])
    for role, row in (("red", 1), ("blue", 3)):
        units = game.observe(role).state["units"]
        assert units.shape == (2, 4, 5)
        assert not units[:, row].any()
        alive = [True] * 4
        alive[row] = False
        assert (units[:, :, 4] > 0).tolist() == [alive, alive]
    before = {role: game.observe(role).state["units"].copy() for role in ("red", "blue")}
    game._place[0, 0, 1] = [5.0, 5.0]  # where it last stood is of no consequence
    game._cooldown[0, 0, 1] = 1
    game._look()
    for role, units in before.items():
        np.testing.assert_array_equal(game.observe(role).state["units"], units)
    seat = game.observe("red").state["self"]
    assert seat.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_what_a_unit_sees_of_the_others() -> None:
    game = ready(sight=8.0)
    put(game, [[8, 8], [8, 4]], [[10, 8], [16, 16]], blue=[0.5, 1.0])
    seen = game.observe("red").inputs
    # seat 0: the team-mate 4 above, the near enemy 2 ahead and in reach; the far one is out of sight
    np.testing.assert_allclose(
        seen["others"][0],
        [[0, -0.5, 0.5, 1, 0, 0, 1], [0.25, 0, 0.25, 0.5, 1, 1, 1], [0] * 7],
        atol=1e-6,
    )
    assert seen["others_mask"][0].tolist() == [True, True, False]
    np.testing.assert_allclose(seen["own"][0], [0.5, 0.5, 1, 0, 0, 1, 0], atol=1e-6)
    # blue's seat 0 sees red's seat 0 two ahead of itself as well
    np.testing.assert_allclose(
        game.observe("blue").inputs["others"][0][1], [0.25, 0, 0.25, 1, 1, 1, 1], atol=1e-6
    )


def test_the_image_shows_health() -> None:
    game = ready(image=True)
    put(game, [[8, 8], [8, 4]], [[10, 8], [15.5, 15.5]], blue=[0.5, 1.0])
    image = game.observe("red").inputs["image"]
    assert image.shape == (2, 3, 16, 16)
    assert np.argwhere(image[0]).tolist() == [[0, 8, 8], [1, 4, 8], [2, 8, 10], [2, 15, 15]]
    assert image[0, 2, 8, 10] == 128
    assert image[1, 0, 4, 8] == image[1, 1, 8, 8] == 255


def test_the_time_limit_truncates_with_final_observations() -> None:
    game = ready(max_ticks=3)
    put(game, *DUEL, red=[1.0, 0.0])
    game._present[0, 0, 1] = False
    game._look()
    for _ in range(3):
        steps = game.step(STILL)
    assert steps["red"].truncated.tolist() == [True, False]
    assert steps["blue"].truncated.tolist() == [True, True]
    assert steps["red"].final_rows.tolist() == [0]
    final = steps["red"].final
    assert final is not None
    np.testing.assert_allclose(final.inputs["own"], [[0.5, 0.5, 1, 0, 1, 1, 0]], atol=1e-6)
    assert final.state["units"].shape == (1, 4, 5)
    assert steps["red"].outcomes["result"][0] == 0.0
    # (1 - 2 + 2) / 4
    assert steps["red"].outcomes["score"][0] == 0.25


@pytest.mark.parametrize("options", [{}, {"heading": True, "sight": 6.0}, {"dead_watch": True}])
def test_rush_beats_random_play(options: dict[str, Any]) -> None:
    game = Skirmish(40, units_per_side=3, **options)
    game.reset(np.arange(40))
    rng = np.random.default_rng(0)
    results: list[float] = []
    damage = 0.0
    for _ in range(240):
        actions = {}
        for role, bot in (("red", "rush"), ("blue", "random")):
            seen = game.observe(role)
            actions[role] = game.bots[bot](seen.inputs, seen.legal, rng)
        steps = game.step(actions)
        damage += float(steps["red"].rewards[:, 0].sum() + steps["blue"].rewards[:, 0].sum())
        ended = steps["red"].terminated | steps["red"].truncated
        if ended.any():
            results += [r for r in steps["red"].outcomes["result"][ended].tolist() if r == r]
    assert abs(damage) < 1e-3
    assert len(results) > 40
    assert np.mean(results) > 0.9


def test_options_are_checked() -> None:
    for name, value in (("units_per_side", 0), ("arena", 5.0), ("sight", 2.0), ("max_ticks", 0)):
        with pytest.raises(ConfigError, match=name):
            Skirmish(1, **{name: value})  # type: ignore[arg-type]

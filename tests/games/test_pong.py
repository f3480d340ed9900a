"""The rules of Pong, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian.mdp.core import Arrays
from lamarckian.mdp.games import Pong
from lamarckian.mdp.games.pong import DOWN, STOP, UP, rule


def moves(left: int | list[int], right: int | list[int], num: int = 1) -> dict[str, Arrays]:
    return {
        "left": {"move": np.broadcast_to(np.array(left), num)},
        "right": {"move": np.broadcast_to(np.array(right), num)},
    }


def ready(num: int = 1, **options: Any) -> Pong:
    game = Pong(num, **options)
    game.reset(np.arange(num))
    return game


def place(game: Pong, x: float, y: float, vx: float, vy: float) -> None:
    game._ball[:] = [[x], [y]]
    game._speed[:] = [[vx], [vy]]


def test_the_start() -> None:
    game = ready(500)
    assert set(game._speed[0].tolist()) == {-4.0, 4.0}
    rise = np.abs(game._speed[1])
    assert rise.min() >= 1.2
    assert rise.max() < 4.0
    assert abs(rise.mean() - 2.6) < 0.1
    # bats (107 - 34) / 160 = 0.45625; ball 78 / 160 = 0.4875, (112 - 34) / 160 = 0.4875
    left = game.observe("left").inputs["state"]
    np.testing.assert_allclose(left, np.tile([0.45625] * 2 + [0.4875] * 8, (500, 1)), rtol=1e-6)
    # mirrored, the history it starts with too: 1 - 0.4875 = 0.5125
    right = game.observe("right").inputs["state"]
    expected = [0.45625] * 2 + [0.5125, 0.4875] * 4
    np.testing.assert_allclose(right, np.tile(expected, (500, 1)), rtol=1e-6)


def test_bats_move_by_four_and_stay_inside() -> None:
    game = ready()
    game.step(moves(UP, DOWN))
    assert game._bats.ravel().tolist() == [103.0, 111.0]
    game.step(moves(STOP, STOP))
    assert game._bats.ravel().tolist() == [103.0, 111.0]
    game._bats[:] = [[35.0], [178.0]]
    game.step(moves(UP, DOWN))
    assert game._bats.ravel().tolist() == [34.0, 179.0]


@pytest.mark.parametrize(
    ("y", "vy", "y_after", "vy_after"),
    [
        (36.0, -3.0, 35.0, 3.0),  # 36 - 3 = 33, one above the wall at 34: back to 35
        (37.0, -3.0, 34.0, -3.0),  # touches
        (189.0, 3.0, 188.0, -3.0),  # bottom 194 - 4 = 190; 192 is two below: back to 188
        (187.0, 3.0, 190.0, 3.0),
    ],
)
def test_walls_flip_vy(y: float, vy: float, y_after: float, vy_after: float) -> None:
    game = ready()
    place(game, 78.0, y, 4.0, vy)
    game.step(moves(STOP, STOP))
    assert game._ball.ravel().tolist() == [82.0, y_after]
    assert game._speed.ravel().tolist() == [4.0, vy_after]


@pytest.mark.parametrize(("move", "spin"), [(UP, -2.8), (STOP, 0.0), (DOWN, 2.8)])
def test_a_left_hit_flips_vx_and_adds_the_bats_move(move: int, spin: float) -> None:
    game = ready()
    place(game, 22.0, 112.0, -4.0, 1.5)  # the left bat's face is at 16 + 5 = 21
    rewards = game.step(moves(move, STOP))
    np.testing.assert_allclose(game._speed.ravel(), [4.0, 1.5 + spin], rtol=1e-6)
    assert game._ball.ravel().tolist() == [18.0, 113.5]
    assert rewards["left"].rewards.item() == 0.0


@pytest.mark.parametrize(("move", "spin"), [(UP, -2.8), (STOP, 0.0), (DOWN, 2.8)])
def test_a_right_hit_flips_vx_and_adds_the_bats_move(move: int, spin: float) -> None:
    game = ready()
    place(game, 134.0, 112.0, 4.0, -1.5)  # right edge 138 -> 142 crosses the face at 139
    game.step(moves(STOP, move))
    np.testing.assert_allclose(game._speed.ravel(), [-4.0, -1.5 + spin], rtol=1e-6)


def test_a_bat_held_by_the_wall_adds_only_what_it_moved() -> None:
    game = ready()
    game._bats[0] = 35.0
    place(game, 22.0, 40.0, -4.0, 1.5)
    game.step(moves(UP, STOP))  # 35 -> 34 is a move of -1: 1.5 - 0.7
    np.testing.assert_allclose(game._speed[1], [0.8], rtol=1e-6)


@pytest.mark.parametrize(
    ("y", "hit"), [(103.0, False), (103.5, True), (121.5, True), (122.0, False)]
)
def test_a_hit_needs_overlap(y: float, hit: bool) -> None:
    # the bat spans 107 ... 122, the ball y ... y + 4
    game = ready()
    place(game, 22.0, y, -4.0, 0.0)
    game.step(moves(STOP, STOP))
    assert (game._speed[0, 0] > 0) == hit


def test_a_ball_that_leaves_the_bat_behind_is_not_hit_again() -> None:
    game = ready()
    place(game, 18.0, 112.0, 4.0, 0.0)
    game.step(moves(STOP, STOP))
    assert game._speed[0, 0] == 4.0


def test_scoring_starts_a_round_and_leaves_the_bats() -> None:
    game = ready(2)
    game._ball[:] = [[2.0, 154.0], [60.0, 60.0]]
    game._speed[:] = [[-4.0, 4.0], [0.0, 0.0]]
    steps = game.step(moves(UP, DOWN, 2))
    assert steps["left"].rewards.ravel().tolist() == [-1.0, 1.0]
    assert steps["right"].rewards.ravel().tolist() == [1.0, -1.0]
    assert not steps["left"].terminated.any()
    assert game._ball.T.tolist() == [[78.0, 112.0]] * 2
    assert game._bats.T.tolist() == [[103.0, 111.0]] * 2
    # a new round fills the history with the start again, mirrored for the right player
    assert set(game.observe("left").inputs["state"][0, 2::2].tolist()) == {np.float32(0.4875)}
    assert set(game.observe("right").inputs["state"][0, 2::2].tolist()) == {np.float32(0.5125)}


def test_the_history_is_oldest_first() -> None:
    game = ready()
    place(game, 78.0, 112.0, 4.0, 2.0)
    for _ in range(3):
        game.step(moves(STOP, STOP))
    expected = np.array([78, 82, 86, 90]) / 160
    left = game.observe("left").inputs["state"][0]
    right = game.observe("right").inputs["state"][0]
    np.testing.assert_allclose(left[2::2], expected, rtol=1e-6)
    np.testing.assert_allclose(right[2::2], 1 - expected, rtol=1e-6)
    np.testing.assert_allclose(left[3::2], (np.array([112, 114, 116, 118]) - 34) / 160, rtol=1e-6)
    np.testing.assert_array_equal(left[3::2], right[3::2])


def test_own_bat_comes_first() -> None:
    game = ready()
    game.step(moves(UP, DOWN))
    left = game.observe("left").inputs["state"][0]
    right = game.observe("right").inputs["state"][0]
    np.testing.assert_allclose(left[:2], [(103 - 34) / 160, (111 - 34) / 160], rtol=1e-6)
    np.testing.assert_array_equal(left[:2], right[1::-1])


def test_a_round_of_more_than_max_ticks_is_a_tie() -> None:
    game = ready(max_ticks=5)
    for _ in range(5):
        place(game, 78.0, 112.0, 4.0, 0.0)
        steps = game.step(moves(STOP, STOP))
    assert game._round[0] == 0
    place(game, 78.0, 100.0, 4.0, 0.0)
    steps = game.step(moves(STOP, STOP))
    assert game._round[0] == 1
    assert game._points.ravel().tolist() == [0, 0]
    assert steps["left"].rewards.item() == steps["right"].rewards.item() == 0.0


def test_twenty_rounds_end_the_episode_for_both() -> None:
    game = ready()
    for n in range(20):
        place(game, 154.0 if n < 15 else 2.0, 60.0, 4.0 if n < 15 else -4.0, 0.0)
        steps = game.step(moves(STOP if n % 2 else UP, STOP))
        ended = n == 19
        assert steps["left"].terminated.tolist() == steps["right"].terminated.tolist() == [ended]
    # 15 : 5; (15 - 5 + 20) / 40 = 0.75 and (5 - 15 + 20) / 40 = 0.25; the left bat moved in 10 of 20
    left, right = steps["left"].outcomes, steps["right"].outcomes
    values = [left[name].item() for name in ("score", "result", "points", "activeness")]
    assert values == [0.75, 1.0, 15.0, 0.5]
    values = [right[name].item() for name in ("score", "result", "points", "activeness")]
    assert values == [0.25, -1.0, 5.0, 0.0]
    assert game._points.sum() == game._active.sum() == 0
    assert game._bats.ravel().tolist() == [107.0, 107.0]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), options=st.sampled_from([(2, 40), (3, 1000), (1, 10)]))
def test_the_game_is_strictly_zero_sum(seed: int, options: tuple[int, int]) -> None:
    game = Pong(5, rounds=options[0], max_ticks=options[1])
    game.reset(np.arange(seed, seed + 5))
    rng = np.random.default_rng(seed)
    total = np.zeros(5)
    for _ in range(120):
        drawn = {r: {"move": rng.integers(0, 3, 5)} for r in ("left", "right")}
        steps = game.step(drawn)
        left, right = steps["left"].rewards, steps["right"].rewards
        np.testing.assert_array_equal(left + right, 0.0)
        total += left[:, 0]
        ended = steps["left"].terminated
        np.testing.assert_array_equal(ended, steps["right"].terminated)
        if ended.any():
            scores = steps["left"].outcomes["score"][ended]
            np.testing.assert_allclose(
                scores, (total[ended] + options[0]) / (2 * options[0]), rtol=1e-6
            )
            np.testing.assert_allclose(
                scores + steps["right"].outcomes["score"][ended], 1.0, rtol=1e-6
            )
            total[ended] = 0.0


def naive_match(seed_speed: list[tuple[float, float]], actions: list[tuple[int, int]]) -> list[Any]:
    """One match in plain numbers: the rules again, written for a reader."""
    bats = [107.0, 107.0]
    x, y = 78.0, 112.0
    serve = iter(seed_speed)
    vx, vy = next(serve)
    seen = []
    for pair in actions:
        moved = []
        for side in (0, 1):
            new = min(max(bats[side] + 4 * (pair[side] - 1), 34.0), 179.0)
            moved.append(new - bats[side])
            bats[side] = new
        old_x, x, y = x, x + vx, y + vy
        if y < 34:
            y, vy = 68 - y, -vy
        elif y > 190:
            y, vy = 380 - y, -vy
        for side, crosses in ((0, old_x > 21 >= x), (1, old_x + 4 < 139 <= x + 4)):
            if crosses and y < bats[side] + 15 and y + 4 > bats[side]:
                vx, vy = -vx, vy + 0.7 * moved[side]
        point = int(x + 4 > 160) - int(x < 0)
        if point:
            x, y = 78.0, 112.0
            vx, vy = next(serve)
        seen.append((point, x, y, *bats))
    return seen


def test_the_arrays_play_as_the_plain_rules_do() -> None:
    game = ready()
    game.reset(np.array([42]))
    rng = np.random.default_rng(0)
    serves = [tuple(game._speed.ravel().tolist())]
    actions, played = [], []
    for _ in range(600):
        state = game.observe("left").inputs["state"]
        left = int(rule({"state": state}, {}, rng)["move"][0])
        pair = (left, int(rng.integers(0, 3)))
        steps = game.step(moves(*pair))
        actions.append(pair)
        point = int(steps["left"].rewards.item())
        if point:
            serves.append(tuple(game._speed.ravel().tolist()))
        played.append((point, *game._ball.ravel().tolist(), *game._bats.ravel().tolist()))
    expected = naive_match(serves, actions)
    np.testing.assert_allclose(played, expected, atol=2e-3)
    assert any(row[0] for row in expected)


def test_the_rule_bot_follows_the_ball() -> None:
    # bat centre 0.5 + 7.5 / 160 = 0.546875, ball centre y + 2 / 160 = y + 0.0125
    state = np.zeros((2, 10), np.float32)
    state[:, 0] = 0.5
    state[:, 9] = [0.54, 0.53]
    assert rule({"state": state}, {}, np.random.default_rng(0))["move"].tolist() == [DOWN, UP]


def test_the_rule_bot_beats_random_play_and_draws_with_itself() -> None:
    rng = np.random.default_rng(0)
    game = ready(32, rounds=5)
    points = 0.0
    for _ in range(600):
        own = rule(game.observe("left").inputs, {}, rng)
        steps = game.step({"left": own, "right": {"move": rng.integers(0, 3, 32)}})
        points += float(steps["left"].rewards.sum())
    assert points > 100


def test_pictures_show_what_the_state_says() -> None:
    game = ready(image=True)
    place(game, 78.0, 112.0, 4.0, 2.0)
    game.step(moves(UP, DOWN))
    left = game.observe("left").inputs["image"][0]
    right = game.observe("right").inputs["image"][0]
    np.testing.assert_array_equal(left, right[:, :, ::-1])
    # 21 / 40 pixels a unit. Ball area (4 * 0.525)^2 * 255 = 1124.6; x 82 * 0.525 = 43.05 ... 45.15
    field = left[-1, :, 11:73].astype(int)
    assert abs(field.sum() - 1124.6) < 10
    columns = np.flatnonzero(field.sum(0)) + 11
    assert columns.tolist() == [43, 44, 45]
    # own bat top 103 - 34 = 69 -> row 36.2, height 7.875; enemy top 77 -> row 40.4
    own, enemy = left[-1, :, 8], left[-1, :, 75]
    assert abs(own.astype(int).sum() - 255 * 7.875) < 4
    assert np.flatnonzero(own)[0] == 36
    assert np.flatnonzero(enemy)[0] == 40
    # the three older pictures are still the start: the ball at 78 * 0.525 = 40.95
    assert np.flatnonzero(left[0, :, 11:73].sum(0))[0] + 11 == 40


def test_pictures_stack_the_last_four_ticks() -> None:
    game = ready(image=True)
    newest = []
    for _ in range(40):
        place(game, 78.0, 112.0, 4.0, 2.0)
        game.step(moves(UP, STOP))
        newest.append(game.observe("left").inputs["image"][0, -1].copy())
        if len(newest) >= 4:
            np.testing.assert_array_equal(
                game.observe("left").inputs["image"][0], np.stack(newest[-4:])
            )


def test_the_rule_bot_plays_the_same_from_pictures() -> None:
    plain, picture = ready(8), ready(8, image=True)
    rng = np.random.default_rng(1)
    agree = []
    for _ in range(200):
        left = rule(plain.observe("left").inputs, {}, rng)
        other = rule(picture.observe("left").inputs, {}, rng)
        agree.append(left["move"] == other["move"])
        actions = {"left": left, "right": {"move": rng.integers(0, 3, 8)}}
        plain.step(actions)
        picture.step(actions)
    assert np.mean(agree) > 0.93

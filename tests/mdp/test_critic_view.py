"""What critics see: everybody, their own player, noise of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamarckian.errors import UnsupportedSpace
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.catalogue import make_batch, make_game
from lamarckian.mdp.core import Discrete, Input, Observation, Role
from lamarckian.mdp.critic_view import NOISE, CriticView, ViewedGame


class Trio(BatchGame):
    """Three players count; seat 2 dies at tick 2, the match is truncated at tick 4."""

    def __init__(self, num_games: int) -> None:
        self.num_games = num_games
        self.roles = {
            "player": Role(inputs={"count": Input((2,))}, actions={"act": Discrete(2)}, seats=3)
        }
        self.ticks = 0

    def reset(self, seeds: Any) -> None:
        self.ticks = 0

    def _numbers(self) -> np.ndarray:
        rows = np.arange(3 * self.num_games)
        return np.stack([rows + 1, np.full(len(rows), self.ticks)], axis=1).astype(np.float32)

    def observe(self, role: str) -> Observation:
        return Observation({"count": self._numbers()})

    def alive(self, role: str) -> np.ndarray:
        alive = np.ones((self.num_games, 3), np.bool_)
        alive[:, 2] = self.ticks < 2
        return alive.reshape(-1)

    def step(self, actions: Any) -> dict[str, RowStep]:
        before = self.alive("player")
        self.ticks += 1
        dying = before & ~self.alive("player")
        over = self.ticks == 4
        truncated = before & over & ~dying
        step = RowStep(np.zeros((len(before), 1), np.float32), dying, truncated)
        if over:
            rows = np.flatnonzero(truncated)
            step.final_rows, step.final = rows, Observation({"count": self._numbers()[rows]})
            self.ticks = 0
        return {"player": step}

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"ticks": self.ticks}, {}

    def load_state(self, data: dict[str, Any], arrays: Any) -> None:
        self.ticks = data["ticks"]


def viewed(view: CriticView, num_games: int = 2) -> ViewedGame:
    game = view.wrap(Trio(num_games))
    assert isinstance(game, ViewedGame)
    game.reset(np.arange(num_games))
    return game


def tick(game: BatchGame) -> RowStep:
    return game.step({"player": {"act": np.zeros(3 * game.num_games, np.int64)}})["player"]


def test_pitfalls_ma_11_the_slot_of_the_dead_is_zero() -> None:
    game = viewed(CriticView())
    assert {k: v.shape for k, v in game.roles["player"].state.items()} == {
        "players": (6,),
        "seat": (3,),
    }
    seen = game.observe("player").state
    np.testing.assert_array_equal(seen["players"][:3], [[1, 0, 2, 0, 3, 0]] * 3)
    np.testing.assert_array_equal(seen["players"][3:], [[4, 0, 5, 0, 6, 0]] * 3)
    np.testing.assert_array_equal(seen["seat"], np.tile(np.eye(3), (2, 1)))
    tick(game)
    tick(game)
    np.testing.assert_array_equal(game.observe("player").state["players"][0], [1, 2, 2, 2, 0, 0])
    tick(game)
    final = tick(game).final
    assert final is not None
    np.testing.assert_array_equal(final.state["players"][0], [1, 4, 2, 4, 0, 0])
    np.testing.assert_array_equal(final.state["players"][2], [4, 4, 5, 4, 0, 0])
    np.testing.assert_array_equal(final.state["seat"], np.tile(np.eye(3)[:2], (2, 1)))
    np.testing.assert_array_equal(game.observe("player").state["players"][0], [1, 0, 2, 0, 3, 0])


def test_agent_specific_adds_the_players_own_inputs() -> None:
    game = viewed(CriticView("agent-specific"))
    seen = game.observe("player")
    np.testing.assert_array_equal(seen.state["own_count"], seen.inputs["count"])
    assert set(seen.state) == {"players", "seat", "own_count"}


def test_own_reads_no_state() -> None:
    game = make_batch("mpe:simple_spread", 2)
    assert game.roles["agent"].state
    wrapped = CriticView("own").wrap(game)
    assert isinstance(wrapped, ViewedGame)
    wrapped.reset(np.arange(2))
    assert wrapped.roles["agent"].state == {}
    assert wrapped.observe("agent").state == {}
    lone = make_batch("cartpole", 2)
    assert CriticView().wrap(lone) is lone  # one player sees everything there is


def test_noise_is_dealt_anew_only_between_matches() -> None:
    game = viewed(CriticView("own", noise_size=4, shuffle_every=2, seed=3))
    assert set(game.roles["player"].state) == {"count", NOISE}
    first = game.observe("player").state[NOISE].copy()
    np.testing.assert_array_equal(first[:3], first[3:])
    dealt = []
    for match in range(6):
        for _ in range(4):
            now = game.observe("player").state[NOISE]
            np.testing.assert_array_equal(now[:3], now[3:])
            order = [int(np.flatnonzero((first[:3] == row).all(axis=1))[0]) for row in now[:3]]
            assert sorted(order) == [0, 1, 2]  # dealt, never drawn again
            step = tick(game)
            if step.final is not None:
                np.testing.assert_array_equal(step.final.state[NOISE][0], now[0])
        dealt.append(order)
        assert match % 2 == 0 or dealt[match] == dealt[match - 1]
    assert len({tuple(order) for order in dealt}) > 1
    data, arrays = game.state()
    other = viewed(CriticView("own", noise_size=4, shuffle_every=2, seed=3))
    other.load_state(data, arrays)
    np.testing.assert_array_equal(
        other.observe("player").state[NOISE], game.observe("player").state[NOISE]
    )


def test_coroutine_players_keep_what_their_game_gives() -> None:
    games = make_game("connect-four", 2)
    assert isinstance(games, list)
    wrapped = CriticView("own", noise_size=3).wrap(games)
    assert isinstance(wrapped, list)
    with pytest.raises(UnsupportedSpace, match="declares no central state"):
        CriticView().wrap(games)
    for game in games:
        game.close()

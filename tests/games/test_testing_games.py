"""The toy games keep the numbers their docstrings promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamarckian.mdp.core import random_actions
from lamarckian.testing.games import Const7, CountBox, Everything, MaskEnv, Memory, TwoStep
from lamarckian.testing.players import AsyncDuel, DieEarly, Turns

from .play import Recorder, scripted

ZERO = {"move": np.zeros(2, np.int64)}


def still() -> Any:
    return scripted("move", [0])


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_const7(end: Any) -> None:
    game = Const7(2, end=end)
    game.reset(np.arange(2))
    for n in range(8):
        assert game.observe("player").inputs["state"].ravel().tolist() == [n, n]
        step = game.step({"player": ZERO})["player"]
        assert step.rewards.ravel().tolist() == [1.0, 1.0]
        assert getattr(step, end).tolist() == [n == 7] * 2
    if end == "truncated":
        assert step.final is not None
        assert step.final.inputs["state"].ravel().tolist() == [8.0, 8.0]
    assert game.observe("player").inputs["state"].ravel().tolist() == [0.0, 0.0]


def test_two_step() -> None:
    game = TwoStep(2)
    game.reset(np.arange(2))
    first = game.step({"player": ZERO})["player"]
    assert game.observe("player").inputs["state"].tolist() == [[0.0, 1.0]] * 2
    second = game.step({"player": ZERO})["player"]
    assert (first.rewards.sum(), second.rewards.sum()) == (0.0, 2.0)
    assert (first.terminated.any(), second.terminated.all()) == (False, True)


def test_mask_env_is_worth_what_it_says() -> None:
    game = MaskEnv(2000)
    game.reset(np.arange(2000))
    rng = np.random.default_rng(0)
    best, chance = [], []
    for n in range(20):
        seen = game.observe("player")
        legal, worth = seen.legal["move"], seen.inputs["state"]
        if n % 2:
            move = np.where(legal, worth, -1).argmax(1)
        else:
            move = random_actions(game.roles["player"], seen.legal, 2000, rng)["move"]
        step = game.step({"player": {"move": move}})["player"]
        (best if n % 2 else chance).append(step.rewards.mean())
    assert game.num_illegal == 0
    # 20,000 draws each of deviation about 0.29: standard error 0.002
    assert abs(np.mean(best) - 0.7279) < 0.01
    assert abs(np.mean(chance) - 0.5) < 0.01


def test_mask_env_counts_illegal_actions_and_rows_without_a_legal_one() -> None:
    game = MaskEnv(1000, p=0.3)
    game.reset(np.arange(1000))
    legal = game.observe("player").legal["move"].copy()
    assert abs((~legal.any(axis=1)).mean() - 0.3) < 0.06
    move = np.where(legal.all(axis=1), 0, legal.argmin(axis=1))  # the first illegal one
    step = game.step({"player": {"move": move}})["player"]
    wrong = legal.any(axis=1) & ~legal.all(axis=1)
    assert game.num_illegal == wrong.sum()
    np.testing.assert_array_equal(step.rewards[wrong, 0], -1.0)
    np.testing.assert_array_equal(step.rewards[~legal.any(axis=1), 0], 0.0)


def test_count_box() -> None:
    game = CountBox(1)
    game.reset(np.arange(1))
    step = game.step({"player": {"amount": np.array([[450.0]])}})["player"]
    assert step.rewards.item() == 0.0
    step = game.step({"player": {"amount": np.array([[350.0]])}})["player"]
    assert step.rewards.item() == -0.25  # (100 / 200)^2
    with pytest.raises(ValueError, match="outside"):
        game.step({"player": {"amount": np.array([[501.0]])}})
    assert len(game.seen) == 3


def test_memory_shows_the_bit_once_and_asks_after_the_delay() -> None:
    game = Memory(64, delay=2)
    game.reset(np.arange(64))
    bits = game.observe("player").inputs["state"][:, 0].copy()
    assert set(bits.tolist()) == {-1.0, 1.0}
    answer = {"player": {"bit": (bits > 0).astype(np.int64)}}
    for n in range(4):
        seen = game.observe("player").inputs["state"]
        assert seen[0, 1] == (n == 3)
        if n:
            assert not seen[:, 0].any()
        step = game.step(answer)["player"]
        assert step.terminated.all() == (n == 3)
        assert step.rewards.sum() == (64.0 if n == 3 else 0.0)


def test_everything_has_the_optimum_it_says() -> None:
    game = Everything(1000)
    game.reset(np.arange(1000))
    rng = np.random.default_rng(0)
    chance = []
    for n in range(16):
        seen = game.observe("player")
        # what the docstring says can be read off the observation
        bright = (seen.inputs["image"][:, 0, 0, 7] > 0).astype(int)
        np.testing.assert_array_equal(bright, game.best()["pair"][:, 0])
        np.testing.assert_array_equal(seen.inputs["units_mask"].sum(1), game.best()["pair"][:, 1])
        np.testing.assert_array_equal(seen.inputs["colour"], game.best()["pick"])
        rows = np.arange(1000)
        assert seen.legal["pick"][rows, game.best()["pick"]].all()
        assert seen.legal["pair"][rows, 2 + game.best()["pair"][:, 1]].all()
        assert (seen.legal["pick"].sum(1) == 2).all()
        if n % 2:
            actions = random_actions(game.roles["player"], seen.legal, 1000, rng)
            chance.append(game.step({"player": actions})["player"].rewards.mean(axis=0))
        else:
            step = game.step({"player": game.best()})["player"]
            np.testing.assert_allclose(step.rewards, 1.0)
    # 8,000 draws: standard errors below 0.004
    np.testing.assert_allclose(np.mean(chance, axis=0), [0.5, 1 / 3], atol=0.02)


def lives(recorder: Recorder) -> dict[str, list[list[float]]]:
    out: dict[str, list[list[float]]] = {}
    for player, _, life in recorder.lives:
        out.setdefault(player, []).append([rewards[0] for *_, rewards in life])
    return out


def test_pitfalls_ma_02_die_early() -> None:
    recorder = Recorder(DieEarly())
    assert recorder.play({"agent": still()}).error is None
    assert lives(recorder) == {"0": [[1.0] * 10], "1": [[2.0] * 3], "2": [[3.0] * 5]}
    assert all(controller.terminated for _, controller, _ in recorder.lives)


def test_pitfalls_ma_03_a_life_is_an_episode() -> None:
    recorder = Recorder(DieEarly(revive=True))
    assert recorder.play({"agent": still()}).error is None
    assert lives(recorder)["1"] == [[2.0] * 3, [2.0] * 4]
    first = recorder.life("1", 1)[0][0].inputs["state"]
    assert first.tolist() == [1.0, 6.0, 0.0]


def test_pitfalls_ma_14_team_reward_is_paid_once_to_the_living() -> None:
    recorder = Recorder(DieEarly(team=True))
    for _ in range(2):
        recorder.lives.clear()
        assert recorder.play({"agent": still()}).error is None
        assert [sum(life) for life in lives(recorder)["0"]] == [11.0]
        assert [sum(life) for life in lives(recorder)["1"]] == [6.0]


def test_pitfalls_ma_01_turns() -> None:
    recorder = Recorder(Turns())
    assert recorder.play({"first": still(), "second": still()}).error is None
    assert lives(recorder) == {"first": [[5.0]], "second": [[0.0]]}
    assert all(controller.terminated for _, controller, _ in recorder.lives)
    recorder = Recorder(Turns(rounds=3))
    recorder.play({"first": still(), "second": still()})
    assert lives(recorder) == {"first": [[5.0] * 3], "second": [[0.0] * 3]}


def test_async_duel() -> None:
    recorder = Recorder(AsyncDuel())
    assert recorder.play({"red": still(), "blue": still()}).error is None
    assert lives(recorder) == {"red": [[1.0] * 10], "blue": [[1.0] * 10]}


def test_pitfalls_asy_04_async_duel_goes_on_without_one() -> None:
    recorder = Recorder(AsyncDuel())
    result = recorder.play({"red": still(), "blue": still()}, quits={"blue": 5})
    assert result.error is None
    assert result.num_offline == 1
    assert lives(recorder) == {"red": [[1.0] * 10], "blue": [[1.0] * 5]}


def test_pitfalls_asy_01_three_rounds_in_one_process() -> None:
    game = AsyncDuel()
    for _ in range(3):
        recorder = Recorder(game)
        assert recorder.play({"red": still(), "blue": still()}).error is None


class TestEnvironments:
    """The imitations of third-party environments."""

    environments = pytest.importorskip("lamarckian.testing.environments")

    @pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
    def test_const7(self, end: str) -> None:
        env = self.environments.Const7(end)
        env.reset(seed=0)
        for n in range(8):
            seen, reward, terminated, truncated, _ = env.step(0)
            assert (seen.item(), reward) == (n + 1, 1.0)
            assert terminated == (n == 7 and end in ("terminated", "both"))
            assert truncated == (n == 7 and end in ("truncated", "both"))

    def test_alias(self) -> None:
        env = self.environments.Alias()
        first, _ = env.reset(seed=0)
        for _ in range(10):
            seen, *_, truncated, _ = env.step(0)
            assert seen is first
        assert truncated
        assert first.item() == 10.0

    @pytest.mark.parametrize("where", ["init", "reset", "step", "close"])
    def test_boom(self, where: str) -> None:
        self.environments.restart_counting()

        def life() -> None:
            env = self.environments.Boom(1, where)
            env.reset(seed=0)
            for _ in range(10):
                env.step(0)
            env.close()

        life()
        with pytest.raises(RuntimeError, match=f"boom in {where}"):
            life()

    def test_count_box(self) -> None:
        env = self.environments.CountBox(0.0, 2.0)
        env.reset(seed=0)
        assert env.step(np.array([1.5]))[1] == 0.0
        with pytest.raises(AssertionError):
            env.step(np.array([2.5]))
        assert env.actions == [1.5]

    def test_slow_and_stuck(self) -> None:
        slow = self.environments.Slow(0, 3.0, 0.01, index=0)
        fast = self.environments.Slow(0, 3.0, 0.01, index=1)
        assert (slow.seconds, fast.seconds) == (0.03, 0.01)
        stuck = self.environments.Stuck(0, index=1)
        stuck.reset(seed=0)
        assert [stuck.step(0)[2] for _ in range(10)][-1]

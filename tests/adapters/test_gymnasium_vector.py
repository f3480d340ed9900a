"""Vector environments: what each autoreset mode means for the data."""

from __future__ import annotations

import pathlib
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import toys

from lamarckian.errors import GameError
from lamarckian.mdp.adapters.gymnasium_vector import ROLE, GymnasiumVectorGame
from lamarckian.mdp.catalogue import make_batch


def vector(mode, make, num_envs):
    return SyncVectorEnv([make] * num_envs, autoreset_mode=mode)


def play(game, ticks):
    """Return (alive, counter shown, step) per tick of a Counter game."""
    game.reset(np.arange(game.num_games))
    out = []
    for _ in range(ticks):
        alive = game.alive(ROLE).copy()
        shown = game.observe(ROLE).inputs["observation"][:, 0].copy()
        zeros = {"action": np.zeros(game.num_games, np.int64)}
        out.append((alive, shown, game.step({ROLE: zeros})[ROLE]))
    return out


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_pitfalls_ep_03_final_observation_in_every_autoreset_mode(mode) -> None:
    game = GymnasiumVectorGame(2, lambda num_envs: vector(mode, toys.Counter, num_envs))
    record = play(game, 7)
    # Five steps, truncated: the observation after the fifth shows 5.
    alive, shown, step = record[4]
    assert alive.all()
    assert shown.tolist() == [4, 4]
    assert step.truncated.all()
    assert step.final_rows.tolist() == [0, 1]
    assert step.final.inputs["observation"][:, 0].tolist() == [5, 5]
    alive, shown, step = record[5]
    if mode == AutoresetMode.NEXT_STEP:
        assert not alive.any()  # the step spent on the reset is nobody's decision
        assert not step.rewards.any()
        alive, shown, step = record[6]
    assert alive.all()
    assert shown.tolist() == [0, 0]
    assert step.rewards[:, 0].tolist() == [1, 1]


def test_the_three_modes_yield_the_same_decisions() -> None:
    def lives(mode):
        game = GymnasiumVectorGame(
            1, lambda num_envs: vector(mode, lambda: toys.Counter(3, "terminated"), num_envs)
        )
        return [
            (shown[0], float(step.rewards[0, 0]), bool(step.terminated[0]))
            for alive, shown, step in play(game, 14)
            if alive[0]
        ][:9]

    results = [lives(mode) for mode in AutoresetMode]
    assert results[0] == results[1] == results[2]
    assert [item[0] for item in results[0]] == [0, 1, 2] * 3


def test_nested_observations_and_actions_in_same_step_mode() -> None:
    game = GymnasiumVectorGame(
        2, lambda num_envs: vector(AutoresetMode.SAME_STEP, toys.Nested, num_envs)
    )
    role = game.roles[ROLE]
    game.reset(np.arange(2))
    from lamarckian.mdp.core import random_actions

    rng = np.random.default_rng(0)
    for _ in range(50):
        step = game.step({ROLE: random_actions(role, {}, 2, rng)})[ROLE]
    assert step.truncated.all()
    for name, item in role.inputs.items():
        assert step.final.inputs[name].shape == (2, *item.shape)
        assert step.final.inputs[name].dtype == item.dtype


def test_native_cartpole_by_name() -> None:
    game = make_batch("gymvec:CartPole-v1", 8)
    assert type(game._env.unwrapped).__name__ == "CartPoleVectorEnv"
    game.reset(np.arange(8))
    first = game.observe(ROLE).inputs["observation"].copy()
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(120):
        step = game.step({ROLE: {"action": rng.integers(0, 2, 8)}})[ROLE]
        ended += int(step.terminated.sum())
    assert ended > 8
    game.reset(np.arange(8))
    np.testing.assert_array_equal(first, game.observe(ROLE).inputs["observation"])


def test_faults_are_named() -> None:
    game = GymnasiumVectorGame(
        2, lambda num_envs: vector(AutoresetMode.NEXT_STEP, toys.Boom, num_envs)
    )
    with pytest.raises(GameError, match=r"tick 4, seeds \[0, 1\]: step\(\) raised KeyError"):
        play(game, 6)
    game = GymnasiumVectorGame(
        2, lambda num_envs: vector(AutoresetMode.NEXT_STEP, lambda: toys.Poison("reward"), num_envs)
    )
    with pytest.raises(GameError, match=r"environment 0, tick 3, seed 0: reward"):
        play(game, 6)
    with pytest.raises(GameError, match="expected a vector environment of 3 rows, got 2"):
        GymnasiumVectorGame(3, lambda: vector(AutoresetMode.NEXT_STEP, toys.Counter, 2))


def test_missing_final_observation_is_refused() -> None:
    class Forgetful(SyncVectorEnv):
        def step(self, actions):
            *rest, infos = super().step(actions)
            infos.pop("final_obs", None)
            return *rest, infos

    game = GymnasiumVectorGame(
        1,
        lambda num_envs: Forgetful([toys.Counter], autoreset_mode=AutoresetMode.SAME_STEP),
    )
    with pytest.raises(GameError, match="no final observation"):
        play(game, 6)
    assert gymnasium.__version__

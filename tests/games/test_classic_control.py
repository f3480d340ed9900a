"""CartPole and Pendulum against Gymnasium, step by step."""

from __future__ import annotations

import numpy as np
import pytest

from lamarckian.mdp.games import CartPole, Pendulum

gymnasium = pytest.importorskip("gymnasium")


def test_cartpole_steps_as_gymnasium_does() -> None:
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    game = CartPole(1)
    game.reset(np.array([0]))
    rng = np.random.default_rng(0)
    falls = 0
    env.state = game._state[:, 0].copy()
    for _ in range(1000):
        action = int(rng.integers(0, 2))
        seen, reward, terminated, _, _ = env.step(action)
        step = game.step({"player": {"push": np.array([action])}})["player"]
        assert step.rewards.item() == reward
        assert step.terminated.item() == terminated
        if terminated:
            falls += 1
            env.reset()
            env.state = game._state[:, 0].copy()
        else:
            np.testing.assert_allclose(game.observe("player").inputs["state"][0], seen, atol=1e-5)
    assert falls > 10


def test_pendulum_steps_as_gymnasium_does() -> None:
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    game = Pendulum(1)
    game.reset(np.array([0]))
    rng = np.random.default_rng(0)
    env.state = np.array([game._angle[0], game._speed[0]])
    endings = 0
    for n in range(1, 1001):
        action = rng.uniform(-3.0, 3.0, 1).astype(np.float32)
        seen, reward, _, _, _ = env.step(action)
        step = game.step({"player": {"torque": action[None]}})["player"]
        np.testing.assert_allclose(step.rewards.item(), reward, rtol=1e-5, atol=1e-5)
        assert step.truncated.item() == (n % 200 == 0)
        assert not step.terminated.any()
        if step.truncated.item():
            endings += 1
            assert step.final is not None
            np.testing.assert_allclose(step.final.inputs["state"][0], seen, atol=1e-5)
            env.state = np.array([game._angle[0], game._speed[0]])
        else:
            np.testing.assert_allclose(game.observe("player").inputs["state"][0], seen, atol=1e-5)
    assert endings == 5


def test_start_distributions() -> None:
    cart = CartPole(4000)
    cart.reset(np.arange(4000))
    # uniform in [-0.05, 0.05]: standard deviation 0.1 / sqrt(12) = 0.0289
    assert np.abs(cart._state).max() <= 0.05
    np.testing.assert_allclose(cart._state.std(axis=1), 0.0289, rtol=0.05)
    pendulum = Pendulum(4000)
    pendulum.reset(np.arange(4000))
    # uniform in [-pi, pi]: 2 pi / sqrt(12) = 1.814; in [-1, 1]: 0.577
    np.testing.assert_allclose(pendulum._angle.std(), 1.814, rtol=0.05)
    np.testing.assert_allclose(pendulum._speed.std(), 0.577, rtol=0.05)


def test_cartpole_is_truncated_with_its_final_observation() -> None:
    game = CartPole(2, max_ticks=3)
    game.reset(np.arange(2))
    for n in range(3):
        game._state[:, 0] = [2.39, 100.0, 0.0, 0.0] if n == 2 else 0.0  # falls at the last tick
        game._state[:, 1] = 0.0
        step = game.step({"player": {"push": np.array([1, 1])}})["player"]
    assert step.terminated.tolist() == [True, False]
    assert step.truncated.tolist() == [False, True]
    assert step.final_rows.tolist() == [1]
    assert step.final is not None
    # from rest: push = 10 / 1.1 = 9.0909; turn = -9.0909 / (0.5 (4/3 - 1/11)) = -14.6341;
    # pull = 9.0909 + 0.05 * 14.6341 / 1.1 = 9.7561; speeds after 0.02 s: 0.19512 and -0.29268
    np.testing.assert_allclose(
        step.final.inputs["state"], [[0.0, 0.195122, 0.0, -0.292683]], atol=1e-5
    )
    assert np.abs(game.observe("player").inputs["state"]).max() <= 0.05


@pytest.mark.parametrize("limit", [500, 200])
def test_default_limits(limit: int) -> None:
    game = CartPole(1) if limit == 500 else Pendulum(1)
    assert game.max_ticks == limit

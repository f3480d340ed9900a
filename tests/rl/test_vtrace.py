"""V-trace against numbers worked out by hand, and against a naive version of the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trajectories import make_trajectory

from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.returns import Returns, generalised_advantages, importance_ratios, vtrace

GAMMA, ONE = np.array([0.9], np.float32), np.array([1.0], np.float32)


def run(trajectory: Trajectory, log_prob: np.ndarray, **options: float) -> Returns:
    """V-trace with the collected values as those of the learner."""
    heads = trajectory.rewards.shape[-1]
    lambdas = np.full(heads, options.pop("lam", 1.0), np.float32)
    return vtrace(
        trajectory,
        log_prob=log_prob,
        values=trajectory.values,
        bootstrap_values=trajectory.bootstrap_values,
        discounts=np.full(heads, 0.9, np.float32),
        lambdas=lambdas,
        **options,
    )


def test_two_decisions_by_hand() -> None:
    # r = 1, 2; V = 3, 4; the lane goes on with value 5; ratios 0.5 and 2 (clipped to 1).
    trajectory = make_trajectory(
        rewards=[1.0, 2.0],
        values=[3.0, 4.0],
        terminated=[False, False],
        truncated=[False, False],
        bootstraps={1: 5.0},
    )
    log_prob = np.log(np.array([[0.5], [2.0]], np.float32))
    returns = run(trajectory, log_prob)
    # v_1 = 4 + 1 * (2 + 0.9 * 5 - 4) = 6.5; v_0 = 3 + 0.5 * (1 + 0.9 * 4 - 3) + 0.9 * 0.5 * 2.5
    #     = 3 + 0.8 + 1.125 = 4.925
    np.testing.assert_allclose(returns.targets[:, 0, 0], [4.925, 6.5], rtol=1e-6)
    # A_1 = 1 * (2 + 4.5 - 4) = 2.5; A_0 = 0.5 * (1 + 0.9 * 6.5 - 3) = 1.925
    np.testing.assert_allclose(returns.advantages[:, 0, 0], [1.925, 2.5], rtol=1e-6)
    # rho_bar 2 lets the second ratio through: v_1 = 4 + 2 * 2.5 = 9; c_bar cuts only traces.
    wide = run(trajectory, log_prob, rho_bar=2.0)
    # v_0 = 3 + 0.8 + 0.45 * 5 = 6.05; A_0 = 0.5 * (1 + 8.1 - 3) = 3.05; A_1 = 5
    np.testing.assert_allclose(wide.targets[:, 0, 0], [6.05, 9.0], rtol=1e-6)
    np.testing.assert_allclose(wide.advantages[:, 0, 0], [3.05, 5.0], rtol=1e-6)
    # lambda 0: one-step targets. v_0 = 3.8; the advantage still looks at v_1: 1.925.
    short = run(trajectory, log_prob, lam=0.0)
    np.testing.assert_allclose(short.targets[:, 0, 0], [3.8, 6.5], rtol=1e-6)


def test_pitfalls_ep_01_a_time_limit_bootstraps_and_nothing_crosses_it() -> None:
    for truncated, following in ((True, 10.0), (False, 0.0)):
        trajectory = make_trajectory(
            rewards=[1.0, 100.0],
            values=[3.0, 4.0],
            terminated=[not truncated, True],
            truncated=[truncated, False],
            bootstraps={0: 10.0} if truncated else {},
        )
        returns = run(trajectory, np.zeros((2, 1), np.float32))
        # 1 + 0.9 * 10 after a time limit, 1 after a real end; the 100 behind it is another life's.
        assert returns.targets[0, 0, 0] == pytest.approx(1 + 0.9 * following)
        assert returns.advantages[0, 0, 0] == pytest.approx(1 + 0.9 * following - 3)


@st.composite
def trajectories(draw: st.DrawFn) -> tuple[Trajectory, np.ndarray]:
    length, lanes, heads = draw(st.integers(1, 7)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    terminated = rng.random((length, lanes)) < 0.2
    truncated = (rng.random((length, lanes)) < 0.2) & ~terminated
    where = np.flatnonzero(truncated | ~(terminated | (np.arange(length)[:, None] < length - 1)))
    trajectory = make_trajectory(
        rewards=rng.normal(size=(length, lanes, heads)),
        values=rng.normal(size=(length, lanes, heads)),
        terminated=terminated,
        truncated=truncated,
        elapsed=rng.integers(1, 4, (length, lanes)),
        bootstraps={int(i): float(rng.normal()) for i in where},
        log_prob=rng.normal(size=(length, lanes)),
    )
    return trajectory, rng.normal(size=(length, lanes)).astype(np.float32)


def naive(
    trajectory: Trajectory, log_prob: np.ndarray, rho_bar: float, c_bar: float, lam: float
) -> tuple[np.ndarray, np.ndarray]:
    """The sum of equation 1, decision by decision, in Python floats."""
    targets, advantages = np.zeros_like(trajectory.values), np.zeros_like(trajectory.values)
    length, lanes, heads = trajectory.values.shape
    boot = dict(zip(trajectory.bootstrap_index.tolist(), trajectory.bootstrap_values, strict=True))

    def ends(t: int, n: int) -> bool:
        return bool(trajectory.terminated[t, n] or trajectory.truncated[t, n])

    for n in range(lanes):
        for k in range(heads):

            def after(t: int, n: int = n, k: int = k) -> float:
                if trajectory.terminated[t, n]:
                    return 0.0
                if t * lanes + n in boot:
                    return float(boot[t * lanes + n][k])
                return float(trajectory.values[t + 1, n, k])

            def ratio(t: int, n: int = n) -> float:
                return math.exp(float(log_prob[t, n]) - float(trajectory.log_prob[t, n]))

            def discount(t: int, n: int = n) -> float:
                return float(0.9 ** int(trajectory.elapsed[t, n]))

            for s in range(length):
                total, weight, t = 0.0, 1.0, s
                while True:
                    reward = float(trajectory.rewards[t, n, k])
                    delta = reward + discount(t) * after(t) - float(trajectory.values[t, n, k])
                    total += weight * min(rho_bar, ratio(t)) * delta
                    weight *= discount(t) * lam * min(c_bar, ratio(t))
                    if ends(t, n) or t == length - 1:
                        break
                    t += 1
                targets[s, n, k] = float(trajectory.values[s, n, k]) + total
            for s in range(length):
                last = ends(s, n) or s == length - 1
                following = after(s) if last else float(targets[s + 1, n, k])
                reward = float(trajectory.rewards[s, n, k])
                q = reward + discount(s) * following
                advantages[s, n, k] = min(rho_bar, ratio(s)) * (
                    q - float(trajectory.values[s, n, k])
                )
    return targets, advantages


@settings(max_examples=60, deadline=None)
@given(trajectories(), st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.5, 1.0, 3.0]))
def test_equals_the_definition(
    case: tuple[Trajectory, np.ndarray], rho_bar: float, c_bar: float
) -> None:
    trajectory, log_prob = case
    returns = run(trajectory, log_prob, rho_bar=rho_bar, c_bar=c_bar, lam=0.8)
    targets, advantages = naive(trajectory, log_prob, rho_bar, c_bar, 0.8)
    np.testing.assert_allclose(returns.targets, targets, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(returns.advantages, advantages, rtol=2e-3, atol=2e-3)


@settings(max_examples=30, deadline=None)
@given(trajectories())
def test_on_policy_with_lambda_one_it_is_the_n_step_return(
    case: tuple[Trajectory, np.ndarray],
) -> None:
    trajectory, _ = case
    returns = run(trajectory, trajectory.log_prob)
    heads = trajectory.rewards.shape[-1]
    # GAE with lambda 1 is the n-step return less the value.
    same = generalised_advantages(trajectory, GAMMA.repeat(heads), ONE.repeat(heads))
    np.testing.assert_allclose(returns.targets, same.targets, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(returns.advantages, same.advantages, rtol=1e-4, atol=1e-4)


def test_pitfalls_num_03_extreme_and_invalid_rows_stay_finite() -> None:
    trajectory = make_trajectory(
        rewards=[1.0, 1.0],
        values=[0.0, 0.0],
        terminated=[False, True],
        truncated=[False, False],
        log_prob=[-500.0, 0.0],
        valid=[True, False],
    )
    ratios = importance_ratios(trajectory, np.array([[0.0], [np.nan]], np.float32))
    assert ratios[0, 0] == pytest.approx(math.exp(20.0))
    assert ratios[1, 0] == 1.0

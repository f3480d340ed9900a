"""Advantages against numbers worked out by hand, and against a naive per-episode version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trajectories import make_trajectory

from lamarckian.mdp.trajectory import Trajectory, concatenate, from_arrays
from lamarckian.rl.returns import generalised_advantages, next_values

GAMMA, LAMBDA = np.array([0.9], np.float32), np.array([0.95], np.float32)


def const7(*, truncated: bool) -> Trajectory:
    """Eight decisions of reward 1, values 10 everywhere; then the life ends."""
    return make_trajectory(
        rewards=[1.0] * 8,
        values=[10.0] * 8,
        terminated=[False] * 7 + [not truncated],
        truncated=[False] * 7 + [truncated],
        bootstraps={7: 10.0} if truncated else {},
    )


def test_pitfalls_ep_01_truncation_is_not_termination() -> None:
    # delta = 1 + 0.9 * 10 - 10 = 0 everywhere if the end is a time limit.
    advantages = generalised_advantages(const7(truncated=True), GAMMA, LAMBDA).advantages
    np.testing.assert_allclose(advantages, 0.0, atol=1e-6)
    # Terminated: the last delta is 1 - 10 = -9; the first is -9 * (0.9 * 0.95) ** 7 = -3.0061.
    advantages = generalised_advantages(const7(truncated=False), GAMMA, LAMBDA).advantages[:, 0, 0]
    assert advantages[7] == pytest.approx(-9.0, abs=1e-5)
    assert advantages[0] == pytest.approx(-3.0061, abs=1e-4)


def test_pitfalls_ep_03_bootstrap_from_the_final_observation() -> None:
    # The reset observation is worth 0 and follows in the lane; the final one is worth 10.
    trajectory = make_trajectory(
        rewards=[1.0, 1.0],
        values=[10.0, 0.0],
        terminated=[False, True],
        truncated=[True, False],
        bootstraps={0: 10.0},
    )
    advantages = generalised_advantages(trajectory, GAMMA, LAMBDA).advantages[:, 0, 0]
    assert advantages[0] == pytest.approx(0.0, abs=1e-6)


def test_pitfalls_ep_04_nothing_leaks_across_a_boundary() -> None:
    trajectory = make_trajectory(
        rewards=[1.0] * 4 + [1000.0] * 4,
        values=[10.0] * 8,
        terminated=[False] * 7 + [True],
        truncated=[False] * 3 + [True] + [False] * 4,
        bootstraps={3: 10.0},
    )
    advantages = generalised_advantages(trajectory, GAMMA, LAMBDA).advantages[:, 0, 0]
    np.testing.assert_allclose(advantages[:4], 0.0, atol=1e-5)
    assert advantages[4] > 1000


def test_pitfalls_ep_05_targets_flow_back_from_the_end() -> None:
    # TwoStep: A -> B -> reward 1. lambda 0: targets r + gamma V' = 0 + 0.9 * 0.95 and 1 + 0.
    trajectory = make_trajectory(
        rewards=[0.0, 1.0], values=[0.0, 0.95], terminated=[False, True], truncated=[False, False]
    )
    targets = generalised_advantages(trajectory, GAMMA, np.zeros(1, np.float32)).targets[:, 0, 0]
    np.testing.assert_allclose(targets, [0.855, 1.0], atol=1e-6)


def test_elapsed_discounts_the_next_value_by_the_acts_between() -> None:
    # Three acts lie between the decisions: delta = 2 + 0.9 ** 3 * 5 - 1 = 4.645.
    trajectory = make_trajectory(
        rewards=[2.0, 0.0],
        values=[1.0, 5.0],
        terminated=[False, True],
        truncated=[False, False],
        elapsed=[3, 1],
    )
    advantages = generalised_advantages(trajectory, GAMMA, np.zeros(1, np.float32)).advantages
    assert advantages[0, 0, 0] == pytest.approx(4.645, abs=1e-5)


def test_heads_have_their_own_discount_and_lambda() -> None:
    trajectory = make_trajectory(
        rewards=[[1.0, 1.0], [1.0, 1.0]],
        values=[[0.0, 0.0], [0.0, 0.0]],
        terminated=[False, True],
        truncated=[False, False],
    )
    discounts, lambdas = np.array([0.5, 1.0], np.float32), np.array([1.0, 0.5], np.float32)
    advantages = generalised_advantages(trajectory, discounts, lambdas).advantages[0, 0]
    # Head 0: 1 + 0.5 * 1; head 1: 1 + 1 * 0.5 * 1.
    np.testing.assert_allclose(advantages, [1.5, 1.5])


def naive(trajectory: Trajectory, gamma: float, lam: float) -> np.ndarray:
    """The definition, one lane and one decision at a time, with an explicit sum over the future."""
    length, lanes = trajectory.log_prob.shape
    boot = {
        int(i): trajectory.bootstrap_values[n, 0] for n, i in enumerate(trajectory.bootstrap_index)
    }
    out = np.zeros((length, lanes))
    for lane in range(lanes):
        for t in range(length):
            total, weight = 0.0, 1.0
            for s in range(t, length):
                ended = trajectory.terminated[s, lane] or trajectory.truncated[s, lane]
                if trajectory.terminated[s, lane]:
                    following = 0.0
                elif ended or s == length - 1:
                    following = boot.get(s * lanes + lane, 0.0)
                else:
                    following = trajectory.values[s + 1, lane, 0]
                acts = int(trajectory.elapsed[s, lane])
                delta = (
                    trajectory.rewards[s, lane, 0]
                    + gamma**acts * following
                    - trajectory.values[s, lane, 0]
                )
                total += weight * delta
                weight *= gamma**acts * lam
                if ended:
                    break
            out[t, lane] = total
    return out


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 4))
def test_matches_the_naive_version(seed: int, length: int, lanes: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (length, lanes)
    terminated = rng.random(shape) < 0.2
    truncated = (rng.random(shape) < 0.2) & ~terminated
    open_end = ~(terminated | truncated)
    open_end[:-1] = False
    index = np.flatnonzero(truncated | open_end)
    trajectory = make_trajectory(
        rewards=rng.normal(size=(*shape, 1)),
        values=rng.normal(size=(*shape, 1)),
        terminated=terminated,
        truncated=truncated,
        elapsed=rng.integers(1, 4, shape),
        bootstraps={int(i): float(rng.normal()) for i in index},
    )
    got = generalised_advantages(trajectory, GAMMA, LAMBDA)
    np.testing.assert_allclose(got.advantages[..., 0], naive(trajectory, 0.9, 0.95), atol=2e-5)
    np.testing.assert_allclose(got.targets, got.advantages + trajectory.values, atol=1e-6)


def test_joined_and_transported_trajectories_give_the_same_advantages() -> None:
    first, second = const7(truncated=True), const7(truncated=False)
    joined = concatenate([first, second])
    header, arrays = joined.to_arrays()
    joined = from_arrays(header, arrays)
    advantages = generalised_advantages(joined, GAMMA, LAMBDA).advantages
    for lane, part in enumerate((first, second)):
        alone = generalised_advantages(part, GAMMA, LAMBDA).advantages[:, 0]
        np.testing.assert_array_equal(advantages[:, lane], alone)
    assert next_values(joined)[7, 0, 0] == 10.0

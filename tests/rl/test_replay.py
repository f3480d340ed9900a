"""The replay: what is drawn is what happened, by hand and against a naive version."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trajectories import make_trajectory

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Discrete, Input, MultiDiscrete, Role
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl import replay as module
from lamarckian.rl.replay import Replay, Sample
from lamarckian.rl.sum_tree import SumTree

CPU = torch.device("cpu")
ROLE = Role(
    inputs={"x": Input((1,))}, actions={"a": Discrete(3)}, masked=("a",), rewards=("one", "two")
)
WEIGHTS = np.array([1.0, 0.5], np.float32)
NEXT = 0.5
"""Final observations are numbered as their decision and a half."""


def make_replay(capacity: int = 64, **more: Any) -> Replay:
    given: dict[str, Any] = {"num_steps": 1, "discount": 0.9, "reward_weights": WEIGHTS, **more}
    return Replay(ROLE, capacity, **given)


def numbered(
    terminated: Any, truncated: Any, first: float = 0.0, valid: Any = None, **more: Any
) -> Trajectory:
    """A trajectory that shows decision ``t, n`` as ``first + t * N + n`` and says what is legal."""
    ended = np.asarray(terminated, bool)
    cut = np.asarray(truncated, bool)
    length, lanes = ended.shape
    ids = first + np.arange(length * lanes, dtype=np.float32).reshape(length, lanes)
    open_ends = np.zeros_like(ended)
    open_ends[-1] = ~ended[-1] & ~cut[-1]
    index = np.flatnonzero(cut | open_ends)
    rewards = more.pop("rewards", np.stack([ids * 0.25, np.cos(ids)], axis=-1))
    made = make_trajectory(
        rewards=rewards,
        values=np.zeros((length, lanes, 2)),
        terminated=ended,
        truncated=cut,
        valid=valid,
        bootstraps=dict.fromkeys(index.tolist(), 0.0),
        inputs={"x": ids[..., None]},
        actions={"a": (ids % 3).astype(np.int64)},
        legal={"a": np.stack([ids % 2 == 0, ids % 3 == 0, ids >= 0], axis=-1)},
        **more,
    )
    final = ids.reshape(-1)[index] + NEXT
    made.bootstrap_inputs = {"x": final[:, None].astype(np.float32)}
    made.bootstrap_legal = {"a": np.stack([final < 0, final > 0, final > 0], axis=-1)}
    return made


def naive(
    trajectory: Trajectory, t: int, n: int, num_steps: int, discount: float
) -> tuple[float, float, float] | None:
    """Walk forward decision by decision: (return, discount of the next value, next number)."""
    length, lanes = trajectory.valid.shape
    final = dict(
        zip(
            trajectory.bootstrap_index.tolist(),
            trajectory.bootstrap_inputs["x"][:, 0].tolist(),
            strict=True,
        )
    )
    total, factor = 0.0, 1.0
    reached: tuple[float, float, float] | None = None
    for _ in range(num_steps):
        reward = float(trajectory.rewards[t, n] @ WEIGHTS)
        if trajectory.terminated[t, n]:
            return total + factor * reward, 0.0, np.nan
        ends_here = t * lanes + n in final
        if not ends_here and (t == length - 1 or trajectory.starts[t + 1, n]):
            return reached
        total += factor * reward
        factor *= discount ** int(trajectory.elapsed[t, n])
        if ends_here:
            return total, factor, final[t * lanes + n]
        t += 1
        reached = (total, factor, float(trajectory.inputs["x"][t, n, 0]))
    return reached


def drawn(replay: Replay, size: int = 400) -> dict[float, tuple[float, float, float, Sample, int]]:
    """Return number -> (return, discount, next number, sample, row) of what a large draw finds."""
    sample = replay.sample(size, 1.0, CPU)
    assert sample is not None
    found = {}
    for row in range(size):
        found[float(sample.inputs["x"][row, 0])] = (
            float(sample.returns[row]),
            float(sample.discounts[row]),
            float(sample.next_inputs["x"][row, 0]),
            sample,
            row,
        )
    return found


def test_one_step_targets_by_hand() -> None:
    # One lane: 0 goes on, 1 is truncated (final 1.5), 2 begins anew and terminates, 3 is open (3.5).
    made = numbered([[0], [0], [1], [0]], [[0], [1], [0], [0]], rewards=np.ones((4, 1, 2)))
    replay = make_replay()
    replay.add(made)
    assert len(replay) == 6  # four decisions, two final observations
    assert replay.num_learnable == 4
    found = {number: entry[:3] for number, entry in drawn(replay).items()}
    assert found[0.0] == pytest.approx((1.5, 0.9, 1.0))
    assert found[1.0] == pytest.approx((1.5, 0.9, 1.5))
    assert found[2.0][:2] == pytest.approx((1.5, 0.0))
    assert found[3.0] == pytest.approx((1.5, 0.9, 3.5))


def test_pitfalls_n_step_never_reaches_across_a_cut() -> None:
    # Four decisions of reward 1, a truncation, then rewards of 1000: none of them leaks.
    rewards = np.zeros((8, 1, 2))
    rewards[:4, 0, 0], rewards[4:, 0, 0] = 1.0, 1000.0
    cut = np.zeros((8, 1), bool)
    cut[3] = True
    replay = make_replay(num_steps=3)
    replay.add(numbered(np.zeros((8, 1)), cut, rewards=rewards))
    found = drawn(replay)
    three = 1 + 0.9 + 0.81
    assert found[0.0][:3] == pytest.approx((three, 0.729, 3.0))
    assert found[1.0][:3] == pytest.approx((three, 0.729, 3.5))
    assert found[2.0][:3] == pytest.approx((1.9, 0.81, 3.5))
    assert found[3.0][:3] == pytest.approx((1.0, 0.9, 3.5))
    assert found[4.0][0] == pytest.approx(1000 * three)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_draws_equal_a_naive_walk(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    length, lanes = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 3))
    num_steps = data.draw(st.integers(1, 5))
    replay = make_replay(capacity=60, num_steps=num_steps)
    wanted: dict[float, tuple[float, float, float]] = {}
    for turn in range(4):
        ended = rng.random((length, lanes)) < 0.2
        cut = (rng.random((length, lanes)) < 0.2) & ~ended
        made = numbered(
            ended,
            cut,
            first=1000.0 * turn,
            valid=rng.random((length, lanes)) < 0.8,
            elapsed=rng.integers(1, 4, (length, lanes)),
        )
        replay.add(made)
        for t in range(length):
            for n in range(lanes):
                entry = naive(made, t, n, num_steps, 0.9)
                if made.valid[t, n] and entry is not None:
                    wanted[1000.0 * turn + t * lanes + n] = entry
    if not replay.num_learnable:
        assert replay.sample(4, 1.0, CPU) is None
        return
    for number, (total, factor, after, sample, row) in drawn(replay).items():
        expected = wanted[number]
        assert (total, factor) == pytest.approx(expected[:2], rel=1e-5)
        assert int(sample.actions["a"][row]) == int(number % 3)
        assert sample.legal["a"][row].tolist() == [number % 2 == 0, number % 3 == 0, True]
        if factor:
            assert after == pytest.approx(expected[2])
            mask = sample.next_legal["a"][row].tolist()
            final = after % 1.0 == NEXT
            assert mask == (
                [False, True, True] if final else [after % 2 == 0, after % 3 == 0, True]
            )


def test_the_oldest_are_overwritten_and_all_of_the_rest_are_found() -> None:
    replay = make_replay(capacity=20)
    for turn in range(5):
        replay.add(numbered(np.zeros((4, 2)), np.zeros((4, 2)), first=100.0 * turn))
    assert len(replay) == 20
    assert replay.num_rows == 50
    found = sorted(drawn(replay, 2000))
    assert found == [float(base + i) for base in (300, 400) for i in range(8)]
    assert replay.num_learnable == len(found)


def test_pitfalls_mem_04_every_observation_is_stored_once_and_as_declared() -> None:
    role = Role(
        inputs={"i": Input((1, 84, 84), "uint8", "image")}, actions={"a": MultiDiscrete((3, 4))}
    )
    replay = Replay(
        role, 100, num_steps=3, discount=0.9, reward_weights=np.ones(1, np.float32), seed=0
    )
    _, arrays = replay.state()
    assert not arrays  # nothing written yet
    stored = sum(array.nbytes for array in replay._columns.values())
    assert stored / 100 == 84 * 84 + 2 + 12  # pixels, two small actions, return, discount, ahead


@pytest.mark.parametrize("exponent", [0.0, 0.6])
def test_a_restored_replay_goes_on_alike(exponent: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 200)
    one = make_replay(capacity=40, priority_exponent=exponent)
    for turn in range(6):
        one.add(numbered(np.eye(4, 2), np.zeros((4, 2)), first=50.0 * turn))
        sample = one.sample(8, 0.5, CPU)
        assert sample is not None
        one.set_priorities(sample.slots, np.linspace(0, 3, 8, dtype=np.float32))
    data, arrays = one.state()
    blocks = {name.split("//")[0] for name in arrays}
    assert len(blocks) > 3
    two = make_replay(capacity=40, priority_exponent=exponent)
    two.load_state(data, {name: array.copy() for name, array in arrays.items()})
    for turn in range(3):
        for each in (one, two):
            each.add(numbered(np.zeros((4, 2)), np.eye(4, 2), first=900.0 * turn))
        first, second = one.sample(16, 0.7, CPU), two.sample(16, 0.7, CPU)
        assert first is not None
        assert second is not None
        assert first.slots.tolist() == second.slots.tolist()
        assert first.weights.tolist() == second.weights.tolist()
        assert first.returns.tolist() == second.returns.tolist()
        assert torch.equal(first.next_inputs["x"], second.next_inputs["x"])
        for each in (one, two):
            each.set_priorities(first.slots, np.arange(16, dtype=np.float32))


def test_priorities_set_how_often_a_row_is_drawn_and_what_it_weighs() -> None:
    replay = make_replay(priority_exponent=1.0)
    replay.add(numbered(np.ones((4, 1)), np.zeros((4, 1))))
    replay.set_priorities(np.arange(4), np.array([0.0, 1.0, 2.0, 5.0], np.float32))
    sample = replay.sample(8000, 1.0, CPU)
    assert sample is not None
    counts = Counter(sample.slots.tolist())
    assert [counts[slot] / 8000 for slot in (1, 2, 3)] == pytest.approx(
        [1 / 8, 2 / 8, 5 / 8], abs=2e-3
    )
    weights = dict(zip(sample.slots.tolist(), sample.weights.tolist(), strict=True))
    assert [weights[slot] for slot in (1, 2, 3)] == pytest.approx([1.0, 0.5, 0.2], rel=1e-5)
    # What is new is as likely as the most wrong so far.
    replay.add(numbered(np.ones((1, 1)), np.zeros((1, 1)), first=9.0))
    after = replay.sample(8000, 1.0, CPU)
    assert after is not None
    assert Counter(after.slots.tolist())[4] / 8000 == pytest.approx(5 / 13, abs=2e-3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)
def test_a_sum_tree_finds_what_a_running_sum_finds(numbers: list[int], shares: list[float]) -> None:
    tree = SumTree(len(numbers))
    half = len(numbers) // 2
    tree.set(np.arange(len(numbers)), np.full(len(numbers), 3.0))
    tree.set(np.arange(half), np.array(numbers[:half], np.float64))
    tree.set(np.arange(half, len(numbers)), np.array(numbers[half:], np.float64))
    assert tree.total == sum(numbers)
    again = SumTree(len(numbers))
    again.load(tree.leaves.copy())
    assert again.total == tree.total
    if not tree.total:
        return
    levels = np.array(shares) * tree.total
    wanted = [int(np.searchsorted(np.cumsum(numbers), level, side="right")) for level in levels]
    assert tree.find(levels).tolist() == wanted
    assert again.find(levels).tolist() == wanted


def test_a_batch_longer_than_the_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"replay_size: one batch makes 10 rows, more than the 9"):
        make_replay(capacity=9).add(numbered(np.zeros((4, 2)), np.zeros((4, 2))))
    with pytest.raises(ConfigError, match=r"replay_size.*lower replay_size"):
        make_replay(capacity=10**13)

"""Sorting, crowding and indicators against hand-computed values and naive definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lamarckian.ec import indicators, pareto
from lamarckian.errors import ConfigError
from lamarckian.evaluator import Encoding, Objective, Real

# Few distinct values, so that equal rows and equal coordinates are common.
COSTS = st.integers(1, 4).flatmap(
    lambda num: arrays(
        np.float64,
        st.tuples(st.integers(1, 30), st.just(num)),
        elements=st.sampled_from([0.0, 1.0, 2.0, 3.0, np.inf, np.nan]),
    )
)


def naive_ranks(costs: np.ndarray) -> np.ndarray:
    """Peel fronts by the definition, O(n²) per front."""
    usable = [row for row in range(len(costs)) if np.isfinite(costs[row]).all()]
    ranks = np.full(len(costs), -1)
    rank = 0
    while usable:
        front = [
            i
            for i in usable
            if not any(
                all(costs[j] <= costs[i]) and any(costs[j] < costs[i]) for j in usable if j != i
            )
        ]
        ranks[front] = rank
        usable = [i for i in usable if i not in front]
        rank += 1
    ranks[ranks == -1] = rank
    return ranks


@settings(max_examples=150, deadline=None)
@given(costs=COSTS)
def test_sort_equals_the_naive_definition(costs: np.ndarray) -> None:
    expected = naive_ranks(costs)
    np.testing.assert_array_equal(pareto.sort(costs), expected)
    np.testing.assert_array_equal(pareto.sort(costs, use_moocore=False), expected)
    finite = costs[np.isfinite(costs).all(1)]
    if len(finite) and costs.shape[1] > 2:
        np.testing.assert_array_equal(pareto._sort_sequential(finite), naive_ranks(finite))
        np.testing.assert_array_equal(pareto._sort_all_pairs(finite), naive_ranks(finite))
    best = np.flatnonzero((expected == 0) & np.isfinite(costs).all(1))
    np.testing.assert_array_equal(pareto.non_dominated(costs), best)


def test_one_nan_row_changes_no_other_rank() -> None:
    rng = np.random.default_rng(0)
    costs = rng.random((50, 3))
    spoilt = np.insert(costs, 20, [np.nan, 0.0, 0.0], 0)
    ranks = pareto.sort(spoilt)
    np.testing.assert_array_equal(np.delete(ranks, 20), pareto.sort(costs))
    assert ranks[20] == pareto.sort(costs).max() + 1


def test_minus_infinity_does_not_take_over() -> None:
    ranks = pareto.sort(np.array([[-np.inf, -np.inf], [1.0, 2.0], [2.0, 3.0]]))
    assert ranks.tolist() == [2, 0, 1]


def test_crowding_by_hand() -> None:
    # Front 0: (0, 4), (1, 2), (3, 1), (4, 0); both objectives span 4.
    # (1, 2): (3 − 0) / 4 + (4 − 1) / 4 = 1.5;  (3, 1): (4 − 1) / 4 + (2 − 0) / 4 = 1.25.
    # Front 1: (5, 5) alone: an end, hence infinite.
    costs = np.array([[3.0, 1.0], [0.0, 4.0], [5.0, 5.0], [4.0, 0.0], [1.0, 2.0]])
    ranks = pareto.sort(costs)
    assert ranks.tolist() == [0, 0, 1, 0, 0]
    assert pareto.crowding(costs, ranks).tolist() == [1.25, np.inf, np.inf, np.inf, 1.5]


def test_crowding_of_three_objectives_and_of_a_flat_one() -> None:
    # Third objective constant: no span, adds nothing inside. First and second as above.
    costs = np.array([[0.0, 4.0, 7.0], [1.0, 2.0, 7.0], [3.0, 1.0, 7.0], [4.0, 0.0, 7.0]])
    distance = pareto.crowding(costs, np.zeros(4, np.int64))
    assert distance[1:3].tolist() == [1.5, 1.25]


def test_constraint_domination() -> None:
    costs = np.array([[5.0, 5.0], [0.0, 0.0], [6.0, 4.0], [0.0, 0.0], [9.0, 9.0]])
    violation = np.array([0.0, 2.0, 0.0, 1.0, 0.0])
    # Feasible: rows 0 and 2 (front 0), row 4 (front 1); then violation 1, then 2.
    assert pareto.constrained_sort(costs, violation).tolist() == [0, 3, 0, 2, 1]


def test_hypervolume_by_hand() -> None:
    # Three boxes under (4, 4): (1, 3) adds 3 · 1, (2, 2) adds 2 · 1, (3, 1) adds 1 · 1: 6.
    points = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0], [3.0, 3.0], [np.nan, 0.0], [5.0, 0.0]])
    assert indicators.hypervolume(points, np.array([4.0, 4.0])) == pytest.approx(6.0)
    assert indicators.hypervolume(points, np.array([4.0, 4.0]), use_moocore=False) == 6.0
    assert indicators.hypervolume(points, np.array([0.5, 0.5])) == 0.0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), num=st.integers(1, 25), objectives=st.integers(2, 4))
def test_both_hypervolumes_agree(seed: int, num: int, objectives: int) -> None:
    points = np.random.default_rng(seed).random((num, objectives)).round(1)
    reference = np.full(objectives, 0.9)
    assert indicators.hypervolume(points, reference) == pytest.approx(
        indicators.hypervolume(points, reference, use_moocore=False), abs=1e-12
    )


def test_igd_and_igd_plus_by_hand() -> None:
    front = np.array([[0.0, 1.0], [1.0, 0.0]])
    points = np.array([[0.0, 2.0], [1.0, -1.0]])
    # To (0, 1): nearest is (0, 2), distance 1. To (1, 0): (1, −1), distance 1, better, so 0 in IGD+.
    assert indicators.igd(points, front) == 1.0
    assert indicators.igd_plus(points, front) == 0.5
    assert indicators.igd(np.empty((0, 2)), front) == np.inf


def test_spread_by_hand() -> None:
    front = np.array([[0.0, 4.0], [4.0, 0.0]])
    even = np.array([[0.0, 4.0], [2.0, 2.0], [4.0, 0.0]])
    assert indicators.spread(even, front) == pytest.approx(0.0)
    # Gaps √2 and 3√2, mean 2√2: (√2 + √2) / (2 · 2√2) = 0.5.
    uneven = np.array([[0.0, 4.0], [1.0, 3.0], [4.0, 0.0]])
    assert indicators.spread(uneven, front) == pytest.approx(0.5)


def test_reference_point_follows_directions() -> None:
    encoding = Encoding(
        parts={"x": Real(0.0, 1.0)},
        objectives=(Objective("a", "maximize", 1.0), Objective("b", "minimize", 3.0)),
    )
    assert indicators.reference_point(encoding).tolist() == [-1.0, 3.0]
    with pytest.raises(ConfigError, match=r"\['c'\] declare no reference"):
        indicators.reference_point(
            Encoding(parts={"x": Real(0.0, 1.0)}, objectives=(Objective("c"),))
        )


def naive_crowding(costs: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Crowding by the definition, front by front; inner rows without span add nothing."""
    distance = np.zeros(len(costs))
    for rank in set(ranks.tolist()):
        front = np.flatnonzero(ranks == rank)
        for column in range(costs.shape[1]):
            order = front[np.argsort(costs[front, column], kind="stable")]
            span = costs[order[-1], column] - costs[order[0], column]
            distance[order[[0, -1]]] = np.inf
            for before, row, after in zip(order, order[1:], order[2:]):
                gap = costs[after, column] - costs[before, column]
                distance[row] += gap / span if span > 0 else 0.0
    return distance


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num=st.integers(1, 4), rows=st.integers(1, 40))
def test_crowding_equals_the_naive_definition(seed: int, num: int, rows: int) -> None:
    # Distinct values: among equal ones the definition leaves open who is the neighbour.
    rng = np.random.default_rng(seed)
    costs = rng.permuted(np.arange(rows * num, dtype=np.float64).reshape(rows, num), axis=0)
    ranks = pareto.sort(costs)
    np.testing.assert_allclose(pareto.crowding(costs, ranks), naive_crowding(costs, ranks))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num=st.integers(2, 3), size=st.integers(1, 30))
def test_survivors_are_whole_fronts_and_a_thinned_one(seed: int, num: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.permuted(np.arange(30.0 * num).reshape(30, num), axis=0)
    violation = np.where(rng.random(30) < 0.2, rng.random(30), 0.0) * (seed % 2)
    ranks = pareto.constrained_sort(costs, violation)
    rows = pareto.survivors(costs, violation, size)
    assert len(rows) == len(set(rows.tolist())) == size
    kept = ranks[rows]
    assert (np.diff(kept) >= 0).all()
    np.testing.assert_array_equal(kept, np.sort(ranks)[:size])
    # Within a front the least crowded come first.
    distance = naive_crowding(costs[rows], kept)
    for rank in set(kept.tolist()):
        inside = distance[kept == rank]
        if rank != kept[-1]:
            assert (inside[:-1] >= inside[1:] - 1e-12).all()


def test_thinning_in_rounds_keeps_one_of_two_close_neighbours() -> None:
    # Along f2 = 10 − f1 at f1 = 0, 4, 5, 6, 10 (span 10) crowding is 2 · (5 − 0) / 10 = 1.0 at 4,
    # 2 · (6 − 4) / 10 = 0.4 at 5 and 1.0 at 6. To keep three of five, the first round drops 5; then
    # 4 has 2 · (6 − 0) / 10 = 1.2 and 6 has 2 · (10 − 4) / 10 = 1.2: the first of equals stays.
    first = np.array([0.0, 4.0, 5.0, 6.0, 10.0])
    costs = np.stack([first, 10.0 - first], 1)
    rows = pareto.survivors(costs, np.zeros(5), 3)
    assert sorted(rows.tolist()) == [0, 1, 4]
    assert rows[2] == 1


@settings(max_examples=200, deadline=None)
@given(costs=COSTS, data=st.data())
def test_compiled_sort_equals_the_naive_definition(costs: np.ndarray, data: st.DataObject) -> None:
    loops = pytest.importorskip("lamarckian.ec.compiled")
    finite = costs[np.isfinite(costs).all(1)]
    if not len(finite):
        return
    np.testing.assert_array_equal(loops.sort(finite), naive_ranks(finite))
    size = data.draw(st.integers(1, len(finite)))
    chosen = loops.survivors(finite, size, 4)
    assert len(set(chosen.tolist())) == size
    ranks = naive_ranks(finite)
    # The best fronts are taken first, and handed over in their order.
    assert ranks[chosen].tolist() == sorted(ranks.tolist())[:size]


@pytest.mark.parametrize("num_objectives", [2, 3, 5])
@pytest.mark.parametrize("size", [1, 7, 60, 119, 120, 200])
def test_compiled_survivors_are_those_of_numpy(
    num_objectives: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    rng = np.random.default_rng(size)
    # Two clouds, so that some fronts are large and some small; no two costs are equal.
    costs = rng.random((120, num_objectives)) ** rng.uniform(0.2, 3.0, (120, 1))
    if num_objectives == 2:
        costs[:60, 1] = 1.0 - costs[:60, 0] ** 2
    violation = np.zeros(120)
    fast = pareto.survivors(costs, violation, size)
    monkeypatch.setattr(pareto, "compiled", lambda: None)
    np.testing.assert_array_equal(fast, pareto.survivors(costs, violation, size))

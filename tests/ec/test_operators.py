"""Every operator keeps bounds, types and permutations; moments and small cases by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian.ec import operators
from lamarckian.ec.draws import DrawSource, to_uniform
from lamarckian.ec.population import Layout
from lamarckian.ec.variation import Variation, VariationConfig
from lamarckian.errors import ConfigError
from lamarckian.evaluator import (
    Blob,
    Categorical,
    Encoding,
    Integer,
    Objective,
    Permutation,
    Real,
)

SEEDS = st.integers(0, 2**32 - 1)


def test_sbx_moments_match_the_spread_factor() -> None:
    # Parents far inside the bounds at −1 and 1: β = |c2 − c1| / 2 and both children are mirrored,
    # so |child| = β. E[β] = ∫0..1 β · 8β^15 + ∫1..∞ β · 8β^−17 = 8/17 + 8/15 = 1.0039 for η = 15.
    rng = np.random.default_rng(0)
    n = 200_000
    first, second = np.full((n, 1), -1.0), np.full((n, 1), 1.0)
    low, high = np.array([-1e6]), np.array([1e6])
    near = rng.random((n, 1)) < 0.5
    child = operators.sbx(
        first, second, low, high, rng.random((n, 1)), np.ones((n, 1), bool), near, 15.0
    )
    assert np.abs(child).mean() == pytest.approx(8 / 17 + 8 / 15, abs=2e-3)
    assert child.mean() == pytest.approx(0.0, abs=1e-2)
    assert (np.sign(child[:, 0]) == np.where(near[:, 0], -1, 1)).all()


def test_sbx_children_of_a_pair_keep_the_mean_without_bounds() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.random((50, 4)), rng.random((50, 4))
    arguments = (np.full(4, -1e9), np.full(4, 1e9), rng.random((50, 4)), np.ones((50, 4), bool))
    near = operators.sbx(first, second, *arguments, np.ones((50, 4), bool), 7.3)
    far = operators.sbx(first, second, *arguments, np.zeros((50, 4), bool), 7.3)
    np.testing.assert_allclose(near + far, first + second, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, eta=st.sampled_from([1.0, 3.0, 15.0, 20.0]))
def test_real_operators_stay_within_bounds(seed: int, eta: float) -> None:
    rng = np.random.default_rng(seed)
    low = rng.normal(0, 10, 6)
    high = low + rng.exponential(5, 6) + 1e-6
    # A third of the genes sit on a bound, where the formulas divide by zero if careless.
    pick = rng.random((2, 20, 6))
    parents = np.where(pick < 0.17, low, np.where(pick > 0.83, high, low + (high - low) * pick))
    uniform = rng.random((20, 6))
    uniform[0] = 0.0
    uniform[1] = np.nextafter(1.0, 0.0)
    coins = rng.random((20, 6)) < 0.5
    child = operators.sbx(parents[0], parents[1], low, high, uniform, coins, ~coins, eta)
    assert ((child >= low) & (child <= high)).all()
    mutant = operators.polynomial_mutation(child, low, high, uniform, 0.7, eta)
    assert ((mutant >= low) & (mutant <= high)).all()
    np.testing.assert_array_equal(mutant[uniform >= 0.7], child[uniform >= 0.7])


def test_polynomial_mutation_by_hand() -> None:
    # x = 0.5 in [0, 1], u = 0.25 (uniform 0.125 at rate 0.5), η = 1: share = 1 − 0.5 = 0.5,
    # twice = 0.5, size = 1 − (0.5 + 0.5 · 0.25)^(1/2) = 1 − 0.790569 = 0.209431, to the left.
    child = operators.polynomial_mutation(
        np.array([[0.5]]), np.zeros(1), np.ones(1), np.array([[0.125]]), 0.5, 1.0
    )
    assert child[0, 0] == pytest.approx(0.5 - 0.209431, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_discrete_operators_keep_bounds_and_always_change_what_they_mutate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.integers(-20, 20, 5)
    high = low + rng.integers(1, 50, 5)
    genes = rng.integers(low, high + 1, (30, 5))
    mutated = rng.random((30, 5)) < 0.5
    stepped = operators.integer_step(
        genes, low, high, rng.random((30, 5)), rng.random((30, 5)) < 0.5, mutated
    )
    assert stepped.dtype == np.int64
    assert ((stepped >= low) & (stepped <= high)).all()
    np.testing.assert_array_equal(stepped != genes, mutated)
    flipped = operators.bitwise(genes, low, high, rng.integers(0, 64, (30, 5)))
    assert ((flipped >= low) & (flipped <= high)).all()
    choices = high - low + 1
    reset = operators.categorical_reset(genes - low, choices, rng.random((30, 5)), mutated)
    assert ((reset >= 0) & (reset < choices)).all()
    np.testing.assert_array_equal(reset != genes - low, mutated)


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, num_items=st.integers(2, 12), data=st.data())
def test_permutation_operators_never_repeat_an_item(
    seed: int, num_items: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, num_items))
    rng = np.random.default_rng(seed)
    parents = np.array([[rng.permutation(num_items)[:k] for _ in range(15)] for _ in range(2)])
    cuts = np.sort(rng.integers(0, k + 1, (15, 2)), 1)
    child = operators.order_crossover(parents[0], parents[1], num_items, cuts[:, 0], cuts[:, 1])
    mutated = rng.random(15) < 0.7
    position = rng.integers(0, k, 15)
    other = (position + 1 + rng.integers(0, num_items - 1, 15)) % num_items
    swapped = operators.swap(child, num_items, position, other, mutated)
    for items in (child, swapped):
        assert items.shape == (15, k)
        assert all(
            len(set(row)) == k and set(row) <= set(range(num_items)) for row in items.tolist()
        )
    np.testing.assert_array_equal((swapped != child).any(1), mutated)
    for row, (start, end) in enumerate(cuts):
        np.testing.assert_array_equal(child[row, start:end], parents[0][row, start:end])


def test_order_crossover_by_hand() -> None:
    # Davis 1985: keep 3 4 5 of the first parent; the second read after the cut: 6 7 8 1 2 (without
    # 3 4 5) is 2 1 6 7 8 in the order below, filled in after the cut and round to the front.
    first = np.array([[0, 1, 2, 3, 4, 5, 6, 7]])
    second = np.array([[7, 6, 5, 4, 3, 2, 1, 0]])
    child = operators.order_crossover(first, second, 8, np.array([2]), np.array([5]))
    # After position 5 the second parent reads 2 1 0 7 6 5 4 3; without 2 3 4: 1 0 7 6 5.
    assert child.tolist() == [[6, 5, 2, 3, 4, 1, 0, 7]]


def test_cycle_crossover_by_hand() -> None:
    # Cycles of positions: {0, 7, 3} (0→7→3→0 by items 0 7 3), {1, 4, 2}, {5}, {6}; they alternate.
    first = np.array([[0, 1, 2, 3, 4, 5, 6, 7]])
    second = np.array([[7, 4, 1, 0, 2, 5, 6, 3]])
    assert operators.cycle_crossover(first, second).tolist() == [[0, 4, 1, 3, 2, 5, 6, 7]]


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, num_items=st.integers(2, 12))
def test_cycle_crossover_takes_every_position_from_a_parent(seed: int, num_items: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = (np.array([rng.permutation(num_items) for _ in range(9)]) for _ in range(2))
    child = operators.cycle_crossover(first, second)
    assert ((child == first) | (child == second)).all()
    np.testing.assert_array_equal(np.sort(child, 1), np.sort(first, 1))


def test_layer_crossover_moves_whole_layers_and_shares_arrays() -> None:
    first = {"a.weight": np.zeros(2), "a.bias": np.zeros(1), "b.weight": np.zeros(2)}
    second = {name: array + 1 for name, array in first.items()}
    child = operators.layer_crossover(first, second, {"a": True, "b": False})
    assert child["a.weight"] is second["a.weight"]
    assert child["a.bias"] is second["a.bias"]
    assert child["b.weight"] is first["b.weight"]


def test_gaussian_blob_keeps_type_and_has_the_declared_deviation() -> None:
    blob = {"w": np.zeros((200, 200), np.float32)}
    mutant = operators.gaussian_blob(blob, 0.3, np.random.default_rng(0))
    assert mutant["w"].dtype == np.float32
    assert mutant["w"].std() == pytest.approx(0.3, rel=0.02)
    assert not blob["w"].any()


ENCODING = Encoding(
    parts={
        "x": Real(-1.0, 2.0, shape=3),
        "rate": Real(1e-6, 1e-1, scale="log"),
        "n": Integer(-3, 9, shape=(2, 2)),
        "c": Categorical(("a", "b", "c"), shape=2),
        "tour": Permutation(7),
        "team": Permutation(9, 4),
        "w": Blob({"l1.weight": ((3, 2), "float32"), "l1.bias": ((3,), "float64")}),
    },
    objectives=(Objective("f"),),
)


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    integer=st.sampled_from(["step", "bitwise"]),
    discrete=st.sampled_from(["uniform", "single-point"]),
    rate=st.sampled_from([None, 0.0, 1.0]),
)
def test_variation_of_every_kind_of_part_gives_valid_decisions(
    seed: int, integer: str, discrete: str, rate: float | None
) -> None:
    config = VariationConfig(
        integer_mutation=integer,  # type: ignore[arg-type]
        discrete_crossover=discrete,  # type: ignore[arg-type]
        mutation_rate=rate,
    )
    layout = Layout(ENCODING)
    variation = Variation(layout, config, seed, "test")
    rng = np.random.default_rng(seed)
    first, second = (layout.gather([ENCODING.sample(rng) for _ in range(10)]) for _ in range(2))
    ids = np.arange(50, 60)
    plan = variation.plan(DrawSource(seed, "test", variation.num_words).words(ids))
    child = variation.vary(first, second, plan, slice(0, 10), ids)
    for decision in layout.decisions(child):
        checked = ENCODING.check_decision(decision)
        assert checked["rate"].shape == ()  # type: ignore[union-attr]
        assert checked["w"]["l1.bias"].dtype == np.float64  # type: ignore[index]


def test_cycle_crossover_of_partial_permutations_is_refused() -> None:
    with pytest.raises(ConfigError, match="part 'team' chooses 4 of 9"):
        Variation(Layout(ENCODING), VariationConfig(permutation_crossover="cycle"), 0, "test")


def test_draws_do_not_depend_on_what_they_are_asked_with() -> None:
    source = DrawSource(5, "test", 7)
    whole = source.draws(np.arange(40, 200)).bits(7)
    for identifier in (40, 63, 64, 128, 199, 41):
        np.testing.assert_array_equal(
            source.draws(np.array([identifier])).bits(7)[0], whole[identifier - 40]
        )
    scattered = source.draws(np.array([45, 70, 190])).bits(7)
    np.testing.assert_array_equal(scattered, whole[[5, 30, 150]])
    assert (source.draws(np.array([40]), attempt=1).bits(7) != whole[:1]).all()


def test_uniforms_are_uniform() -> None:
    uniform = to_uniform(DrawSource(1, "test", 1000).draws(np.arange(200)).bits(1000))
    assert uniform.min() >= 0.0
    assert uniform.max() < 1.0
    counts = np.histogram(uniform, bins=20, range=(0, 1))[0]
    # 200,000 draws in 20 bins: chi² has mean 19, standard deviation 6.2.
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 50

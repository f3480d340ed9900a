"""Values by hand, true fronts by the formula they come from, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamarckian import problems
from lamarckian.ec import pareto
from lamarckian.errors import ConfigError, UnknownName
from lamarckian.evaluator import BatchEvaluator, Evaluator
from lamarckian.problems.dtlz import simplex_lattice

RNG = np.random.default_rng(0)
WITH_FRONT = [name for name in problems.PROBLEMS if name.startswith(("zdt", "dtlz"))]


@pytest.mark.parametrize("name", list(problems.PROBLEMS))
def test_every_problem_is_an_evaluator_whose_data_fit_its_encoding(name: str) -> None:
    problem = problems.make(name)
    assert isinstance(problem, Evaluator)
    encoding = problem.describe()
    decisions = [problem.initialize(np.random.default_rng(seed)) for seed in range(5)]
    outcomes = [
        encoding.check_outcome(problem.evaluate(encoding.check_decision(each), RNG))
        for each in decisions
    ]
    assert all(each.usable for each in outcomes)
    if isinstance(problem, BatchEvaluator):
        stacked: Any = {
            part: np.stack([np.asarray(each[part]) for each in decisions])
            for part in encoding.parts
        }
        batch = problem.evaluate_batch(stacked, RNG).objectives
        np.testing.assert_allclose(batch, [each.objectives for each in outcomes], rtol=1e-12)


@pytest.mark.parametrize("name", WITH_FRONT)
def test_true_fronts_are_mutually_non_dominated_and_within_the_reference(name: str) -> None:
    problem: Any = problems.make(name)
    front = problem.true_front(200)
    assert len(pareto.non_dominated(front)) == len(front)
    reference = [each.reference for each in problem.describe().objectives]
    assert (front < np.array(reference)).all()


# Decisions known to be optimal, and where on the front they must lie.
OPTIMA = {
    "zdt1": lambda x: np.concatenate([x[:, :1], np.zeros((len(x), 29))], 1),
    "zdt2": lambda x: np.concatenate([x[:, :1], np.zeros((len(x), 29))], 1),
    "zdt4": lambda x: np.concatenate([x[:, :1], np.zeros((len(x), 9))], 1),
    "zdt6": lambda x: np.concatenate([x[:, :1], np.zeros((len(x), 9))], 1),
    "dtlz1": lambda x: np.concatenate([x[:, :2], np.full((len(x), 5), 0.5)], 1),
    "dtlz2": lambda x: np.concatenate([x[:, :2], np.full((len(x), 10), 0.5)], 1),
    "dtlz3": lambda x: np.concatenate([x[:, :2], np.full((len(x), 10), 0.5)], 1),
    "dtlz4": lambda x: np.concatenate([x[:, :2] ** 0.01, np.full((len(x), 10), 0.5)], 1),
    "dtlz5": lambda x: np.concatenate([x[:, :2], np.full((len(x), 10), 0.5)], 1),
    "dtlz6": lambda x: np.concatenate([x[:, :2], np.zeros((len(x), 10))], 1),
}


@pytest.mark.parametrize("name", list(OPTIMA))
def test_optimal_decisions_lie_on_the_true_front(name: str) -> None:
    problem: Any = problems.make(name)
    values = problem.values(OPTIMA[name](RNG.random((50, 3))))
    front = problem.true_front(20000)
    gaps = np.sqrt(((values[:, None] - front[None]) ** 2).sum(2).min(1))
    assert gaps.max() < 0.02
    if name == "dtlz1":
        np.testing.assert_allclose(values.sum(1), 0.5)
    if name in ("dtlz2", "dtlz3", "dtlz4", "dtlz5", "dtlz6"):
        np.testing.assert_allclose((values**2).sum(1), 1.0)


def test_values_by_hand() -> None:
    # ZDT1 at x = (0.25, 1, …, 1): g = 10, f2 = 10 − √(0.25 · 10).
    x = np.ones((1, 30))
    x[0, 0] = 0.25
    problem: Any = problems.make("zdt1")
    np.testing.assert_allclose(problem.values(x), [[0.25, 10 - np.sqrt(2.5)]])
    # ZDT4 at (1, 0.5, 0, …): g = 1 + 90 + (0.25 − 10 cos 2π) − 8 · 10 = 1.25; f2 = 1.25 − √1.25.
    x = np.zeros((1, 10))
    x[0, :2] = 1.0, 0.5
    problem = problems.make("zdt4")
    np.testing.assert_allclose(problem.values(x), [[1.0, 1.25 - np.sqrt(1.25)]])
    # DTLZ2 with both angles at 1/3 (30°) and g = 10 · 0.25 = 2.5:
    # 3.5 · (cos² 30°, cos 30° sin 30°, sin 30°) = 3.5 · (3/4, √3/4, 1/2).
    x = np.zeros((1, 12))
    x[0, :2] = 1 / 3
    problem = problems.make("dtlz2")
    np.testing.assert_allclose(problem.values(x), 3.5 * np.array([[0.75, np.sqrt(3) / 4, 0.5]]))
    # DTLZ7 at 0 with M = 3: g = 1, last = 2 · 3.
    problem = problems.make("dtlz7")
    np.testing.assert_allclose(problem.values(np.zeros((1, 22))), [[0.0, 0.0, 6.0]])


@pytest.mark.parametrize(
    ("name", "at"),
    [("sphere", 0.0), ("rosenbrock", 1.0), ("rastrigin", 0.0), ("ackley", 0.0), ("griewank", 0.0)],
)
def test_single_objective_minima_are_zero(name: str, at: float) -> None:
    problem: Any = problems.make(name, num_variables=7)
    assert problem.values(np.full((1, 7), at))[0, 0] == 0.0
    assert (problem.values(RNG.random((20, 7)) + 0.01) > 0).all()


@pytest.mark.parametrize("num_objectives", [2, 4, 7])
@pytest.mark.parametrize("name", ["dtlz1", "dtlz2", "dtlz5", "dtlz7"])
def test_dtlz_takes_any_number_of_objectives(name: str, num_objectives: int) -> None:
    problem: Any = problems.make(name, num_objectives=num_objectives)
    assert problem.true_front(100).shape[1] == num_objectives
    assert problem.values(RNG.random((3, problem.num_variables))).shape == (3, num_objectives)


def test_simplex_lattice_by_hand() -> None:
    # Multiples of 1/2 that sum to 1 in three dimensions: 6 of them.
    points = simplex_lattice(3, 4)
    assert sorted(points.tolist()) == [
        [0.0, 0.0, 1.0],
        [0.0, 0.5, 0.5],
        [0.0, 1.0, 0.0],
        [0.5, 0.0, 0.5],
        [0.5, 0.5, 0.0],
        [1.0, 0.0, 0.0],
    ]


def test_wrong_names_and_sizes_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'zdt1'"):
        problems.make("ztd1")
    with pytest.raises(ConfigError, match="number of objectives 3, got 2"):
        problems.make("dtlz2", num_objectives=3, num_variables=2)
    with pytest.raises(ConfigError, match="colour"):
        problems.make("zdt1", colour="red")

"""The suites users run pass on what we ship, and fail on what is broken."""

from __future__ import annotations

import numpy as np
import pytest

from lamarckian import ec, problems
from lamarckian.evaluator import (
    Blob,
    Decision,
    Descriptor,
    Encoding,
    Objective,
    Outcome,
    Real,
)
from lamarckian.testing.evaluators import check_evaluator, check_search


@pytest.mark.parametrize("name", list(problems.PROBLEMS))
def test_every_problem_passes(name: str) -> None:
    check_evaluator(problems.make(name))


@pytest.mark.parametrize("name", list(ec.SEARCHES))
def test_every_search_passes(name: str) -> None:
    encoding = Encoding(
        parts={"x": Real(0.0, 1.0, shape=3), "w": Blob({"l.w": ((2, 2), "float32")})},
        objectives=(Objective("f", "maximize"),),
        constraints=("g",),
        descriptors=(Descriptor("d", 0.0, 1.0),),
    )
    check_search(lambda each, seed: ec.make(name, each, seed, population=6), encoding)


class Broken:
    """Draws from a generator of its own, and writes into the decision."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()
        self.own_rng = False
        self.writes = False

    def describe(self) -> Encoding:
        return Encoding(parts={"x": Real(0.0, 1.0, shape=2)}, objectives=(Objective("f"),))

    def initialize(self, rng: np.random.Generator) -> Decision:
        return self.describe().sample(self.rng if self.own_rng else rng)

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        x = np.asarray(decision["x"])
        if self.writes:
            x[0] = 0.25
        return Outcome(np.array([x.sum() + self.rng.random()]))


def test_broken_evaluators_are_told_what_is_wrong() -> None:
    broken = Broken()
    with pytest.raises(AssertionError, match="the same decision and seed gave"):
        check_evaluator(broken)
    check_evaluator(broken, is_deterministic=False)
    broken.writes = True
    with pytest.raises(AssertionError, match="changed in place"):
        check_evaluator(broken, is_deterministic=False)
    broken.own_rng = True
    with pytest.raises(AssertionError, match="the same seed gave two decisions"):
        check_evaluator(broken)

"""Single-objective test functions with minimum 0 (D. H. Ackley 1987; H. Mühlenbein et al. 1991;
A. Griewank 1981; L. A. Rastrigin 1974; H. H. Rosenbrock 1960)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from lamarckian.evaluator import Floats
from lamarckian.problems.base import ArrayProblem


class Sphere(ArrayProblem):
    """Sum of squares; minimum at 0; x in [−5.12, 5.12]."""

    def __init__(self, num_variables: int = 10) -> None:
        super().__init__(num_variables, -5.12, 5.12, None)

    def values(self, x: Floats) -> Floats:
        return np.asarray((x * x).sum(1, keepdims=True))


class Rosenbrock(ArrayProblem):
    """Curved valley; minimum at 1; x in [−2.048, 2.048]."""

    smallest: ClassVar[int] = 2

    def __init__(self, num_variables: int = 10) -> None:
        super().__init__(num_variables, -2.048, 2.048, None)

    def values(self, x: Floats) -> Floats:
        here, there = x[:, :-1], x[:, 1:]
        terms = 100.0 * (there - here**2) ** 2 + (1.0 - here) ** 2
        return np.asarray(terms.sum(1, keepdims=True))


class Rastrigin(ArrayProblem):
    """Regular grid of local minima; minimum at 0; x in [−5.12, 5.12]."""

    def __init__(self, num_variables: int = 10) -> None:
        super().__init__(num_variables, -5.12, 5.12, None)

    def values(self, x: Floats) -> Floats:
        waves = x * x - 10.0 * np.cos(2.0 * np.pi * x)
        return np.asarray(10.0 * x.shape[1] + waves.sum(1, keepdims=True))


class Ackley(ArrayProblem):
    """Flat outside, many local minima; minimum at 0; x in [−32.768, 32.768]."""

    def __init__(self, num_variables: int = 10) -> None:
        super().__init__(num_variables, -32.768, 32.768, None)

    def values(self, x: Floats) -> Floats:
        distance = np.sqrt((x * x).mean(1, keepdims=True))
        waves = np.cos(2.0 * np.pi * x).mean(1, keepdims=True)
        # Written so that the value at 0 is exactly 0.
        return np.asarray(-20.0 * np.expm1(-0.2 * distance) - np.e * np.expm1(waves - 1.0))


class Griewank(ArrayProblem):
    """Product of cosines on a wide bowl; minimum at 0; x in [−600, 600]."""

    def __init__(self, num_variables: int = 10) -> None:
        super().__init__(num_variables, -600.0, 600.0, None)

    def values(self, x: Floats) -> Floats:
        root = np.sqrt(np.arange(1, x.shape[1] + 1))
        bowl = (x * x).sum(1, keepdims=True) / 4000.0
        return np.asarray(1.0 + bowl - np.cos(x / root).prod(1, keepdims=True))

"""ZDT1–4 and ZDT6: two objectives, front known in closed form.

E. Zitzler, K. Deb, L. Thiele, "Comparison of multiobjective evolutionary algorithms: empirical
results", Evolutionary Computation 8(2), 2000. ZDT5 works on bit strings, see ``discrete.py``.

Reference point for hypervolume: (1.1, 1.1).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from lamarckian.evaluator import Floats
from lamarckian.problems.base import ArrayProblem

REFERENCE = (1.1, 1.1)


class ZDT1(ArrayProblem):
    """Convex front f2 = 1 − √f1; 30 variables in [0, 1]."""

    smallest: ClassVar[int] = 2

    def __init__(self, num_variables: int = 30) -> None:
        super().__init__(num_variables, 0.0, 1.0, REFERENCE, 2)

    def values(self, x: Floats) -> Floats:
        f1 = x[:, 0]
        g = _linear_g(x)
        return np.stack([f1, g * (1.0 - np.sqrt(f1 / g))], 1)

    def true_front(self, num_points: int = 1000) -> Floats:
        """Return points of the true front, float64 [num_points, 2]."""
        f1 = np.linspace(0.0, 1.0, num_points)
        return np.stack([f1, 1.0 - np.sqrt(f1)], 1)


class ZDT2(ArrayProblem):
    """Concave front f2 = 1 − f1²; 30 variables in [0, 1]."""

    smallest: ClassVar[int] = 2

    def __init__(self, num_variables: int = 30) -> None:
        super().__init__(num_variables, 0.0, 1.0, REFERENCE, 2)

    def values(self, x: Floats) -> Floats:
        f1 = x[:, 0]
        g = _linear_g(x)
        return np.stack([f1, g * (1.0 - (f1 / g) ** 2)], 1)

    def true_front(self, num_points: int = 1000) -> Floats:
        """Return points of the true front, float64 [num_points, 2]."""
        f1 = np.linspace(0.0, 1.0, num_points)
        return np.stack([f1, 1.0 - f1**2], 1)


class ZDT3(ArrayProblem):
    """Front in five pieces of f2 = 1 − √f1 − f1 sin(10πf1); 30 variables in [0, 1]."""

    smallest: ClassVar[int] = 2

    def __init__(self, num_variables: int = 30) -> None:
        super().__init__(num_variables, 0.0, 1.0, REFERENCE, 2)

    def values(self, x: Floats) -> Floats:
        f1 = x[:, 0]
        g = _linear_g(x)
        ratio = f1 / g
        return np.stack([f1, g * (1.0 - np.sqrt(ratio) - ratio * np.sin(10.0 * np.pi * f1))], 1)

    def true_front(self, num_points: int = 1000) -> Floats:
        """Return points of the true front, float64 [num_points, 2].

        The curve is not monotone; its front is where it falls below all that came before.
        """
        dense = np.linspace(0.0, 0.852, 200 * max(num_points, 100))
        curve = 1.0 - np.sqrt(dense) - dense * np.sin(10.0 * np.pi * dense)
        before = np.concatenate([[np.inf], np.minimum.accumulate(curve)[:-1]])
        f1, f2 = dense[curve < before], curve[curve < before]
        pick = np.linspace(0, len(f1) - 1, num_points).round().astype(np.int64)
        return np.stack([f1[pick], f2[pick]], 1)


class ZDT4(ArrayProblem):
    """21⁹ local fronts; 10 variables, the first in [0, 1], the others in [−5, 5]."""

    smallest: ClassVar[int] = 2

    def __init__(self, num_variables: int = 10) -> None:
        others = num_variables - 1
        super().__init__(
            num_variables, (0.0, *[-5.0] * others), (1.0, *[5.0] * others), REFERENCE, 2
        )

    def values(self, x: Floats) -> Floats:
        f1, rest = x[:, 0], x[:, 1:]
        waves = rest**2 - 10.0 * np.cos(4.0 * np.pi * rest)
        g = 1.0 + 10.0 * rest.shape[1] + waves.sum(1)
        return np.stack([f1, g * (1.0 - np.sqrt(f1 / g))], 1)

    def true_front(self, num_points: int = 1000) -> Floats:
        """Return points of the true front, float64 [num_points, 2]."""
        f1 = np.linspace(0.0, 1.0, num_points)
        return np.stack([f1, 1.0 - np.sqrt(f1)], 1)


class ZDT6(ArrayProblem):
    """Concave front with uneven density of solutions; 10 variables in [0, 1]."""

    smallest: ClassVar[int] = 2

    def __init__(self, num_variables: int = 10) -> None:
        super().__init__(num_variables, 0.0, 1.0, REFERENCE, 2)

    def values(self, x: Floats) -> Floats:
        first = x[:, 0]
        f1 = 1.0 - np.exp(-4.0 * first) * np.sin(6.0 * np.pi * first) ** 6
        g = 1.0 + 9.0 * (x[:, 1:].sum(1) / (x.shape[1] - 1)) ** 0.25
        return np.stack([f1, g * (1.0 - (f1 / g) ** 2)], 1)

    def true_front(self, num_points: int = 1000) -> Floats:
        """Return points of the true front, float64 [num_points, 2].

        f1 begins at the minimum of 1 − exp(−4x) sin⁶(6πx), where tan(6πx) = 9π: the condition for
        the derivative −4 sin(6πx) + 36π cos(6πx) to vanish.
        """
        first = np.arctan(9.0 * np.pi) / (6.0 * np.pi)
        lowest = 1.0 - np.exp(-4.0 * first) * np.sin(6.0 * np.pi * first) ** 6
        f1 = np.linspace(lowest, 1.0, num_points)
        return np.stack([f1, 1.0 - f1**2], 1)


def _linear_g(x: Floats) -> Floats:
    g: Floats = 1.0 + 9.0 * x[:, 1:].sum(1) / (x.shape[1] - 1)
    return g

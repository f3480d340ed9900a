"""DTLZ1–7: any number of objectives, fronts known in closed form.

K. Deb, L. Thiele, M. Laumanns, E. Zitzler, "Scalable test problems for evolutionary multiobjective
optimization", 2005. All variables lie in [0, 1]; with M objectives the last ``num_variables − M + 1``
form x_M, the argument of g.

Reference points for hypervolume: 0.6 per objective for DTLZ1 (front Σf = 0.5), 1.1 for DTLZ2–6 (the
front lies in [0, 1]), and for DTLZ7 1.1 per objective with 2M + 0.1 for the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from lamarckian.errors import ConfigError
from lamarckian.evaluator import Floats
from lamarckian.problems.base import ArrayProblem

Formula: TypeAlias = Callable[[Floats, Floats], Floats]
Front: TypeAlias = Callable[[int, int], Floats]


class DTLZ(ArrayProblem):
    """A member of the family: ``formula(front variables, x_M)`` gives the objectives [P, M]."""

    def __init__(
        self,
        name: str,
        formula: Formula,
        front: Front,
        distance_variables: int,
        reference: Callable[[int], tuple[float, ...]],
        num_objectives: int,
        num_variables: int | None,
    ) -> None:
        if num_objectives < 2:
            raise ConfigError(f"{name}: num_objectives must be at least 2, got {num_objectives}")
        if num_variables is None:
            num_variables = num_objectives + distance_variables - 1
        if num_variables < num_objectives:
            raise ConfigError(
                f"{name}: num_variables must be at least the number of objectives "
                f"{num_objectives}, got {num_variables}"
            )
        super().__init__(num_variables, 0.0, 1.0, reference(num_objectives), num_objectives)
        self.name = name
        self._formula = formula
        self._front = front

    def values(self, x: Floats) -> Floats:
        num_front = self.num_objectives - 1
        return self._formula(x[:, :num_front], x[:, num_front:])

    def true_front(self, num_points: int = 1000) -> Floats:
        """Return points of the true front, float64 [n >= num_points, M]."""
        return self._front(self.num_objectives, num_points)


def _ones(num_objectives: int) -> tuple[float, ...]:
    return (1.1,) * num_objectives


def _spherical(angles: Floats, radius: Floats) -> Floats:
    """Return points [P, M] at ``radius`` [P] from angles [P, M − 1] in [0, π/2]."""
    ones = np.ones((len(angles), 1))
    cosines = np.concatenate([ones, np.cumprod(np.cos(angles), 1)], 1)[:, ::-1]
    sines = np.concatenate([ones, np.sin(angles)[:, ::-1]], 1)
    return np.asarray(radius[:, None] * cosines * sines)


def _rugged(x_m: Floats) -> Floats:
    """g of DTLZ1 and DTLZ3, with 11^k − 1 local fronts."""
    centred = x_m - 0.5
    waves = centred**2 - np.cos(20.0 * np.pi * centred)
    g: Floats = 100.0 * (x_m.shape[1] + waves.sum(1))
    return g


def _bowl(x_m: Floats) -> Floats:
    g: Floats = ((x_m - 0.5) ** 2).sum(1)
    return g


def simplex_lattice(num_objectives: int, num_points: int) -> Floats:
    """Return evenly spread points of the unit simplex [n, M], at least ``num_points`` of them.

    I. Das, J. E. Dennis 1998: all vectors of multiples of 1/h that sum to 1, h as small as possible.
    """
    divisions = 1
    while _lattice_size(num_objectives, divisions) < num_points:
        divisions += 1
    rows = np.zeros((1, 0), np.int64)
    left = np.array([divisions])
    for _ in range(num_objectives - 1):
        counts = left + 1
        parent = np.repeat(np.arange(len(rows)), counts)
        start = np.repeat(np.cumsum(counts) - counts, counts)
        value = np.arange(len(parent)) - start
        rows = np.concatenate([rows[parent], value[:, None]], 1)
        left = left[parent] - value
    return np.concatenate([rows, left[:, None]], 1) / divisions


def _lattice_size(num_objectives: int, divisions: int) -> int:
    size = 1
    for step in range(1, num_objectives):
        size = size * (divisions + step) // step
    return size


def _on_sphere(num_objectives: int, num_points: int) -> Floats:
    points = simplex_lattice(num_objectives, num_points)
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


def _linear_formula(front: Floats, x_m: Floats) -> Floats:
    ones = np.ones((len(front), 1))
    products = np.concatenate([ones, np.cumprod(front, 1)], 1)[:, ::-1]
    others = np.concatenate([ones, 1.0 - front[:, ::-1]], 1)
    return np.asarray(0.5 * (1.0 + _rugged(x_m))[:, None] * products * others)


def _linear_front(num_objectives: int, num_points: int) -> Floats:
    return 0.5 * simplex_lattice(num_objectives, num_points)


def _half(num_objectives: int) -> tuple[float, ...]:
    return (0.6,) * num_objectives


def dtlz1(num_objectives: int = 3, num_variables: int | None = None) -> DTLZ:
    """Linear front Σf = 0.5 behind many local ones; x_M has 5 variables."""
    return DTLZ("dtlz1", _linear_formula, _linear_front, 5, _half, num_objectives, num_variables)


def _sphere_formula(front: Floats, x_m: Floats) -> Floats:
    return _spherical(front * np.pi / 2.0, 1.0 + _bowl(x_m))


def dtlz2(num_objectives: int = 3, num_variables: int | None = None) -> DTLZ:
    """Spherical front Σf² = 1; x_M has 10 variables."""
    return DTLZ("dtlz2", _sphere_formula, _on_sphere, 10, _ones, num_objectives, num_variables)


def _rugged_sphere_formula(front: Floats, x_m: Floats) -> Floats:
    return _spherical(front * np.pi / 2.0, 1.0 + _rugged(x_m))


def dtlz3(num_objectives: int = 3, num_variables: int | None = None) -> DTLZ:
    """DTLZ2 with the rugged g of DTLZ1."""
    return DTLZ(
        "dtlz3", _rugged_sphere_formula, _on_sphere, 10, _ones, num_objectives, num_variables
    )


def _biased_formula(front: Floats, x_m: Floats) -> Floats:
    return _spherical(front**100.0 * np.pi / 2.0, 1.0 + _bowl(x_m))


def dtlz4(num_objectives: int = 3, num_variables: int | None = None) -> DTLZ:
    """DTLZ2 with x¹⁰⁰ in the angles: most solutions crowd at the edges."""
    return DTLZ("dtlz4", _biased_formula, _on_sphere, 10, _ones, num_objectives, num_variables)


def _bent(front: Floats, g: Floats) -> Floats:
    """Angles of DTLZ5 and DTLZ6: at g = 0 all but the first are π/4."""
    angles = np.pi / (4.0 * (1.0 + g[:, None])) * (1.0 + 2.0 * g[:, None] * front)
    angles[:, 0] = front[:, 0] * np.pi / 2.0
    return np.asarray(angles)


def _curve(num_objectives: int, num_points: int) -> Floats:
    """The front at g = 0: a quarter circle in M dimensions.

    For more than three objectives the formula admits non-dominated points off this curve (at
    g > 0); it is the front the authors intended, and what is commonly reported against.
    """
    angles = np.full((num_points, num_objectives - 1), np.pi / 4.0)
    angles[:, 0] = np.linspace(0.0, np.pi / 2.0, num_points)
    return _spherical(angles, np.ones(num_points))


def _curve_formula(front: Floats, x_m: Floats) -> Floats:
    g = _bowl(x_m)
    return _spherical(_bent(front, g), 1.0 + g)


def dtlz5(num_objectives: int = 3, num_variables: int | None = None) -> DTLZ:
    """Front degenerated to a curve; x_M has 10 variables."""
    return DTLZ("dtlz5", _curve_formula, _curve, 10, _ones, num_objectives, num_variables)


def _hard_curve_formula(front: Floats, x_m: Floats) -> Floats:
    g = (x_m**0.1).sum(1)
    return _spherical(_bent(front, g), 1.0 + g)


def dtlz6(num_objectives: int = 3, num_variables: int | None = None) -> DTLZ:
    """DTLZ5 with g = Σ x^0.1, harder to converge."""
    return DTLZ("dtlz6", _hard_curve_formula, _curve, 10, _ones, num_objectives, num_variables)


def _regions_formula(front: Floats, x_m: Floats) -> Floats:
    g = 1.0 + 9.0 * x_m.mean(1)
    waves = front * (1.0 + np.sin(3.0 * np.pi * front)) / (1.0 + g[:, None])
    last = (1.0 + g) * (front.shape[1] + 1 - waves.sum(1))
    return np.concatenate([front, last[:, None]], 1)


def _regions_front(num_objectives: int, num_points: int) -> Floats:
    """With g = 1 the last objective is 2M − Σ f(1 + sin 3πf): a sum of terms of one variable each.

    A point is non-dominated exactly if each term exceeds all that smaller f offer.
    """
    dense = np.linspace(0.0, 1.0, 20001)
    gain = dense * (1.0 + np.sin(3.0 * np.pi * dense))
    before = np.concatenate([[-np.inf], np.maximum.accumulate(gain)[:-1]])
    efficient = dense[gain > before]
    per_axis = int(np.ceil(num_points ** (1.0 / (num_objectives - 1))))
    pick = np.linspace(0, len(efficient) - 1, per_axis).round().astype(np.int64)
    axes = np.meshgrid(*[efficient[pick]] * (num_objectives - 1), indexing="ij")
    front = np.stack([axis.ravel() for axis in axes], 1)
    last = 2.0 * num_objectives - (front * (1.0 + np.sin(3.0 * np.pi * front))).sum(1)
    return np.concatenate([front, last[:, None]], 1)


def _regions_reference(num_objectives: int) -> tuple[float, ...]:
    return (*(1.1,) * (num_objectives - 1), 2.0 * num_objectives + 0.1)


def dtlz7(num_objectives: int = 3, num_variables: int | None = None) -> DTLZ:
    """2^(M−1) disconnected regions; x_M has 20 variables."""
    return DTLZ(
        "dtlz7",
        _regions_formula,
        _regions_front,
        20,
        _regions_reference,
        num_objectives,
        num_variables,
    )

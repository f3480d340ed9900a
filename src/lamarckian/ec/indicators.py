"""Quality of a set of solutions: hypervolume, IGD, IGD+, spread.

Points are costs to minimize, float64 ``[P, K]`` (``Encoding.costs`` converts). Rows with a
non-finite number are left out. moocore's compiled routines are used where the package is installed.
"""

from __future__ import annotations

import numpy as np

from lamarckian.ec import pareto
from lamarckian.errors import ConfigError
from lamarckian.evaluator import Encoding, Floats

if pareto.HAS_MOOCORE:
    import moocore


def reference_point(encoding: Encoding) -> Floats:
    """Return the declared hypervolume reference as costs [K].

    Raises ConfigError if an objective declares none.
    """
    missing = [each.name for each in encoding.objectives if each.reference is None]
    if missing:
        raise ConfigError(
            f"hypervolume: objectives {missing} declare no reference; give Objective(reference=…)"
        )
    return encoding.costs(np.array([float(each.reference or 0.0) for each in encoding.objectives]))


def _finite(points: Floats) -> Floats:
    return points[np.isfinite(points).all(1)]


def hypervolume(points: Floats, reference: Floats, use_moocore: bool = True) -> float:
    """Return the volume dominated by ``points`` and bounded by ``reference`` [K] (Zitzler 1999)."""
    reference = np.asarray(reference, np.float64)
    points = _finite(points)
    points = points[(points < reference).all(1)]
    if not len(points):
        return 0.0
    if pareto.HAS_MOOCORE and use_moocore and points.shape[1] > 1:
        return float(moocore.hypervolume(points, ref=reference))
    return _sliced(points[pareto.non_dominated(points)], reference)


def _sliced(points: Floats, reference: Floats) -> float:
    """Hypervolume by slicing objectives, the last one first."""
    if points.shape[1] == 1:
        return float(reference[0] - points.min())
    order = np.argsort(points[:, -1], kind="stable")
    points = points[order]
    if points.shape[1] == 2:
        # Best first objective so far, over each slab of the second.
        best = np.minimum.accumulate(points[:, 0])
        slabs = np.diff(np.append(points[:, 1], reference[1]))
        return float(((reference[0] - best) * slabs).sum())
    slabs = np.diff(np.append(points[:, -1], reference[-1]))
    total = 0.0
    for row, slab in enumerate(slabs):
        if slab > 0.0:
            layer = points[: row + 1, :-1]
            total += slab * _sliced(layer[pareto.non_dominated(layer)], reference[:-1])
    return total


def igd(points: Floats, front: Floats) -> float:
    """Return the mean distance from the points of the true ``front`` to the nearest of ``points``.

    C. A. Coello Coello, M. Reyes Sierra 2004; infinite without points.
    """
    return _mean_distance(_finite(points), front, plus=False)


def igd_plus(points: Floats, front: Floats) -> float:
    """Return IGD with the distance counted only where a point is worse (H. Ishibuchi 2015)."""
    return _mean_distance(_finite(points), front, plus=True)


def _mean_distance(points: Floats, front: Floats, plus: bool) -> float:
    if not len(points):
        return float("inf")
    nearest = np.empty(len(front))
    # Blocks bound the memory at about 16 MB per column.
    block = max(1, 2_000_000 // len(points))
    for start in range(0, len(front), block):
        squares = np.zeros((len(front[start : start + block]), len(points)))
        for column in range(points.shape[1]):
            gap = points[None, :, column] - front[start : start + block, None, column]
            squares += (np.maximum(gap, 0.0) if plus else gap) ** 2
        nearest[start : start + block] = np.sqrt(squares.min(1))
    return float(nearest.mean())


def spread(points: Floats, front: Floats) -> float:
    """Return Δ of Deb et al. 2002 for two objectives: 0 is perfectly even and reaches both ends.

    Δ = (d_first + d_last + Σ|d_i − d̄|) / (d_first + d_last + (n − 1) d̄), d_i the distances of
    neighbours along the front, d_first and d_last those to the ends of the true front. Fewer than
    two points give infinity. Raises ConfigError for other than two objectives.
    """
    if points.shape[1] != 2:
        raise ConfigError(f"spread: defined for two objectives, got {points.shape[1]}")
    points = _finite(points)
    points = points[np.argsort(points[:, 0], kind="stable")]
    if len(points) < 2:
        return float("inf")
    ends = front[[np.argmin(front[:, 0]), np.argmax(front[:, 0])]]
    outer = float(np.linalg.norm(points[0] - ends[0]) + np.linalg.norm(points[-1] - ends[1]))
    gaps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    mean = float(gaps.mean())
    denominator = outer + len(gaps) * mean
    return (outer + float(np.abs(gaps - mean).sum())) / denominator if denominator else 0.0

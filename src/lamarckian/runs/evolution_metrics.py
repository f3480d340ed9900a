"""Numbers about an evolution: what a selection has come to, and quality against a known front."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian.ec import EC
from lamarckian.ec.indicators import hypervolume, igd, igd_plus, reference_point, spread
from lamarckian.evaluator import Encoding, Evaluator, Floats

MAX_OBJECTIVES_EACH_SELECTION = 3
"""With more objectives the hypervolume is too dear to follow; it is computed at the end."""
MAX_OBJECTIVES = 6


def has_reference(encoding: Encoding) -> bool:
    """Whether every objective declares a reference for the hypervolume."""
    return all(each.reference is not None for each in encoding.objectives)


def progress_metrics(search: EC, front: NDArray[np.int64]) -> dict[str, float]:
    """Return the metrics of one selection; ``front`` are rows of the population."""
    encoding, costs = search.encoding, search.population.costs
    if not len(costs):
        return {}
    objectives = encoding.costs(costs)
    metrics = {
        "best_objective": float(objectives[np.argmin(costs[:, 0]), 0]),
        "median_objective": float(np.median(objectives[:, 0])),
    }
    count = len(encoding.objectives)
    if 1 < count <= MAX_OBJECTIVES_EACH_SELECTION and has_reference(encoding):
        metrics["hypervolume"] = hypervolume(costs[front], reference_point(encoding))
    return metrics


def indicators(evaluator: Evaluator, search: EC) -> dict[str, float]:
    """Return what is defined of hypervolume, IGD, IGD+ and spread for the present front."""
    encoding = search.encoding
    count = len(encoding.objectives)
    if count == 1 or not len(search.population):
        return {}
    population = search.population
    points: Floats = population.costs[population.violation <= 0.0]
    found: dict[str, float] = {}
    if has_reference(encoding) and count <= MAX_OBJECTIVES:
        found["hypervolume"] = hypervolume(points, reference_point(encoding))
    true_front: Any = getattr(evaluator, "true_front", None)
    if callable(true_front):
        front = encoding.costs(np.asarray(true_front(), np.float64))
        found["igd"] = igd(points, front)
        found["igd_plus"] = igd_plus(points, front)
        if count == 2:
            found["spread"] = spread(points, front)
    return found

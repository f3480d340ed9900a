"""Making long curves short without losing what one looks for in them: the extremes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def thin(values: Sequence[float | None], limit: int) -> NDArray[np.int64]:
    """Return the ascending indices of at most ``limit`` values to draw; ``limit`` is at least 4.

    The curve is cut into buckets of equal length, of each the smallest and the largest value stay;
    the first and the last value always stay. None and numbers that are not finite are gaps: a bucket
    of nothing but gaps keeps one of them, so that the line is interrupted there.
    """
    if limit < 4:
        raise ValueError(f"thin: expected a limit of at least 4, got {limit}")
    count = len(values)
    if count <= limit:
        return np.arange(count, dtype=np.int64)
    numbers = np.array([math.nan if each is None else each for each in values], np.float64)
    numbers[~np.isfinite(numbers)] = math.nan
    kept = {0, count - 1}
    edges = np.linspace(0, count, (limit - 2) // 2 + 1).astype(np.int64)
    for start, stop in itertools.pairwise(edges):
        bucket = numbers[start:stop]
        if np.isnan(bucket).all():
            kept.add(int(start))
        else:
            kept.add(int(start + np.nanargmin(bucket)))
            kept.add(int(start + np.nanargmax(bucket)))
    return np.array(sorted(kept), np.int64)


def significant(value: float | None, digits: int = 5) -> float | int | None:
    """Round for display; None for what is no finite number. Whole numbers come back as integers."""
    if value is None or not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < 2**53:
        return int(value)
    return float(f"{value:.{digits}g}")

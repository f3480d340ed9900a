"""95 % intervals of what an evaluation measured, from the little the journal keeps of it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lamarckian.metrics import METRICS

_Z = 1.959964  # two-sided 95 % of the normal distribution


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return Wilson's interval of a share seen in ``count`` trials; never outside [0, 1].

    Source: Wilson, Probable inference, the law of succession, and statistical inference (1927).
    """
    square = _Z * _Z
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _Z * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    half /= 1 + square / count
    return max(0.0, middle - half), min(1.0, middle + half)


def interval(
    metrics: Mapping[str, float | None], name: str, value: float | None, count: int
) -> tuple[float, float] | None:
    """Return the 95 % interval of ``value``, the metric ``name`` over ``count`` episodes, or None.

    Taken as recorded (``<name>_low`` and ``<name>_high``), else from the spread of the episodes
    (``<name>_std``; ``return_std`` for ``return_mean``), else for shares as Wilson's.
    """
    if value is None or not math.isfinite(value) or count < 1:
        return None
    low, high = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
    if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
        return low, high
    spread = metrics.get(f"{name.removesuffix('_mean')}_std")
    if spread is not None and math.isfinite(spread) and count > 1:
        half = _Z * spread / math.sqrt(count)
        if name in METRICS and METRICS[name].unit == "share":
            return max(0.0, value - half), min(1.0, value + half)
        return value - half, value + half
    if name == "win_rate" and 0 <= value <= 1:
        return wilson(value, count)
    return None

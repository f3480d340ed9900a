"""Welch's t-test for unequal variances (B. L. Welch 1947), without SciPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def welch(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """Return (t, degrees of freedom, two-sided p) for the difference of means first − second.

    Fewer than two values on a side, or no variance on both, decide nothing unless the means differ
    without any variance: then p is 0.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if len(a) < 2 or len(b) < 2:
        return 0.0, 1.0, 1.0
    share_a, share_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    difference = float(a.mean() - b.mean())
    if share_a + share_b == 0.0:
        same = difference == 0.0
        return (0.0 if same else math.copysign(math.inf, difference)), 1.0, 1.0 if same else 0.0
    t = difference / math.sqrt(share_a + share_b)
    dof = float((share_a + share_b) ** 2 / (share_a**2 / (len(a) - 1) + share_b**2 / (len(b) - 1)))
    return t, dof, incomplete_beta(dof / (dof + t * t), dof / 2, 0.5)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) for 0 <= x <= 1, a, b > 0.

    By its continued fraction (Abramowitz and Stegun 26.5.8) with Lentz's method.
    """
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - incomplete_beta(1.0 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x) + b * math.log1p(-x)
    tiny = 1e-300
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(400):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / (1.0 + term * d or tiny)
        c = 1.0 + term / c or tiny
        fraction *= c * d
        if abs(1.0 - c * d) < 1e-14:
            break
    return math.exp(log_front) * (fraction - 1.0) / a

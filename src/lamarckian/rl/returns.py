"""Advantages and value targets, per reward head, with every kind of cut handled.

The rules (``T`` decisions, ``N`` lanes, ``K`` reward heads):

- after a terminated life the next value is zero and nothing flows back across the cut;
- after a truncated life, and at the open end of a lane, the next value is that of the final observation
  (``bootstrap_values``), and nothing flows back across the cut either;
- a decision that lasted ``elapsed`` acts discounts the next value by ``discount ** elapsed``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lamarckian.mdp.trajectory import Trajectory


@dataclass(slots=True)
class Returns:
    """``advantages`` and value ``targets``, both float32 ``[T, N, K]``, in units of reward."""

    advantages: NDArray[np.float32]
    targets: NDArray[np.float32]


def next_values(trajectory: Trajectory) -> NDArray[np.float32]:
    """Return the value that follows each decision, float32 ``[T, N, K]``: zero where life ended."""
    following = np.zeros_like(trajectory.values)
    following[:-1] = trajectory.values[1:]
    following[trajectory.terminated | trajectory.truncated] = 0.0
    heads = following.shape[-1]
    following.reshape(-1, heads)[trajectory.bootstrap_index] = trajectory.bootstrap_values
    # A final observation may be recorded for a decision that a guard has since declared terminal.
    following[trajectory.terminated] = 0.0
    return following


def generalised_advantages(
    trajectory: Trajectory, discounts: NDArray[np.float32], gae_lambdas: NDArray[np.float32]
) -> Returns:
    """Generalised advantage estimation (Schulman et al. 2016, equation 16), per reward head.

    ``discounts`` and ``gae_lambdas`` are float32 ``[K]``. With ``delta = r + discount V' - V`` the
    advantage is ``delta + discount lambda A'`` inside a life and ``delta`` at a cut; the target is
    ``A + V``.
    """
    values = trajectory.values
    factor = discounts ** trajectory.elapsed[..., None].astype(np.float32)
    advantages: NDArray[np.float32] = (
        trajectory.rewards + factor * next_values(trajectory) - values
    ).astype(np.float32, copy=False)
    going_on = ~(trajectory.terminated | trajectory.truncated)
    carry = factor * gae_lambdas * going_on[..., None]
    for t in range(len(advantages) - 2, -1, -1):
        advantages[t] += carry[t] * advantages[t + 1]
    return Returns(advantages, advantages + values)

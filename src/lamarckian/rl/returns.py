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

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped before the exponential: exp(89) is infinite in float32 (NUM-03)."""


@dataclass(slots=True)
class Returns:
    """``advantages`` and value ``targets``, both float32 ``[T, N, K]``, in units of reward."""

    advantages: NDArray[np.float32]
    targets: NDArray[np.float32]


def next_values(
    trajectory: Trajectory,
    values: NDArray[np.float32] | None = None,
    bootstrap_values: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Return the value that follows each decision, float32 ``[T, N, K]``: zero where life ended.

    ``values`` ``[T, N, K]`` and ``bootstrap_values`` ``[F, K]`` replace the estimates at collection.
    """
    values = trajectory.values if values is None else values
    following = np.zeros_like(values)
    following[:-1] = values[1:]
    following[trajectory.terminated | trajectory.truncated] = 0.0
    heads = following.shape[-1]
    following.reshape(-1, heads)[trajectory.bootstrap_index] = (
        trajectory.bootstrap_values if bootstrap_values is None else bootstrap_values
    )
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


def importance_ratios(trajectory: Trajectory, log_prob: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return pi / mu of each decision, float32 ``[T, N]``: joint over action parts, 1 where invalid.

    ``log_prob`` ``[T, N]`` is that of the present policy. The log-ratio is clamped to
    +-:data:`MAX_LOG_RATIO` before the exponential.
    """
    log_ratio = np.where(trajectory.valid, log_prob - trajectory.log_prob, 0.0)
    ratios: NDArray[np.float32] = np.exp(np.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))
    return ratios.astype(np.float32, copy=False)


def vtrace(
    trajectory: Trajectory,
    *,
    log_prob: NDArray[np.float32],
    values: NDArray[np.float32],
    bootstrap_values: NDArray[np.float32],
    discounts: NDArray[np.float32],
    lambdas: NDArray[np.float32],
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> Returns:
    """V-trace targets and policy-gradient advantages (Espeholt et al. 2018, equation 1), per head.

    ``log_prob`` ``[T, N]``, ``values`` ``[T, N, K]`` and ``bootstrap_values`` ``[F, K]`` are those of the
    policy that learns; ``discounts`` and ``lambdas`` float32 ``[K]``. With ``rho = min(rho_bar, pi / mu)``
    and ``c = lambda min(c_bar, pi / mu)``, inside a life::

        delta_t = rho_t (r_t + discount V_{t+1} - V_t)
        v_t     = V_t + delta_t + discount c_t (v_{t+1} - V_{t+1})

    and the advantage, before the gradient of log pi, is ``rho_t (r_t + discount v_{t+1} - V_t)``. At a cut
    ``v_{t+1}`` is zero (terminated) or the value of the final observation (truncated, open end).
    On-policy with lambda 1 the targets are n-step returns.
    """
    ratios = importance_ratios(trajectory, log_prob)[..., None]
    rho = np.minimum(ratios, np.float32(rho_bar))
    trace = np.minimum(ratios, np.float32(c_bar)) * lambdas
    factor = discounts ** trajectory.elapsed[..., None].astype(np.float32)
    going_on = ~(trajectory.terminated | trajectory.truncated)[..., None]
    one_step = trajectory.rewards + factor * next_values(trajectory, values, bootstrap_values)
    excess: NDArray[np.float32] = (rho * (one_step - values)).astype(np.float32, copy=False)
    carry = factor * trace * going_on
    for t in range(len(excess) - 2, -1, -1):
        excess[t] += carry[t] * excess[t + 1]
    following = np.zeros_like(excess)
    following[:-1] = excess[1:]
    advantages = rho * (one_step + factor * going_on * following - values)
    return Returns(advantages.astype(np.float32, copy=False), values + excess)

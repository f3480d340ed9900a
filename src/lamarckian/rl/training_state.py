"""What actor-critic learners keep between updates, as data and arrays of a checkpoint."""

from __future__ import annotations

from typing import Any

from lamarckian.mdp.core import Arrays, below
from lamarckian.rl.optimiser import GuardedAdam
from lamarckian.rl.policy import TorchPolicy


def training_state(
    policy: TorchPolicy, optimiser: GuardedAdam, num_updates: int
) -> tuple[dict[str, Any], Arrays]:
    """Return policy, optimiser and counters as (JSON data, arrays)."""
    data, moments = optimiser.state()
    return (
        {"optimiser": data, "version": policy.version, "num_updates": num_updates},
        {
            **{f"policy/{name}": array for name, array in policy.arrays().items()},
            **{f"optimiser/{name}": array for name, array in moments.items()},
        },
    )


def load_training_state(
    policy: TorchPolicy, optimiser: GuardedAdam, data: dict[str, Any], arrays: Arrays
) -> int:
    """Put back what :func:`training_state` took; return ``num_updates``."""
    policy.load_arrays(below("policy/", arrays))
    policy.version = int(data["version"])
    optimiser.load_state(data["optimiser"], below("optimiser/", arrays))
    return int(data["num_updates"])

"""What a collector needs from a policy: one batched decision at a version, numpy in and out.

Sampling is a function of noise that the caller draws from its own numpy stream, so the collector, the
evaluator, a saved bundle and the ONNX file agree on the action for the same observation and noise.

Shape letters: ``N`` controllers, ``K`` reward heads, ``Z`` noise columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lamarckian.mdp.core import Arrays, Continuous, Discrete, Role


@dataclass(slots=True)
class Decisions:
    """The answer to one wave.

    ``game_actions``  part -> ``[N, ...]`` what the game receives.
    ``actions``       part -> ``[N, ...]`` raw numbers as stored for learning.
    ``log_prob``      float32 ``[N]``, joint over parts.
    ``values``        float32 ``[N, K]``, denormalised.
    ``recurrent``     name -> ``[N, ...]`` memory after this decision.
    """

    game_actions: Arrays
    actions: Arrays
    log_prob: NDArray[np.float32]
    values: NDArray[np.float32]
    recurrent: Arrays = field(default_factory=dict)


@runtime_checkable
class Policy(Protocol):
    """Batched inference at a version."""

    @property
    def role(self) -> Role: ...

    @property
    def version(self) -> int: ...

    @property
    def memory(self) -> Arrays:
        """Zero memory of one player, name -> ``[...]`` without the batch axis; empty if it has none."""
        ...

    def act(
        self,
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        noise: NDArray[np.float32] | None,
    ) -> Decisions:
        """Decide for N players. ``noise`` None means the most likely action."""
        ...

    def values(self, inputs: Arrays, state: Arrays, recurrent: Arrays) -> NDArray[np.float32]:
        """Return denormalised value estimates ``[N, K]`` (bootstrap observations)."""
        ...


def draw_noise(role: Role, num: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw the ``[N, Z]`` numbers that :meth:`Policy.act` turns into actions.

    One uniform in [0, 1) per discrete choice and one standard normal per continuous number, in the order
    of the role's parts.
    """
    columns = []
    for part in role.actions.values():
        if isinstance(part, Continuous):
            columns.append(rng.standard_normal((num, part.size), dtype=np.float32))
        else:
            width = 1 if isinstance(part, Discrete) else len(part.nums)
            columns.append(rng.random((num, width), dtype=np.float32))
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)

"""Experience: what a collector hands to a learner.

A :class:`Trajectory` is a rectangle of ``T`` decisions by ``N`` lanes. A lane is one seat's decisions in
order; lives (episodes) follow one another inside it, and ``starts`` marks where a life begins. Every cut
is explicit: ``terminated`` and ``truncated`` say how a life ended after a decision, and the observations
from which a cut bootstraps are data of their own (``bootstrap_*``), never the reset observation.

Shape letters: ``T`` time, ``N`` lanes, ``K`` reward heads, ``F`` bootstrap observations, ``C`` chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian.mdp.core import Array, Arrays

_GROUPS = (
    "inputs",
    "legal",
    "state",
    "actions",
    "recurrent",
    "bootstrap_inputs",
    "bootstrap_legal",
    "bootstrap_state",
    "bootstrap_recurrent",
)
_FIELDS = (
    "log_prob",
    "values",
    "rewards",
    "elapsed",
    "terminated",
    "truncated",
    "starts",
    "valid",
    "policy_version",
    "bootstrap_index",
    "bootstrap_values",
)


@dataclass(slots=True)
class Trajectory:
    """Rectangular experience of one policy.

    ``inputs``, ``legal``, ``state``  name -> ``[T, N, ...]`` as declared by the role.
    ``actions``          part -> ``[T, N, ...]``: the raw numbers whose log-probability was computed.
    ``log_prob``         float32 ``[T, N]``, joint over parts.
    ``values``           float32 ``[T, N, K]``, denormalised estimates at collection.
    ``rewards``          float32 ``[T, N, K]``: discounted inside a decision that spans several acts.
    ``elapsed``          int32 ``[T, N]``: acts between this decision and the next recorded one (1 unless
                         scripted or skipped decisions lie between); the next value weighs
                         ``discount ** elapsed``.
    ``terminated``, ``truncated``  bool ``[T, N]``: the life ended after this decision.
    ``starts``           bool ``[T, N]``: the first recorded decision of a life.
    ``valid``            bool ``[T, N]``: False where nobody decided, or the data are kept out of learning.
    ``policy_version``   int64 ``[T, N]``: the version that drew the decision.
    ``recurrent``        name -> ``[C, N, ...]``: stored memory at the start of each chunk of
                         ``chunk_length`` decisions (empty for policies without memory).
    ``bootstrap_index``  int64 ``[F]``: flat ``t * N + n`` of the decision after which the observation
                         below was seen: truncated lives, and the open end of each lane.
    ``bootstrap_inputs``, ``bootstrap_legal``, ``bootstrap_state``, ``bootstrap_recurrent``
                         name -> ``[F, ...]``. A game that gives no mask with its last observation
                         leaves everything legal there.
    ``bootstrap_values`` float32 ``[F, K]``.
    """

    inputs: Arrays
    legal: Arrays
    state: Arrays
    actions: Arrays
    log_prob: NDArray[np.float32]
    values: NDArray[np.float32]
    rewards: NDArray[np.float32]
    elapsed: NDArray[np.int32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    starts: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    policy_version: NDArray[np.int64]
    bootstrap_index: NDArray[np.int64]
    bootstrap_inputs: Arrays
    bootstrap_state: Arrays
    bootstrap_values: NDArray[np.float32]
    recurrent: Arrays = field(default_factory=dict)
    bootstrap_legal: Arrays = field(default_factory=dict)
    bootstrap_recurrent: Arrays = field(default_factory=dict)
    chunk_length: int = 0

    @property
    def num_decisions(self) -> int:
        """Decisions that may be learned from."""
        return int(self.valid.sum())

    def to_arrays(self) -> tuple[dict[str, Any], Arrays]:
        """Return ``(header, arrays)`` for transport: flat names, no objects."""
        arrays: Arrays = {name: getattr(self, name) for name in _FIELDS}
        for group in _GROUPS:
            for name, array in getattr(self, group).items():
                arrays[f"{group}/{name}"] = array
        return {"chunk_length": self.chunk_length}, arrays


def from_arrays(header: dict[str, Any], arrays: Arrays) -> Trajectory:
    """Rebuild what :meth:`Trajectory.to_arrays` took apart; raises KeyError for a missing field."""
    groups: dict[str, Any] = {group: {} for group in _GROUPS}
    for name, array in arrays.items():
        if "/" in name:
            group, rest = name.split("/", 1)
            groups[group][rest] = array
    fields: dict[str, Any] = {name: arrays[name] for name in _FIELDS}
    return Trajectory(**fields, **groups, chunk_length=int(header["chunk_length"]))


def concatenate(parts: list[Trajectory]) -> Trajectory:
    """Join trajectories of equal ``T`` lane by lane (axis N); a single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if any(part.log_prob.shape[0] != first.log_prob.shape[0] for part in parts):
        raise ValueError("trajectories to be joined must have the same number of decisions T")
    total = sum(part.log_prob.shape[1] for part in parts)
    joined: dict[str, Any] = {}
    for name in _FIELDS:
        if not name.startswith("bootstrap"):
            joined[name] = np.concatenate([getattr(part, name) for part in parts], axis=1)
    for group in _GROUPS:
        axis = 0 if group.startswith("bootstrap") else 1
        joined[group] = {
            name: np.concatenate([getattr(part, group)[name] for part in parts], axis=axis)
            for name in getattr(first, group)
        }
    index: list[Array] = []
    offset = 0
    for part in parts:
        width = part.log_prob.shape[1]
        time, lane = np.divmod(part.bootstrap_index, width)
        index.append(time * total + lane + offset)
        offset += width
    joined["bootstrap_index"] = np.concatenate(index)
    joined["bootstrap_values"] = np.concatenate([part.bootstrap_values for part in parts])
    return Trajectory(**joined, chunk_length=first.chunk_length)


@dataclass(slots=True)
class EpisodeRecord:
    """One finished life on raw rewards: what curves and evaluations are made of.

    ``returns`` are the undiscounted sums per reward head, ``length`` counts the player's decisions,
    ``frames`` the game's own ticks (more than decisions under frame skip).
    """

    role: str
    returns: tuple[float, ...]
    length: int
    frames: int
    score: float | None = None
    result: int | None = None
    statistics: dict[str, float] = field(default_factory=dict)
    opponent: str = ""
    seed: int | None = None
    offline: bool = False
    policy_version: int = 0

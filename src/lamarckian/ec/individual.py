"""One candidate solution as users, journals and reports see it."""

from __future__ import annotations

from dataclasses import dataclass

from lamarckian.evaluator import Decision, Outcome


@dataclass(frozen=True, slots=True)
class Origin:
    """How an individual came to be: names of the operators, and the generation that proposed it."""

    operators: tuple[str, ...]
    generation: int


@dataclass(slots=True)
class Individual:
    """A decision with its ancestry and, once evaluated, its outcome.

    ``id`` is unique within a run; ids grow in the order of proposal. ``parents`` are ids, the one
    whose blobs were inherited first. The arrays of ``decision`` are read-only.
    """

    id: int
    parents: tuple[int, ...]
    origin: Origin
    decision: Decision
    outcome: Outcome | None = None

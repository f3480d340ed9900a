"""The individuals and selections of an evolution, gathered from the events of its journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lamarckian.runs.journal import Entry


@dataclass(slots=True)
class Candidate:
    """One individual as the journal tells it. ``objectives`` are in the directions of the problem."""

    id: int
    parents: tuple[int, ...] = ()
    operators: tuple[str, ...] = ()
    generation: int = 0
    status: str = "in flight"
    reason: str = ""
    seconds: float = 0.0
    weights: str = ""
    objectives: list[float | None] = field(default_factory=list)
    descriptors: list[float | None] = field(default_factory=list)
    decision: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)
    written: tuple[str, ...] = ()


@dataclass(slots=True)
class Selection:
    """One generation: who is alive after it and who of them nobody dominates."""

    number: int
    evaluations: int
    population: list[int]
    front: list[int]
    metrics: dict[str, float | None]


class Generations:
    """Walks through the events of an evolution once, in order."""

    def __init__(self) -> None:
        self.candidates: dict[int, Candidate] = {}
        self.selections: list[Selection] = []
        self.num_failed = 0

    def take(self, entry: Entry) -> None:
        """Add one event; those of other kinds are passed over."""
        handler = getattr(self, f"_on_{entry.event}", None)
        if handler is not None:
            handler(entry.fields)

    def _on_individual_proposed(self, fields: Mapping[str, Any]) -> None:
        identifier = int(fields["id"])
        origin = str(fields.get("origin") or "")
        self.candidates[identifier] = Candidate(
            identifier,
            tuple(int(parent) for parent in fields.get("parents") or ()),
            tuple(origin.split("+")) if origin else (),
            int(fields.get("generation") or 0),
        )

    def _on_individual_told(self, fields: Mapping[str, Any]) -> None:
        identifier = int(fields["id"])
        told = self.candidates.setdefault(identifier, Candidate(identifier))
        told.status = str(fields.get("status") or "ok")
        told.reason = str(fields.get("reason") or "")
        told.seconds = float(fields.get("seconds") or 0.0)
        told.weights = str(fields.get("weights") or "")
        told.objectives = list(fields.get("objectives") or ())
        told.descriptors = list(fields.get("descriptors") or ())
        told.decision = dict(fields.get("decision") or {})
        told.metrics = dict(fields.get("metrics") or {})
        told.written = tuple(fields.get("written") or ())
        self.num_failed += told.status != "ok"

    def _on_batch_told(self, fields: Mapping[str, Any]) -> None:
        descriptors = fields.get("descriptors") or ()
        for row, objectives in enumerate(fields.get("objectives") or ()):
            identifier = int(fields["first"]) + row
            told = self.candidates.setdefault(identifier, Candidate(identifier))
            told.objectives = list(objectives)
            told.descriptors = list(descriptors[row]) if descriptors else []
            told.status = "failed" if any(value is None for value in objectives) else "ok"
            self.num_failed += told.status != "ok"

    def _on_generation(self, fields: Mapping[str, Any]) -> None:
        self.selections.append(
            Selection(
                int(fields.get("generation") or 0),
                int(fields.get("evaluations") or 0),
                [int(each) for each in fields.get("population") or ()],
                [int(each) for each in fields.get("front") or ()],
                dict(fields.get("metrics") or {}),
            )
        )

"""Individuals on disk: told events, weights as blobs, and whole generations as arrays.

Three places, one reader (:func:`read_all`):

- ``individual_proposed`` and ``individual_told`` events of the journal: ancestry, decision without
  weights, outcome;
- ``individuals/<id>.json``: the same for individuals with weights; it names the blob, which keeps it
  from being collected as garbage;
- ``individuals/batch-<id>.json``: generations of a numeric problem as one blob of arrays, named
  after the first id.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from lamarckian.ec import Individual
from lamarckian.ec.batch import Batch
from lamarckian.ec.population import Layout
from lamarckian.errors import RunError
from lamarckian.evaluator import (
    Array,
    Blob,
    BlobValue,
    Categorical,
    Decision,
    Encoding,
    Outcome,
    Outcomes,
)
from lamarckian.evorl.workflow import Finished
from lamarckian.runs.checkpoint import blob_path, read_blob, write_blob
from lamarckian.runs.durable import write_file
from lamarckian.runs.folder import Run


@dataclass(slots=True)
class Stored:
    """One individual as read back. ``decision`` has no weights; ``weights`` is their blob's hash."""

    id: int
    parents: tuple[int, ...]
    operators: tuple[str, ...]
    generation: int
    decision: dict[str, Any] = field(default_factory=dict)
    objectives: list[float | None] = field(default_factory=list)
    constraints: list[float | None] = field(default_factory=list)
    descriptors: list[float | None] = field(default_factory=list)
    statistics: dict[str, float | None] = field(default_factory=dict)
    status: str = "in flight"
    reason: str = ""
    seconds: float = 0.0
    weights: str = ""
    written: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``--json``."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class WeightStore:
    """Writes the weights of individuals as blobs and drops those of the dead."""

    def __init__(self, run: Run, encoding: Encoding, keep: str) -> None:
        self.run = run
        self.blobs = [name for name, part in encoding.parts.items() if isinstance(part, Blob)]
        self.keep = keep
        self._stored: set[int] = set()
        self._recent: set[int] = set()

    def store(self, identifier: int, decision: Decision) -> str:
        """Write the blob parts of ``decision`` as one blob; return its hash ("" without any)."""
        if not self.blobs:
            return ""
        arrays: dict[str, Array] = {}
        for name in self.blobs:
            blob = decision[name]
            assert isinstance(blob, dict)
            arrays |= {f"{name}/{key}": array for key, array in blob.items()}
        self._stored.add(identifier)
        self._recent.add(identifier)
        return write_blob(self.run.path, arrays).sha256

    def adopt(self) -> None:
        """Learn which individuals have weights on disk (after a resume)."""
        self._stored |= {
            int(path.stem) for path in self.run.individuals.glob("*.json") if path.stem.isdigit()
        }

    def drop_all_but(self, alive: set[int]) -> None:
        """Remove the weights of individuals that are not ``alive``; their records stay.

        Those stored since the last call stay too: the journal behind an older checkpoint, used if
        the newest is damaged, tells them again.
        """
        if self.keep == "all" or not self.blobs:
            return
        alive, self._recent = alive | self._recent, set()
        gone = self._stored - alive
        kept = {_weights_of(self.run, each) for each in self._stored & alive}
        for identifier in gone:
            record = read_file(self.run, identifier)
            digest = record["told"]["weights"]
            record["told"]["weights"] = ""
            record["dropped_weights"] = True
            _write(self.run, str(identifier), record)
            if digest and digest not in kept:
                blob_path(self.run.path, digest).unlink(missing_ok=True)
        self._stored -= gone


def told_fields(individual: Individual, finished: Finished, weights: WeightStore) -> dict[str, Any]:
    """Return the fields of the ``individual_told`` event, after storing the weights it names."""
    outcome = finished.outcome
    decision: Decision = {**individual.decision, **(outcome.decision or {})}
    fields: dict[str, Any] = {
        "id": str(individual.id),
        "objectives": outcome.objectives.tolist(),
        "status": "ok" if outcome.failed is None else "failed",
        "reason": outcome.failed or "",
        "seconds": finished.seconds,
        "weights": "",
        "metrics": dict(outcome.statistics),
        "constraints": outcome.constraints.tolist(),
        "descriptors": outcome.descriptors.tolist(),
        "decision": {
            name: np.asarray(value).tolist()
            for name, value in decision.items()
            if not isinstance(value, dict)
        },
        "written": sorted(outcome.decision or {}),
        "attempts": finished.attempts,
    }
    if weights.blobs and outcome.failed is None:
        fields["weights"] = weights.store(individual.id, decision)
        record = {
            "parents": list(individual.parents),
            "operators": list(individual.origin.operators),
            "generation": individual.origin.generation,
            "told": fields,
        }
        _write(weights.run, str(individual.id), record)
    return fields


def finished_from(run: Run, fields: dict[str, Any], encoding: Encoding) -> Finished:
    """Rebuild an arrival from the fields of its event; reads the weights it wrote back."""
    written: Decision | None = None
    blobs: dict[str, Array] = {}
    if fields["written"]:
        written = {}
        if any(isinstance(encoding.parts[name], Blob) for name in fields["written"]):
            blobs = read_blob(run.path, fields["weights"])
        for name in fields["written"]:
            if isinstance(encoding.parts[name], Blob):
                prefix = f"{name}/"
                part: BlobValue = {
                    k[len(prefix) :]: v for k, v in blobs.items() if k.startswith(prefix)
                }
                written[name] = part
            else:
                written[name] = np.asarray(fields["decision"][name])
    outcome = Outcome(
        objectives=floats(fields["objectives"]),
        constraints=floats(fields["constraints"]),
        descriptors=floats(fields["descriptors"]),
        statistics={k: np.nan if v is None else float(v) for k, v in fields["metrics"].items()},
        decision=written,
        failed=fields["reason"] if fields["status"] != "ok" else None,
    )
    return Finished(int(fields["id"]), outcome, float(fields["seconds"]), int(fields["attempts"]))


def write_batches(run: Run, layout: Layout, batches: Sequence[tuple[Batch, Outcomes]]) -> None:
    """Store evaluated generations: one blob, and one small file that names it."""
    whole = Batch.concatenate([batch for batch, _ in batches])
    origins = list(dict.fromkeys(whole.origins))
    index = {origin: number for number, origin in enumerate(origins)}
    arrays: dict[str, Array] = {
        "id": whole.ids,
        "parents": whole.parents,
        "generation": whole.generation,
        "origin": np.array([index[origin] for origin in whole.origins], np.int32),
        "objectives": np.concatenate([outcomes.objectives for _, outcomes in batches]),
    }
    for name in ("constraints", "descriptors"):
        values = [getattr(outcomes, name) for _, outcomes in batches]
        if all(each is not None for each in values):
            arrays[name] = np.concatenate(values)
    for name, stacked in layout.stacked(whole.genes).items():
        assert not isinstance(stacked, dict)
        arrays[f"decision/{name}"] = stacked
    first = int(whole.ids[0])
    blob = write_blob(run.path, arrays)
    _write(
        run,
        f"batch-{first:09d}",
        {
            "first": first,
            "count": len(whole),
            "origins": [list(origin) for origin in origins],
            "blob": blob.sha256,
        },
    )


def read_all(run: Run) -> dict[int, Stored]:
    """Return every individual of a run by id, in the order of ids."""
    found: dict[int, Stored] = {}
    for path in sorted(run.individuals.glob("batch-*.json")):
        _read_batch(run, json.loads(path.read_text(encoding="utf-8")), found)
    for entry in run.replay():
        fields = entry.fields
        if entry.event == "individual_proposed":
            identifier = int(fields["id"])
            origin = str(fields.get("origin", ""))
            found[identifier] = Stored(
                identifier,
                tuple(int(parent) for parent in fields.get("parents", ())),
                tuple(origin.split("+")) if origin else (),
                int(fields.get("generation", 0)),
            )
        elif entry.event == "individual_told" and int(fields["id"]) in found:
            stored = found[int(fields["id"])]
            for name in ("decision", "objectives", "constraints", "descriptors", "status"):
                setattr(stored, name, fields.get(name, getattr(stored, name)))
            stored.reason, stored.seconds = fields["reason"], fields["seconds"]
            stored.statistics = fields["metrics"]
            stored.written = tuple(fields.get("written", ()))
            digest = fields.get("weights", "")
            stored.weights = digest if digest and blob_path(run.path, digest).exists() else ""
    return dict(sorted(found.items()))


def _read_batch(run: Run, head: dict[str, Any], found: dict[int, Stored]) -> None:
    arrays = read_blob(run.path, head["blob"])
    columns = {k[9:]: v for k, v in arrays.items() if k.startswith("decision/")}
    objectives = arrays["objectives"]
    usable = np.isfinite(objectives).all(1)
    origins = [tuple(origin) for origin in head["origins"]]
    for row, identifier in enumerate(arrays["id"].tolist()):
        found[identifier] = Stored(
            id=identifier,
            parents=tuple(each for each in arrays["parents"][row].tolist() if each >= 0),
            operators=origins[arrays["origin"][row]],
            generation=int(arrays["generation"][row]),
            decision={name: column[row].tolist() for name, column in columns.items()},
            objectives=objectives[row].tolist(),
            constraints=arrays["constraints"][row].tolist() if "constraints" in arrays else [],
            descriptors=arrays["descriptors"][row].tolist() if "descriptors" in arrays else [],
            status="ok" if usable[row] else "failed",
            reason="" if usable[row] else "non-finite number among the objectives",
        )


def load_weights(run: Run, stored: Stored) -> dict[str, BlobValue]:
    """Return the weights of an individual by part. Raises CheckpointError if they are gone."""
    parts: dict[str, BlobValue] = {}
    for path, array in read_blob(run.path, stored.weights).items():
        name, _, key = path.partition("/")
        parts.setdefault(name, {})[key] = array
    return parts


def encoding_of(run: Run) -> Encoding:
    """Return the encoding of an evolution from its checkpoint, without building the problem.

    Raises RunError for a run of another kind.
    """
    if "problem" not in run.settings():
        raise RunError(f"{run.path}: this run is not an evolution; it has no individuals")
    saved = run.load("last", parts=())
    return msgspec.convert(saved.state["search"]["encoding"], Encoding)


def latest(run: Run, which: str) -> list[int]:
    """Return the ids of the ``front`` or ``population`` of the last selection; empty before the first."""
    selections = [entry for entry in run.replay() if entry.event == "generation"]
    return [int(each) for each in selections[-1].fields[which]] if selections else []


def summary(individual: Individual, encoding: Encoding) -> dict[str, Any]:
    """Return an individual for people and ``--json``: names instead of indices, no weights."""
    outcome = individual.outcome
    values = [] if outcome is None else outcome.objectives.tolist()
    return {
        "id": individual.id,
        "objectives": {
            objective.name: value for objective, value in zip(encoding.objectives, values)
        },
        "decision": readable(individual.decision, encoding),
    }


def readable(decision: Decision | dict[str, Any], encoding: Encoding) -> dict[str, Any]:
    """Return the parts of a decision that people can read; choices by name."""
    shown: dict[str, Any] = {}
    for name, value in decision.items():
        part = encoding.parts.get(name)
        if isinstance(value, dict) or isinstance(part, Blob):
            continue
        plain = np.asarray(value)
        if isinstance(part, Categorical):
            chosen = [part.choices[index] for index in plain.ravel().tolist()]
            shown[name] = chosen if plain.ndim else chosen[0]
        else:
            shown[name] = plain.tolist()
    return shown


def has_file(run: Run, identifier: int) -> bool:
    """Whether an individual with weights is on disk."""
    return (run.individuals / f"{identifier}.json").is_file()


def read_file(run: Run, identifier: int) -> dict[str, Any]:
    """Return what ``individuals/<id>.json`` holds."""
    text = (run.individuals / f"{identifier}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def _weights_of(run: Run, identifier: int) -> str:
    return str(read_file(run, identifier)["told"]["weights"])


def _write(run: Run, name: str, record: dict[str, Any]) -> None:
    write_file(run.individuals / f"{name}.json", msgspec.json.encode(record) + b"\n")


def ancestors(everyone: dict[int, Stored], identifier: int, *, whole: bool) -> list[Stored]:
    """Return an individual and its ancestors, the oldest first.

    Along the first parent alone (the line of inherited weights), or ``whole``.
    """
    found: dict[int, Stored] = {}
    waiting = [identifier]
    while waiting:
        each = everyone.get(waiting.pop())
        if each is None or each.id in found:
            continue
        found[each.id] = each
        waiting += each.parents if whole else each.parents[:1]
    return [found[each] for each in sorted(found)]


def floats(values: Sequence[float | None]) -> Array:
    """Return recorded numbers as float64; null is nan."""
    return np.array([np.nan if value is None else value for value in values], np.float64)


def ones(num: int) -> Array:
    """Return ``num`` ones: turned into costs they are the signs of the objectives."""
    return np.ones(num)

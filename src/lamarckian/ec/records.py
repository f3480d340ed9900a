"""Individuals, decisions and outcomes as ``(JSON data, named arrays)``, for what stays on disk.

Numbers that selection reads go to JSON (shortest text that gives the same float64 back); decisions
go to arrays. Non-finite floats become the strings ``nan``, ``inf`` and ``-inf``: JSON has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lamarckian.ec.individual import Individual, Origin
from lamarckian.evaluator import Array, Decision, Floats, Outcome

_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def floats_to_json(values: Iterable[float]) -> list[float | str]:
    return [float(v) if math.isfinite(v) else str(float(v)) for v in values]


def floats_from_json(values: Iterable[float | str]) -> Floats:
    return np.array([_SPECIAL[v] if isinstance(v, str) else v for v in values], np.float64)


def decision_to_arrays(decision: Decision, prefix: str = "decision") -> dict[str, Array]:
    """Return the arrays of a decision under flat names such as ``decision/weights/layer0.bias``."""
    arrays: dict[str, Array] = {}
    for name, value in decision.items():
        if isinstance(value, dict):
            arrays.update({f"{prefix}/{name}/{key}": array for key, array in value.items()})
        else:
            arrays[f"{prefix}/{name}"] = value
    return arrays


def decision_from_arrays(arrays: Mapping[str, Array], prefix: str = "decision") -> Decision:
    """Undo :func:`decision_to_arrays`; names outside the prefix are ignored."""
    decision: Decision = {}
    for path, array in arrays.items():
        head, _, rest = path.partition("/")
        if head != prefix:
            continue
        name, slash, key = rest.partition("/")
        if slash:
            blob = decision.setdefault(name, {})
            assert isinstance(blob, dict)
            blob[key] = array
        else:
            decision[name] = array
    return decision


def outcome_to_record(outcome: Outcome) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return ``(json, arrays)``; written-back parts go to arrays under ``written/``."""
    meta: dict[str, Any] = {
        "objectives": floats_to_json(outcome.objectives),
        "constraints": floats_to_json(outcome.constraints),
        "descriptors": floats_to_json(outcome.descriptors),
        "statistics": dict(
            zip(outcome.statistics, floats_to_json(outcome.statistics.values()), strict=True)
        ),
        "failed": outcome.failed,
        "writes_back": outcome.decision is not None,
    }
    return meta, decision_to_arrays(outcome.decision or {}, "written")


def outcome_from_record(meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> Outcome:
    """Undo :func:`outcome_to_record`."""
    statistics = meta["statistics"]
    return Outcome(
        objectives=floats_from_json(meta["objectives"]),
        constraints=floats_from_json(meta["constraints"]),
        descriptors=floats_from_json(meta["descriptors"]),
        statistics=dict(
            zip(statistics, floats_from_json(statistics.values()).tolist(), strict=True)
        ),
        decision=decision_from_arrays(arrays, "written") if meta["writes_back"] else None,
        failed=meta["failed"],
    )


def individual_to_record(individual: Individual) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return ``(json, arrays)``: arrays under ``decision/`` and, written back, ``written/``."""
    meta: dict[str, Any] = {
        "id": individual.id,
        "parents": list(individual.parents),
        "operators": list(individual.origin.operators),
        "generation": individual.origin.generation,
        "outcome": None,
    }
    arrays = decision_to_arrays(individual.decision)
    if individual.outcome is not None:
        meta["outcome"], written = outcome_to_record(individual.outcome)
        arrays.update(written)
    return meta, arrays


def individual_from_record(meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> Individual:
    """Undo :func:`individual_to_record`."""
    outcome = meta["outcome"]
    return Individual(
        id=int(meta["id"]),
        parents=tuple(int(parent) for parent in meta["parents"]),
        origin=Origin(tuple(meta["operators"]), int(meta["generation"])),
        decision=decision_from_arrays(arrays),
        outcome=None if outcome is None else outcome_from_record(outcome, arrays),
    )

"""What runs in a worker of a pool: an evaluator built once, decisions in, outcomes out.

Decisions and outcomes travel as named arrays in shared memory plus a little JSON, never as files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lamarckian.distributed.channel import Channel
from lamarckian.ec import (
    decision_from_arrays,
    decision_to_arrays,
    outcome_from_record,
    outcome_to_record,
)
from lamarckian.evaluator import Array, Decision, Outcome
from lamarckian.evorl.evaluating import evaluate_several
from lamarckian.evorl.problems import make_evaluator
from lamarckian.mdp.core import below

Handle = Callable[[dict[str, Any], dict[str, Array]], tuple[dict[str, Any], dict[str, Array]]]


def make(config: dict[str, Any], channel: Channel) -> Handle:
    """Entry point of a pool's workers; ``config`` is the problem as plain data."""
    evaluator = make_evaluator(**config)

    def handle(
        payload: dict[str, Any], arrays: dict[str, Array]
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        ids = payload["ids"]
        channel.context(individuals=ids)
        outcomes = evaluate_several(
            evaluator,
            unpack_decisions(arrays, len(ids)),
            payload["seed"],
            ids,
        )
        records, written = pack_outcomes(outcomes)
        return {"outcomes": records}, written

    return handle


def pack_decisions(decisions: Sequence[Decision]) -> dict[str, Array]:
    """Return the arrays of several decisions under ``row/decision/...``."""
    return {
        f"{row}/{name}": array
        for row, decision in enumerate(decisions)
        for name, array in decision_to_arrays(decision).items()
    }


def unpack_decisions(arrays: Mapping[str, Array], num: int) -> list[Decision]:
    """Undo :func:`pack_decisions`."""
    return [decision_from_arrays(below(f"{row}/", arrays)) for row in range(num)]


def pack_outcomes(outcomes: Sequence[Outcome]) -> tuple[list[Any], dict[str, Array]]:
    """Return outcomes as ``(plain records, arrays under row/written/...)``."""
    records: list[Any] = []
    arrays: dict[str, Array] = {}
    for row, outcome in enumerate(outcomes):
        record, written = outcome_to_record(outcome)
        records.append(record)
        arrays |= {f"{row}/{name}": array for name, array in written.items()}
    return records, arrays


def unpack_outcomes(records: Sequence[Any], arrays: Mapping[str, Array]) -> list[Outcome]:
    """Undo :func:`pack_outcomes`."""
    return [
        outcome_from_record(record, below(f"{row}/", arrays)) for row, record in enumerate(records)
    ]

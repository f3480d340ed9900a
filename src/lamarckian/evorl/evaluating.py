"""Evaluating individuals: one by one or as a group, each with its own random stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from lamarckian import seeding
from lamarckian.evaluator import Decision, Evaluator, Outcome


@runtime_checkable
class GroupEvaluator(Protocol):
    """An evaluator that prices several decisions in one computation, each with its own stream.

    What one of them gets must not depend on the company it is in (but for rounding).
    """

    @property
    def can_group(self) -> bool:
        """Whether there is such a computation for the settings at hand."""
        ...

    def evaluate_group(
        self, decisions: Sequence[Decision], streams: Sequence[np.random.Generator]
    ) -> list[Outcome]:
        """Return one outcome per decision."""
        ...


def is_grouped(evaluator: Evaluator) -> bool:
    """Return whether ``evaluator`` prices several decisions at once."""
    return isinstance(evaluator, GroupEvaluator) and evaluator.can_group


def stream_of(seed: int, identifier: int) -> np.random.Generator:
    """Return the stream an individual's evaluation draws from: it depends on seed and id alone."""
    return seeding.stream(seed, "evaluate", identifier)


def evaluate_one(evaluator: Evaluator, decision: Decision, rng: np.random.Generator) -> Outcome:
    """Evaluate; what the evaluator raises becomes a failed outcome."""
    try:
        outcome = evaluator.evaluate(decision, rng)
    except Exception as error:
        return Outcome.failure(f"{type(error).__name__}: {error}")
    if not isinstance(outcome, Outcome):
        return Outcome.failure(f"evaluate returned {type(outcome).__name__}, expected an Outcome")
    return outcome


def evaluate_several(
    evaluator: Evaluator, decisions: Sequence[Decision], seed: int, ids: Sequence[int]
) -> list[Outcome]:
    """Evaluate a group, as one computation where the evaluator can.

    If that raises, each is evaluated alone, so that only the one at fault fails.
    """
    if len(decisions) > 1 and isinstance(evaluator, GroupEvaluator):
        try:
            return evaluator.evaluate_group(decisions, [stream_of(seed, each) for each in ids])
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            outcomes = [
                evaluate_one(evaluator, decision, stream_of(seed, identifier))
                for decision, identifier in zip(decisions, ids, strict=True)
            ]
            if all(each.failed is None for each in outcomes):
                # Nobody fails alone: the group computation itself is at fault, and that must show.
                return [Outcome.failure(f"as a group: {reason}") for _ in ids]
            return outcomes
    return [
        evaluate_one(evaluator, decision, stream_of(seed, identifier))
        for decision, identifier in zip(decisions, ids, strict=True)
    ]

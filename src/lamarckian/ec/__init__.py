"""Evolutionary computation: searches that are asked and told."""

from lamarckian.ec.catalogue import SEARCHES, make
from lamarckian.ec.core import EC, Individual, Initialize, Origin, State
from lamarckian.ec.loop import run
from lamarckian.ec.records import (
    decision_from_arrays,
    decision_to_arrays,
    individual_from_record,
    individual_to_record,
    outcome_from_record,
    outcome_to_record,
)

__all__ = [
    "EC",
    "SEARCHES",
    "Individual",
    "Initialize",
    "Origin",
    "State",
    "decision_from_arrays",
    "decision_to_arrays",
    "individual_from_record",
    "individual_to_record",
    "make",
    "outcome_from_record",
    "outcome_to_record",
    "run",
]

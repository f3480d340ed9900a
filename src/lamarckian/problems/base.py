"""What array problems share: a decision of one real part ``x``, priced many rows at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from lamarckian.errors import ConfigError
from lamarckian.evaluator import (
    Array,
    BlobValue,
    Decision,
    Encoding,
    Floats,
    Objective,
    Outcome,
    Outcomes,
    Real,
)


class ArrayProblem(ABC):
    """Minimize :meth:`values` over a box.

    ``low``, ``high``: one number or ``[D]``. ``reference``: hypervolume reference point [K], in the
    units of the objectives.
    """

    #: Fewest variables the formula allows.
    smallest: ClassVar[int] = 1

    def __init__(
        self,
        num_variables: int,
        low: float | tuple[float, ...],
        high: float | tuple[float, ...],
        reference: tuple[float, ...] | None,
        num_objectives: int = 1,
    ) -> None:
        if num_variables < self.smallest:
            raise ConfigError(
                f"{type(self).__name__.lower()}: num_variables must be at least {self.smallest}, "
                f"got {num_variables}"
            )
        self.num_variables = num_variables
        self.num_objectives = num_objectives
        self.reference = reference
        names = ["f"] if num_objectives == 1 else [f"f{i + 1}" for i in range(num_objectives)]
        self._encoding = Encoding(
            parts={"x": Real(low, high, shape=num_variables)},
            objectives=tuple(
                Objective(name, "minimize", None if reference is None else reference[index])
                for index, name in enumerate(names)
            ),
        )

    @abstractmethod
    def values(self, x: Floats) -> Floats:
        """Return objectives ``[P, K]`` of decisions ``x`` [P, D]."""

    def describe(self) -> Encoding:
        return self._encoding

    def initialize(self, rng: np.random.Generator) -> Decision:
        return self._encoding.sample(rng)

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        del rng
        return Outcome(self.values(np.asarray(decision["x"])[None])[0])

    def evaluate_batch(
        self, decisions: Mapping[str, Array | BlobValue], rng: np.random.Generator
    ) -> Outcomes:
        del rng
        return Outcomes(self.values(np.asarray(decisions["x"])))

"""The bridge between searches and what they search: Encoding, Decision, Outcome, Evaluator.

An :class:`Evaluator` describes what may be decided (:class:`Encoding`: named parts, objectives,
constraints, descriptors), makes a first :data:`Decision`, and prices a decision (:class:`Outcome`).
A search (``lamarckian.ec``) knows nothing else about a problem, and a problem knows nothing about
searches.

A decision is a dict from part name to array:

=============  ==========================================  =====================================
part           value                                       meaning
=============  ==========================================  =====================================
`Real`         float64, shape ``shape``                    numbers within bounds
`Integer`      int64, shape ``shape``                      whole numbers, both bounds included
`Categorical`  int64, shape ``shape``                      indices into ``choices``
`Permutation`  int64, shape ``(num_chosen,)``              distinct items of ``range(num_items)``
`Blob`         dict of arrays, one per declared name       network weights
=============  ==========================================  =====================================

A stacked decision, as batch evaluators receive it, has the same keys and one leading axis ``P``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError, EvaluatorError, nearest

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
BlobValue: TypeAlias = dict[str, Array]
Decision: TypeAlias = dict[str, Array | BlobValue]
Direction: TypeAlias = Literal["minimize", "maximize"]


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int) else tuple(int(size) for size in shape)


class Real(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="real"):
    """Numbers in ``[low, high]``, float64, shape ``shape`` (``()`` for a single number).

    ``low`` and ``high`` are one number for all or one per entry (flat order). With
    ``scale="log"`` operators act on the logarithm, so that 1e-4 to 1e-3 is as wide as 1e-2 to 1e-1.

    Raises ConfigError for empty or non-finite bounds, or a log scale that touches zero.
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    shape: int | tuple[int, ...] = ()
    scale: Literal["linear", "log"] = "linear"

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "shape", _shape(self.shape))
        for name in ("low", "high"):
            bound = getattr(self, name)
            if not isinstance(bound, (int, float)):
                values = tuple(float(value) for value in np.asarray(bound, np.float64).ravel())
                if len(values) != self.size:
                    raise ConfigError(
                        f"Real: {name} has {len(values)} entries, expected 1 or {self.size}"
                    )
                msgspec.structs.force_setattr(self, name, values)
        low, high = self.bounds()
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise ConfigError(f"Real: expected finite low < high, got {self.low} and {self.high}")
        if self.scale == "log" and (low <= 0).any():
            raise ConfigError(
                f"Real: scale='log' needs low > 0, got {self.low}; give a small bound"
            )

    @property
    def size(self) -> int:
        return math.prod(_shape(self.shape))

    def bounds(self) -> tuple[Floats, Floats]:
        """Return ``(low, high)``, each float64 ``[size]``."""
        return (
            np.broadcast_to(np.asarray(self.low, np.float64), (self.size,)),
            np.broadcast_to(np.asarray(self.high, np.float64), (self.size,)),
        )

    def sample(self, rng: np.random.Generator) -> Floats:
        """Draw uniformly on the declared scale."""
        low, high = self.bounds()
        if self.scale == "log":
            values = np.exp(rng.uniform(np.log(low), np.log(high)))
            return np.clip(values, low, high).reshape(_shape(self.shape))
        return np.asarray(rng.uniform(low, high)).reshape(_shape(self.shape))


class Integer(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="integer"
):
    """Whole numbers from ``low`` to ``high``, both included, int64, shape ``shape``."""

    low: int
    high: int
    shape: int | tuple[int, ...] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "shape", _shape(self.shape))
        if self.low >= self.high:
            raise ConfigError(f"Integer: expected low < high, got {self.low} and {self.high}")

    @property
    def size(self) -> int:
        return math.prod(_shape(self.shape))

    def sample(self, rng: np.random.Generator) -> Array:
        return np.asarray(rng.integers(self.low, self.high + 1, _shape(self.shape)), np.int64)


class Categorical(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="categorical"
):
    """Indices into ``choices`` (at least two different ones), int64, shape ``shape``."""

    choices: tuple[str | int | float, ...]
    shape: int | tuple[int, ...] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "choices", tuple(self.choices))
        msgspec.structs.force_setattr(self, "shape", _shape(self.shape))
        if len(self.choices) < 2 or len(set(self.choices)) != len(self.choices):
            raise ConfigError(f"Categorical: expected two or more choices, got {self.choices}")

    @property
    def size(self) -> int:
        return math.prod(_shape(self.shape))

    def sample(self, rng: np.random.Generator) -> Array:
        return np.asarray(rng.integers(0, len(self.choices), _shape(self.shape)), np.int64)


class Permutation(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="permutation"
):
    """An ordered choice of ``num_chosen`` distinct items of ``range(num_items)``.

    ``num_chosen`` is all of them unless given. int64, shape ``(num_chosen,)``.
    """

    num_items: int
    num_chosen: int = 0

    def __post_init__(self) -> None:
        if self.num_chosen == 0:
            msgspec.structs.force_setattr(self, "num_chosen", self.num_items)
        if not 1 <= self.num_chosen <= self.num_items or self.num_items < 2:
            raise ConfigError(
                f"Permutation: expected 1 <= num_chosen <= num_items and two or more items, "
                f"got num_chosen={self.num_chosen}, num_items={self.num_items}"
            )

    def sample(self, rng: np.random.Generator) -> Array:
        return np.asarray(rng.permutation(self.num_items)[: self.num_chosen], np.int64)


class Blob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="blob"):
    """Named arrays that belong together, such as the weights of a network.

    ``shapes`` maps array name to ``(shape, dtype name)``, for example
    ``{"layer0.weight": ((64, 10), "float32")}``. ``initial_scale`` is the standard deviation of the
    normal draw used when an evaluator has no better way to initialize.
    """

    shapes: dict[str, tuple[tuple[int, ...], str]]
    initial_scale: float = 0.1

    def __post_init__(self) -> None:
        if not self.shapes:
            raise ConfigError("Blob: expected at least one named array, got none")
        for name, (_, dtype) in self.shapes.items():
            if np.dtype(dtype).kind != "f":
                raise ConfigError(f"Blob: array '{name}' must be of a float type, got {dtype}")

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for shape, _ in self.shapes.values())

    def sample(self, rng: np.random.Generator) -> BlobValue:
        return {
            name: (self.initial_scale * rng.standard_normal(shape)).astype(dtype)
            for name, (shape, dtype) in self.shapes.items()
        }


Part: TypeAlias = Real | Integer | Categorical | Permutation | Blob


def kind_of(part: Part) -> str:
    """Return ``real``, ``integer``, ``categorical``, ``permutation`` or ``blob``."""
    return str(part.__struct_config__.tag)


class Objective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number to minimize or maximize.

    ``reference`` is the value beyond which a solution adds no hypervolume, in the objective's own
    units (a high value for a minimized objective, a low one for a maximized one).
    """

    name: str
    direction: Direction = "minimize"
    reference: float | None = None


class Descriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feature of behaviour that MAP-Elites divides into ``bins`` from ``low`` to ``high``."""

    name: str
    low: float
    high: float
    bins: int = 10

    def __post_init__(self) -> None:
        if not self.low < self.high or self.bins < 1:
            raise ConfigError(f"Descriptor '{self.name}': expected low < high and bins >= 1")


class Encoding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What may be decided and what is measured: ordered named parts, objectives, constraints.

    A constraint value of zero or less is satisfied; a positive value is the amount of violation.
    """

    parts: dict[str, Part]
    objectives: tuple[Objective, ...]
    constraints: tuple[str, ...] = ()
    descriptors: tuple[Descriptor, ...] = ()

    def __post_init__(self) -> None:
        for name in ("objectives", "constraints", "descriptors"):
            msgspec.structs.force_setattr(self, name, tuple(getattr(self, name)))
        if not self.parts or not self.objectives:
            raise ConfigError("Encoding: expected at least one part and at least one objective")
        for name in self.parts:
            if not name or "/" in name:
                raise ConfigError(f"Encoding: part name {name!r} must not be empty or contain '/'")
        names = [objective.name for objective in self.objectives]
        if len(set(names)) != len(names):
            raise ConfigError(f"Encoding: objective names must differ, got {names}")

    def costs(self, objectives: Floats) -> Floats:
        """Turn objective values ``[..., K]`` into costs to minimize. It is its own inverse.

        The only place where directions are converted.
        """
        signs = [-1.0 if each.direction == "maximize" else 1.0 for each in self.objectives]
        return objectives if min(signs) > 0 else objectives * np.asarray(signs)

    def sample(self, rng: np.random.Generator) -> Decision:
        """Draw a decision uniformly within the bounds (blobs: normal with ``initial_scale``)."""
        return {name: part.sample(rng) for name, part in self.parts.items()}

    def check_decision(self, decision: Mapping[str, Any], partial: bool = False) -> Decision:
        """Return the decision with declared dtypes and shapes, in the order of the parts.

        ``partial`` allows parts to be absent. Raises EvaluatorError naming the part.
        """
        for name in decision:
            if name not in self.parts:
                raise EvaluatorError(
                    f"decision: unknown part '{name}'{nearest(name, self.parts)}; "
                    f"the encoding has {list(self.parts)}"
                )
        checked: Decision = {}
        for name, part in self.parts.items():
            if name in decision:
                checked[name] = _check_part(name, part, decision[name])
            elif not partial:
                raise EvaluatorError(f"decision: part '{name}' is missing")
        return checked

    def check_outcome(self, outcome: Outcome) -> Outcome:
        """Return the outcome if its lengths fit and its written-back parts are valid.

        A failed outcome needs no values. Raises EvaluatorError naming what does not fit.
        """
        if outcome.failed is None:
            for what, values, expected in (
                ("objectives", outcome.objectives, len(self.objectives)),
                ("constraints", outcome.constraints, len(self.constraints)),
                ("descriptors", outcome.descriptors, len(self.descriptors)),
            ):
                if values.shape != (expected,):
                    raise EvaluatorError(
                        f"outcome: expected {expected} {what}, got an array of {values.shape}"
                    )
            if outcome.decision is not None:
                outcome.decision = self.check_decision(outcome.decision, partial=True)
        return outcome

    def outcome(
        self,
        objectives: Mapping[str, float],
        constraints: Mapping[str, float] | None = None,
        descriptors: Mapping[str, float] | None = None,
        statistics: Mapping[str, float] | None = None,
        decision: Decision | None = None,
    ) -> Outcome:
        """Build an :class:`Outcome` from values given by name.

        Raises EvaluatorError if a name is missing or unknown.
        """
        return Outcome(
            objectives=_ordered("objective", [o.name for o in self.objectives], objectives),
            constraints=_ordered("constraint", self.constraints, constraints or {}),
            descriptors=_ordered(
                "descriptor", [d.name for d in self.descriptors], descriptors or {}
            ),
            statistics=dict(statistics or {}),
            decision=decision,
        )


def _ordered(what: str, names: Sequence[str], values: Mapping[str, float]) -> Floats:
    for name in values:
        if name not in names:
            raise EvaluatorError(f"outcome: unknown {what} '{name}'{nearest(name, names)}")
    for name in names:
        if name not in values:
            raise EvaluatorError(f"outcome: {what} '{name}' is missing")
    return np.array([values[name] for name in names], np.float64)


def _check_part(name: str, part: Part, value: Any) -> Array | BlobValue:
    if isinstance(part, Blob):
        if not isinstance(value, Mapping) or set(value) != set(part.shapes):
            got = list(value) if isinstance(value, Mapping) else type(value).__name__
            raise EvaluatorError(
                f"part '{name}': expected arrays named {list(part.shapes)}, got {got}"
            )
        blob: BlobValue = {}
        for key, (shape, dtype) in part.shapes.items():
            array = np.asarray(value[key], dtype)
            if array.shape != tuple(shape) or not np.isfinite(array).all():
                raise EvaluatorError(
                    f"part '{name}': array '{key}' must be finite and of shape {tuple(shape)}, "
                    f"got shape {array.shape}"
                )
            blob[key] = array
        return blob
    expected = (part.num_chosen,) if isinstance(part, Permutation) else _shape(part.shape)
    array = np.asarray(value)
    if array.shape != expected:
        raise EvaluatorError(f"part '{name}': expected shape {expected}, got {array.shape}")
    if isinstance(part, Real):
        array = np.asarray(array, np.float64)
        low, high = part.bounds()
        flat = array.ravel()
        # Written so that NaN fails as well.
        if not ((flat >= low) & (flat <= high)).all():
            raise EvaluatorError(
                f"part '{name}': expected values from {part.low} to {part.high}, got {array}"
            )
        return array
    if array.dtype.kind not in "iu":
        raise EvaluatorError(f"part '{name}': expected whole numbers, got {array.dtype}")
    array = array.astype(np.int64)
    first, last = (
        (part.low, part.high)
        if isinstance(part, Integer)
        else (0, (part.num_items if isinstance(part, Permutation) else len(part.choices)) - 1)
    )
    if array.size and not (array.min() >= first and array.max() <= last):
        raise EvaluatorError(f"part '{name}': expected values from {first} to {last}, got {array}")
    if isinstance(part, Permutation) and len(np.unique(array)) != array.size:
        raise EvaluatorError(f"part '{name}': items must not repeat, got {array}")
    return array


def _floats(values: Any) -> Floats:
    return np.asarray(values, np.float64).reshape(-1)


@dataclass(slots=True)
class Outcome:
    """What one evaluation found.

    ``objectives`` [K], ``constraints`` [C] (zero or less is satisfied) and ``descriptors`` are
    float64 in the order the encoding declares, objectives in the user's own direction.
    ``statistics`` are further named numbers for the record. ``decision`` holds parts that the
    evaluation improved and hands back to the individual (the Lamarckian step); parts left out stay
    as they were. ``failed`` is the reason why there is no result.
    """

    objectives: Floats
    constraints: Floats = field(default_factory=lambda: np.empty(0))
    descriptors: Floats = field(default_factory=lambda: np.empty(0))
    statistics: dict[str, float] = field(default_factory=dict)
    decision: Decision | None = None
    failed: str | None = None

    def __post_init__(self) -> None:
        self.objectives = _floats(self.objectives)
        self.constraints = _floats(self.constraints)
        self.descriptors = _floats(self.descriptors)

    @classmethod
    def failure(cls, reason: str) -> Outcome:
        """Return the outcome of an evaluation that gave no result."""
        return cls(objectives=np.empty(0), failed=reason)

    @property
    def usable(self) -> bool:
        """Whether selection may look at it: not failed, and every number it ranks by is finite."""
        return (
            self.failed is None
            and bool(np.isfinite(self.objectives).all())
            and bool(np.isfinite(self.constraints).all())
            and bool(np.isfinite(self.descriptors).all())
        )


@dataclass(slots=True)
class Outcomes:
    """Outcomes of a batch: ``objectives`` [P, K], ``constraints`` [P, C], ``descriptors`` [P, M].

    A row with a non-finite number counts as a failed evaluation.
    """

    objectives: Floats
    constraints: Floats | None = None
    descriptors: Floats | None = None


@runtime_checkable
class Evaluator(Protocol):
    """Prices a candidate. Everything a search needs to know about a problem."""

    def describe(self) -> Encoding:
        """Return what may be decided and what is measured. The same at every call."""
        ...

    def initialize(self, rng: np.random.Generator) -> Decision:
        """Make a first decision, drawing from ``rng`` only."""
        ...

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        """Price ``decision``, drawing from ``rng`` only. The decision must not be changed."""
        ...


@runtime_checkable
class BatchEvaluator(Evaluator, Protocol):
    """An evaluator that can also price many decisions in one array computation."""

    def evaluate_batch(
        self, decisions: Mapping[str, Array | BlobValue], rng: np.random.Generator
    ) -> Outcomes:
        """Price ``P`` stacked decisions: arrays ``[P, *shape]`` by part name."""
        ...

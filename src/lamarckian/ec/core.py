"""EC: a search that is asked for individuals and told what became of them.

    individuals = search.ask(8)
    for individual in individuals:
        individual.outcome = evaluator.evaluate(individual.decision, rng)
    search.tell(individuals)            # any number, in any order of arrival

Rules that hold for every search:

- ``ask(n)`` returns at most ``n`` individuals with new, growing ids. Fewer, or none, means that the
  search waits for outcomes (population based training does while all its members are out).
- ``tell`` takes outcomes in any order, one by one or together. Whenever ``generation_size`` of them
  have arrived, selection runs over them *in the order of their ids*. All workflow modes are made of
  this: *generational* asks a whole generation and tells it whole, *first-n* keeps more in flight
  than ``generation_size``, *steady-state* sets ``generation_size`` to 1.
- An outcome that failed or holds a non-finite number is counted and recorded, takes its place among
  the arrivals, is ranked last, and enters no mean, no distribution and no population.
- What an individual draws depends on (seed, id) alone, see ``draws.py``.
- Decisions are not proposed while an equal one is in flight or in the population, as far as a
  bounded number of retries can avoid it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.ec import pareto
from lamarckian.ec.batch import (
    FIRST_PARENT,
    GENERATION,
    HASH,
    ID,
    NUM_TAGS,
    ORIGIN,
    Batch,
    individuals_of,
    repeated_rows,
)
from lamarckian.ec.flight import InFlight
from lamarckian.ec.individual import Individual, Origin
from lamarckian.ec.population import Genes, Integers, Layout
from lamarckian.ec.snapshot import batch_from_state, batch_state
from lamarckian.ec.support import check_support
from lamarckian.errors import CheckpointError, ConfigError, EvaluatorError
from lamarckian.evaluator import Array, Decision, Encoding, Floats, Outcome, Outcomes

__all__ = ["EC", "Individual", "Initialize", "Origin", "State"]

Initialize: TypeAlias = Callable[[np.random.Generator], Decision]
Mask: TypeAlias = NDArray[np.bool_]
State: TypeAlias = tuple[dict[str, Any], dict[str, Array]]

NUM_RETRIES = 4
_COUNTERS = (
    "evaluations",
    "failures",
    "repeats_ignored",
    "duplicates_avoided",
    "duplicates_accepted",
)


class EC(ABC):
    """Base of all searches: identity, bookkeeping, arrivals, duplicates and state.

    A search implements :meth:`_propose` (make a batch) and :meth:`_select` (take arrivals in), and
    hands over its own further state. Raises UnsupportedSpace if the encoding does not fit.
    """

    name: ClassVar[str]
    #: Its fields ``population`` and ``generation_size`` may be None for the defaults.
    config_type: ClassVar[type[msgspec.Struct]]
    config: Any

    def __init__(
        self,
        encoding: Encoding,
        seed: int,
        config: Any = None,
        initialize: Initialize | None = None,
    ) -> None:
        check_support(self.name, encoding)
        if config is None:
            config = self.config_type()
        if not isinstance(config, self.config_type):
            raise ConfigError(
                f"{self.name}: config must be a {self.config_type.__name__}, "
                f"got {type(config).__name__}"
            )
        self.encoding = encoding
        self.seed = seed
        self.config = config
        self.layout = Layout(encoding)
        self.population_size: int = self.config.population or self._default_population()
        #: Arrivals after which selection runs.
        self.generation_size: int = self.config.generation_size or self.population_size
        #: Selections done so far.
        self.generation = 0
        self.evaluations = 0
        self.failures = 0
        #: Outcomes told for individuals that had been told before.
        self.repeats_ignored = 0
        self.duplicates_avoided = 0
        self.duplicates_accepted = 0
        self._nobody = self.new_batch(
            np.empty(0, np.int64), np.empty((0, 2), np.int64), (), self.layout.gather([])
        )
        self.population = self._nobody
        self._arrivals = self._nobody
        self._initialize = initialize or encoding.sample
        self._next_id = 0
        self._in_flight = InFlight()

    # What a search implements.

    @abstractmethod
    def _propose(self, num: int) -> Batch:
        """Return up to ``num`` new individuals; ids come from :meth:`new_ids`."""

    @abstractmethod
    def _select(self, arrivals: Batch) -> None:
        """Take ``generation_size`` arrivals, ordered by id, into the search."""

    def _default_population(self) -> int:
        return 100

    def _own_state(self) -> State:
        return {}, {}

    def _load_own_state(self, meta: dict[str, Any], arrays: dict[str, Array]) -> None:
        del meta, arrays

    # Asking.

    def ask(self, num: int) -> list[Individual]:
        """Return at most ``num`` individuals to evaluate."""
        batch = self.ask_batch(num)
        individuals = individuals_of(batch)
        if len(individuals) == 1:
            self._in_flight.hand_out(batch, individuals[0])
        return individuals

    def ask_batch(self, num: int) -> Batch:
        """Return the same proposals as :meth:`ask` as arrays, for batch evaluators."""
        batch = self._propose(num)
        self._in_flight.add(batch)
        return batch

    def in_flight(self) -> list[Individual]:
        """Return the individuals asked and not yet told, by id: what a resumed run evaluates."""
        return [individuals_of(batch)[0] for batch in self._in_flight.batches()]

    # Telling.

    def tell(self, individuals: Sequence[Individual]) -> int:
        """Take outcomes in; return how many selections ran.

        Parts written back by an outcome replace those of the individual. An outcome that
        contradicts the encoding counts as failed. Individuals that had been told before are ignored
        and counted. Raises EvaluatorError for an individual without an outcome.
        """
        fresh: dict[int, tuple[Individual, Outcome, Decision]] = {}
        for individual in individuals:
            if individual.outcome is None:
                raise EvaluatorError(f"individual {individual.id}: told without an outcome")
            if individual.id in fresh or not self._expects(individual.id):
                self.repeats_ignored += 1
                continue
            outcome, decision = self._checked(individual.outcome, individual.decision)
            fresh[individual.id] = (individual, outcome, decision)
        if not fresh:
            return 0
        batch = self._told(list(fresh.values()))
        outcomes = batch.outcomes or []
        if len(outcomes) == 1 and outcomes[0] is not None and outcomes[0].failed is None:
            alone = outcomes[0]
            return self._receive(
                batch, alone.objectives[None], alone.constraints[None], alone.descriptors[None]
            )
        encoding = self.encoding
        objectives = np.full((len(batch), len(encoding.objectives)), np.nan)
        constraints = np.full((len(batch), len(encoding.constraints)), np.nan)
        descriptors = np.full((len(batch), len(encoding.descriptors)), np.nan)
        for row, each in enumerate(outcomes):
            if each is not None and each.failed is None:
                objectives[row] = each.objectives
                constraints[row] = each.constraints
                descriptors[row] = each.descriptors
        return self._receive(batch, objectives, constraints, descriptors)

    def _told(self, told: Sequence[tuple[Individual, Outcome, Decision]]) -> Batch:
        """Return the individuals as they were told, written-back parts included."""
        if len(told) == 1 and told[0][1].decision is None:
            asked = self._in_flight.unchanged(told[0][0])
            if asked is not None:
                asked.outcomes = [told[0][1]]
                return asked
        genes = self.layout.gather([decision for _, _, decision in told])
        batch = self.new_batch(
            np.array([each.id for each, _, _ in told]),
            np.array([((*each.parents, -1, -1))[:2] for each, _, _ in told], np.int64),
            (),
            genes,
        )
        batch.tags[:, GENERATION] = [each.origin.generation for each, _, _ in told]
        batch.tags[:, ORIGIN] = [
            self.layout.origin_code(each.origin.operators) for each, _, _ in told
        ]
        batch.outcomes = [
            outcome if outcome.decision is None else replace(outcome, decision=None)
            for _, outcome, _ in told
        ]
        return batch

    def tell_batch(self, batch: Batch, outcomes: Outcomes) -> int:
        """Take the outcomes of a whole :meth:`ask_batch` in; return how many selections ran."""
        rows = len(batch)
        if not rows:
            return 0
        empty = np.empty((rows, 0))
        constraints = empty if outcomes.constraints is None else outcomes.constraints
        descriptors = empty if outcomes.descriptors is None else outcomes.descriptors
        for what, values, expected in (
            ("objectives", outcomes.objectives, len(self.encoding.objectives)),
            ("constraints", constraints, len(self.encoding.constraints)),
            ("descriptors", descriptors, len(self.encoding.descriptors)),
        ):
            if values.shape != (rows, expected):
                raise EvaluatorError(
                    f"outcomes: expected {what} of shape {(rows, expected)}, got {values.shape}"
                )
        return self._receive(batch, outcomes.objectives, constraints, descriptors)

    def _expects(self, identifier: int) -> bool:
        return identifier in self._in_flight or identifier >= self._next_id

    def _checked(self, outcome: Outcome, decision: Decision) -> tuple[Outcome, Decision]:
        try:
            outcome = self.encoding.check_outcome(outcome)
        except EvaluatorError as error:
            return Outcome.failure(str(error)), decision
        if outcome.failed is None and not outcome.usable:
            numbers = [*outcome.objectives, *outcome.constraints, *outcome.descriptors]
            outcome = replace(outcome, failed=f"non-finite number among {numbers}")
        if outcome.decision:
            decision = {**decision, **outcome.decision}
        return outcome, decision

    def _receive(
        self, batch: Batch, objectives: Floats, constraints: Floats, descriptors: Floats
    ) -> int:
        costs = self.encoding.costs(objectives)
        usable: Mask = np.asarray(np.isfinite(costs).all(1))
        violation = np.zeros(len(batch))
        if constraints.shape[1]:
            usable &= np.isfinite(constraints).all(1)
            violation = np.maximum(constraints, 0.0).sum(1)
        if descriptors.shape[1]:
            usable &= np.isfinite(descriptors).all(1)
        num_failed = len(batch) - int(np.count_nonzero(usable))
        if num_failed:
            # +inf marks what must never be selected; it sorts last by construction.
            costs = np.where(usable[:, None], costs, np.inf)
            violation = np.where(usable, violation, np.inf)
        batch.costs = costs
        batch.values[:, 0] = violation
        batch.constraints[:] = constraints
        batch.descriptors[:] = descriptors
        self.evaluations += len(batch)
        self.failures += num_failed
        self._in_flight.remove(batch)
        self._next_id = max(self._next_id, int(batch.ids.max()) + 1)
        return self._collect(batch)

    def _collect(self, batch: Batch) -> int:
        arrivals = Batch.concatenate([self._arrivals, batch]) if len(self._arrivals) else batch
        size, selections = self.generation_size, 0
        while len(arrivals) - selections * size >= size:
            rows = np.arange(selections * size, (selections + 1) * size)
            ordered = bool((arrivals.ids[1:] > arrivals.ids[:-1]).all())
            if not ordered:
                rows = rows[np.argsort(arrivals.ids[rows], kind="stable")]
            whole = ordered and len(arrivals) == size
            self._select(arrivals if whole else arrivals.take(rows))
            self.generation += 1
            selections += 1
        if len(arrivals) == selections * size:
            self._arrivals = self._nobody
        else:
            self._arrivals = arrivals.take(np.arange(selections * size, len(arrivals)))
        return selections

    @property
    def num_proposed(self) -> int:
        """Individuals asked so far; also the next id."""
        return self._next_id

    @property
    def num_arrived(self) -> int:
        """Outcomes that wait for the next selection."""
        return len(self._arrivals)

    # Looking.

    def individuals(self) -> list[Individual]:
        """Return the current population."""
        return individuals_of(self.population)

    def front(self) -> list[Individual]:
        """Return the non-dominated feasible individuals of the population and of new arrivals.

        With one objective that is the best one. While nothing is feasible, the least violating.
        """
        population = self._known()
        if not len(population):
            return []
        if population.costs.shape[1] == 1:
            return [self.best()]
        rows = np.flatnonzero(population.violation == population.violation.min())
        return individuals_of(population.take(rows[pareto.non_dominated(population.costs[rows])]))

    def best(self, objective: str | None = None) -> Individual:
        """Return the best individual by ``objective`` (the first one unless named).

        Feasible ones go before infeasible ones. Raises EvaluatorError if nothing was evaluated yet.
        """
        names = [each.name for each in self.encoding.objectives]
        column = 0 if objective is None else names.index(objective)
        population = self._known()
        if not len(population):
            raise EvaluatorError(f"{self.name}: no usable outcome was told yet")
        order = np.lexsort((population.costs[:, column], population.violation))
        return individuals_of(population.take(order[:1]))[0]

    def _known(self) -> Batch:
        return self.with_usable(self._arrivals) if len(self._arrivals) else self.population

    # State.

    def state(self) -> State:
        """Return everything needed to go on identically, as ``(JSON data, named arrays)``."""
        own, own_arrays = self._own_state()
        flying = self._in_flight.batches()
        meta: dict[str, Any] = {
            "schema": 1,
            "search": self.name,
            "seed": self.seed,
            "config": msgspec.to_builtins(self.config),
            "encoding": msgspec.to_builtins(self.encoding),
            "generation": self.generation,
            "next_id": self._next_id,
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "own": own,
        }
        arrays = {f"own/{name}": array for name, array in own_arrays.items()}
        for prefix, batch in (
            ("population", self.population),
            ("arrivals", self._arrivals),
            ("in_flight", Batch.concatenate(flying) if flying else self._nobody),
        ):
            meta[prefix], batch_arrays = batch_state(batch)
            arrays.update({f"{prefix}/{name}": array for name, array in batch_arrays.items()})
        return meta, arrays

    def load_state(self, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`state`.

        Raises CheckpointError if the state is of another search, encoding, seed or configuration.
        """
        for name, mine in (
            ("schema", 1),
            ("search", self.name),
            ("seed", self.seed),
            ("config", _plain(self.config)),
            ("encoding", _plain(self.encoding)),
        ):
            theirs = _plain(meta.get(name))
            if theirs != mine:
                raise CheckpointError(
                    f"{self.name}: the saved state was made with {name} {theirs}, "
                    f"this search has {mine}"
                )
        split: dict[str, dict[str, Array]] = {}
        for path, array in arrays.items():
            head, _, rest = path.partition("/")
            split.setdefault(head, {})[rest] = array
        self.generation, self._next_id = meta["generation"], meta["next_id"]
        for name in _COUNTERS:
            setattr(self, name, meta["counters"][name])
        self.population = batch_from_state(meta["population"], split["population"], self.layout)
        self._arrivals = batch_from_state(meta["arrivals"], split["arrivals"], self.layout)
        flying = batch_from_state(meta["in_flight"], split["in_flight"], self.layout)
        self._in_flight = InFlight()
        self._in_flight.add(flying)
        self._load_own_state(meta["own"], split.get("own", {}))

    # Helpers for searches.

    def with_usable(self, arrivals: Batch) -> Batch:
        """Return the population together with the arrivals that did not fail."""
        usable = np.flatnonzero(np.isfinite(arrivals.violation))
        if len(usable) < len(arrivals):
            arrivals = arrivals.take(usable)
        return Batch.concatenate([self.population, arrivals]) if len(self.population) else arrivals

    def new_ids(self, num: int) -> Integers:
        ids = np.arange(self._next_id, self._next_id + num)
        self._next_id += num
        return ids

    def new_batch(
        self, ids: Integers, parents: Integers, operators: tuple[str, ...], genes: Genes
    ) -> Batch:
        """Return individuals made by ``operators`` in this generation, without outcomes."""
        rows = len(ids)
        tags = np.empty((rows, NUM_TAGS), np.int64)
        tags[:, ID] = ids
        tags[:, FIRST_PARENT:GENERATION] = parents
        tags[:, GENERATION] = self.generation
        tags[:, HASH] = self.layout.hashes(genes)
        tags[:, ORIGIN] = self.layout.origin_code(operators)
        encoding = self.encoding
        num_values = 1 + len(encoding.constraints) + len(encoding.descriptors)
        return Batch(
            layout=self.layout,
            tags=tags,
            costs=np.full((rows, len(encoding.objectives)), np.inf),
            values=np.full((rows, num_values), np.inf),
            genes=genes,
        )

    def propose_initial(self, num: int) -> Batch:
        """Return ``num`` first individuals, each initialized from its own stream."""
        return self.propose_unique(num, self._initialized)

    def _initialized(self, ids: Integers, attempt: int) -> Batch:
        decisions = [
            self.encoding.check_decision(
                self._initialize(seeding.stream(self.seed, "initialize", identifier, attempt))
            )
            for identifier in ids.tolist()
        ]
        genes = self.layout.gather(decisions)
        parents = np.full((len(ids), 2), -1, np.int64)
        return self.new_batch(ids, parents, ("initialize",), genes)

    def propose_unique(self, num: int, vary: Callable[[Integers, int], Batch]) -> Batch:
        """Return ``vary(ids, 0)`` for ``num`` new ids.

        Duplicates are varied again, with attempt 1 to NUM_RETRIES.
        """
        ids = self.new_ids(num)
        batch = vary(ids, 0)
        known = (self._in_flight.hashes, set(self.population.tags[:, HASH].tolist()))
        duplicates = repeated_rows(batch.tags[:, HASH].tolist(), known)
        for attempt in range(1, NUM_RETRIES + 1):
            if not duplicates:
                break
            self.duplicates_avoided += len(duplicates)
            rows = np.array(duplicates)
            again = vary(ids[rows], attempt)
            batch.genes.put(rows, again.genes)
            batch.tags[rows] = again.tags
            duplicates = repeated_rows(batch.tags[:, HASH].tolist(), known)
        self.duplicates_accepted += len(duplicates)
        return batch


def _plain(value: Any) -> Any:
    """Return ``value`` as it looks after a trip through JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))

"""The asynchronous procedure: propose, evaluate independently, collect as they come, select.

After Fig. 1 of the Lamarckian paper. A search (``lamarckian.ec``) proposes individuals; each is
evaluated as an independent task of an :class:`Executor`; the collector tells the search what arrives.
Three modes, all made of the search's ``generation_size`` (see ``ec/core.py``):

``generational``   a whole generation is asked, awaited, and told in the order of its ids. Results do
                   not depend on who evaluated what, or when.
``first-n``        more are kept in flight than a generation needs; as soon as ``generation_size``
                   outcomes are in, selection runs and the next proposals start. Late outcomes count
                   in the generation in which they arrive, or are discarded when they come from more
                   than ``late_after`` selections ago.
``steady-state``   every arrival is selected at once and replaced by a new proposal.

An evaluation that fails or gives a number that is not finite is tried again ``retries`` times, then
told as failed; the search ranks it last. Dead and hanging workers are the executor's business: every
individual submitted comes back exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from lamarckian.ec import EC, Individual
from lamarckian.errors import ConfigError, EvaluatorError
from lamarckian.evaluator import Outcome

Mode: TypeAlias = Literal["generational", "first-n", "steady-state"]


@dataclass(slots=True)
class Finished:
    """One evaluation that ended. ``seconds`` is the time of the last attempt at its worker."""

    id: int
    outcome: Outcome
    seconds: float = 0.0
    attempts: int = 1
    worker: int = 0


class Executor(Protocol):
    """Workers that evaluate individuals."""

    @property
    def num_workers(self) -> int:
        """Evaluations (or groups of them) that can go on at the same time."""
        ...

    @property
    def group_size(self) -> int:
        """Individuals that one worker takes at once."""
        ...

    def submit(self, individuals: Sequence[Individual]) -> None:
        """Queue evaluations; those of one call may be taken by a worker as one group."""
        ...

    def collect(self, timeout: float | None = None) -> list[Finished]:
        """Return what ended, at least one; nothing after ``timeout`` seconds or if nothing is out.

        Individuals that were evaluated as one group come together.
        """
        ...

    def now(self) -> float:
        """Seconds on the executor's clock."""
        ...

    def close(self) -> None:
        """End all workers; what is out is dropped. Idempotent."""
        ...


class Listener(Protocol):
    """Hears of everything that happens, in the order in which it happens."""

    def proposed(self, call: int, requested: int, individuals: Sequence[Individual]) -> None:
        """The ``call``-th call of ``ask(requested)`` returned these."""
        ...

    def arrived(self, arrivals: Sequence[tuple[Individual, Finished]]) -> None:
        """Evaluations ended (one group). The individuals have their outcome, not told yet."""
        ...

    def selected(self, search: EC) -> None:
        """A selection ran."""
        ...


class Workflow:
    """Drives one search with one executor. Call :meth:`step` until it returns False.

    ``limit`` is the number of evaluations, ``generations`` that of selections (0: no limit).
    ``num_in_flight`` is how many individuals are out at the same time; 0 chooses: one per place of
    a worker, for ``first-n`` at least two generations' worth.

    Raises ConfigError for a combination that cannot work.
    """

    def __init__(
        self,
        search: EC,
        executor: Executor,
        listener: Listener,
        *,
        mode: Mode = "generational",
        limit: int = 0,
        generations: int = 0,
        num_in_flight: int = 0,
        late_after: int = 0,
        retries: int = 0,
    ) -> None:
        if not limit and not generations:
            raise ConfigError("evolution: give a budget of evaluations or of generations")
        if mode == "steady-state" and search.generation_size != 1:
            raise ConfigError(
                f"mode steady-state selects at every arrival: {search.name} must have "
                f"generation_size 1, it has {search.generation_size}"
            )
        self.search = search
        self.executor = executor
        self.listener = listener
        self.mode: Mode = mode
        self.limit = limit
        self.generations = generations
        self.late_after = late_after
        self.retries = retries
        #: Individuals asked at once: a generation, or all members of a search without generations.
        self.wave = search.generation_size if search.generation_size > 1 else search.population_size
        self.num_in_flight = num_in_flight or self._default_in_flight()
        if mode == "first-n" and self.num_in_flight <= search.generation_size:
            raise ConfigError(
                f"mode first-n needs more in flight than the expected number: num_in_flight is "
                f"{self.num_in_flight}, generation_size {search.generation_size}; raise the first"
            )
        self.calls = 0
        self.num_late = 0
        #: Individuals that are out, and the number of selections when they were proposed.
        self.out: dict[int, tuple[Individual, int]] = {}
        self._attempts: dict[int, int] = {}
        self._held: list[Individual] = []
        self._topped_up_at = -1
        self._busy = 0.0
        self._began: float | None = None
        self._last = 0.0
        self._num_submitted = 0

    def _default_in_flight(self) -> int:
        places = self.executor.num_workers * self.executor.group_size
        if self.mode == "generational":
            return self.wave
        if self.mode == "first-n":
            return max(places, 2 * self.search.generation_size)
        return places

    # The loop.

    @property
    def is_finished(self) -> bool:
        """Whether the budget is used up."""
        search = self.search
        return bool(
            (self.limit and search.evaluations >= self.limit)
            or (self.generations and search.generation >= self.generations)
        )

    def step(self, timeout: float | None = None) -> bool:
        """Propose what is due and take one arrival in; False when the budget is used up."""
        if self.is_finished:
            return False
        self.propose()
        if not self.out:
            return False  # the search has nothing to propose and waits for nothing
        for finished in self._by_group(self.executor.collect(timeout)):
            self._account()
            self.take(finished)
        return not self.is_finished

    def propose(self) -> None:
        """Ask for individuals as the mode wants and submit them."""
        num = self._num_due()
        if num <= 0:
            return
        self._topped_up_at = self.search.generation
        individuals = self.search.ask(num)
        self.note_proposals(num, individuals)
        if individuals:
            self._account()
            self.executor.submit(individuals)

    def note_proposals(self, requested: int, individuals: Sequence[Individual]) -> None:
        """Enter proposals into the books."""
        self.calls += 1
        for individual in individuals:
            self.out[individual.id] = (individual, self.search.generation)
        self.listener.proposed(self.calls, requested, individuals)

    def _num_due(self) -> int:
        if self.mode == "generational":
            num = 0 if self.out or self._held else self.wave
        elif self.mode == "first-n" and self._topped_up_at == self.search.generation:
            num = 0  # the next ones are proposed by the next generation
        else:
            num = self.num_in_flight - len(self.out)
        if self.limit:
            num = min(num, self.limit - self.search.evaluations - len(self.out) - len(self._held))
        return num

    def _by_group(self, finished: list[Finished]) -> list[list[Finished]]:
        """Keep what came together together, and hand what shall be tried again back."""
        kept = []
        for each in finished:
            if not each.outcome.usable and self._attempts.get(each.id, 0) < self.retries:
                self._attempts[each.id] = self._attempts.get(each.id, 0) + 1
                self.executor.submit([self.out[each.id][0]])
            else:
                each.attempts += self._attempts.pop(each.id, 0)
                kept.append(each)
        return [kept] if kept else []

    def take(self, finished: Sequence[Finished]) -> None:
        """Take one group of arrivals in: record, then tell, then note selections."""
        arrivals = []
        for each in finished:
            individual, generation = self.out.pop(each.id)
            age = self.search.generation - generation
            if self.late_after and age > self.late_after:
                self.num_late += 1
                each.outcome = Outcome.failure(
                    f"late: proposed {age} selections ago (late_after is {self.late_after})"
                )
            individual.outcome = each.outcome = self._valid(each.outcome)
            arrivals.append((individual, each))
        self.listener.arrived(arrivals)
        individuals = [individual for individual, _ in arrivals]
        if self.mode == "generational":
            self._held += individuals
            if self.out:
                return
            individuals, self._held = sorted(self._held, key=lambda each: each.id), []
        # Piece by piece, so that no two selections run unheard.
        size = self.search.generation_size - self.search.num_arrived
        while individuals:
            if self.search.tell(individuals[:size]):
                self.listener.selected(self.search)
            individuals, size = individuals[size:], self.search.generation_size

    def _valid(self, outcome: Outcome) -> Outcome:
        """Turn an outcome that selection cannot use into a failed one that says why.

        A failed evaluation writes nothing back.
        """
        try:
            outcome = self.search.encoding.check_outcome(outcome)
        except EvaluatorError as error:
            return Outcome.failure(str(error))
        if outcome.failed is None and not outcome.usable:
            numbers = [*outcome.objectives, *outcome.constraints, *outcome.descriptors]
            shown = ", ".join(f"{number:g}" for number in numbers)
            return replace(outcome, failed=f"non-finite number among {shown}", decision=None)
        return outcome if outcome.failed is None else replace(outcome, decision=None)

    # Going on after a kill.

    def replay_ask(self, call: int, requested: int) -> None:
        """Make the proposals of a recorded call of ``ask`` again, unless it was made already."""
        if call > self.calls:
            self._topped_up_at = self.search.generation
            self.note_proposals(requested, self.search.ask(requested))

    def resubmit(self) -> None:
        """Submit everything that is out, in the order of ids."""
        individuals = [self.out[identifier][0] for identifier in sorted(self.out)]
        self._account()
        if individuals:
            self.executor.submit(individuals)
            self._num_submitted = len(individuals)

    @property
    def is_at_rest(self) -> bool:
        """Whether :meth:`state` may be taken now: no arrival waits to be told."""
        return not self._held

    def state(self) -> dict[str, Any]:
        """Return what the next step depends on besides the search, as JSON data."""
        return {
            "calls": self.calls,
            "num_late": self.num_late,
            "topped_up_at": self._topped_up_at,
            "out": [[identifier, generation] for identifier, (_, generation) in self.out.items()],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`; the search has been loaded already."""
        self.calls = int(state["calls"])
        self.num_late = int(state["num_late"])
        self._topped_up_at = int(state["topped_up_at"])
        flying = {each.id: each for each in self.search.in_flight()}
        self.out = {int(i): (flying[int(i)], int(generation)) for i, generation in state["out"]}

    # How well the workers are used.

    def _account(self) -> None:
        """Add up the time of busy workers since the last call."""
        now = self.executor.now()
        if self._began is None:
            self._began = self._last = now
        groups = -(-self._num_submitted / self.executor.group_size)
        self._busy += min(groups, self.executor.num_workers) * (now - self._last)
        self._last = now
        self._num_submitted = len(self.out)

    @property
    def seconds(self) -> float:
        """Seconds on the executor's clock from the first proposal to the last arrival."""
        return 0.0 if self._began is None else self._last - self._began

    @property
    def idle_share(self) -> float:
        """Share of the workers' time in which they had nothing to do."""
        total = self.seconds * self.executor.num_workers
        return 1.0 - self._busy / total if total > 0 else 0.0


class Silent:
    """A listener that does nothing."""

    def proposed(self, call: int, requested: int, individuals: Sequence[Individual]) -> None:
        """Ignore."""

    def arrived(self, arrivals: Sequence[tuple[Individual, Finished]]) -> None:
        """Ignore."""

    def selected(self, search: EC) -> None:
        """Ignore."""

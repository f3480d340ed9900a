"""The loop of an evolution: what is recorded, when it is kept, and how it is brought back.

Two loops share the bookkeeping: :class:`TaskLoop` evaluates individuals as independent tasks,
:class:`ArrayLoop` evaluates whole generations of a numeric problem as arrays.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from lamarckian import seeding
from lamarckian.ec import EC, Individual, pareto
from lamarckian.ec.batch import Batch
from lamarckian.errors import EvaluatorError, RunError
from lamarckian.evaluator import BatchEvaluator, Outcomes
from lamarckian.evorl.evaluating import evaluate_one, stream_of
from lamarckian.evorl.workflow import Finished, Workflow
from lamarckian.metrics import Recorder
from lamarckian.runs import individuals as storage
from lamarckian.runs.control import Mailbox
from lamarckian.runs.evolution import EvolutionResult, Parts
from lamarckian.runs.evolution_metrics import indicators, progress_metrics
from lamarckian.runs.folder import Run
from lamarckian.runs.interrupts import interrupts
from lamarckian.runs.journal import Entry

SYNC_SECONDS = 1.0
"""Outcomes survive a killed process at once, and a power cut after so many seconds."""


def drive(parts: Parts, run: Run, recorder: Recorder, *, first: bool) -> EvolutionResult:
    """Run the loop that fits ``parts`` until the budget is used up or the user interrupts."""
    kind = ArrayLoop if parts.is_array_problem else TaskLoop
    return kind(parts, run, recorder).run_all(first=first)


class _Loop:
    """What both loops share: checkpoints, events of selections, the result."""

    def __init__(self, parts: Parts, run: Run, recorder: Recorder) -> None:
        self.parts = parts
        self.settings = parts.settings
        self.search: EC = parts.search
        self.run = run
        self.recorder = recorder
        self.seconds_before = 0.0
        self.recorded_generation = 0
        self._began = time.perf_counter()
        self._evaluations_before = 0
        self._next_checkpoint = 0.0
        self._saved_at = -1
        self._synced = time.perf_counter()

    # What a loop implements.

    def step(self) -> bool:
        """Do the next piece of work; False when there is none left."""
        raise AssertionError("a loop implements step")

    def replay(self, entries: Sequence[Entry]) -> None:
        """Bring the search back to where the journal ends."""

    def own_state(self) -> dict[str, Any]:
        return {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        del state

    def before_checkpoint(self) -> bool:
        """Store what the checkpoint relies on; False if now is no time for one."""
        return True

    def after_checkpoint(self) -> None:
        """Drop what nothing relies on any more."""

    def idle_share(self) -> float:
        return 0.0

    def close(self) -> None:
        """End the workers."""

    # The loop.

    def run_all(self, *, first: bool) -> EvolutionResult:
        reason = ""
        try:
            if first:
                self.checkpoint()
            else:
                self._restore()
            self._began = time.perf_counter()
            self._evaluations_before = self.search.evaluations
            self._next_checkpoint = self._began + self.settings.checkpoint_seconds
            mailbox = Mailbox(self.run, self.recorder)
            with interrupts() as interrupted:
                while not reason:
                    reason, paused = mailbox.obey(interrupted)
                    self._began += paused
                    self._next_checkpoint += paused
                    if reason:
                        break
                    if not self.step():
                        reason = "budget"
                    elif interrupted:
                        reason = interrupted[0]
                    elif time.perf_counter() >= self._next_checkpoint:
                        self.checkpoint()
            self.checkpoint()
        finally:
            self.close()
        return self._result(reason)

    def _restore(self) -> None:
        saved = self.run.load("last", require=("search", "loop"))
        arrays = {k[7:]: v for k, v in saved.arrays.items() if k.startswith("search/")}
        self.search.load_state(saved.state["search"], arrays)
        self.load_own_state(saved.state["own"])
        self.seconds_before = float(saved.state["loop"]["seconds"])
        self.recorded_generation = int(saved.state["loop"]["recorded_generation"])
        entries = [each for each in self.run.replay() if each.sequence > saved.info.sequence]
        for entry in entries:
            if entry.event == "generation":
                self.recorded_generation = int(entry.fields["generation"])
                self.seconds_before = float(entry.fields["metrics"].get("wall_seconds") or 0.0)
        self.run.journal.resume(self.run.journal.sequence, saved.info.step)
        self.replay(entries)

    def checkpoint(self) -> None:
        """Write everything the next step depends on, unless that is on disk already."""
        if self._saved_at == self.search.evaluations or not self.before_checkpoint():
            return
        meta, arrays = self.search.state()
        state = {
            "search": meta,
            "own": self.own_state(),
            "loop": {"seconds": self.seconds, "recorded_generation": self.recorded_generation},
        }
        self.run.save(self.search.evaluations, state, {f"search/{k}": v for k, v in arrays.items()})
        self._saved_at = self.search.evaluations
        self._next_checkpoint = time.perf_counter() + self.settings.checkpoint_seconds
        self.after_checkpoint()

    def note_selection(self) -> None:
        """Record that a selection ran, unless a journal that is being replayed has it."""
        search = self.search
        if search.generation <= self.recorded_generation:
            return
        self.recorded_generation = search.generation
        ids = search.population.ids
        rows = front_rows(search.population)
        metrics = progress_metrics(search, rows)
        metrics |= {
            "failed_evaluations": float(search.failures),
            "wall_seconds": self.seconds,
            "evaluations_per_second": self.evaluations_per_second,
            "share_idle": self.idle_share(),
        }
        self.recorder.record(
            "generation",
            {
                "generation": search.generation,
                "population": [str(each) for each in ids.tolist()],
                "front": [str(each) for each in ids[rows].tolist()],
                "evaluations": search.evaluations,
                "metrics": metrics,
            },
        )

    def sync_now_and_then(self) -> None:
        """Make what was recorded survive a power cut; a killed process never loses it."""
        now = time.perf_counter()
        if now - self._synced > SYNC_SECONDS:
            self.run.journal.sync()
            self._synced = now

    @property
    def seconds(self) -> float:
        """Seconds of evolution so far, pauses left out."""
        return self.seconds_before + time.perf_counter() - self._began

    @property
    def evaluations_per_second(self) -> float:
        spent = time.perf_counter() - self._began
        return (self.search.evaluations - self._evaluations_before) / max(spent, 1e-9)

    def _result(self, reason: str) -> EvolutionResult:
        search = self.search
        seconds = self.seconds
        front = search.front()
        return EvolutionResult(
            run=str(self.run.path),
            problem=self.settings.problem,
            ec=search.name,
            evaluations=search.evaluations,
            generations=search.generation,
            failures=search.failures,
            seconds=seconds,
            evaluations_per_second=self.evaluations_per_second,
            idle_share=self.idle_share(),
            finished=reason == "budget",
            reason=reason,
            front_size=len(front),
            best=[storage.summary(each, self.parts.encoding) for each in front],
            indicators=indicators(self.parts.evaluator, search),
        )


class TaskLoop(_Loop):
    """Individuals as independent tasks; hears of them as the workflow's listener."""

    def __init__(self, parts: Parts, run: Run, recorder: Recorder) -> None:
        super().__init__(parts, run, recorder)
        settings = self.settings
        self.executor = parts.executor()
        self.workflow = Workflow(
            self.search,
            self.executor,
            self,
            mode=settings.mode,
            limit=settings.evaluations,
            generations=settings.generations,
            num_in_flight=settings.num_in_flight,
            late_after=settings.late_after,
            retries=settings.retries,
        )
        self.weights = storage.WeightStore(run, parts.encoding, settings.keep_weights)
        self._known: dict[str, set[int]] = {"proposed": set(), "told": set(), "group": set()}
        self._warned: set[str] = set()

    def step(self) -> bool:
        # The timeout only lets an interrupt be seen while nothing arrives.
        return self.workflow.step(timeout=0.5)

    def idle_share(self) -> float:
        return self.workflow.idle_share

    def close(self) -> None:
        self.executor.close()

    # Listening.

    def proposed(self, call: int, requested: int, individuals: Sequence[Individual]) -> None:
        for each in individuals:
            if each.id in self._known["proposed"]:
                continue
            self.recorder.record(
                "individual_proposed",
                {
                    "id": str(each.id),
                    "parents": [str(parent) for parent in each.parents],
                    "origin": "+".join(each.origin.operators),
                    "generation": each.origin.generation,
                    "call": call,
                    "requested": requested,
                },
            )

    def arrived(self, arrivals: Sequence[tuple[Individual, Finished]]) -> None:
        told = []
        for individual, finished in arrivals:
            if individual.id in self._known["told"]:
                continue
            told.append(storage.told_fields(individual, finished, self.weights))
        in_group = {int(each["id"]) for each in told}
        if len(arrivals) > 1 and in_group - self._known["group"]:
            self.recorder.record("group_told", {"told": told})
        for fields in told:
            self.recorder.record("individual_told", fields)
            self._warn(str(fields["reason"]))
        self.sync_now_and_then()

    def selected(self, search: EC) -> None:
        self.note_selection()

    def _warn(self, reason: str) -> None:
        """Tell the user once about each way in which evaluations fail."""
        head = reason.partition("\n")[0][:200]
        if head and head not in self._warned and len(self._warned) < 20:
            self._warned.add(head)
            self.recorder.record(
                "warning", {"message": f"an evaluation failed: {head}", "key": "evaluation"}
            )

    # Keeping and bringing back.

    def own_state(self) -> dict[str, Any]:
        return self.workflow.state()

    def load_own_state(self, state: dict[str, Any]) -> None:
        self.workflow.load_state(state)

    def before_checkpoint(self) -> bool:
        return self.workflow.is_at_rest

    def after_checkpoint(self) -> None:
        self.weights.drop_all_but(set(self.search.population.ids.tolist()))

    def replay(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.event == "individual_proposed":
                self._known["proposed"].add(int(entry.fields["id"]))
            elif entry.event == "individual_told":
                self._known["told"].add(int(entry.fields["id"]))
            elif entry.event == "group_told":
                self._known["group"] |= {int(each["id"]) for each in entry.fields["told"]}
        workflow = self.workflow
        for entry in entries:
            if entry.event == "individual_proposed":
                workflow.replay_ask(int(entry.fields["call"]), int(entry.fields["requested"]))
                if int(entry.fields["id"]) not in workflow.out:
                    raise RunError(
                        f"{self.run.path}: the search does not propose individual "
                        f"{entry.fields['id']} again as the journal says; the problem or the "
                        "release has changed since"
                    )
            elif entry.event == "group_told":
                self._retell(entry.fields["told"])
            elif entry.event == "individual_told" and int(entry.fields["id"]) in workflow.out:
                self._retell([entry.fields])
        self.weights.adopt()
        # Evaluated and stored, but killed before the journal said so.
        stored = [each for each in workflow.out if storage.has_file(self.run, each)]
        if stored and (self.executor.group_size == 1 or len(stored) == len(workflow.out)):
            for identifier in stored:
                self._retell([storage.read_file(self.run, identifier)["told"]])
        workflow.resubmit()

    def _retell(self, told: Sequence[dict[str, Any]]) -> None:
        finished = [storage.finished_from(self.run, fields, self.parts.encoding) for fields in told]
        self.workflow.take(finished)


class ArrayLoop(_Loop):
    """Whole generations of a numeric problem, evaluated as arrays in this process."""

    def __init__(self, parts: Parts, run: Run, recorder: Recorder) -> None:
        super().__init__(parts, run, recorder)
        assert isinstance(parts.evaluator, BatchEvaluator)
        self.evaluator: BatchEvaluator = parts.evaluator
        search = self.search
        self.wave = search.generation_size if search.generation_size > 1 else search.population_size
        self._rng = seeding.stream(search.seed, "evaluate-batch")
        self._rng_start = self._rng.bit_generator.state
        self._buffer: list[tuple[Batch, Outcomes]] = []

    def step(self) -> bool:
        num = self._num_due()
        if num <= 0:
            return False
        batch = self.search.ask_batch(num)
        if not len(batch):
            return False
        # A far jump within one stream: as good as a stream per batch, and cheaper.
        self._rng.bit_generator.state = self._rng_start
        self._rng.bit_generator.advance(int(batch.ids[0]) << 64)  # type: ignore[attr-defined]
        began = time.perf_counter()
        stacked = self.search.layout.stacked(batch.genes)
        try:
            outcomes = self._checked(self.evaluator.evaluate_batch(stacked, self._rng), num)
        except EvaluatorError:
            raise
        except Exception as error:
            outcomes = self._one_by_one(batch, error)
        self._record(batch, outcomes, time.perf_counter() - began)
        self._tell(batch, outcomes)
        self.sync_now_and_then()
        return self._num_due() > 0

    def _checked(self, outcomes: Outcomes, num: int) -> Outcomes:
        encoding = self.parts.encoding
        for what, count in (
            ("objectives", len(encoding.objectives)),
            ("constraints", len(encoding.constraints)),
            ("descriptors", len(encoding.descriptors)),
        ):
            values = getattr(outcomes, what)
            shape = (num, 0) if values is None else np.shape(values)
            if shape != (num, count):
                raise EvaluatorError(
                    f"{self.settings.problem}: evaluate_batch: expected {what} of shape "
                    f"{(num, count)}, got {shape}"
                )
        return outcomes

    def _one_by_one(self, batch: Batch, error: Exception) -> Outcomes:
        """Evaluate alone what could not be evaluated together, so that only some of it fails."""
        self.recorder.record(
            "warning",
            {
                "message": f"evaluate_batch raised {type(error).__name__}: {error}; its rows are "
                "evaluated one by one",
                "key": "evaluation",
            },
        )
        encoding = self.parts.encoding
        rows = [
            evaluate_one(self.parts.evaluator, decision, stream_of(self.search.seed, identifier))
            for decision, identifier in zip(
                self.search.layout.decisions(batch.genes), batch.ids.tolist(), strict=True
            )
        ]

        def column(name: str, count: int) -> Any:
            return np.array(
                [np.full(count, np.nan) if each.failed else getattr(each, name) for each in rows]
            ).reshape(len(rows), count)

        return Outcomes(
            column("objectives", len(encoding.objectives)),
            column("constraints", len(encoding.constraints)),
            column("descriptors", len(encoding.descriptors)),
        )

    def _num_due(self) -> int:
        settings, search = self.settings, self.search
        if settings.generations and search.generation >= settings.generations:
            return 0
        if settings.evaluations:
            return min(self.wave, settings.evaluations - search.evaluations)
        return self.wave

    def _record(self, batch: Batch, outcomes: Outcomes, seconds: float) -> None:
        def rows(values: Any) -> list[list[float]]:
            return [] if values is None else np.asarray(values, np.float64).tolist()

        self.recorder.record(
            "batch_told",
            {
                "first": int(batch.ids[0]),
                "count": len(batch),
                "objectives": rows(outcomes.objectives),
                "constraints": rows(outcomes.constraints),
                "descriptors": rows(outcomes.descriptors),
                "seconds": seconds,
            },
        )

    def _tell(self, batch: Batch, outcomes: Outcomes) -> None:
        self._buffer.append((batch, outcomes))
        for _ in range(self.search.tell_batch(batch, outcomes)):
            self.note_selection()

    def before_checkpoint(self) -> bool:
        if self._buffer:
            storage.write_batches(self.run, self.search.layout, self._buffer)
            self._buffer.clear()
        return True

    def replay(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.event != "batch_told":
                continue
            fields = entry.fields
            batch = self.search.ask_batch(int(fields["count"]))
            if int(batch.ids[0]) != int(fields["first"]):
                raise RunError(
                    f"{self.run.path}: the search proposes individual {int(batch.ids[0])} where "
                    f"the journal has {fields['first']}; the problem or the release has changed"
                )
            self._tell(
                batch,
                Outcomes(
                    np.array(fields["objectives"], np.float64),
                    np.array(fields["constraints"], np.float64) if fields["constraints"] else None,
                    np.array(fields["descriptors"], np.float64) if fields["descriptors"] else None,
                ),
            )


def front_rows(population: Batch) -> Any:
    """Return the rows of the non-dominated feasible individuals; one objective: of the best."""
    if not len(population):
        return np.empty(0, np.int64)
    if population.costs.shape[1] == 1:
        return np.lexsort((population.costs[:, 0], population.violation))[:1]
    rows = np.flatnonzero(population.violation == population.violation.min())
    return rows[pareto.non_dominated(population.costs[rows])]

"""The asynchronous procedure: modes, late results, leases, retries, and how well workers are used."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from evaluators import Bowl, Troubled

from lamarckian import ec
from lamarckian.distributed.group import WorkerOptions
from lamarckian.distributed.placement import placement
from lamarckian.ec import EC, Individual
from lamarckian.errors import ConfigError
from lamarckian.evorl.executors import InProcess, Pool
from lamarckian.evorl.simulation import Simulated, log_normal
from lamarckian.evorl.workflow import Finished, Mode, Silent, Workflow

MODES: tuple[Mode, ...] = ("generational", "first-n", "steady-state")


class Listening(Silent):
    """Notes when what happened, on the executor's clock."""

    def __init__(self) -> None:
        self.told: list[tuple[int, Finished]] = []
        self.generations: list[int] = []
        self.most_out = 0
        self.workflow: Workflow | None = None

    def arrived(self, arrivals: Sequence[tuple[Individual, Finished]]) -> None:
        assert self.workflow is not None
        self.told += [(self.workflow.search.generation, finished) for _, finished in arrivals]
        self.most_out = max(self.most_out, len(self.workflow.out) + len(arrivals))

    def selected(self, search: EC) -> None:
        self.generations.append(search.generation)


def search_for(evaluator: Any, mode: Mode, size: int = 8, population: int = 8) -> EC:
    size = 1 if mode == "steady-state" else size
    return ec.make(
        "ga", evaluator.describe(), 0, evaluator.initialize, population=population,
        generation_size=size,
    )  # fmt: skip


def run(
    mode: Mode, executor: Any, evaluator: Any, limit: int = 64, size: int = 8, **options: Any
) -> tuple[Workflow, Listening]:
    listening = Listening()
    workflow = Workflow(
        search_for(evaluator, mode, size), executor, listening, mode=mode, limit=limit, **options
    )
    listening.workflow = workflow
    while workflow.step():
        pass
    executor.close()
    return workflow, listening


@pytest.mark.parametrize("mode", ["generational", "first-n", "steady-state"])
def test_every_mode_uses_its_budget_exactly(mode: Mode) -> None:
    workflow, listening = run(mode, Simulated(Bowl(), 0, 8, log_normal(1)), Bowl(), limit=61)
    assert workflow.search.evaluations == 61
    assert len(listening.told) == 61
    assert sorted(each.id for _, each in listening.told) == list(range(61))
    assert listening.most_out <= {"generational": 8, "first-n": 16, "steady-state": 8}[mode]


def test_generational_results_do_not_depend_on_the_order_of_arrival() -> None:
    runs = []
    for seed in (1, 2):
        workflow, _ = run("generational", Simulated(Bowl(), 0, 8, log_normal(seed)), Bowl())
        runs.append([each.id for each in workflow.search.individuals()])
    alone, _ = run("generational", InProcess(Bowl(), 0), Bowl())
    runs.append([each.id for each in alone.search.individuals()])
    assert runs[0] == runs[1] == runs[2]


def durations(slow: float) -> Any:
    """Individual 3 takes ``slow`` times as long as the others."""
    return lambda identifier: slow if identifier == 3 else 1.0


def test_pitfalls_evo_09_one_slow_member_holds_nobody() -> None:
    # One of 8 takes 50 times as long. Waiting for it: 8 generations take 50 + 7 = 57 s.
    waiting, _ = run("generational", Simulated(Bowl(), 0, 8, durations(50.0)), Bowl())
    assert waiting.seconds == 57.0
    # 7 workers do the other 63 in 9 rounds; the slow one's worker is busy until second 50.
    steady, told = run("steady-state", Simulated(Bowl(), 0, 8, durations(50.0)), Bowl())
    others = [each for _, each in told.told if each.id != 3]
    assert len(others) == 63
    assert steady.search.failures == 0
    generation_of_slow = next(generation for generation, each in told.told if each.id == 3)
    assert generation_of_slow == 63  # everybody else had gone on by then; it was used all the same
    assert 3 in {each.id for each in steady.search.individuals()} or steady.search.evaluations == 64


def test_pitfalls_evo_09_late_results_are_discarded_by_the_stated_rule() -> None:
    kept, _ = run(
        "first-n", Simulated(Bowl(), 0, 16, durations(3.5)), Bowl(), limit=80, late_after=0
    )
    assert (kept.num_late, kept.search.failures) == (0, 0)
    dropped, told = run(
        "first-n", Simulated(Bowl(), 0, 16, durations(3.5)), Bowl(), limit=80, late_after=1
    )
    assert dropped.num_late == dropped.search.failures == 1
    late = next(each for _, each in told.told if each.id == 3)
    assert late.outcome.failed is not None
    assert late.outcome.failed.startswith("late: proposed")


def test_an_individual_is_never_out_twice() -> None:
    out: set[int] = set()

    class Watching(Simulated):
        def submit(self, individuals: Sequence[Individual]) -> None:
            for each in individuals:
                assert each.id not in out
                out.add(each.id)
            super().submit(individuals)

    bowl = Bowl()
    workflow, _ = run("steady-state", Watching(bowl, 0, 16, log_normal(3)), bowl, limit=200)
    decisions = {each.decision["x"].tobytes() for each in workflow.search.individuals()}  # type: ignore[union-attr]
    assert len(decisions) == len(workflow.search.individuals())
    assert workflow.search.duplicates_accepted == 0


def test_failures_are_tried_again_before_they_count() -> None:
    attempts: dict[int, int] = {}

    class Flaky(Bowl):
        def evaluate(self, decision: Any, rng: np.random.Generator) -> Any:
            key = int(rng.integers(2**62))
            attempts[key] = attempts.get(key, 0) + 1
            if attempts[key] == 1:
                raise OSError("the network was down")
            return super().evaluate(decision, rng)

    workflow, listening = run("steady-state", InProcess(Flaky(), 0), Flaky(), limit=8, retries=1)
    assert workflow.search.failures == 0
    assert {each.attempts for _, each in listening.told} == {2}
    workflow, _ = run("steady-state", InProcess(Flaky(), 1), Flaky(), limit=8)
    assert workflow.search.failures == 8


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("generational", {"limit": 0}, "budget"),
        ("first-n", {"num_in_flight": 8}, "more in flight"),
    ],
)
def test_what_cannot_work_is_refused(mode: Mode, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(mode, InProcess(Bowl(), 0), Bowl(), **{"limit": 8, **options})


def test_idle_shares_of_the_modes() -> None:
    shares = {}
    for mode in MODES:
        generational = mode == "generational"
        options: dict[str, Any] = {} if generational else {"num_in_flight": 64}
        # first-n: the expected number is half of the workers.
        search = search_for(Bowl(), mode, 64 if generational else 32)
        executor = Simulated(None, 0, 64, log_normal(0))
        workflow = Workflow(search, executor, Silent(), mode=mode, limit=2560, **options)
        while search.num_proposed < 2560 and workflow.step():
            pass  # until the last one is out: the end of a run is not what is measured
        shares[mode] = workflow.idle_share
    # E[max of 64 draws] / E[draw] of a log-normal with sigma 1 is about 7: 1 - 1/7 = 0.86.
    assert 0.80 < shares["generational"] < 0.90
    assert shares["first-n"] < 0.26
    assert shares["steady-state"] < 0.001


def pool(how: str, *, lease: float | None = None, max_attempts: int = 2) -> Pool:
    return Pool(
        placement("processes", WorkerOptions(hung_after=None, restart_backoff=0.01)),
        {"problem": "evaluators:Troubled", "options": {"how": how, "every": 6}, "training": None},
        0,
        num_workers=2,
        lease=lease,
        max_attempts=max_attempts,
        report=lambda line: None,
    )


@pytest.mark.parametrize(("how", "kind"), [("hang", "hung"), ("die", "exit"), ("raise", "crash")])
def test_pitfalls_evo_10_hanging_dying_and_raising_evaluations_are_recorded(
    how: str, kind: str
) -> None:
    began = time.monotonic()
    executor = pool(how, lease=0.3 if how == "hang" else None)
    workflow, listening = run("steady-state", executor, Troubled(how), limit=16)
    assert time.monotonic() - began < 60
    assert workflow.search.evaluations == 16
    failed = [each for _, each in listening.told if each.outcome.failed is not None]
    assert failed
    assert workflow.search.failures == len(failed)
    for each in failed:
        assert each.outcome.failed is not None
        assert kind in each.outcome.failed or "exited" in each.outcome.failed
        assert each.attempts == (1 if how == "raise" else 2)
    # The same individuals fail whoever evaluates them: what they draw depends on their id alone.
    alone, here = run("steady-state", InProcess(Troubled("raise", 6), 0), Troubled(), limit=16)
    failed_here = {each.id for _, each in here.told if each.outcome.failed is not None}
    assert {each.id for each in failed} == failed_here
    assert alone.search.failures == len(failed_here)

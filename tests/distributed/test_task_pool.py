"""Requests come back exactly once, in any order, whatever happens to the workers."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from lamarckian.distributed import InProcess, Processes, TaskPool, TaskResult, WorkerOptions
from lamarckian.errors import WorkerError

OPTIONS = WorkerOptions(
    allow_oversubscription=True, restart_backoff=0.05, max_restarts=1, stop_timeout=0.5
)
BOTH = pytest.mark.parametrize("place", [InProcess(), Processes(OPTIONS)], ids=lambda p: p.name)


def collect(pool: TaskPool, seconds: float = 30.0) -> dict[int, TaskResult]:
    results: dict[int, TaskResult] = {}
    until = time.monotonic() + seconds
    while pool.num_outstanding:
        result = pool.poll(max(0.0, until - time.monotonic()))
        assert result is not None, f"out of time with {pool.num_outstanding} outstanding"
        assert result.task not in results
        results[result.task] = result
    return results


@BOTH
def test_every_request_is_answered_once(place: InProcess | Processes) -> None:
    with TaskPool(place, "worker_entries:make_square", [{}, {}]) as pool:
        tasks = [pool.submit({}, {"x": np.arange(4.0) + i}) for i in range(20)]
        assert pool.num_outstanding == 20
        results = collect(pool)
        assert pool.poll(0.1) is None
    assert sorted(results) == tasks
    for task, result in results.items():
        assert result.is_ok
        assert result.attempts == 1
        assert (result.arrays["y"] == (np.arange(4.0) + task) ** 2).all()


@BOTH
def test_a_request_that_raises_fails_alone_with_its_traceback(place: InProcess | Processes) -> None:
    with TaskPool(place, "worker_entries:make_square", [{}]) as pool:
        bad = pool.submit({"how": "user"})
        good = pool.submit({}, {"x": np.ones(2)})
        results = collect(pool)
    assert results[good].is_ok
    error = results[bad].error
    assert error is not None
    assert error.exit_code == 2
    assert "observation 'y' is NaN" in str(error)
    assert "in handle" in error.traceback_text


def test_pitfalls_evo_09_a_slow_request_delays_no_other() -> None:
    with TaskPool(Processes(OPTIONS), "worker_entries:make_square", [{}, {}]) as pool:
        slow = pool.submit({"sleep": 1.5}, {"x": np.ones(1)})
        fast = {pool.submit({}, {"x": np.ones(1)}) for _ in range(10)}
        began = time.monotonic()
        first = {pool.poll(10.0).task for _ in range(10)}  # type: ignore[union-attr]
        assert first == fast
        assert time.monotonic() - began < 1.4
        assert slow not in first


@pytest.mark.parametrize("how", ["kill", "exit", "hang"])
def test_a_request_whose_worker_dies_or_hangs_is_tried_again(how: str, tmp_path: Path) -> None:
    with TaskPool(
        Processes(OPTIONS), "worker_entries:make_square", [{}, {}], lease=1.0, report=lambda s: None
    ) as pool:
        marker = str(tmp_path / "once")
        bad = pool.submit({"how": how, "marker": marker}, {"x": np.full(2, 3.0)})
        for _ in range(3):
            pool.submit({}, {"x": np.ones(1)})
        results = collect(pool)
    assert all(result.is_ok for result in results.values())
    assert results[bad].attempts == 2
    assert (results[bad].arrays["y"] == 9.0).all()


def test_a_request_that_kills_every_worker_fails_and_the_pool_lives_on() -> None:
    lines: list[str] = []
    with TaskPool(
        Processes(OPTIONS),
        "worker_entries:make_square",
        [{}, {}],
        max_attempts=2,
        report=lines.append,
    ) as pool:
        bad = pool.submit({"how": "kill"})
        results = collect(pool)
        assert results[bad].attempts == 2
        assert "SIGKILL" in str(results[bad].error)
        good = pool.submit({}, {"x": np.ones(1)})
        assert collect(pool)[good].is_ok
    assert any(f"task={bad}" in line for line in lines)


def test_a_pool_whose_entry_cannot_be_built_fails_at_once() -> None:
    with pytest.raises(WorkerError, match="has no 'missing'"):
        TaskPool(Processes(OPTIONS), "worker_entries:missing", [{}])


def test_a_long_request_is_not_taken_for_a_hanging_worker() -> None:
    place = Processes(WorkerOptions(hung_after=0.3, max_restarts=0, stop_timeout=0.5))
    with TaskPool(place, "worker_entries:make_square", [{}]) as pool:
        task = pool.submit({"sleep": 1.2}, {"x": np.ones(1)})
        assert collect(pool)[task].attempts == 1

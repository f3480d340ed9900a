"""Where individuals are evaluated: in this process, or by a pool of workers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from lamarckian.distributed.placement import Placement
from lamarckian.distributed.tasks import TaskPool
from lamarckian.ec import Individual
from lamarckian.evaluator import Array, Evaluator, Outcome
from lamarckian.evorl.evaluating import evaluate_several, is_grouped
from lamarckian.evorl.worker import pack_decisions, unpack_outcomes
from lamarckian.evorl.workflow import Finished

WORKER_ENTRY = "lamarckian.evorl.worker:make"


class InProcess:
    """Evaluates in the caller's process, in the order of submission. Nothing can time out."""

    def __init__(self, evaluator: Evaluator, seed: int, group_size: int = 1) -> None:
        self.evaluator = evaluator
        self.seed = seed
        self.num_workers = 1
        self.group_size = group_size if is_grouped(evaluator) else 1
        self._queue: deque[Individual] = deque()

    def submit(self, individuals: Sequence[Individual]) -> None:
        self._queue.extend(individuals)

    def collect(self, timeout: float | None = None) -> list[Finished]:
        del timeout
        group = [self._queue.popleft() for _ in range(min(self.group_size, len(self._queue)))]
        if not group:
            return []
        began = time.perf_counter()
        outcomes = evaluate_several(
            self.evaluator,
            [each.decision for each in group],
            self.seed,
            [each.id for each in group],
        )
        seconds = (time.perf_counter() - began) / len(group)
        return [
            Finished(each.id, outcome, seconds)
            for each, outcome in zip(group, outcomes, strict=True)
        ]

    def now(self) -> float:
        return time.perf_counter()

    def close(self) -> None:
        """Nothing to end."""
        self._queue.clear()


class Pool:
    """Evaluates with the workers of a placement.

    ``problem`` is plain data from which each worker builds the evaluator
    (:func:`lamarckian.evorl.problems.make_evaluator`). ``lease`` is the number of seconds one
    attempt at one group may take (None: no limit); a worker that dies or overruns it is replaced
    and the group is given to another one, ``max_attempts`` times in all.
    """

    def __init__(
        self,
        placement: Placement,
        problem: dict[str, Any],
        seed: int,
        *,
        num_workers: int,
        group_size: int = 1,
        lease: float | None = None,
        max_attempts: int = 3,
        report: Any = None,
    ) -> None:
        self.seed = seed
        self.group_size = group_size
        self._pool = TaskPool(
            placement,
            WORKER_ENTRY,
            [problem] * num_workers,
            lease=lease,
            max_attempts=max_attempts,
            report=report,
        )
        self._groups: dict[int, list[int]] = {}

    @property
    def num_workers(self) -> int:
        return self._pool.num_workers

    def submit(self, individuals: Sequence[Individual]) -> None:
        for start in range(0, len(individuals), self.group_size):
            group = individuals[start : start + self.group_size]
            arrays: dict[str, Array] = pack_decisions([each.decision for each in group])
            ids = [each.id for each in group]
            task = self._pool.submit({"seed": self.seed, "ids": ids}, arrays)
            self._groups[task] = ids

    def collect(self, timeout: float | None = None) -> list[Finished]:
        result = self._pool.poll(timeout)
        if result is None:
            return []
        ids = self._groups.pop(result.task)
        if result.error is not None:
            reason = f"{result.error.kind}: {result.error}"
            outcomes = [Outcome.failure(reason) for _ in ids]
        else:
            outcomes = unpack_outcomes(result.payload["outcomes"], result.arrays)
        seconds = result.seconds / len(ids)
        return [
            Finished(identifier, outcome, seconds, result.attempts, result.worker)
            for identifier, outcome in zip(ids, outcomes, strict=True)
        ]

    def now(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        self._pool.close()

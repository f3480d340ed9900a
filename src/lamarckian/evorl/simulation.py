"""A workflow whose evaluations take simulated time: what waiting costs, for any number of workers.

The search, the modes and the bookkeeping are the real ones; only the workers are simulated, by a queue
of events. So idle shares and times to a result for thousands of workers come out in seconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from lamarckian import seeding
from lamarckian.ec import Individual
from lamarckian.evaluator import Evaluator, Outcome
from lamarckian.evorl.evaluating import evaluate_one, stream_of
from lamarckian.evorl.workflow import Finished

Durations = Callable[[int], float]
"""From an individual's id to the seconds its evaluation takes."""


def log_normal(seed: int, sigma: float = 1.0) -> Durations:
    """Return durations exp(sigma z), z standard normal: median 1 s, by id and not by order."""

    def duration(identifier: int) -> float:
        return float(np.exp(sigma * seeding.stream(seed, "duration", identifier).standard_normal()))

    return duration


class Simulated:
    """An executor of ``num_workers`` simulated workers.

    ``evaluator`` None gives every individual the outcome 0. ``lease``: an evaluation that takes
    longer ends then, as failed (every attempt would take as long).
    """

    def __init__(
        self,
        evaluator: Evaluator | None,
        seed: int,
        num_workers: int,
        durations: Durations,
        lease: float = float("inf"),
    ) -> None:
        self.num_workers = num_workers
        self.group_size = 1
        self._evaluator = evaluator
        self._seed = seed
        self._durations = durations
        self._lease = lease
        self._clock = 0.0
        self._queue: deque[Individual] = deque()
        self._running: list[tuple[float, int, Individual]] = []

    def submit(self, individuals: Sequence[Individual]) -> None:
        self._queue.extend(individuals)
        self._start()

    def _start(self) -> None:
        while self._queue and len(self._running) < self.num_workers:
            individual = self._queue.popleft()
            end = self._clock + min(self._durations(individual.id), self._lease)
            heapq.heappush(self._running, (end, individual.id, individual))

    def collect(self, timeout: float | None = None) -> list[Finished]:
        del timeout
        if not self._running:
            return []
        self._clock, identifier, individual = heapq.heappop(self._running)
        self._start()
        seconds = self._durations(identifier)
        if seconds > self._lease:
            outcome = Outcome.failure(f"did not answer in {self._lease:g} s")
        elif self._evaluator is None:
            outcome = Outcome(np.zeros(1))
        else:
            rng = stream_of(self._seed, identifier)
            outcome = evaluate_one(self._evaluator, individual.decision, rng)
        return [Finished(identifier, outcome, seconds)]

    def now(self) -> float:
        return self._clock

    def close(self) -> None:
        """Forget what is out."""
        self._queue.clear()
        self._running.clear()

"""Requests to a pool of workers, answered in any order; a dead or hanging worker costs one attempt.

The entry point of a pool is ``make(config, channel)`` and returns the function that answers
requests,
``handle(payload, arrays) -> (payload, arrays)``, so that costly things are built once per worker.
The same entry runs in process and in worker processes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from lamarckian.distributed.channel import Channel
from lamarckian.distributed.child import failure_of
from lamarckian.distributed.entries import entry_name, load_entry
from lamarckian.distributed.group import Group, Report, WorkerStats, failure_text
from lamarckian.distributed.layout import Array, Arrays
from lamarckian.distributed.placement import Placement
from lamarckian.errors import WorkerError

_SERVE = "lamarckian.distributed.tasks:serve"


@dataclass(slots=True)
class TaskResult:
    """The answer to one request: ``payload`` and ``arrays`` (own copies), or ``error``."""

    task: int
    worker: int
    payload: dict[str, Any]
    arrays: Arrays
    error: WorkerError | None
    attempts: int
    seconds: float

    @property
    def is_ok(self) -> bool:
        """Whether there is an answer."""
        return self.error is None


@dataclass(slots=True)
class _Pending:
    task: int
    payload: Mapping[str, Any]
    arrays: Mapping[str, Array]
    lease: float | None
    attempts: int = 0
    worker: int = -1
    started: float = 0.0
    errors: list[WorkerError] = field(default_factory=list)
    is_overdue: bool = False


def serve(config: dict[str, Any], channel: Channel) -> Iterator[None]:
    """Entry point inside a pool's workers: answer requests until told to stop."""
    handle = load_entry(config["entry"])(config["config"], channel)
    yield
    while not channel.should_stop():
        request = channel.next_task(timeout=60.0)
        if request is None:
            yield
            continue
        channel.context(task=request.task)
        try:
            payload, arrays = handle(request.payload, request.arrays)
            channel.send(arrays, {"task": request.task, "payload": payload})
        except Exception as error:
            failure = failure_of(error)
            told = {
                "summary": failure.summary,
                "traceback": failure.traceback,
                "exit_code": failure.exit_code,
            }
            channel.send({}, {"task": request.task, "error": told})
        del request
        yield


class TaskPool:
    """Give requests with :meth:`submit`, take answers with :meth:`poll`; owns its workers.

    ``lease`` is the time one attempt may take (None: no limit; in process it cannot be enforced).
    A request whose worker dies or overruns its lease is given to another one, ``max_attempts``
    times in all; a request whose function raises has failed at once, because it would raise again.
    Nobody waits for a worker that does not answer, and every request submitted comes back exactly
    once.
    """

    def __init__(
        self,
        placement: Placement,
        entry: str,
        configs: Sequence[Any],
        *,
        lease: float | None = None,
        max_attempts: int = 3,
        report: Report | None = None,
    ) -> None:
        self._entry = entry_name(entry)
        self._lease = lease
        self._max_attempts = max_attempts
        wrapped = [{"entry": self._entry, "config": config} for config in configs]
        self._group: Group = placement.start(_SERVE, wrapped, report)
        self._queue: deque[_Pending] = deque()
        self._busy: dict[int, _Pending] = {}
        self._done: deque[TaskResult] = deque()
        self._next_task = 0

    @property
    def num_outstanding(self) -> int:
        """Requests whose answer has not been taken."""
        return len(self._queue) + len(self._busy) + len(self._done)

    @property
    def num_workers(self) -> int:
        """Workers of the pool."""
        return self._group.num_workers

    def submit(
        self,
        payload: Mapping[str, Any],
        arrays: Mapping[str, Array] | None = None,
        *,
        lease: float | None = None,
    ) -> int:
        """Queue a request and return its number; the arrays must not change until it is answered.

        ``lease`` replaces the pool's own for this request.
        """
        task = self._next_task
        self._next_task += 1
        limit = self._lease if lease is None else lease
        self._queue.append(_Pending(task, payload, arrays or {}, limit))
        self._dispatch()
        return task

    def poll(self, timeout: float | None = None) -> TaskResult | None:
        """Return the next answer, or None after ``timeout`` seconds or with nothing outstanding.

        Raises WorkerError only if the pool itself is beyond repair.
        """
        give_up = None if timeout is None else time.monotonic() + timeout
        while True:
            self._dispatch()
            self._note_deaths()
            if self._done:
                return self._done.popleft()
            left = 1.0 if give_up is None else give_up - time.monotonic()
            if (left <= 0 and give_up is not None) or not (self._busy or self._queue):
                return None
            self._end_overdue()
            received = self._group.receive(max(0.0, min(left, 0.05)))
            if received is not None:
                with received:
                    self._note_answer(received.worker, received.header, received.arrays)

    def stats(self) -> list[WorkerStats]:
        """Return one record per worker."""
        return self._group.stats()

    def close(self) -> None:
        """Stop the workers; unanswered requests are dropped."""
        self._group.close()

    def __enter__(self) -> TaskPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _dispatch(self) -> None:
        for worker in range(self._group.num_workers):
            if not self._queue:
                return
            if worker in self._busy:
                continue
            pending = self._queue[0]
            if self._group.give_task(worker, pending.task, pending.payload, pending.arrays):
                self._queue.popleft()
                pending.worker = worker
                pending.started = time.monotonic()
                pending.attempts += 1
                pending.is_overdue = False
                self._busy[worker] = pending
                self._group.forgive(worker, True)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for worker, pending in self._busy.items():
            limit = pending.lease
            if limit is not None and now - pending.started > limit and not pending.is_overdue:
                pending.is_overdue = True
                self._group.kill(
                    worker, f"did not answer request {pending.task} in {limit:g} s and was killed"
                )

    def _note_answer(self, worker: int, header: dict[str, Any], arrays: Arrays) -> None:
        pending = self._busy.get(worker)
        if pending is None or pending.task != header["task"]:
            return
        del self._busy[worker]
        self._group.forgive(worker, False)
        told = header.get("error")
        error = None
        if told is not None:
            what = f"failed at request {pending.task}: {told['summary']}"
            error = WorkerError(
                failure_text(worker, self._entry, what, {}, told["traceback"]),
                worker=worker,
                kind="exception",
                traceback_text=told["traceback"],
                exit_code=told["exit_code"],
            )
        copies = {name: array.copy() for name, array in arrays.items()}
        self._finish(pending, header.get("payload") or {}, copies, error)

    def _note_deaths(self) -> None:
        for death in self._group.take_deaths():
            pending = self._busy.pop(death.worker, None)
            if pending is None:
                continue
            pending.errors.append(death)
            if pending.attempts < self._max_attempts:
                self._queue.appendleft(pending)
            else:
                self._finish(pending, {}, {}, pending.errors[0])

    def _finish(
        self,
        pending: _Pending,
        payload: dict[str, Any],
        arrays: Arrays,
        error: WorkerError | None,
    ) -> None:
        seconds = time.monotonic() - pending.started
        self._done.append(
            TaskResult(
                pending.task, pending.worker, payload, arrays, error, pending.attempts, seconds
            )
        )

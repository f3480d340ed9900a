"""The contract of a group of workers, whatever it runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import msgspec

from lamarckian.distributed.layout import Array, Arrays
from lamarckian.errors import WorkerError

Report = Callable[[str], None]


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How workers are run. Times in seconds.

    ``fragments_in_flight``   fragments a worker may have unread before it waits.
    ``start_timeout``         limit of the construction of one worker, imports included.
    ``hung_after``            a running worker without progress so long is killed (None: never).
    ``send_timeout``          a worker whose fragments nobody reads for this long gives up.
    ``max_restarts``          deaths the group survives; the next one fails with the *first* error.
    ``restart_backoff``       wait before the first restart; doubled for each one after it.
    ``stop_timeout``          how long :meth:`Group.close` asks before it kills.
    ``threads_per_worker``    size of the thread pools of numpy, torch, OpenMP and BLAS in a worker.
    """

    fragments_in_flight: int = 2
    start_timeout: float = 120.0
    hung_after: float | None = 300.0
    send_timeout: float = 600.0
    max_restarts: int = 5
    restart_backoff: float = 0.5
    stop_timeout: float = 5.0
    threads_per_worker: int = 1
    allow_oversubscription: bool = False
    max_fragment_bytes: int = 1 << 30


@dataclass(slots=True)
class Received:
    """A fragment and its place in shared memory.

    ``arrays`` are read-only views, valid until :meth:`release`, which gives the place back to the
    worker. Copy what has to live longer. Usable as a context manager.
    """

    worker: int
    header: dict[str, Any]
    arrays: Arrays
    on_release: Callable[[], None] | None = field(default=None, repr=False)

    def release(self) -> None:
        """Give the memory back; a second call does nothing."""
        self.arrays = {}
        if self.on_release is not None:
            call, self.on_release = self.on_release, None
            call()

    def __enter__(self) -> Received:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


@dataclass(slots=True, frozen=True)
class WorkerStats:
    """One worker as seen now. ``waited_seconds`` counts waiting for credit, weights or tasks.

    ``times_last`` counts how often :meth:`Group.receive_from_all` waited for this worker last.
    ``resident_bytes`` includes shared memory; both it and ``cpu_seconds`` are 0 where unknown.
    ``unread`` fragments were sent and not yet released; ``lost`` ones were sent and never came;
    ``node`` is the host the worker runs on ("": the caller's).
    """

    worker: int
    pid: int
    running: bool
    fragments: int
    bytes: int
    waited_seconds: float
    idle_seconds: float
    times_last: int
    restarts: int
    resident_bytes: int
    cpu_seconds: float
    context: dict[str, Any]
    unread: int = 0
    lost: int = 0
    node: str = ""


class Group(Protocol):
    """Workers that run one entry point with one configuration each.

    Use it from one thread, and as a context manager: leaving it stops every worker.
    """

    @property
    def num_workers(self) -> int:
        """Workers the group was started with."""
        ...

    @property
    def num_running(self) -> int:
        """Workers that have not come to their end."""
        ...

    def publish(self, version: int, arrays: Mapping[str, Array]) -> None:
        """Make ``arrays`` the newest weights of all workers; they are copied.

        Raises ConfigError if names, dtypes or shapes differ from the first publication, or the
        version goes back.
        """
        ...

    def receive(self, timeout: float | None = None) -> Received | None:
        """Return the oldest unread fragment of any worker; never waits for a particular one.

        None after ``timeout`` seconds without one, or when every worker has come to its end.
        Raises WorkerError if a worker failed for good, or without a timeout if nothing can ever
        come because the caller holds all fragments unreleased.
        """
        ...

    def receive_from_all(self, timeout: float | None = None) -> list[Received]:
        """Return one fragment of every worker that still runs, in the order of their numbers.

        Raises WorkerError naming those that sent nothing within ``timeout`` seconds; what the
        others sent stays unread.
        """
        ...

    def stats(self) -> list[WorkerStats]:
        """Return one record per worker."""
        ...

    def give_task(
        self, worker: int, task: int, payload: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> bool:
        """Hand a request to one worker; False if it is not running."""
        ...

    def kill(self, worker: int, reason: str) -> None:
        """End one worker at once; it counts as hung, for the ``reason`` given."""
        ...

    def forgive(self, worker: int, yes: bool) -> None:
        """Whether the next death of ``worker`` is not charged to the restarts of the group.

        It is then listed by :meth:`take_deaths`, and until then nobody but :meth:`kill` decides
        that the worker hangs: whoever gave it a task knows how long that may take.
        """
        ...

    def take_deaths(self) -> list[WorkerError]:
        """Return the forgiven deaths since the last call."""
        ...

    def close(self) -> None:
        """Stop every worker, kill those that do not stop in time, free everything. Idempotent."""
        ...

    def __enter__(self) -> Group: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def failure_text(
    worker: int, entry: str, what: str, context: Mapping[str, Any], traceback_text: str
) -> str:
    """Return the message of a failed worker: who, what, doing what, and its own traceback."""
    lines = [f"worker {worker} ({entry}) {what}"]
    if context:
        facts = ", ".join(f"{key}={value!r}" for key, value in context.items())
        lines.append(f"  it was at: {facts}")
    if traceback_text:
        lines.append("  its own traceback:")
        lines += [f"    {line}" for line in traceback_text.rstrip().splitlines()]
    return "\n".join(lines)


def stragglers_error(missing: list[int], timeout: float, facts: list[str]) -> WorkerError:
    """Return the error of a synchronous collection that ran out of time."""
    return WorkerError(
        f"workers {', '.join(map(str, missing))} sent nothing for {timeout:g} s: "
        + "; ".join(facts),
        worker=missing[0],
        kind="hung",
    )

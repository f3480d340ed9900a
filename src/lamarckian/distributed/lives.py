"""The records a worker group keeps, and the words for how a life ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from lamarckian.distributed import messages
from lamarckian.distributed.group import failure_text
from lamarckian.distributed.process import WorkerProcess, describe_exit
from lamarckian.distributed.ring import Slot, SlotReader
from lamarckian.distributed.status import StatusBoard
from lamarckian.errors import WorkerError


@dataclass(slots=True)
class Life:
    """One life of a worker: its process and all that belongs to it."""

    process: WorkerProcess
    link: messages.Link
    status: StatusBoard
    started: float
    reader: SlotReader = field(default_factory=SlotReader)
    ready: bool = False
    finished: bool = False
    failure: messages.Failure | None = None
    kill_reason: str = ""
    ended: bool = False

    def free(self) -> None:
        """Give back what is left once the process has been reaped."""
        self.process.close()
        self.status.close()


@dataclass(slots=True)
class Member:
    """A place in the group, filled by one life after another."""

    number: int
    config: bytes
    life: Life | None = None
    attempt: int = 0
    restart_at: float | None = None
    times_last: int = 0


@dataclass(slots=True)
class Filled:
    """A fragment that waits to be read; it needs its life's memory, not its process."""

    worker: int
    life: Life
    slot: Slot
    used: int


def describe_end(number: int, entry: str, life: Life, status: int) -> WorkerError:
    """Return the error that says how a worker's process came to its end with exit ``status``."""
    context = life.status.context()
    failure = life.failure
    trace, code = life.process.crash_report(), 1
    if failure is not None:
        kind, what = "exception", f"raised {failure.summary}"
        trace, code = failure.traceback, failure.exit_code
    elif life.kill_reason:
        kind, what = "hung", life.kill_reason
    elif status == 0:
        kind, what = "exit", "ended by itself although nobody asked it to (os._exit(0))"
    else:
        kind, what = ("signal" if status < 0 else "exit"), describe_exit(status)
    if not life.ready:
        what += ", during its construction"
    return WorkerError(
        failure_text(number, entry, what, context, trace),
        worker=number,
        kind=kind,
        traceback_text=trace,
        context=context,
        exit_code=code,
    )

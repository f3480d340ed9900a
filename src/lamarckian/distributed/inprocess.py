"""A group whose workers take turns in the caller's process.

The same entry points run unchanged; each ``yield`` is the end of a turn. There is no second thread,
so results are the same every time, a debugger works, and there is nothing to time out or to
restart: a hanging entry point hangs the caller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from lamarckian.distributed import layout as arrays_layout
from lamarckian.distributed.channel import LocalChannel, Stopped, TaskRequest
from lamarckian.distributed.child import failure_of
from lamarckian.distributed.entries import entry_name, load_entry, pack_config, unpack_config
from lamarckian.distributed.group import (
    Received,
    Report,
    WorkerStats,
    failure_text,
    stragglers_error,
)
from lamarckian.distributed.layout import Array, Layout
from lamarckian.distributed.process import usage
from lamarckian.distributed.weights import check_same_layout
from lamarckian.errors import ConfigError, LamarckianError, WorkerError


class InProcessGroup:
    """Implements :class:`~lamarckian.distributed.group.Group` by calling ``next`` on generators."""

    def __init__(self, entry: str, configs: Sequence[Any], report: Report) -> None:
        if not configs:
            raise ConfigError("workers: expected at least one configuration, got none")
        self._entry = entry_name(entry)
        self._report = report
        self._channels = [LocalChannel(number) for number in range(len(configs))]
        self._steps: list[Iterator[Any] | None] = []
        self._turn = 0
        self._layout: Layout | None = None
        self._failure: WorkerError | None = None
        function = load_entry(self._entry)
        for number, (config, channel) in enumerate(zip(configs, self._channels, strict=True)):
            plain = unpack_config(pack_config(config, f"worker {number}"))
            steps = function(plain, channel)
            if not isinstance(steps, Iterator):
                raise ConfigError(
                    f"entry point {self._entry!r} returned {type(steps).__name__}; it must be a "
                    "generator function (with 'yield')"
                )
            self._steps.append(steps)
        for number in range(len(configs)):
            self._advance(number)

    @property
    def num_workers(self) -> int:
        return len(self._channels)

    @property
    def num_running(self) -> int:
        return sum(steps is not None for steps in self._steps)

    def publish(self, version: int, arrays: Mapping[str, Array]) -> None:
        if self._layout is None:
            self._layout = arrays_layout.plan(arrays_layout.specs_of(arrays))
        check_same_layout(self._layout, arrays)
        last = self._channels[0].published
        if version < 0 or (last is not None and version < last[0]):
            raise ConfigError(f"weights: version {version} after {last and last[0]}; versions grow")
        copies = {name: np.array(array) for name, array in arrays.items()}
        for channel in self._channels:
            channel.published = (version, copies)

    def receive(self, timeout: float | None = None) -> Received | None:
        give_up = None if timeout is None else time.monotonic() + timeout
        while True:
            for offset in range(self.num_workers):
                number = (self._turn + offset) % self.num_workers
                if self._channels[number].outbox:
                    self._turn = number + 1
                    return self._take(number)
            if self.num_running == 0 or (give_up is not None and time.monotonic() >= give_up):
                return None
            self._advance(self._turn % self.num_workers)
            if not self._channels[self._turn % self.num_workers].outbox:
                self._turn += 1

    def receive_from_all(self, timeout: float | None = None) -> list[Received]:
        give_up = None if timeout is None else time.monotonic() + timeout
        for number, channel in enumerate(self._channels):
            while not channel.outbox and self._steps[number] is not None:
                if give_up is not None and time.monotonic() >= give_up:
                    missing = [
                        i
                        for i, other in enumerate(self._channels)
                        if not other.outbox and self._steps[i] is not None
                    ]
                    facts = [f"worker {i} at {self._channels[i].facts}" for i in missing]
                    raise stragglers_error(missing, timeout or 0.0, facts)
                self._advance(number)
        return [self._take(i) for i, channel in enumerate(self._channels) if channel.outbox]

    def stats(self) -> list[WorkerStats]:
        resident, cpu = usage(os.getpid())
        return [
            WorkerStats(
                worker=number,
                pid=os.getpid(),
                running=self._steps[number] is not None,
                fragments=channel.num_fragments,
                bytes=channel.num_bytes,
                waited_seconds=0.0,
                idle_seconds=0.0,
                times_last=0,
                restarts=0,
                resident_bytes=resident,
                cpu_seconds=cpu,
                context=dict(channel.facts),
                unread=len(channel.outbox),
            )
            for number, channel in enumerate(self._channels)
        ]

    def give_task(
        self, worker: int, task: int, payload: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> bool:
        if self._steps[worker] is None:
            return False
        plain = unpack_config(arrays_layout.encode_header(payload))
        copies = {name: np.array(array) for name, array in arrays.items()}
        for array in copies.values():
            array.flags.writeable = False
        self._channels[worker].tasks.append(TaskRequest(task, plain, copies))
        return True

    def kill(self, worker: int, reason: str) -> None:
        self._end(worker)

    def forgive(self, worker: int, yes: bool) -> None:
        return None

    def take_deaths(self) -> list[WorkerError]:
        return []

    def close(self) -> None:
        for number, channel in enumerate(self._channels):
            channel.stop = True
            channel.outbox.clear()
            self._end(number)

    def __enter__(self) -> InProcessGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, number: int) -> Received:
        header, arrays = self._channels[number].outbox.popleft()
        return Received(number, header, arrays)

    def _end(self, number: int) -> None:
        steps, self._steps[number] = self._steps[number], None
        close = getattr(steps, "close", None)
        if close is not None:
            close()

    def _advance(self, number: int) -> None:
        """Give one worker one turn; raises WorkerError with its context if it fails."""
        if self._failure is not None:
            raise self._failure
        steps = self._steps[number]
        if steps is None:
            return
        channel = self._channels[number]
        try:
            next(steps)
        except (StopIteration, Stopped):
            self._steps[number] = None
        except Exception as error:
            failure = failure_of(error)
            what = f"raised {failure.summary}"
            self._failure = WorkerError(
                failure_text(number, self._entry, what, channel.facts, failure.traceback),
                worker=number,
                kind="exception",
                traceback_text=failure.traceback,
                context=dict(channel.facts),
                exit_code=error.exit_code if isinstance(error, LamarckianError) else 1,
            )
            raise self._failure from error
        finally:
            while channel.logs:
                self._report(f"worker {number}: {channel.logs.popleft()}")

"""What an entry point sees of the other side, the same in a process of its own and in the caller's.

An entry point is a generator function ``entry(config, channel)``::

    def actor(config, channel):
        game = build(config)            # construction ends at the first yield
        yield
        while not channel.should_stop():
            newer = channel.weights()   # None, or (version, arrays)
            ...
            channel.context(episode_seed=seed, tick=tick)
            channel.send(arrays, {"episodes": 3})
            yield                       # in-process placement: the caller's turn

A ``yield`` says "somebody else may go on now"; in a worker process it costs nothing.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np

from lamarckian.distributed import layout as arrays_layout
from lamarckian.distributed import messages
from lamarckian.distributed.layout import Array, Arrays, Layout, Spec
from lamarckian.distributed.memory import SharedBlock
from lamarckian.distributed.ring import Slot, SlotWriter
from lamarckian.distributed.status import State, StatusBoard
from lamarckian.distributed.weights import WeightReader
from lamarckian.errors import WorkerError


class Stopped(BaseException):
    """Unwinds an entry point that waits while the other side wants it to end (not an error)."""


@dataclass(slots=True, frozen=True)
class TaskRequest:
    """One request of a task pool: plain payload and read-only arrays."""

    task: int
    payload: dict[str, Any]
    arrays: Arrays


class Channel(Protocol):
    """What an entry point may ask of the other side.

    ``worker`` is this worker's number in its group; ``attempt`` counts its restarts, so that a
    restarted actor can draw other episodes than the one that crashed.
    """

    worker: int
    attempt: int

    def weights(self, timeout: float = 0.0) -> tuple[int, Arrays] | None:
        """Return ``(version, arrays)`` if newer than those returned last, else None.

        Waits up to ``timeout`` seconds for them (in process: never). The arrays are the caller's
        own.
        """
        ...

    def send(self, arrays: Mapping[str, Array], header: Mapping[str, Any] | None = None) -> None:
        """Hand a fragment over; the arrays may be reused at once.

        Waits for credit if too many fragments are unread. Raises TypeError or ValueError for data
        that cannot travel, WorkerError if there is no credit for ``send_timeout`` seconds.
        """
        ...

    def reserve(self, specs: Mapping[str, Spec]) -> Arrays:
        """Return writable arrays of the given (dtype, shape), to be filled; then :meth:`commit`."""
        ...

    def commit(self, header: Mapping[str, Any] | None = None) -> None:
        """Hand over what was reserved; its arrays must not be touched afterwards."""
        ...

    def context(self, **facts: Any) -> None:
        """Note facts shown if this worker fails (episode seed, tick, player, last action); about 3
        us.
        """
        ...

    def progress(self) -> None:
        """Say that work goes on; every other call does so too."""
        ...

    def should_stop(self) -> bool:
        """Whether the other side wants this worker to end."""
        ...

    def log(self, text: str) -> None:
        """Send a line for the user."""
        ...

    def next_task(self, timeout: float = 0.0) -> TaskRequest | None:
        """Return the next request given to this worker, or None."""
        ...


class ProcessChannel:
    """The channel inside a worker process; to be used from the thread it was made in."""

    def __init__(
        self,
        link: messages.Link,
        status: StatusBoard,
        start: messages.Start,
    ) -> None:
        self.worker = start.worker
        self.attempt = start.attempt
        self._link = link
        self._status = status
        self._ring = SlotWriter(start.num_slots, start.max_fragment_bytes)
        self._send_timeout = start.send_timeout
        self._parent = os.getppid()
        self._weights: WeightReader | None = None
        self._version = -1
        self._tasks: deque[TaskRequest] = deque()
        self._reserved: tuple[Slot, memoryview, Layout] | None = None
        self._stop = False

    def weights(self, timeout: float = 0.0) -> tuple[int, Arrays] | None:
        give_up = time.monotonic() + timeout
        began = time.monotonic_ns()
        while True:
            self._pump(0.0, State.RUNNING)
            if self._weights is not None and self._weights.newer_than(self._version):
                self._version, arrays = self._weights.read()
                return self._version, arrays
            left = give_up - time.monotonic()
            if left <= 0 or self._stop:
                return None
            self._pump(min(left, 0.005), State.WAITING)
            self._status.waited(time.monotonic_ns() - began)
            began = time.monotonic_ns()

    def send(self, arrays: Mapping[str, Array], header: Mapping[str, Any] | None = None) -> None:
        text = arrays_layout.encode_header(header or {})
        layout = arrays_layout.plan(arrays_layout.specs_of(arrays))
        slot, memory = self._take(layout)
        self._hand_over(slot, arrays_layout.write(memory, layout, arrays, text))

    def reserve(self, specs: Mapping[str, Spec]) -> Arrays:
        if self._reserved is not None:
            raise WorkerError("channel: reserve() was called twice without commit()")
        layout = arrays_layout.plan(
            {name: (np.dtype(dtype).str, shape) for name, (dtype, shape) in specs.items()}
        )
        slot, memory = self._take(layout)
        self._reserved = (slot, memory, layout)
        return arrays_layout.views(memory, layout)

    def commit(self, header: Mapping[str, Any] | None = None) -> None:
        if self._reserved is None:
            raise WorkerError("channel: commit() without reserve()")
        text = arrays_layout.encode_header(header or {})
        slot, memory, layout = self._reserved
        self._reserved = None
        self._hand_over(slot, arrays_layout.finish(memory, layout, text))

    def context(self, **facts: Any) -> None:
        self._status.set_context(facts)
        self._status.progress()

    def progress(self) -> None:
        self._status.progress()

    def should_stop(self) -> bool:
        self._pump(0.0, State.RUNNING)
        return self._stop

    def log(self, text: str) -> None:
        self._link.send(messages.Log(text=text[:10_000]))

    def next_task(self, timeout: float = 0.0) -> TaskRequest | None:
        give_up = time.monotonic() + timeout
        began = time.monotonic_ns()
        self._pump(0.0, State.RUNNING)
        while not self._tasks and not self._stop:
            left = give_up - time.monotonic()
            if left <= 0:
                break
            self._pump(left, State.WAITING)
        self._status.waited(time.monotonic_ns() - began)
        self._status.progress()
        return self._tasks.popleft() if self._tasks else None

    def close(self) -> None:
        """Drop all shared memory."""
        self._ring.close()
        if self._weights is not None:
            self._weights.close()

    def _take(self, layout: Layout) -> tuple[Slot, memoryview]:
        self._pump(0.0, State.RUNNING)
        if not self._ring.has_credit:
            self._wait_for_credit()
        if self._ring.fit(layout):
            block = self._ring.block
            assert block is not None
            self._link.send(
                messages.Block(
                    generation=self._ring.generation,
                    num_slots=self._ring.num_slots,
                    slot_bytes=self._ring.slot_bytes,
                ),
                [block.fileno()],
            )
        return self._ring.take()

    def _wait_for_credit(self) -> None:
        began = time.monotonic_ns()
        give_up = time.monotonic() + self._send_timeout
        while not self._ring.has_credit:
            left = give_up - time.monotonic()
            if left <= 0:
                raise WorkerError(
                    f"nobody read this worker's {self._ring.num_slots} waiting fragments for "
                    f"{self._send_timeout:g} s (send_timeout): the learner hangs or is too slow"
                )
            self._pump(left, State.WAITING)
            if self._stop:
                raise Stopped
        self._status.waited(time.monotonic_ns() - began)
        self._status.progress()

    def _hand_over(self, slot: Slot, used: int) -> None:
        self._status.sent(used)
        self._status.progress()
        filled = messages.Filled(generation=slot.generation, index=slot.index, used=used)
        if not self._link.send(filled):
            raise Stopped

    def _pump(self, timeout: float, state: State) -> None:
        """Take in what the parent sent; :class:`Stopped` if the parent is gone."""
        self._status.progress(state)
        # Waiting in pieces of a second notices a parent that died while another process still holds
        # a copy of its end of the socket.
        for message, descriptors in self._link.receive(min(timeout, 1.0)):
            self.handle(message, descriptors)
        if self._link.closed or os.getppid() != self._parent:
            raise Stopped

    def handle(self, message: Any, descriptors: list[int]) -> None:
        """Take in one message from the parent."""
        match message:
            case messages.Credit(generation=generation, index=index):
                self._ring.give_back(Slot(generation, index))
            case messages.Weights(size=size):
                self._weights = WeightReader(SharedBlock.attach(descriptors[0], size))
            case messages.Task(task=task, size=size):
                block = SharedBlock.attach(descriptors[0], size)
                payload, arrays = arrays_layout.read(block.view)
                self._tasks.append(TaskRequest(task, payload, arrays))
                block.close()
            case messages.Stop():
                self._stop = True
            case _:
                raise WorkerError(f"control channel: unexpected {type(message).__name__}")


class LocalChannel:
    """The channel of an entry point that runs in the caller's process."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.attempt = 0
        self.outbox: deque[tuple[dict[str, Any], Arrays]] = deque()
        self.tasks: deque[TaskRequest] = deque()
        self.logs: deque[str] = deque()
        self.published: tuple[int, Arrays] | None = None
        self.stop = False
        self.num_bytes = 0
        self.num_fragments = 0
        self.facts: dict[str, Any] = {}
        self._version = -1
        self._reserved: Arrays | None = None

    def weights(self, timeout: float = 0.0) -> tuple[int, Arrays] | None:
        if self.published is None or self.published[0] <= self._version:
            return None
        self._version = self.published[0]
        return self._version, {name: a.copy() for name, a in self.published[1].items()}

    def send(self, arrays: Mapping[str, Array], header: Mapping[str, Any] | None = None) -> None:
        arrays_layout.plan(arrays_layout.specs_of(arrays))
        self._put({name: array.copy() for name, array in arrays.items()}, header)

    def reserve(self, specs: Mapping[str, Spec]) -> Arrays:
        if self._reserved is not None:
            raise WorkerError("channel: reserve() was called twice without commit()")
        arrays_layout.plan({name: (np.dtype(d).str, shape) for name, (d, shape) in specs.items()})
        self._reserved = {name: np.zeros(shape, d) for name, (d, shape) in specs.items()}
        # The collector fills these arrays; what is handed over are views that nobody can write to.
        return dict(self._reserved)

    def commit(self, header: Mapping[str, Any] | None = None) -> None:
        if self._reserved is None:
            raise WorkerError("channel: commit() without reserve()")
        arrays, self._reserved = self._reserved, None
        self._put({name: array.view() for name, array in arrays.items()}, header)

    def _put(self, arrays: Arrays, header: Mapping[str, Any] | None) -> None:
        plain = msgspec.msgpack.decode(arrays_layout.encode_header(header or {}))
        for array in arrays.values():
            array.flags.writeable = False
            self.num_bytes += array.nbytes
        self.num_fragments += 1
        self.outbox.append((plain, arrays))

    def context(self, **facts: Any) -> None:
        self.facts.update(facts)

    def progress(self) -> None:
        return None

    def should_stop(self) -> bool:
        return self.stop

    def log(self, text: str) -> None:
        self.logs.append(text)

    def next_task(self, timeout: float = 0.0) -> TaskRequest | None:
        return self.tasks.popleft() if self.tasks else None

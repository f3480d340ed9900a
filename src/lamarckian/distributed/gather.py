"""Trajectories up: many actors send fragments, one collector reads them and knows what got lost.

Each fragment carries a number that grows by one. An actor has credit for ``credit`` fragments; it
comes back when the collector has read (released) one, so nobody's memory fills and a fast actor
waits rather than queue up stale experience. ZeroMQ loses what sits in a pipe to a dead peer without
a word: here the gap in the numbers is counted, and the lost fragments give their credit back. An
actor without credit for a second asks what has arrived (a probe travels behind everything it sent),
so the loss of the very last fragments is noticed as well.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from lamarckian.distributed import layout as arrays_layout
from lamarckian.distributed import wire
from lamarckian.distributed.channel import Stopped
from lamarckian.distributed.group import Received
from lamarckian.distributed.layout import Array, Arrays, Spec
from lamarckian.distributed.security import zmq
from lamarckian.distributed.sockets import Socket, Sockets
from lamarckian.distributed.ticket import Ticket
from lamarckian.errors import WorkerError

_PROBE_EVERY = 1.0


@dataclass(slots=True)
class SenderStats:
    """What a collector knows of one actor. Counts are over all its attempts.

    ``lost``: fragments that were sent and never came. ``rejected``: messages in its name that did
    not pass the checks.
    """

    worker: int
    attempt: int = -1
    fragments: int = 0
    bytes: int = 0
    lost: int = 0
    rejected: int = 0
    unread: int = 0
    last_heard: float = 0.0


@dataclass(slots=True)
class _Sender:
    stats: SenderStats
    member: str
    route: bytes = b""
    expected: int = 0  # number of the next fragment
    done: int = 0  # fragments read or lost


class GatherReceiver:
    """The collector's end. One thread uses it; ZeroMQ's own thread receives meanwhile."""

    def __init__(
        self,
        sockets: Sockets,
        endpoint: str,
        run: bytes,
        declared: wire.Declared | None = None,
    ) -> None:
        declared = declared or wire.Declared()
        self._sockets = sockets
        self._codec = wire.Codec(run, wire.FromActor, declared)
        limit = max(wire.MAX_RECORD, declared.max_bytes)
        self._socket, self.endpoint = sockets.serve(endpoint, limit)
        self._senders: dict[int, _Sender] = {}
        self._stopping = False
        self.num_rejected = 0
        self.last_rejection = ""

    def expect(self, worker: int, member: str) -> None:
        """Take fragments of ``worker`` from the member admitted under that name, and no other."""
        self._senders[worker] = _Sender(SenderStats(worker), member)

    def forget(self, worker: int) -> None:
        """Take nothing of ``worker`` any more."""
        self._senders.pop(worker, None)

    def receive(self, timeout: float | None = None) -> Received | None:
        """Return the next fragment of any actor; None after ``timeout`` seconds without one.

        Its arrays are read-only and valid as long as they are referenced; release it to give the
        actor its credit back. Messages that do not pass the checks are counted and dropped.
        """
        give_up = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if give_up is None else max(0.0, give_up - time.monotonic())
            if not self._socket.poll(None if left is None else round(left * 1000), zmq.POLLIN):
                return None
            received = self._take(self._socket.recv_multipart(copy=False))
            if received is not None:
                return received

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when something may have arrived (edge)."""
        return int(self._socket.fd)

    def stop(self) -> None:
        """Tell every actor heard of to finish; those that come later are told when they do."""
        self._stopping = True
        for sender in self._senders.values():
            self._send(sender, wire.Stop())

    def stats(self) -> list[SenderStats]:
        """Return one record per expected actor; ``unread`` counts fragments not released."""
        for sender in self._senders.values():
            sender.stats.unread = sender.expected - sender.done
        return [sender.stats for sender in self._senders.values()]

    def _take(self, frames: list[Any]) -> Received | None:
        try:
            record, rest = self._codec.read([frame.buffer for frame in frames[1:]])
            sender = self._sender(record, frames[-1])
        except wire.WireError as error:
            self.num_rejected += 1
            self.last_rejection = str(error)
            return None
        sender.route = frames[0].bytes
        sender.stats.last_heard = time.monotonic()
        if record.attempt > sender.stats.attempt:
            sender.stats.attempt = record.attempt
            sender.expected = sender.done = 0
        if isinstance(record, wire.Fragment):
            return self._accept(sender, record, rest)
        if isinstance(record, wire.Probe):
            self._count_lost(sender, record.sequence)
        self._send_credit(sender)
        if self._stopping:
            self._send(sender, wire.Stop())
        return None

    def _sender(self, record: Any, frame: Any) -> _Sender:
        """Return the actor a record came from; raises WireError if it may not speak for it."""
        sender = self._senders.get(record.worker)
        if sender is None:
            raise wire.WireError(f"message: worker {record.worker} is not expected")
        if self._sockets.keys is not None:
            member = frame.get("User-Id")
            if member != sender.member or not self._sockets.gatekeeper.is_admitted(member):
                sender.stats.rejected += 1
                raise wire.WireError(f"message: {member!r} may not send as worker {record.worker}")
        if record.attempt < sender.stats.attempt:
            sender.stats.rejected += 1
            raise wire.WireError(
                f"message: attempt {record.attempt} of worker {record.worker} is over"
            )
        return sender

    def _accept(self, sender: _Sender, record: wire.Fragment, rest: Any) -> Received | None:
        try:
            if record.sequence < sender.expected:
                raise wire.WireError(f"message: fragment {record.sequence} came before")
            facts = wire.facts_of(record.facts)
        except wire.WireError as error:
            self.num_rejected += 1
            sender.stats.rejected += 1
            self.last_rejection = str(error)
            return None
        self._count_lost(sender, record.sequence)
        sender.expected = record.sequence + 1
        sender.stats.fragments += 1
        sender.stats.bytes += sum(map(len, rest))
        arrays = wire.views(record.arrays, rest)
        release = functools.partial(self._release, sender, record.attempt)
        return Received(record.worker, facts, arrays, release)

    def _count_lost(self, sender: _Sender, sequence: int) -> None:
        """Everything below ``sequence`` was sent before: what has not come will not come."""
        lost = max(0, sequence - sender.expected)
        sender.stats.lost += lost
        sender.done += lost
        sender.expected += lost

    def _release(self, sender: _Sender, attempt: int) -> None:
        if attempt == sender.stats.attempt:
            sender.done += 1
            self._send_credit(sender)

    def _send_credit(self, sender: _Sender) -> None:
        self._send(sender, wire.Credit(attempt=sender.stats.attempt, done=sender.done))

    def _send(self, sender: _Sender, record: Any) -> None:
        """Send to an actor; a ROUTER drops what goes to one that is gone or does not read."""
        if sender.route and not self._socket.closed:
            self._socket.send_multipart([sender.route, self._codec.header(record)])


class GatherSender:
    """An actor's end; to be used from the thread it was made in.

    The constructor waits for the collector's answer: a wrong key, a wrong run or a wrong address
    shows here, as WorkerError after ``join_timeout`` seconds, and not as silence later.
    """

    def __init__(
        self,
        ticket: Ticket,
        *,
        attempt: int = 0,
        send_timeout: float = 600.0,
        join_timeout: float = 10.0,
    ) -> None:
        self.worker = ticket.worker
        self.attempt = attempt
        self.waited_seconds = 0.0
        self._endpoint = ticket.gather
        self._codec = wire.Codec(ticket.run_id, wire.ToActor)
        self._credit = ticket.credit
        self._max_bytes = ticket.max_fragment_bytes
        self._send_timeout = send_timeout
        self._sent = 0
        self._done = 0
        self._stop = False
        self._reserved: tuple[tuple[wire.ArraySpec, ...], Arrays] | None = None
        self._sockets = Sockets(ticket.keys)
        try:
            self._socket: Socket = self._sockets.connect(
                ticket.gather, ticket.server_key, wire.MAX_RECORD
            )
            self._join(join_timeout)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket; waits half a second at most for what is not yet sent. Idempotent."""
        self._sockets.close()

    def __enter__(self) -> GatherSender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, arrays: Mapping[str, Array], header: Mapping[str, Any] | None = None) -> None:
        """Hand a fragment over; the arrays may be reused at once.

        Waits for credit. Raises TypeError or ValueError for data that cannot travel, WorkerError if
        there is no credit for ``send_timeout`` seconds, Stopped if the collector ends meanwhile.
        """
        facts = arrays_layout.encode_header(header or {})
        specs = self._checked(wire.array_specs(arrays))
        self._wait_for_credit()
        frames: list[Any] = [self._fragment(specs, facts)]
        frames += [wire.raw(array) for array in arrays.values()]
        self._post(frames, copy=True)

    def reserve(self, specs: Mapping[str, Spec]) -> Arrays:
        """Return new writable arrays of the given (dtype, shape), to be filled; then
        :meth:`commit`.
        """
        if self._reserved is not None:
            raise WorkerError("gather: reserve() was called twice without commit()")
        arrays = {name: np.empty(shape, dtype) for name, (dtype, shape) in specs.items()}
        self._reserved = self._checked(wire.array_specs(arrays)), arrays
        self._wait_for_credit()
        return arrays

    def commit(self, header: Mapping[str, Any] | None = None) -> None:
        """Send what was reserved, without a copy; its arrays must not be touched afterwards."""
        if self._reserved is None:
            raise WorkerError("gather: commit() without reserve()")
        facts = arrays_layout.encode_header(header or {})
        (specs, arrays), self._reserved = self._reserved, None
        frames: list[Any] = [self._fragment(specs, facts)]
        frames += [wire.raw(array) for array in arrays.values()]
        self._post(frames, copy=False)

    def should_stop(self) -> bool:
        """Whether the collector wants this actor to end."""
        self._pump(0.0)
        return self._stop

    @property
    def num_unread(self) -> int:
        """Fragments sent and neither read nor known to be lost."""
        return self._sent - self._done

    def _fragment(self, specs: tuple[wire.ArraySpec, ...], facts: bytes) -> bytes:
        record = wire.Fragment(
            worker=self.worker,
            attempt=self.attempt,
            sequence=self._sent,
            facts=facts,
            arrays=specs,
        )
        return self._codec.header(record)

    def _checked(self, specs: tuple[wire.ArraySpec, ...]) -> tuple[wire.ArraySpec, ...]:
        total = sum(spec.nbytes for spec in specs)
        if total > self._max_bytes:
            raise ValueError(
                f"fragment of {total:,} bytes, at most {self._max_bytes:,}; send shorter fragments"
            )
        return specs

    def _join(self, timeout: float) -> None:
        give_up = time.monotonic() + timeout
        self._done = -1  # any answer is a credit of at least 0
        self._post_record(wire.Hello(worker=self.worker, attempt=self.attempt))
        while self._done < 0 and not self._stop:
            left = give_up - time.monotonic()
            if left <= 0:
                raise WorkerError(
                    f"worker {self.worker}: no answer from {self._endpoint} for {timeout:g} s; is "
                    "the address reachable from here, is this member admitted, is it the same run?"
                )
            self._pump(left)

    def _wait_for_credit(self) -> None:
        self._pump(0.0)
        if self.num_unread < self._credit:
            return
        began = time.monotonic()
        probe_at = began + _PROBE_EVERY
        while self.num_unread >= self._credit:
            now = time.monotonic()
            if self._stop:
                raise Stopped
            if now - began >= self._send_timeout:
                raise WorkerError(
                    f"nobody read this worker's {self.num_unread} waiting fragments for "
                    f"{self._send_timeout:g} s (send_timeout): the learner hangs or is too slow"
                )
            if now >= probe_at:
                probe_at = now + _PROBE_EVERY
                self._post_record(
                    wire.Probe(worker=self.worker, attempt=self.attempt, sequence=self._sent)
                )
            self._pump(min(probe_at - now, began + self._send_timeout - now))
        self.waited_seconds += time.monotonic() - began

    def _pump(self, timeout: float) -> None:
        """Take in what the collector sent, waiting up to ``timeout`` seconds for the first."""
        milliseconds = max(0, round(timeout * 1000))
        while self._socket.poll(milliseconds, zmq.POLLIN):
            milliseconds = 0
            try:
                record, _ = self._codec.read(self._socket.recv_multipart())
            except wire.WireError:
                continue
            if isinstance(record, wire.Stop):
                self._stop = True
            elif record.attempt == self.attempt:
                self._done = max(self._done, min(record.done, self._sent))

    def _post_record(self, record: Any) -> None:
        self._post([self._codec.header(record)], copy=True, counts=False)

    def _post(self, frames: list[Any], *, copy: bool, counts: bool = True) -> None:
        # Credit keeps the queue far below the high-water mark; this waits only while a connection
        # that was cut is not yet back and its pipe is gone.
        if not self._socket.poll(round(self._send_timeout * 1000), zmq.POLLOUT):
            raise WorkerError(
                f"worker {self.worker}: {self._endpoint} takes nothing for {self._send_timeout:g} s"
            )
        self._socket.send_multipart(frames, copy=copy)
        self._sent += counts

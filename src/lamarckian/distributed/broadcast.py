"""Weights down: the learner's end of the broadcast tree.

:class:`WeightsPublisher` keeps the newest version and serves the hosts below the learner from a
thread of its own; the hosts hand chunks on to others (:mod:`lamarckian.distributed.relay`). It also
keeps the list of hosts alive and sends every host the table the tree is built from. ``publish``
copies the arrays and returns; it never waits for a host.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from lamarckian.distributed import wire
from lamarckian.distributed.copies import Copy
from lamarckian.distributed.layout import Array
from lamarckian.distributed.roster import HostStatus, Roster
from lamarckian.distributed.security import zmq
from lamarckian.distributed.serving import Server
from lamarckian.distributed.sockets import Sockets
from lamarckian.distributed.ticket import TransportOptions
from lamarckian.errors import ConfigError, WorkerError

# The learner strikes a host off later than its children bypass it: a pause is not a death.
_STRIKE_OFF = 2.5
_GATHER_CHANGES = 0.05
_TELL_AGAIN = 1.0


class WeightsPublisher:
    """The root of the tree. ``publish``, ``hosts`` and ``revoke`` may be called from any thread."""

    def __init__(
        self, sockets: Sockets, endpoint: str, run: bytes, options: TransportOptions
    ) -> None:
        self._options = options
        self._sockets = sockets
        self._codec = wire.Codec(run, wire.FromChild)
        self._socket, self.endpoint = sockets.serve(endpoint, wire.MAX_RECORD)
        self._server = Server(self._socket, self._codec, options)
        self._roster = Roster(options.topology, _STRIKE_OFF * options.silent_after)
        self._lock = threading.Lock()
        self._newest: Copy | None = None
        self._revoked: list[str] = []
        self._stop = False
        self._closing = False
        self._failure: BaseException | None = None
        self._republish_at: float | None = None
        self.num_rejected = 0
        self._wake, self._woken = sockets.pair(f"publisher-{id(self)}")
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self._thread.start()

    def publish(self, version: int, arrays: Mapping[str, Array]) -> None:
        """Make ``arrays`` the newest weights of all hosts; they are copied.

        Raises ConfigError if the version goes back or the weights are above ``max_weight_bytes``,
        WorkerError if the thread that serves has failed.
        """
        options = self._options
        try:
            copy = Copy.of(
                version,
                arrays,
                options.chunk_bytes,
                half=options.half_precision,
                limit=options.max_weight_bytes,
            )
        except wire.WireError as error:
            raise ConfigError(f"{error} (max_weight_bytes)") from error
        with self._lock:
            self._check()
            if self._newest is not None and version <= self._newest.version:
                raise ConfigError(
                    f"weights: version {version} after {self._newest.version}; versions only grow"
                )
            self._newest = copy
            self._wake.send(b"")

    def hosts(self) -> list[HostStatus]:
        """Return the hosts alive with what each of them has, in the order of the tree."""
        with self._lock:
            self._check()
            return self._roster.hosts

    @property
    def epoch(self) -> int:
        """How often the tree has changed."""
        return self._roster.epoch

    @property
    def bytes_sent(self) -> int:
        """Bytes of weights the learner itself has sent."""
        return self._server.bytes_sent

    def revoke(self, member: str) -> None:
        """Take a host out of the tree and off every host's list."""
        with self._lock:
            self._revoked.append(member)
            self._wake.send(b"")

    def stop(self) -> None:
        """Tell every host to finish."""
        with self._lock:
            self._stop = True
            self._wake.send(b"")

    def close(self) -> None:
        """End the thread; the sockets are closed by their owner. Idempotent."""
        with self._lock:
            self._closing = True
            if not self._wake.closed:
                self._wake.send(b"")
        self._thread.join(10.0)

    def _check(self) -> None:
        if self._failure is not None:
            raise WorkerError(f"weights: the thread that serves has failed: {self._failure!r}")

    def _run(self) -> None:
        try:
            poller = zmq.Poller()
            poller.register(self._socket, zmq.POLLIN)
            poller.register(self._woken, zmq.POLLIN)
            beat_at = 0.0
            while not self._closing:
                ready = dict(poller.poll(round(self._options.beat_every * 250)))
                now = time.monotonic()
                with self._lock:
                    if self._woken in ready:
                        self._take_orders()
                    if self._socket in ready:
                        self._take_messages(now)
                    if now >= beat_at:
                        beat_at = now + self._options.beat_every
                        self._server.beat(now, 0)
                        for name in self._roster.drop_silent(now):
                            self._server.forget(name)
                    self._keep_table(now)
                    self._server.push()
        except BaseException as error:
            self._failure = error

    def _take_orders(self) -> None:
        while self._woken.poll(0):
            self._woken.recv()
        if self._newest is not None and self._newest is not self._server.newest:
            self._server.offer(self._newest)
        self._roster.remove(self._revoked)
        for name in self._revoked:
            self._server.forget(name)
        self._revoked.clear()
        if self._stop:
            for host in self._roster.hosts:
                self._send(host.route, wire.Stop())

    def _take_messages(self, now: float) -> None:
        for _ in range(200):
            if not self._socket.poll(0, zmq.POLLIN):
                return
            frames = self._socket.recv_multipart(copy=False)
            route = frames[0].bytes
            try:
                record, _ = self._codec.read([frame.buffer for frame in frames[1:]])
                self._check_member(record, frames[-1])
            except wire.WireError:
                self.num_rejected += 1
                continue
            if isinstance(record, wire.Join):
                self._join(route, record, now)
            else:
                self._server.handle(route, record, now, 0)

    def _check_member(self, record: Any, frame: Any) -> None:
        if self._sockets.keys is None:
            return
        member = frame.get("User-Id")
        name = getattr(record, "name", member)
        if isinstance(record, wire.Join):
            name = record.seat.name
        if member != name or not self._sockets.gatekeeper.is_admitted(member):
            raise wire.WireError(f"message: {member!r} may not speak for {name!r}")

    def _join(self, route: bytes, join: wire.Join, now: float) -> None:
        host = self._roster.heard(route, join, now)
        if self._stop:
            self._send(route, wire.Stop())
        elif (
            join.epoch < self._roster.epoch
            and not self._roster.changed
            and now - host.told_at > _TELL_AGAIN
        ):
            host.told_at = now
            self._send(route, self._roster.table())

    def _keep_table(self, now: float) -> None:
        """Send everybody a new table when hosts came or went; changes in a row make one table."""
        if not self._roster.changed:
            return
        if self._republish_at is None:
            self._republish_at = now + _GATHER_CHANGES
        if now >= self._republish_at:
            self._republish_at = None
            header = self._codec.header(self._roster.next_table())
            for host in self._roster.hosts:
                host.told_at = now
                self._socket.send_multipart([host.route, header])

    def _send(self, route: bytes, record: Any) -> None:
        self._socket.send_multipart([route, self._codec.header(record)])

"""A host's end of the broadcast tree: one fetch for all its actors, and others served from it.

A relay follows a parent (another host's relay or the learner), hands every chunk on to its own
children as it comes, and delivers a version once it is whole. It hears from its parent five times a
second; after 0.7 s of silence it follows somebody else, in this order: an older sibling, the
grandparent, the learner. It goes on with the chunk it stopped at. The learner strikes dead hosts
off and sends everybody the new table; a host that comes back is listed again.

Hosts in two tables at once cannot stay in a circle: every beat says how long ago its sender last
heard, through its parents, from the learner, and a parent that is cut off is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lamarckian.distributed import tree, wire
from lamarckian.distributed.copies import Copy
from lamarckian.distributed.layout import Arrays
from lamarckian.distributed.security import zmq
from lamarckian.distributed.serving import Server
from lamarckian.distributed.sockets import Socket, Sockets
from lamarckian.distributed.ticket import Ticket
from lamarckian.errors import WorkerError

LEARNER = ""
_TICK = 0.05
_CUT_OFF = 4.0  # times silent_after
_TRY = 0.6  # times silent_after: how long a new parent may take to answer
_HOME_EVERY = 2.0


@dataclass(slots=True)
class _Link:
    """A connection to somebody who serves, or may serve, this host."""

    name: str
    socket: Socket
    since: float
    heard: float


class Relay:
    """Follows, delivers and serves; owns its sockets. Run it in a thread or process of its own.

    ``endpoint`` is where other hosts reach this one (``tcp://ADDRESS:*``, or a socket file);
    ``deliver`` is called with each whole version, never with one older than the last.
    """

    def __init__(
        self, ticket: Ticket, endpoint: str, deliver: Callable[[int, Arrays], None]
    ) -> None:
        self.version = -1
        self.epoch = 0
        self.num_parents = 0  # so often somebody was followed anew
        self._ticket = ticket
        self._options = ticket.options
        self._deliver = deliver
        self._sockets = Sockets(ticket.keys)
        largest = max(wire.MAX_RECORD, self._options.chunk_bytes)
        limits = wire.Declared(max_bytes=self._options.max_weight_bytes)
        self._down = wire.Codec(ticket.run_id, wire.ToChild, limits)
        up = wire.Codec(ticket.run_id, wire.FromChild)
        self._up = up
        self._largest = largest
        self._seats: tuple[wire.Seat, ...] = ()
        self._wishes: list[str] = [LEARNER]
        self._incoming: Copy | None = None
        self._trial: _Link | None = None
        self._parent: _Link | None = None
        self._tried = 0
        self._home_at = 0.0
        self._closing = False
        self.stopped = False
        try:
            self._socket, self.endpoint = self._sockets.serve(endpoint, wire.MAX_RECORD)
            self._server = Server(self._socket, up, self._options)
            self._poller = zmq.Poller()
            self._poller.register(self._socket, zmq.POLLIN)
            now = time.monotonic()
            self._learner = self._connect(LEARNER, now)
        except BaseException:
            self.close()
            raise
        key = ticket.keys.public if ticket.keys else ""
        self._aged_at, self._aged = now, 0.0  # what the last beat of the parent said
        self._seat = wire.Seat(ticket.member, self.endpoint, key)
        self._join_at = self._beat_at = 0.0

    @property
    def parent(self) -> str:
        """Name of the host this one follows now ('' is the learner, '?' nobody)."""
        return self._parent.name if self._parent else "?"

    @property
    def children(self) -> list[str]:
        """Names of the hosts that follow this one now."""
        return self._server.children

    @property
    def bytes_sent(self) -> int:
        """Bytes of weights handed on."""
        return self._server.bytes_sent

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Work until the learner says stop or ``should_stop``.

        Raises WorkerError if nothing is heard of the learner for ``orphan_after`` seconds.
        """
        while not self.stopped and not should_stop():
            self.step()

    def step(self, timeout: float = _TICK) -> None:
        """Wait up to ``timeout`` seconds for messages and do all that is due."""
        ready = dict(self._poller.poll(max(0, round(timeout * 1000))))
        now = time.monotonic()
        if self._socket in ready:
            self._take_from_children(now)
        for link in (self._learner, self._parent, self._trial):
            if link is not None and link.socket in ready:
                self._take_from(link, now)
        self._server.push()
        self._keep_parent(now)
        if now >= self._beat_at:
            self._beat_at = now + self._options.beat_every
            age = round(1000 * self._age(now))
            self._server.beat(now, age)
            if self._parent is not None:
                self._send(self._parent, wire.Beat(version=self.version, age=age))
        if now >= self._join_at:
            self._join_at = now + 2 * self._options.beat_every
            join = wire.Join(
                seat=self._seat, epoch=self.epoch, version=self.version, parent=self.parent
            )
            self._send(self._learner, join)
        if now - self._learner.heard > self._options.orphan_after:
            raise WorkerError(
                f"{self._ticket.member}: nothing heard of the learner at {self._ticket.weights} "
                f"for {self._options.orphan_after:g} s (orphan_after)"
            )

    def close(self) -> None:
        """Close every socket. Idempotent."""
        self._sockets.close()

    # Messages

    def _take_from_children(self, now: float) -> None:
        age = round(1000 * self._age(now))
        for _ in range(200):
            if not self._socket.poll(0, zmq.POLLIN):
                return
            frames = self._socket.recv_multipart(copy=False)
            try:
                record, _ = self._up.read([frame.buffer for frame in frames[1:]])
                if isinstance(record, wire.Follow) and self._sockets.keys is not None:
                    member = frames[-1].get("User-Id")
                    if member != record.name:
                        raise wire.WireError(f"message: {member!r} is not {record.name!r}")
            except wire.WireError:
                continue
            self._server.handle(frames[0].bytes, record, now, age)

    def _take_from(self, link: _Link, now: float) -> None:
        for _ in range(64):
            if link.socket.closed or not link.socket.poll(0, zmq.POLLIN):
                return
            frames = link.socket.recv_multipart(copy=False)
            try:
                record, rest = self._down.read([frame.buffer for frame in frames])
                link.heard = now
                self._handle(link, record, rest, now)
            except wire.WireError:
                if link is self._parent:  # a piece is missing: ask anew from where we stand
                    self._send(link, self._follow())

    def _handle(self, link: _Link, record: Any, rest: Any, now: float) -> None:
        match record:
            case wire.Table():
                self._take_table(record, now)
            case wire.Stop():
                self.stopped = True
                self._server.tell_all(record)
            case wire.Beat():
                age = record.age / 1000
                if link is self._trial:
                    self._judge_trial(link, age)
                if link is self._parent:
                    self._aged_at, self._aged = now, age
            case wire.Begin() if link in (self._parent, self._trial):
                self._begin(record)
            case wire.Chunk() if link in (self._parent, self._trial):
                self._chunk(link, record, rest[0])

    def _begin(self, begin: wire.Begin) -> None:
        if self._incoming is not None and self._incoming.begin == begin:
            return  # the new parent goes on where the old one stopped
        if begin.version <= self.version:
            return
        if self._incoming is not None and begin.version < self._incoming.version:
            return  # the old parent's, later than the new one's
        self._incoming = Copy(begin, self._options.max_weight_bytes)
        self._server.offer(self._incoming)

    def _chunk(self, link: _Link, chunk: wire.Chunk, data: Any) -> None:
        copy = self._incoming
        if copy is None or copy.version != chunk.version:
            # Of a version we have or do not want: the sender must not wait for its window.
            self._send(link, wire.Ack(version=chunk.version, chunks=chunk.index + 1))
            return
        if chunk.index >= copy.available:
            copy.put(chunk.index, data)
        self._send(link, wire.Ack(version=copy.version, chunks=copy.available))
        if copy.is_whole:
            self._incoming = None
            self._server.push()  # others first: delivering copies the weights once more
            self.version = copy.version
            self._deliver(copy.version, copy.arrays())
            self._join_at = 0.0

    # Whom to follow

    def _take_table(self, table: wire.Table, now: float) -> None:
        if table.epoch <= self.epoch:
            return
        self.epoch = table.epoch
        self._seats = table.seats
        names = [seat.name for seat in table.seats]
        if self._sockets.keys is not None:
            self._sockets.gatekeeper.replace({seat.key: seat.name for seat in table.seats})
        for name in set(self._server.children) - set(names):
            self._server.forget(name)
        if self._ticket.member not in names:
            return  # struck off by mistake: the next Join puts us back
        place = names.index(self._ticket.member)
        shape = tree.build(len(names), table.topology)
        order = [shape.parents[place], *shape.fallbacks(place)]
        wishes = [LEARNER if other == tree.LEARNER else names[other] for other in order]
        self._wishes = list(dict.fromkeys(wishes))
        self._join_at = 0.0  # the learner hears at once that we have it
        self._tried = 0
        if self._parent is None or self._parent.name != self._wishes[0]:
            self._try(self._wishes[0], now)

    def _keep_parent(self, now: float) -> None:
        silence = self._options.silent_after
        parent = self._parent
        if parent is not None and (
            now - parent.heard > silence or self._age(now) > _CUT_OFF * silence
        ):
            self._leave(parent)
            self._parent = None
            parent = None
        trial = self._trial
        if trial is not None and now - trial.since > _TRY * silence:
            self._leave(trial)
            self._trial = trial = None
        if trial is not None or self.epoch == 0:
            return
        if parent is None:
            # The first wish was tried when the table came, or is the one that fell silent.
            self._tried += 1
            self._try(self._wishes[self._tried % len(self._wishes)], now)
        elif parent.name != self._wishes[0] and now >= self._home_at:
            self._try(self._wishes[0], now)

    def _try(self, name: str, now: float) -> None:
        """Ask ``name`` to serve us; the parent we have is left once the answer is there."""
        if self._trial is not None:
            self._leave(self._trial)
        self._home_at = now + _HOME_EVERY
        try:
            link = self._learner if name == LEARNER else self._connect(name, now)
        except LookupError:  # of a table that no longer holds
            self._trial = None
            return
        link.since = now
        self._trial = link
        self._send(link, self._follow())

    def _follow(self) -> wire.Follow:
        partial = self._incoming
        return wire.Follow(
            name=self._ticket.member,
            have=self.version,
            partial=partial.version if partial else -1,
            chunks=partial.available if partial else 0,
        )

    def _judge_trial(self, link: _Link, age: float) -> None:
        if age > _CUT_OFF * self._options.silent_after:
            self._leave(link)
            self._trial = None
            return
        old, self._parent, self._trial = self._parent, link, None
        self._tried = 0
        if old is not None and old is not link:
            self._leave(old)
        self.num_parents += 1
        self._join_at = 0.0

    def _leave(self, link: _Link) -> None:
        self._send(link, wire.Leave())
        if link is not self._learner:
            self._poller.unregister(link.socket)
            self._sockets.close_one(link.socket, linger=0.1)

    def _connect(self, name: str, now: float) -> _Link:
        if name == LEARNER:
            endpoint, key = self._ticket.weights, self._ticket.server_key
        else:
            seat = {seat.name: seat for seat in self._seats}[name]
            endpoint, key = seat.endpoint, seat.key
        socket = self._sockets.connect(endpoint, key, self._largest)
        self._poller.register(socket, zmq.POLLIN)
        return _Link(name, socket, now, now)

    def _age(self, now: float) -> float:
        """Seconds since this host heard, through its parents, from the learner."""
        return now - self._aged_at + self._aged

    def _send(self, link: _Link, record: Any) -> None:
        if link.socket.poll(0, zmq.POLLOUT):  # else its pipe is full: it is not reading
            link.socket.send(self._up.header(record))

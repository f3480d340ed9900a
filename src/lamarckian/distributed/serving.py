"""The parent's side of a broadcast: several children, each served at its own pace.

A child has a window of chunks that are sent and not yet acknowledged, so what waits in sockets is
bounded, and a chunk goes to all children before the next goes to any. A child that has one version
gets the newest there is next, whatever came between; a version that has begun is finished, or a
learner faster than the network would never get one through. Chunks go out as soon as they are
here, before the version is whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lamarckian.distributed import wire
from lamarckian.distributed.copies import Copy
from lamarckian.distributed.sockets import Socket
from lamarckian.distributed.ticket import TransportOptions

_FORGET_AFTER = 5.0  # seconds without a word from a child


@dataclass(slots=True)
class _Child:
    name: str
    route: bytes
    heard: float
    have: int  # newest version it has, or is being sent
    copy: Copy | None = None
    sent: int = 0
    acknowledged: int = 0


class Server:
    """Serves children over a ROUTER; owns no thread and never waits."""

    def __init__(self, socket: Socket, codec: wire.Codec, options: TransportOptions) -> None:
        self.newest: Copy | None = None
        self.bytes_sent = 0
        self._socket = socket
        self._codec = codec
        self._window = max(1, options.window_bytes // options.chunk_bytes)
        self._children: dict[bytes, _Child] = {}

    @property
    def children(self) -> list[str]:
        """Names of those served now."""
        return [child.name for child in self._children.values()]

    def offer(self, copy: Copy) -> None:
        """Make ``copy``, whole or arriving, the newest; it is pushed with :meth:`push`."""
        if self.newest is not None and not self.newest.is_whole:
            self.newest.abandoned = True
        self.newest = copy

    def handle(self, route: bytes, record: Any, now: float, age: int) -> None:
        """Take in what a child sent; ``age`` goes into the answer to a new one."""
        if isinstance(record, wire.Follow):
            self._follow(route, record, now, age)
        child = self._children.get(route)
        if child is None:
            return
        child.heard = now
        if isinstance(record, wire.Leave):
            del self._children[route]
        copy = child.copy
        if isinstance(record, wire.Ack) and copy is not None and record.version == copy.version:
            child.acknowledged = min(max(child.acknowledged, record.chunks), child.sent)

    def push(self) -> None:
        """Send every chunk that is here and within its child's window."""
        window = max(1, self._window // max(1, len(self._children)))
        busy = True
        while busy:
            busy = False
            for child in self._children.values():
                if self._push_one(child, window):
                    busy = True

    def beat(self, now: float, age: int) -> None:
        """Tell every child that this side lives; forget those long silent."""
        for route, child in list(self._children.items()):
            if now - child.heard > _FORGET_AFTER:
                del self._children[route]
            else:
                self._send(route, self._beat(age))

    def tell_all(self, record: Any) -> None:
        """Send ``record`` to every child."""
        for route in self._children:
            self._send(route, record)

    def forget(self, name: str) -> None:
        """Serve ``name`` no more."""
        self._children = {r: c for r, c in self._children.items() if c.name != name}

    def _follow(self, route: bytes, record: wire.Follow, now: float, age: int) -> None:
        self.forget(record.name)
        child = _Child(record.name, route, now, record.have)
        copy = self.newest
        if copy is not None and copy.version == record.partial:
            child.copy, child.have = copy, copy.version
            # What arrives here later than there is not sent twice.
            child.sent = child.acknowledged = min(record.chunks, copy.num_chunks)
            self._send(route, copy.begin)
        self._children[route] = child
        self._send(route, self._beat(age))

    def _beat(self, age: int) -> wire.Beat:
        return wire.Beat(version=self.newest.version if self.newest else -1, age=age)

    def _push_one(self, child: _Child, window: int) -> bool:
        copy = child.copy
        if copy is None or copy.abandoned or child.sent >= copy.num_chunks:
            newest = self.newest
            if newest is None or newest is copy or newest.abandoned:
                return False
            if newest.version <= child.have:
                return False
            child.copy = copy = newest
            child.have, child.sent, child.acknowledged = newest.version, 0, 0
            self._send(child.route, newest.begin)
        if child.sent >= copy.available or child.sent - child.acknowledged >= window:
            return False
        data = copy.chunk(child.sent)
        header = self._codec.header(wire.Chunk(version=copy.version, index=child.sent))
        self._socket.send_multipart([child.route, header, data])
        self.bytes_sent += len(data)
        child.sent += 1
        return True

    def _send(self, route: bytes, record: Any) -> None:
        self._socket.send_multipart([route, self._codec.header(record)])

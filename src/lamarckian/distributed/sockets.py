"""The one place where ZeroMQ sockets are made, so that none lacks a limit, a heartbeat or a lock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from lamarckian.distributed import security
from lamarckian.distributed.security import Gatekeeper, KeyPair, zmq
from lamarckian.distributed.wire import MAX_MESSAGE
from lamarckian.errors import ConfigError, WorkerError

Socket = Any  # zmq.Socket[bytes]; its stubs type options loosely


class SocketOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of every socket. Times in seconds.

    ``heartbeat_every``, ``heartbeat_timeout``  a peer silent for both together is disconnected.
    ``linger``         how long closing a socket waits for what is not yet sent.
    ``high_water``     messages queued per connection before a sender waits.
    ``handshake``      limit for a new connection to prove who it is.
    """

    heartbeat_every: float = 0.5
    heartbeat_timeout: float = 1.0
    linger: float = 0.5
    high_water: int = 1000
    handshake: float = 5.0
    reconnect_first: float = 0.05
    reconnect_at_most: float = 0.5


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


class Sockets:
    """A context with its gatekeeper and the sockets of one process; closing it closes them all.

    ``keys`` are this process's own (None: local mode, socket files only). Sockets must be used from
    one thread each and never after a fork.
    """

    def __init__(self, keys: KeyPair | None, options: SocketOptions | None = None) -> None:
        self.keys = keys
        self.options = options or SocketOptions()
        self._pid = os.getpid()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 16_384)
        self._gatekeeper: Gatekeeper | None = None
        self._open: list[Socket] = []
        self._files: list[Path] = []

    @property
    def gatekeeper(self) -> Gatekeeper:
        """The door of this process's server sockets; its thread starts at the first use."""
        if self._gatekeeper is None:
            self._gatekeeper = Gatekeeper(self._context, with_keys=self.keys is not None)
        return self._gatekeeper

    def serve(
        self, endpoint: str, max_message: int = MAX_MESSAGE, high_water: int | None = None
    ) -> tuple[Socket, str]:
        """Return a ROUTER bound to ``endpoint`` and the endpoint others connect to.

        ``tcp://ADDRESS:*`` takes a free port. Raises ConfigError if it would be open to strangers
        or cannot be bound.
        """
        security.check_endpoint(endpoint, has_keys=self.keys is not None, bind=True)
        assert self.gatekeeper is not None  # without it the enforced domain lets nobody in
        socket = self._make(zmq.ROUTER, max_message, high_water)
        socket.ipv6 = "[" in endpoint
        if self.keys is not None:
            socket.curve_server = True
            socket.curve_secretkey = self.keys.secret.encode()
            socket.curve_publickey = self.keys.public.encode()
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.zap_domain = security.DOMAIN.encode()
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise ConfigError(f"endpoint {endpoint!r} cannot be bound: {error}") from error
        bound = socket.last_endpoint.decode()
        if bound.startswith("ipc://"):
            self._files.append(Path(bound.removeprefix("ipc://")))
        return socket, bound

    def connect(self, endpoint: str, server_key: str, max_message: int = MAX_MESSAGE) -> Socket:
        """Return a DEALER that connects to ``endpoint``, whose owner has ``server_key``."""
        security.check_endpoint(endpoint, has_keys=self.keys is not None and bool(server_key))
        socket = self._make(zmq.DEALER, max_message, None)
        socket.ipv6 = "[" in endpoint
        if self.keys is not None:
            socket.curve_serverkey = server_key.encode()
            socket.curve_secretkey = self.keys.secret.encode()
            socket.curve_publickey = self.keys.public.encode()
        socket.connect(endpoint)
        return socket

    def pair(self, name: str) -> tuple[Socket, Socket]:
        """Return two connected sockets inside this process, for waking a thread that polls."""
        ends: list[Socket] = [self._context.socket(zmq.PAIR) for _ in range(2)]
        ends[0].bind(f"inproc://{name}")
        ends[1].connect(f"inproc://{name}")
        for end in ends:
            self._open.append(end)
        return ends[0], ends[1]

    def close_one(self, socket: Socket, linger: float = 0.0) -> None:
        """Close one socket before the rest."""
        self._open.remove(socket)
        socket.close(linger=_milliseconds(linger))

    def close(self) -> None:
        """Close everything; waits ``linger`` at most for what is not yet sent. Idempotent."""
        if self._context.closed:
            return
        if os.getpid() != self._pid:
            raise WorkerError("sockets: inherited through a fork; start workers by spawning them")
        for socket in self._open:
            socket.close(linger=_milliseconds(self.options.linger))
        self._open.clear()
        if self._gatekeeper is not None:
            self._gatekeeper.close()
        self._context.term()
        for path in self._files:
            path.unlink(missing_ok=True)

    def _make(self, kind: int, max_message: int, high_water: int | None) -> Socket:
        if os.getpid() != self._pid:
            raise WorkerError("sockets: inherited through a fork; start workers by spawning them")
        options = self.options
        socket: Socket = self._context.socket(kind)
        socket.linger = _milliseconds(options.linger)
        socket.sndhwm = socket.rcvhwm = high_water or options.high_water
        socket.maxmsgsize = max_message
        socket.heartbeat_ivl = _milliseconds(options.heartbeat_every)
        socket.heartbeat_timeout = _milliseconds(options.heartbeat_timeout)
        socket.heartbeat_ttl = _milliseconds(options.heartbeat_every + options.heartbeat_timeout)
        socket.handshake_ivl = _milliseconds(options.handshake)
        socket.reconnect_ivl = _milliseconds(options.reconnect_first)
        socket.reconnect_ivl_max = _milliseconds(options.reconnect_at_most)
        self._open.append(socket)
        return socket

"""Who may talk to a socket: keys per run, a list of living members, and a door that asks it.

Every server socket of a context belongs to one authentication domain, and a :class:`Gatekeeper`
answers for that domain (the ZAP protocol of ZeroMQ). The domain is *enforced*: without an answer
from the gatekeeper nobody gets in, and clients that speak a version of the protocol too old for
authentication are dropped before their bytes reach anybody. Over TCP the mechanism is CURVE
(elliptic-curve keys, authenticated encryption); inside one host it is NULL over a socket file in a
folder that only this user can enter.
"""

from __future__ import annotations

import ipaddress
import os
import stat
import tempfile
import threading
from pathlib import Path

import msgspec

from lamarckian.errors import ConfigError, MissingDependency, WorkerError

try:
    import zmq as zmq  # the others of this package take it from here, behind this guard
    from zmq.utils import z85
except ModuleNotFoundError as error:  # an extra
    raise MissingDependency(
        "data between hosts travels over ZeroMQ: pip install 'lamarckian[cluster]'"
    ) from error

DOMAIN = "lamarckian"
_ZAP = "inproc://zeromq.zap.01"


class KeyPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A CURVE key pair in Z85 text; printing it shows the public half only."""

    public: str
    secret: str

    @classmethod
    def make(cls) -> KeyPair:
        """Return a new pair. Raises ConfigError if this ZeroMQ was built without CURVE."""
        if not zmq.has("curve"):
            raise ConfigError(
                "cluster mode: this ZeroMQ was built without CURVE; install pyzmq from its wheel"
            )
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"


def private_folder(parent: str | None = None) -> Path:
    """Make and return a new folder that only this user can enter; the caller removes it."""
    folder = Path(tempfile.mkdtemp(prefix="lamarckian-", dir=parent))
    check_private(folder)
    return folder


def check_private(folder: Path) -> None:
    """Raise ConfigError unless ``folder`` is ours and closed to all others (mode 0700)."""
    facts = os.lstat(folder)
    mode = stat.S_IMODE(facts.st_mode)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or mode & 0o077:
        raise ConfigError(
            f"socket folder {folder}: expected a folder of this user with mode 0700, found "
            f"owner {facts.st_uid} and mode {mode:04o}"
        )


def check_endpoint(endpoint: str, *, has_keys: bool, bind: bool = False) -> None:
    """Raise ConfigError for an endpoint that would be open to strangers.

    TCP needs keys and, where it is bound, one address of this node rather than all of them; socket
    files need a private folder.
    """
    kind, _, rest = endpoint.partition("://")
    if kind == "ipc":
        check_private(Path(rest).parent)
        return
    if kind != "tcp":
        raise ConfigError(f"endpoint {endpoint!r}: expected tcp:// or ipc://")
    if not has_keys:
        raise ConfigError(f"endpoint {endpoint!r}: TCP is used with keys only (cluster mode)")
    host = rest.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError(
            f"endpoint {endpoint!r}: expected the numeric address of this node, got {host!r}"
        ) from None
    if bind and (address.is_unspecified or address.is_multicast):
        raise ConfigError(
            f"endpoint {endpoint!r}: it would listen on every network of this machine; name the "
            "address the other nodes reach it by"
        )


class Gatekeeper:
    """Answers, in a thread, whether a client may enter the server sockets of one context.

    ``admit`` and ``revoke`` may be called from any thread. A revoked client cannot connect again;
    a connection it still has is not cut by ZeroMQ, so readers also ask :meth:`is_admitted` for the
    member each message came from.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], *, with_keys: bool) -> None:
        self.num_refused = 0
        self._context = context
        self._mechanism = b"CURVE" if with_keys else b"NULL"
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}  # public key -> name; replaced, never changed
        self._admitted: frozenset[str] = frozenset()
        self._wake = context.socket(zmq.PAIR)
        self._wake.linger = 0
        self._address = f"inproc://gatekeeper-{id(self)}"
        self._wake.bind(self._address)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="gatekeeper", daemon=True)
        self._thread.start()
        if not self._ready.wait(10.0):
            raise WorkerError("gatekeeper: its thread did not start within 10 s")

    def admit(self, name: str, public_key: str) -> None:
        """Let the owner of ``public_key`` in, as ``name``; an older key of that name goes."""
        with self._lock:
            kept = {k: n for k, n in self._names.items() if n != name}
            self._set(kept | {public_key: name})

    def replace(self, names: dict[str, str]) -> None:
        """Let exactly these members in: public key -> name."""
        with self._lock:
            self._set(dict(names))

    def revoke(self, name: str) -> None:
        """Let ``name`` in no more."""
        with self._lock:
            self._set({k: n for k, n in self._names.items() if n != name})

    def is_admitted(self, name: str) -> bool:
        """Whether ``name`` is on the list now."""
        return name in self._admitted

    def close(self) -> None:
        """End the thread and free its sockets."""
        if not self._wake.closed:
            self._wake.send(b"")
            self._thread.join(10.0)
            self._wake.close()

    def _set(self, names: dict[str, str]) -> None:
        self._names, self._admitted = names, frozenset(names.values())

    def _serve(self) -> None:
        door: zmq.Socket[bytes] = self._context.socket(zmq.REP)
        wake: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        door.linger = wake.linger = 0
        try:
            wake.connect(self._address)
            door.bind(_ZAP)
            self._ready.set()
            poller = zmq.Poller()
            poller.register(door, zmq.POLLIN)
            poller.register(wake, zmq.POLLIN)
            while True:
                if wake in (ready := dict(poller.poll())):
                    return
                if door in ready:
                    door.send_multipart(self._answer(door.recv_multipart()))
        finally:
            door.close()
            wake.close()

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """Return the reply to one ZAP request (rfc.zeromq.org/spec/27)."""
        name = None
        number = request[1] if len(request) > 1 else b""
        if len(request) >= 6 and request[0] == b"1.0" and request[2] == DOMAIN.encode():
            name = self._name_of(request[5], request[6:])
        if name is None:
            self.num_refused += 1
            return [b"1.0", number, b"400", b"not admitted", b"", b""]
        return [b"1.0", number, b"200", b"OK", name.encode(), b""]

    def _name_of(self, mechanism: bytes, credentials: list[bytes]) -> str | None:
        if mechanism != self._mechanism:
            return None
        if mechanism == b"NULL":
            return "local"
        if len(credentials) != 1 or len(credentials[0]) != 32:
            return None
        key = z85.encode(credentials[0]).decode()
        return self._names.get(key)

"""Trajectories over sockets: credit, losses, strangers, garbage."""

from __future__ import annotations

import os
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
import zmq

from lamarckian.distributed import wire
from lamarckian.distributed.channel import Stopped
from lamarckian.distributed.gather import GatherSender
from lamarckian.distributed.security import KeyPair, check_endpoint
from lamarckian.distributed.sockets import Sockets
from lamarckian.distributed.ticket import Ticket, TransportOptions
from lamarckian.distributed.transport import Hub
from lamarckian.errors import ConfigError, UnknownName, WorkerError

ARRAY = {"a": np.arange(6, dtype=np.float32).reshape(2, 3)}


@pytest.fixture(params=["local", "cluster"])
def hub(request: pytest.FixtureRequest) -> Iterator[Hub]:
    with Hub(None if request.param == "local" else "127.0.0.1") as made:
        yield made


@pytest.fixture
def cluster() -> Iterator[Hub]:
    with Hub("127.0.0.1") as made:
        yield made


def join(hub: Hub, ticket: Ticket, **options: Any) -> GatherSender:
    """Connect an actor while the hub's thread (this one) answers."""
    found: list[Any] = []

    def connect() -> None:
        try:
            found.append(GatherSender(ticket, **options))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    while thread.is_alive():
        assert hub.receive(0.02) is None
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]  # type: ignore[no-any-return]


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.01)


def test_fragments_arrive_whole_and_in_order(hub: Hub) -> None:
    with join(hub, hub.admit_actor(3)) as sender:
        sender.send(ARRAY, {"number": 0, "value": float("inf")})
        views = sender.reserve({"a": ("<f4", (2, 3)), "none": ("|u1", (0,))})
        views["a"][:] = 5.0
        sender.commit({"number": 1})
        first, second = hub.receive(5.0), hub.receive(5.0)
        assert first is not None
        assert second is not None
        assert (first.worker, first.header) == (3, {"number": 0, "value": float("inf")})
        np.testing.assert_array_equal(first.arrays["a"], ARRAY["a"])
        np.testing.assert_array_equal(second.arrays["a"], np.full((2, 3), 5.0))
        assert second.arrays["none"].shape == (0,)
        assert not first.arrays["a"].flags.writeable
        (stats,) = hub.stats()
        assert (stats.fragments, stats.bytes, stats.lost, stats.unread) == (2, 48, 0, 2)


def test_sender_waits_for_credit_and_says_so(hub: Hub) -> None:
    with join(hub, hub.admit_actor(0), send_timeout=0.3) as sender:
        sender.send(ARRAY)
        sender.send(ARRAY)
        with pytest.raises(WorkerError, match="nobody read this worker's 2 waiting fragments"):
            sender.send(ARRAY)
        received = hub.receive(5.0)
        assert received is not None
        received.release()
        received.release()  # a second call does nothing
        sender.send(ARRAY)
        assert sender.num_unread == 2


def test_stop_reaches_waiting_actors(hub: Hub) -> None:
    with join(hub, hub.admit_actor(0)) as sender:
        assert not sender.should_stop()
        sender.send(ARRAY)
        sender.send(ARRAY)
        hub.stop()
        with pytest.raises(Stopped):
            sender.send(ARRAY)
        assert sender.should_stop()


def test_lost_fragments_are_counted_and_give_their_credit_back(cluster: Hub) -> None:
    """A link that drops what it carries: numbers show it, and the actor goes on."""
    with join(cluster, cluster.admit_actor(0), send_timeout=8.0) as sender:
        sender.send(ARRAY, {"number": 0})
        real, sender._post = (
            sender._post,
            lambda frames, copy: setattr(  # type: ignore[method-assign]
                sender, "_sent", sender._sent + 1
            ),
        )
        sender.send(ARRAY, {"number": 1})  # lost
        sender._post = real  # type: ignore[method-assign]
        received = cluster.receive(5.0)
        assert received is not None
        received.release()
        sender.send(ARRAY, {"number": 2})
        received = cluster.receive(5.0)
        assert received is not None
        assert received.header == {"number": 2}
        received.release()
        assert cluster.stats()[0].lost == 1
        # All that is in flight is lost: only a probe can tell.
        sender._post = lambda frames, copy: setattr(sender, "_sent", sender._sent + 1)  # type: ignore[method-assign]
        sender.send(ARRAY)
        sender.send(ARRAY)
        sender._post = real  # type: ignore[method-assign]
        thread = threading.Thread(target=sender.send, args=(ARRAY, {"number": 5}))
        thread.start()
        received = cluster.receive(6.0)
        thread.join()
        assert received is not None
        assert received.header == {"number": 5}
        (stats,) = cluster.stats()
        assert (stats.fragments, stats.lost) == (3, 3)


def test_restarted_actor_counts_anew_and_its_former_life_is_over(hub: Hub) -> None:
    ticket = hub.admit_actor(0)
    with join(hub, ticket) as old:
        old.send(ARRAY, {"life": 0})
        received = hub.receive(5.0)
        assert received is not None
        with join(hub, ticket, attempt=1) as new:
            received.release()  # of the former life: no credit for the new one
            old.send(ARRAY, {"life": 0})
            new.send(ARRAY, {"life": 1})
            received = hub.receive(5.0)
            assert received is not None
            assert received.header == {"life": 1}
            assert hub.receive(0.1) is None
            (stats,) = hub.stats()
            assert (stats.attempt, stats.lost, stats.rejected, stats.unread) == (1, 0, 1, 1)


def test_wrong_run_and_undeclared_arrays_are_refused() -> None:
    declared = wire.Declared.of(ARRAY)
    with Hub(None, declared=declared) as hub:
        ticket = hub.admit_actor(0)
        other = msgspec.structs.replace(ticket, run="00" * 16)
        with pytest.raises(WorkerError, match="no answer"):
            join(hub, other, join_timeout=0.3)
        assert hub.num_rejected == 1
        with join(hub, ticket) as sender:
            sender.send({"b": ARRAY["a"]})
            sender.send(ARRAY)
            received = hub.receive(5.0)
            assert received is not None
            assert received.arrays.keys() == {"a"}
            assert hub.num_rejected == 2
            # What was refused counts as lost: its number never came.
            assert hub.stats()[0].lost == 1


def test_strangers_stay_outside(cluster: Hub) -> None:
    ticket = cluster.admit_actor(0)
    stranger = msgspec.structs.replace(ticket, keys=KeyPair.make())
    with pytest.raises(WorkerError, match="is this member admitted"):
        join(cluster, stranger, join_timeout=0.5)
    wrong_server = msgspec.structs.replace(ticket, server_key=KeyPair.make().public)
    with pytest.raises(WorkerError, match="no answer"):
        join(cluster, wrong_server, join_timeout=0.5)
    assert cluster.num_refused >= 1
    assert cluster.num_rejected == 0
    assert cluster.stats()[0].fragments == 0


def test_a_member_speaks_for_itself_only(cluster: Hub) -> None:
    cluster.admit_actor(0)
    thief = msgspec.structs.replace(cluster.admit_actor(1), worker=0)
    with pytest.raises(WorkerError, match="no answer"):
        join(cluster, thief, join_timeout=0.3)
    assert cluster.num_rejected >= 1


def test_revoked_member_is_not_heard_even_on_its_open_connection(cluster: Hub) -> None:
    ticket = cluster.admit_actor(0)
    with join(cluster, ticket, send_timeout=1.0) as sender:
        sender.send(ARRAY)
        assert cluster.receive(5.0) is not None
        cluster.revoke(ticket.member)
        sender.send(ARRAY)
        assert cluster.receive(0.3) is None
        assert cluster.num_rejected == 1
    with pytest.raises(WorkerError, match="no answer"):
        join(cluster, ticket, join_timeout=0.3)
    # A new ticket for the same place works; the old key stays void.
    with join(cluster, cluster.admit_actor(0)) as sender:
        sender.send(ARRAY)
        assert cluster.receive(5.0) is not None
    with pytest.raises(WorkerError, match="no answer"):
        join(cluster, ticket, join_timeout=0.3)


GREETING_3 = b"\xff" + b"\0" * 7 + b"\x01\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" * 32
READY = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
GARBAGE = {
    "nothing": b"",
    "random": secrets.token_bytes(4096),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    # ZMTP 1.0: an anonymous identity, then frames of length | flags | body
    "zmtp 1.0": b"\x01\x00" + b"\x06\x00hello" * 50,
    "zmtp 2.0": b"\xff" + b"\0" * 8 + b"\x7f\x01\x05" + b"\0\0" + b"\0\x05hello" * 50,
    "zmtp 3.0 without keys": GREETING_3 + READY + b"\0\x05hello" * 50,
}


def _throw(family: int, address: Any, data: bytes) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(2.0)
        sock.connect(address)
        for piece in (data[:12], data[12:]):
            try:
                sock.sendall(piece)
                time.sleep(0.02)
            except OSError:  # thrown out already
                return


def throw(endpoint: str, data: bytes) -> None:
    """Send raw bytes to a port or a socket file."""
    kind, _, rest = endpoint.partition("://")
    if kind == "ipc":
        _throw(socket.AF_UNIX, rest, data)
    else:
        host, _, port = rest.rpartition(":")
        _throw(socket.AF_INET, (host, int(port)), data)


def test_an_unguarded_socket_would_hand_garbage_over() -> None:
    """The trap the others are guarded against: without it these tests would prove nothing."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as plain:
        plain.linger = 0
        port = plain.bind_to_random_port("tcp://127.0.0.1")
        throw(f"tcp://127.0.0.1:{port}", GARBAGE["zmtp 1.0"])
        assert plain.poll(5_000)
        assert b"hello" in plain.recv_multipart()[-1]


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_never_reaches_the_application(cluster: Hub, kind: str) -> None:
    ticket = cluster.admit_actor(0)
    throw(ticket.gather, GARBAGE[kind])
    assert cluster.receive(0.1) is None
    # Not refused by the codec: the bytes did not get as far as the program.
    assert cluster.num_rejected == 0


@pytest.mark.parametrize("kind", ["random", "zmtp 1.0", "zmtp 2.0"])
def test_garbage_on_a_socket_file_never_reaches_the_application(kind: str) -> None:
    with Hub(None) as hub:
        ticket = hub.admit_actor(0)
        throw(ticket.gather, GARBAGE[kind])
        assert hub.receive(0.1) is None
        assert hub.num_rejected == 0
        with join(hub, ticket) as sender:  # and the door still works
            sender.send(ARRAY)
            assert hub.receive(5.0) is not None


def test_local_mode_opens_no_port_and_leaves_nothing() -> None:
    threads = threading.active_count()
    with Hub(None) as hub:
        ticket = hub.admit_actor(0)
        path = Path(ticket.gather.removeprefix("ipc://"))
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with join(hub, ticket):
            assert not psutil.Process().net_connections("inet")
    assert not path.parent.exists()
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("endpoint", "has_keys", "says"),
    [
        ("tcp://127.0.0.1:*", False, "keys only"),
        ("tcp://0.0.0.0:*", True, "every network"),
        ("tcp://[::]:*", True, "every network"),
        ("tcp://*:*", True, "numeric address"),
        ("tcp://eth0:*", True, "numeric address"),
        ("inproc://x", True, "expected tcp"),
    ],
)
def test_endpoints_open_to_strangers_are_refused(endpoint: str, has_keys: bool, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_endpoint(endpoint, has_keys=has_keys, bind=True)


def test_socket_folder_must_be_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigError, match="mode 0755"):
        check_endpoint(f"ipc://{tmp_path}/x", has_keys=False, bind=True)


def test_secrets_are_not_printed() -> None:
    with Hub("127.0.0.1") as hub:
        ticket = hub.admit_actor(0)
        assert ticket.keys is not None
        assert ticket.keys.secret not in f"{ticket!r} {ticket}"
        assert Ticket.unpack(ticket.pack()) == ticket


def test_sockets_refuse_to_live_on_after_a_fork() -> None:
    sockets = Sockets(None)
    try:
        sockets._pid = os.getpid() + 1  # as a forked child would see it
        with pytest.raises(WorkerError, match="fork"):
            sockets._make(5, 100, None)
    finally:
        sockets._pid = os.getpid()
        sockets.close()


def test_unknown_topology_is_refused() -> None:
    with pytest.raises(UnknownName, match="sqrt"):
        TransportOptions(topology="sqr")  # type: ignore[arg-type]

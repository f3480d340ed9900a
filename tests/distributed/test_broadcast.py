"""Weights down a tree of relays: late, dead, hung, revoked and strange members."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from test_gather import GARBAGE, throw, wait_until

from lamarckian.distributed.host import HostRelay, WeightsSubscriber, relay_endpoint
from lamarckian.distributed.relay import Relay
from lamarckian.distributed.security import KeyPair, private_folder
from lamarckian.distributed.slot import SlotHolder, SlotWeights
from lamarckian.distributed.ticket import TransportOptions
from lamarckian.distributed.transport import Hub
from lamarckian.errors import ConfigError, WorkerError

SMALL = TransportOptions(chunk_bytes=1 << 12, window_bytes=1 << 14)
LOCALHOST = "127.0.0.1"


def weights(seed: int, size: int = 20_000) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"w": rng.random(size, np.float32), "steps": np.array(seed)}


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    for path in made.iterdir():
        path.unlink()
    made.rmdir()


class Cluster:
    """A hub and hosts as threads of this process."""

    def __init__(self, folder: Path, options: TransportOptions, address: str | None) -> None:
        self.folder = folder
        self.address = address
        self.hub = Hub(address, options)
        self.hosts: dict[str, WeightsSubscriber] = {}

    def add(self, *names: str) -> None:
        for name in names:
            self.hosts[name] = WeightsSubscriber(
                self.hub.admit_host(name), self.address, self.folder
            )

    def settle(self) -> None:
        """Wait until every host follows somebody under the newest table."""
        wait_until(
            lambda: (
                len(self.hub.hosts()) == len(self.hosts)
                and all(host.epoch == self.hub.publisher.epoch for host in self.hub.hosts())
                and all(host.parent != "?" for host in self.hub.hosts())
            )
        )

    def parents(self) -> dict[str, str]:
        return {
            name: host.relay.parent.removeprefix("host-") or "learner"
            for name, host in self.hosts.items()
        }

    def expect(self, version: int, seed: int, *, but: str = "") -> None:
        for name, host in self.hosts.items():
            if name == but:
                continue
            found = host.weights(timeout=15.0)
            assert found is not None, name
            assert found[0] == version, name
            for key, array in weights(seed).items():
                np.testing.assert_array_equal(found[1][key], array)

    def hang(self, name: str) -> Callable[[], None]:
        """Let a relay do nothing until the function returned is called."""
        relay, event = self.hosts[name].relay, threading.Event()
        step = relay.step
        hung = threading.Event()

        def wait(timeout: float = 0.0) -> None:
            hung.set()
            event.wait(60.0)

        relay.step = wait  # type: ignore[method-assign]
        assert hung.wait(5.0)

        def resume() -> None:
            relay.step = step  # type: ignore[method-assign]
            event.set()

        return resume

    def close(self) -> None:
        for host in self.hosts.values():
            host._closing = True
        for host in self.hosts.values():
            host.close()
        self.hub.close()


@pytest.fixture
def cluster(folder: Path) -> Iterator[Callable[..., Cluster]]:
    with ExitStack() as stack:

        def make(*names: str, address: str | None = LOCALHOST, **options: Any) -> Cluster:
            made = Cluster(folder, msgspec.structs.replace(SMALL, **options), address)
            stack.callback(made.close)
            made.add(*names)
            made.settle()
            return made

        yield make


@pytest.mark.parametrize(
    ("topology", "parents"),
    [
        ("flat", {"a": "learner", "b": "learner", "c": "learner", "d": "learner"}),
        ("sqrt", {"a": "learner", "b": "learner", "c": "a", "d": "b"}),
        ("binary", {"a": "learner", "b": "learner", "c": "a", "d": "a"}),
        ("chain", {"a": "learner", "b": "a", "c": "b", "d": "c"}),
    ],
)
def test_every_host_gets_every_version(
    cluster: Callable[..., Cluster], topology: str, parents: dict[str, str]
) -> None:
    made = cluster(topology=topology)
    for name in "abcd":  # one after another: places in the tree go by arrival
        made.add(name)
        made.settle()
    wait_until(lambda: made.parents() == parents)
    for version in (3, 4, 9):
        made.hub.publish(version, weights(version))
        made.expect(version, version)
    # One fetch per host, handed on: the learner sent to its own children only.
    fan_out = list(parents.values()).count("learner")
    size = sum(array.nbytes for array in weights(0).values())
    assert made.hub.publisher.bytes_sent == pytest.approx(3 * fan_out * size, rel=0.01)
    wait_until(lambda: all(host.version == 9 for host in made.hub.hosts()))


def test_late_joiner_gets_the_last_version_and_then_newer_ones(
    cluster: Callable[..., Cluster],
) -> None:
    made = cluster("a")
    made.hub.publish(5, weights(5))
    made.expect(5, 5)
    made.add("late")
    assert made.hosts["a"].weights(0.0) is None
    found = made.hosts["late"].weights(timeout=15.0)
    assert found is not None
    assert found[0] == 5
    made.settle()
    made.hub.publish(6, weights(6))
    made.expect(6, 6)


def test_pitfalls_perf_04_hung_relay_is_bypassed_and_rejoins(
    cluster: Callable[..., Cluster],
) -> None:
    made = cluster()
    for name in "abcdef":
        made.add(name)
        made.settle()
    wait_until(lambda: made.parents()["c"] == made.parents()["d"] == "a")
    made.hub.publish(0, weights(0))
    made.expect(0, 0)
    resume = made.hang("a")
    made.hub.publish(1, weights(1))
    made.expect(1, 1, but="a")
    wait_until(lambda: "host-a" not in [host.seat.name for host in made.hub.hosts()])
    made.hub.publish(2, weights(2))
    made.expect(2, 2, but="a")
    assert "a" not in made.parents().values()
    resume()
    found = made.hosts["a"].weights(timeout=15.0)
    assert found is not None
    assert found[0] == 2
    made.settle()
    made.hub.publish(3, weights(3))
    made.expect(3, 3)


def test_dead_relay_is_bypassed(cluster: Callable[..., Cluster]) -> None:
    made = cluster(topology="chain")
    for name in "abc":
        made.add(name)
        made.settle()
    wait_until(lambda: made.parents() == {"a": "learner", "b": "a", "c": "b"})
    dead = made.hosts.pop("b")
    dead.close()
    made.hub.publish(0, weights(0))
    made.expect(0, 0)
    made.settle()
    wait_until(lambda: made.parents() == {"a": "learner", "c": "a"})


def test_learner_faster_than_hosts_gets_whole_versions_through(
    cluster: Callable[..., Cluster],
) -> None:
    made = cluster("a", "b", "c")
    for version in range(40):
        made.hub.publish(version, weights(version))
    seen = []
    while not seen or seen[-1] < 39:
        found = made.hosts["c"].weights(timeout=15.0)
        assert found is not None
        np.testing.assert_array_equal(found[1]["w"], weights(found[0])["w"])
        seen.append(found[0])
    assert seen == sorted(set(seen))


def test_half_precision_on_the_wire(cluster: Callable[..., Cluster]) -> None:
    made = cluster("a", half_precision=True)
    made.hub.publish(0, weights(0))
    found = made.hosts["a"].weights(timeout=15.0)
    assert found is not None
    assert found[1]["w"].dtype == np.float32
    np.testing.assert_allclose(found[1]["w"], weights(0)["w"], rtol=5e-4, atol=1e-7)
    assert made.hub.publisher.bytes_sent < 20_000 * 2 + 200


def test_local_mode_uses_socket_files_only(cluster: Callable[..., Cluster]) -> None:
    psutil = pytest.importorskip("psutil")
    made = cluster("a", address=None)
    made.hub.publish(0, weights(0))
    made.expect(0, 0)
    assert not psutil.Process().net_connections("inet")


def test_revoked_host_gets_nothing_more(cluster: Callable[..., Cluster]) -> None:
    made = cluster("a", "b", "c", "d")
    made.hub.publish(0, weights(0))
    made.expect(0, 0)
    gone = made.hosts.pop("a")
    made.hub.revoke("host-a")
    made.settle()
    made.hub.publish(1, weights(1))
    made.expect(1, 1)
    assert gone.weights(0.2) is None
    assert made.hub.num_rejected > 0  # it still says that it lives
    made.hosts["a"] = gone  # to be closed with the rest


def test_stop_reaches_every_relay(cluster: Callable[..., Cluster]) -> None:
    made = cluster("a", "b", "c")
    made.hub.stop()
    wait_until(lambda: all(host.stopped for host in made.hosts.values()))


def test_strangers_and_impostors_stay_outside(cluster: Callable[..., Cluster]) -> None:
    made = cluster("a")
    ticket = made.hub.admit_host("b")
    refused = made.hub.num_refused
    stranger = msgspec.structs.replace(ticket, keys=KeyPair.make())
    impostor = msgspec.structs.replace(ticket, member="host-a")
    for bad in (stranger, impostor):
        with WeightsSubscriber(bad, LOCALHOST, made.folder) as host:
            made.hub.publish(made.hub.publisher.epoch + (bad is impostor), weights(0))
            assert host.weights(0.5) is None
    assert made.hub.num_refused > refused
    assert made.hub.num_rejected > 0
    assert [host.seat.name for host in made.hub.hosts()] == ["host-a"]


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_on_the_ports_of_a_broadcast(cluster: Callable[..., Cluster], kind: str) -> None:
    made = cluster("a", "b", "c")
    for endpoint in (made.hub.publisher.endpoint, made.hosts["a"].relay.endpoint):
        throw(endpoint, GARBAGE[kind])
    made.hub.publish(0, weights(0))
    made.expect(0, 0)
    assert made.hub.num_rejected == 0


def test_relay_without_a_learner_ends_itself(folder: Path) -> None:
    options = msgspec.structs.replace(SMALL, orphan_after=0.3)
    with Hub(LOCALHOST, options) as hub:
        ticket = hub.admit_host("a")
    relay = Relay(ticket, relay_endpoint(LOCALHOST, folder), lambda version, arrays: None)
    try:
        with pytest.raises(WorkerError, match=r"nothing heard of the learner .*orphan_after"):
            relay.run()
    finally:
        relay.close()


def test_versions_only_grow_and_sizes_are_limited() -> None:
    with Hub(None, TransportOptions(max_weight_bytes=100_000)) as hub:
        hub.publish(4, weights(0))
        for version in (4, 3):
            with pytest.raises(ConfigError, match="after 4; versions only grow"):
                hub.publish(version, weights(0))
        with pytest.raises(ConfigError, match="max_weight_bytes"):
            hub.publish(5, weights(0, 100_000))


def test_one_slot_serves_the_actors_of_a_host(folder: Path) -> None:
    holder = SlotHolder(folder)
    reader, other = SlotWeights(folder), SlotWeights(folder)
    assert reader.weights(0.02) is None
    holder.publish(1, weights(1))
    for each in (reader, other):
        found = each.weights(5.0)
        assert found is not None
        assert found[0] == 1
        np.testing.assert_array_equal(found[1]["w"], weights(1)["w"])
        assert each.weights(0.0) is None
    # Another layout (a larger network): a new slot, found by itself.
    holder.publish(2, weights(2, 30_000))
    found = reader.weights(5.0)
    assert found is not None
    assert (found[0], found[1]["w"].shape) == (2, (30_000,))
    holder.close()
    assert not list(folder.iterdir())
    reader.close()
    other.close()


HOST = """
import sys
from pathlib import Path
from lamarckian.distributed.host import HostRelay
from lamarckian.distributed.ticket import Ticket
HostRelay(Ticket.unpack(bytes.fromhex(sys.argv[1])), sys.argv[2], Path(sys.argv[3])).run()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_and_stopped_processes_are_bypassed(end: signal.Signals) -> None:
    """Three hosts in a chain, each a process with a slot; the first one dies or is stopped."""
    options = msgspec.structs.replace(SMALL, topology="chain")
    with ExitStack() as stack:
        hub = stack.enter_context(Hub(LOCALHOST, options))
        processes, slots = [], []
        for number in range(3):
            place = private_folder()
            stack.callback(
                lambda place=place: [p.unlink() for p in place.iterdir()] + [place.rmdir()]
            )
            ticket = hub.admit_host(str(number)).pack().hex()
            process = subprocess.Popen(
                [sys.executable, "-c", HOST, ticket, LOCALHOST, str(place)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
            slots.append(SlotWeights(place))
            stack.callback(slots[-1].close)
            wait_until(lambda number=number: len(hub.hosts()) == number + 1, 30.0)  # type: ignore[misc]
        hub.publish(0, weights(0))
        for slot in slots:
            found = slot.weights(15.0)
            assert found is not None
            assert found[0] == 0
        processes[0].send_signal(end)
        hub.publish(1, weights(1))
        for slot in slots[1:]:
            found = slot.weights(15.0)
            assert found is not None
            assert found[0] == 1
            np.testing.assert_array_equal(found[1]["w"], weights(1)["w"])
        if end == signal.SIGSTOP:
            processes[0].send_signal(signal.SIGCONT)
            found = slots[0].weights(15.0)
            assert found is not None
            assert found[0] == 1
        hub.stop()
        for process in processes[1:]:
            assert process.wait(15.0) == 0


def test_host_relay_closes_what_it_opened(folder: Path) -> None:
    threads = threading.active_count()
    with Hub(None) as hub:
        host = HostRelay(hub.admit_host("a"), None, folder)
        give_up = time.monotonic() + 10.0
        hub.publish(0, weights(0))
        host.run(lambda: host.relay.version == 0 or time.monotonic() > give_up)
        assert host.relay.version == 0
    assert not list(folder.iterdir())
    assert threading.active_count() == threads

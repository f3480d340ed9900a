"""Groups of workers that do their job: transport, weights, collection, ending, leaks."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from worker_entries import checksum

from lamarckian.distributed import Group, Processes, WorkerOptions, placement
from lamarckian.distributed.process import available_cores
from lamarckian.distributed.weights import WeightReader, WeightWriter
from lamarckian.errors import ConfigError, UnknownName, WorkerError

OPTIONS = WorkerOptions(allow_oversubscription=True, restart_backoff=0.05, stop_timeout=0.5)
BOTH = pytest.mark.parametrize("name", ["inprocess", "processes"])


def start(
    name: str, entry: str, configs: list[dict[str, object]], lines: list[str] | None = None
) -> Group:
    report = (lines if lines is not None else []).append
    return placement(name, OPTIONS).start(f"worker_entries:{entry}", configs, report)


@BOTH
def test_random_fragments_arrive_whole_in_order_and_once(name: str) -> None:
    count = 80
    numbers: dict[int, list[int]] = {0: [], 1: []}
    with start(name, "stress", [{"seed": 5, "count": count}] * 2) as group:
        while (received := group.receive(20.0)) is not None:
            with received:
                assert checksum(received.arrays) == received.header["crc"]
                assert not any(a.flags.writeable for a in received.arrays.values())
                numbers[received.worker].append(received.header["number"])
        assert group.num_running == 0
    assert numbers == {0: list(range(count)), 1: list(range(count))}


def test_both_placements_give_the_same_fragments() -> None:
    found = []
    for name in ("inprocess", "processes"):
        with start(name, "stress", [{"seed": 9, "count": 20}]) as group:
            crcs = []
            while (received := group.receive(20.0)) is not None:
                with received:
                    crcs.append(received.header["crc"])
        found.append(crcs)
    assert found[0] == found[1]
    assert len(found[0]) == 20


@BOTH
def test_weights_reach_every_worker_and_the_newest_wins(name: str) -> None:
    with start(name, "counter", [{}, {}]) as group:
        seen: dict[int, int] = {}
        group.publish(3, {"w": np.full(7, 3.0, np.float32)})
        group.publish(4, {"w": np.full(7, 4.0, np.float32)})
        until = time.monotonic() + 20
        while len(seen) < 2 and time.monotonic() < until:
            received = group.receive(5.0)
            assert received is not None
            with received:
                if received.header["version"] == 4:
                    assert received.header["mean"] == 4.0
                    seen[received.worker] = 4
        assert seen == {0: 4, 1: 4}
        with pytest.raises(ConfigError, match="layout is fixed"):
            group.publish(5, {"w": np.zeros(8, np.float32)})
        with pytest.raises(ConfigError, match="version 2"):
            group.publish(2, {"w": np.zeros(7, np.float32)})


@BOTH
def test_synchronous_collection_is_in_the_order_of_workers(name: str) -> None:
    with start(name, "counter", [{}, {"delay": 0.15}, {}]) as group:
        for number in range(5):
            parts = group.receive_from_all(20.0)
            assert [part.worker for part in parts] == [0, 1, 2]
            assert [part.header["number"] for part in parts] == [number] * 3
            for part in parts:
                part.release()
                part.release()
        if name == "processes":
            stats = group.stats()
            assert max(stats, key=lambda s: s.times_last).worker == 1
            assert all(s.resident_bytes > 1 << 20 and s.pid != os.getpid() for s in stats)
            assert stats[0].context["number"] >= 5


def test_a_straggler_is_named_when_synchronous_collection_runs_out_of_time() -> None:
    with start("processes", "counter", [{}, {"delay": 30.0}]) as group:
        with pytest.raises(WorkerError, match=r"workers 1 sent nothing for 1 s") as caught:
            group.receive_from_all(1.0)
        assert caught.value.worker == 1
        received = group.receive(5.0)
        assert received is not None
        assert received.worker == 0


def test_pitfalls_dst_04_a_straggler_does_not_slow_the_others() -> None:
    with start("processes", "counter", [{"delay": 0.02}] * 3 + [{"delay": 2.0}]) as group:
        counts = [0, 0, 0, 0]
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            received = group.receive(0.5)
            assert received is not None
            with received:
                counts[received.worker] += 1
    # 2 s / 0.02 s = 100 fragments each if nobody waits; in lockstep it would be 1.
    assert min(counts[:3]) > 30, counts


def test_the_timeout_of_receive_is_honoured() -> None:
    with start("processes", "counter", [{"delay": 30.0}]) as group:
        began = time.monotonic()
        assert group.receive(0.3) is None
        assert 0.25 < time.monotonic() - began < 3.0


def test_credits_bound_what_a_worker_can_have_unread() -> None:
    with start("processes", "counter", [{}]) as group:
        first = group.receive(10.0)
        second = group.receive(10.0)
        assert first is not None
        assert second is not None
        assert group.receive(0.5) is None
        with pytest.raises(WorkerError, match="call release"):
            group.receive()
        assert group.stats()[0].fragments == OPTIONS.fragments_in_flight
        assert (first.arrays["data"] == 0).all()
        first.release()
        third = group.receive(10.0)
        assert third is not None
        assert third.header["number"] == 2
        assert (second.arrays["data"] == 1).all()


@pytest.mark.parametrize("num_readers", [1])
def test_pitfalls_perf_04_weights_are_never_torn(num_readers: int) -> None:
    """Publish as fast as possible against a reader in another process."""
    with start("processes", "torn", [{"seconds": 1.0}] * num_readers) as group:
        arrays = {"a": np.zeros((200, 300), np.float32), "b": np.zeros(5), "c": np.zeros(40_001)}
        version, result = 0, None
        while result is None:
            for array in arrays.values():
                array.fill(version)
            group.publish(version, arrays)
            version += 1
            if version % 50 == 0:
                result = group.receive(0.001)
        assert result.header["bad"] == 0
        assert result.header["reads"] > 5
        assert version > 50


def test_a_reader_sees_only_whole_weights_while_a_thread_publishes() -> None:
    writer = WeightWriter({"w": np.zeros(3_000)})
    reader = WeightReader(writer.block)
    assert not reader.newer_than(-1)
    with pytest.raises(WorkerError, match="nothing has been published"):
        reader.read()
    stop = threading.Event()

    def publish() -> None:
        version = 0
        while not stop.is_set():
            writer.publish(version, {"w": np.full(3_000, float(version))})
            version += 1

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        last = -1
        for _ in range(2_000):
            if reader.newer_than(last):
                last, arrays = reader.read()
                assert (arrays["w"] == last).all()
    finally:
        stop.set()
        thread.join()


def test_pitfalls_dst_06_too_many_workers_are_refused_with_the_sum() -> None:
    cores = available_cores()
    with pytest.raises(ConfigError, match=rf"{64 * 8} cores asked for, {cores} here.*at most"):
        Processes(WorkerOptions(threads_per_worker=8)).start("worker_entries:counter", [{}] * 64)


def test_pitfalls_perf_01_threads_are_planned_and_said_and_the_process_group_is_left() -> None:
    lines: list[str] = []
    with start("processes", "environment", [{}], lines) as group:
        received = group.receive(10.0)
        assert received is not None
        assert received.header["omp"] == "1"
        assert received.header["pgid"] != os.getpgid(0)
    assert lines[0].startswith("threads: 1 workers x 1 = 1 on ")


def test_pitfalls_dst_12_functions_that_cannot_be_found_again_are_refused() -> None:
    def local(config: object, channel: object) -> None: ...

    for entry in (lambda config, channel: None, local):
        with pytest.raises(ConfigError, match="top of a module"):
            Processes(OPTIONS).start(entry, [{}])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="notebook"):
        Processes(OPTIONS).start("__main__:actor", [{}])
    with pytest.raises(ConfigError, match=r"plain data.*module:function"):
        Processes(OPTIONS).start("worker_entries:counter", [{"make": lambda: 3}])
    with pytest.raises(UnknownName, match="did you mean 'processes'"):
        placement("process")


@BOTH
def test_an_entry_point_that_is_missing_or_no_generator_is_named(name: str) -> None:
    for entry, text in (("nothing", "has no 'nothing'"), ("not_a_generator", "generator")):
        with pytest.raises((ConfigError, WorkerError), match=text) as caught:
            start(name, entry, [{}])
        assert caught.value.exit_code == 2


def descriptors(process: psutil.Process) -> set[tuple[str, str]]:
    """Return number and target of each open descriptor.

    Compared as sets: what an earlier test left to the garbage collector may be closed at any moment,
    and that must not hide a descriptor left open, nor look like a fault.
    """
    folder = Path(f"/proc/{process.pid}/fd")
    found = set()
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
            found.add((entry.name, os.readlink(entry)))
    return {(number, target) for number, target in found if not target.startswith("/proc/")}


def test_pitfalls_mem_01_no_descriptor_no_memory_and_no_process_is_left() -> None:
    process = psutil.Process()
    weights = {"w": np.zeros(50_000, np.float32)}

    def cycles(group: Group, count: int) -> None:
        for _ in range(count):
            cycles.version += 1  # type: ignore[attr-defined]
            group.publish(cycles.version, weights)  # type: ignore[attr-defined]
            received = group.receive(10.0)
            assert received is not None
            received.release()

    cycles.version = 0  # type: ignore[attr-defined]
    start("processes", "counter", [{}]).close()  # afterwards the spawner thread exists
    outside = descriptors(process)
    group = start("processes", "counter", [{"size": 100_000}, {"size": 100_000}])
    cycles(group, 50)
    inside, resident = descriptors(process), process.memory_info().rss
    workers = [psutil.Process(s.pid) for s in group.stats()]
    worker_fds = [descriptors(w) for w in workers]
    worker_memory = [w.memory_info().rss for w in workers]
    cycles(group, 400)
    assert not descriptors(process) - inside
    assert [descriptors(w) for w in workers] == worker_fds
    # 400 cycles move 160 MB; a leak of a hundredth of that would show.
    assert process.memory_info().rss - resident < 3 << 20
    assert all(w.memory_info().rss - was < 3 << 20 for w, was in zip(workers, worker_memory))
    for pid in [os.getpid(), *(w.pid for w in workers)]:
        assert "/dev/shm/lamarckian" not in Path(f"/proc/{pid}/maps").read_text()
    group.close()
    group.close()
    assert not any(w.is_running() for w in workers)
    assert not descriptors(process) - outside
    with pytest.raises(WorkerError, match="closed"):
        group.receive(0.1)


def test_fragments_stay_readable_after_their_worker_and_group_are_gone() -> None:
    with start("processes", "counter", [{"size": 1000}]) as group:
        received = group.receive(10.0)
    assert received is not None
    assert (received.arrays["data"] == 0).all()
    received.release()

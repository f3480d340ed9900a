"""How fast fragments get from one process to another: our slots against the standard library.

Run ``python benchmarks/transport.py``; it writes ``benchmarks/results/transport.json``. One producer
process sends fragments of one float32 array to this process, which reads one number of each. Times are
medians over repetitions; CPU is that of both processes, which on a shared machine says more than wall time.

``slots``            our group: copied into shared memory once, read in place
``slots_copied_out`` the same, and copied out by the reader
``slots_in_place``   written in place by the producer (reserve/commit), read in place
``queue``, ``pipe``  multiprocessing.Queue and Pipe with pickled arrays
``pipe_bytes``       Pipe with raw bytes, the least the standard library can do
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian.distributed import Processes, WorkerOptions, probe
from machine import machine_facts

RESULTS = Path(__file__).parent / "results" / "transport.json"
OPTIONS = WorkerOptions(allow_oversubscription=True, fragments_in_flight=16)


def producer(config: dict[str, Any], channel: Any) -> Iterator[None]:
    """Entry point of a worker: send ``count`` fragments, then the CPU time they took."""
    array = np.zeros(config["bytes"] // 4, np.float32)
    yield
    channel.weights(timeout=60.0)
    began = time.process_time()
    for number in range(config["count"]):
        array[0] = number
        if config["in_place"]:
            views = channel.reserve({"array": ("<f4", array.shape)})
            np.copyto(views["array"], array)
            channel.commit({"number": number})
        else:
            channel.send({"array": array}, {"number": number})
        yield
    channel.send({}, {"cpu": time.process_time() - began})
    yield


def _queue_producer(queue: Any, go: Any, size: int, count: int) -> None:
    array = np.zeros(size // 4, np.float32)
    go.wait()
    began = time.process_time()
    for number in range(count):
        array[0] = number
        queue.put(array.copy())
    queue.put(time.process_time() - began)


def _pipe_producer(pipe: Any, go: Any, size: int, count: int, raw: bool) -> None:
    array = np.zeros(size // 4, np.float32)
    go.wait()
    began = time.process_time()
    for number in range(count):
        array[0] = number
        if raw:
            pipe.send_bytes(array)
        else:
            pipe.send(array)
    pipe.send(time.process_time() - began)


def slots(size: int, count: int, *, in_place: bool, copy_out: bool) -> tuple[float, float]:
    """Return ``(wall seconds, CPU seconds)`` of ``count`` fragments through a worker group."""
    config = {"bytes": size, "count": count, "in_place": in_place}
    group = Processes(OPTIONS).start("transport:producer", [config], lambda line: None)
    with group:
        group.publish(0, {"go": np.zeros(1)})
        wall, cpu, total = time.perf_counter(), time.process_time(), 0.0
        for _ in range(count):
            received = group.receive(60.0)
            assert received is not None
            array = received.arrays["array"]
            total += float((array.copy() if copy_out else array)[0])
            received.release()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        last = group.receive(60.0)
        assert last is not None
        assert total == count * (count - 1) / 2
        return wall, cpu + float(last.header["cpu"])


def standard(kind: str, size: int, count: int) -> tuple[float, float]:
    """Return ``(wall seconds, CPU seconds)`` of ``count`` messages through multiprocessing."""
    context = multiprocessing.get_context("spawn")
    go = context.Event()
    receive: Callable[[], Any]
    if kind == "queue":
        queue = context.Queue(16)
        process = context.Process(target=_queue_producer, args=(queue, go, size, count))
        receive = queue.get
    else:
        ours, theirs = context.Pipe(duplex=False)
        raw = kind == "pipe_bytes"
        process = context.Process(target=_pipe_producer, args=(theirs, go, size, count, raw))
        receive = (lambda: np.frombuffer(ours.recv_bytes(), np.float32)) if raw else ours.recv
    process.start()
    time.sleep(0.5)
    go.set()
    first = float(receive()[0])
    wall, cpu, total = time.perf_counter(), time.process_time(), first
    for _ in range(count - 1):
        total += float(receive()[0])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sent = float(ours.recv() if kind == "pipe_bytes" else receive())
    process.join()
    assert total == count * (count - 1) / 2
    return wall, cpu + sent


def weights_cost(size: int) -> dict[str, float]:
    """Return microseconds to publish and to read ``size`` bytes of weights, and to find none new."""
    from lamarckian.distributed.weights import WeightReader, WeightWriter

    arrays = {"w": np.zeros(size // 4, np.float32)}
    writer = WeightWriter(arrays)
    reader = WeightReader(writer.block)
    times: dict[str, list[float]] = {"publish_us": [], "read_us": [], "nothing_new_us": []}
    for version in range(50):
        began = time.perf_counter()
        writer.publish(version, arrays)
        published = time.perf_counter()
        reader.read()
        done = time.perf_counter()
        reader.newer_than(version)
        times["nothing_new_us"].append((time.perf_counter() - done) * 1e6)
        times["publish_us"].append((published - began) * 1e6)
        times["read_us"].append((done - published) * 1e6)
    writer.close()
    reader.close()
    return {"bytes": float(size), **{k: round(statistics.median(v), 2) for k, v in times.items()}}


def main() -> None:
    """Measure everything and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    kinds: dict[str, Callable[[int, int], tuple[float, float]]] = {
        "slots": lambda s, n: slots(s, n, in_place=False, copy_out=False),
        "slots_copied_out": lambda s, n: slots(s, n, in_place=False, copy_out=True),
        "slots_in_place": lambda s, n: slots(s, n, in_place=True, copy_out=False),
        "queue": lambda s, n: standard("queue", s, n),
        "pipe": lambda s, n: standard("pipe", s, n),
        "pipe_bytes": lambda s, n: standard("pipe_bytes", s, n),
    }
    rows = []
    for size, count in ((1 << 10, 3_000), (1 << 16, 1_500), (1 << 20, 300), (1 << 24, 20)):
        runs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for _ in range(arguments.repetitions):
            for kind, measure in kinds.items():
                runs[kind].append(measure(size, count))
        for kind, found in runs.items():
            wall = statistics.median(w for w, _ in found)
            cpu = statistics.median(c for _, c in found)
            row = {
                "kind": kind,
                "bytes": size,
                "messages_per_second": round(count / wall),
                "gigabytes_per_second": round(size * count / wall / 1e9, 3),
                "cpu_us_per_message": round(cpu / count * 1e6, 1),
                "runs": len(found),
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
    began = time.perf_counter()
    config = {"bytes": 4, "count": 0, "in_place": False}
    Processes(OPTIONS).start("transport:producer", [config] * 2, lambda line: None).close()
    report = {
        "machine": machine_facts() | {"shared_memory": probe().kind},
        "transport": rows,
        "weights": [weights_cost(size) for size in (1 << 16, 1 << 22, 50 << 20)],
        "start_and_stop_two_workers_seconds": round(time.perf_counter() - began, 3),
    }
    arguments.output.parent.mkdir(exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

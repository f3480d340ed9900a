"""A parent for the tests of its death: starts workers, says their numbers, collects for ever."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np

from lamarckian.distributed import Processes, WorkerOptions


def run(entry: str, when: str) -> None:
    options = WorkerOptions(allow_oversubscription=True, stop_timeout=1.0)
    with Processes(options).start(f"worker_entries:{entry}", [{}, {}], lambda line: None) as group:
        print(*[s.pid for s in group.stats()], flush=True)
        version = 0
        while True:
            version += 1
            group.publish(version, {"w": np.zeros(1000)})
            received = group.receive(1.0)
            if when == "update":
                time.sleep(60)
            if received is not None:
                received.release()


if __name__ == "__main__":
    if sys.argv[2] == "thread":
        # Started from a thread that ends: the workers must outlive the thread, not the process.
        box: list[object] = []

        def make() -> None:
            options = WorkerOptions(allow_oversubscription=True)
            box.append(Processes(options).start(f"worker_entries:{sys.argv[1]}", [{}, {}], print))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        time.sleep(0.5)
        for _ in range(20):
            received = box[0].receive(5.0)  # type: ignore[attr-defined]
            received.release()
        print(*[s.pid for s in box[0].stats()], flush=True)  # type: ignore[attr-defined]
        time.sleep(60)
    run(sys.argv[1], sys.argv[2])

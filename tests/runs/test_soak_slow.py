"""Long runs stay as small and as fast as they began (MEM-01, MEM-02)."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from test_training import settings

from lamarckian.runs.training import train


class Watch:
    """Notes memory, descriptors, threads and seconds at every update."""

    def __init__(self) -> None:
        self.process = psutil.Process()
        self.rows: list[tuple[float, int, int, float, float]] = []

    def record(self, event: str, fields: Any) -> None:
        if event == "update":
            metrics = fields["metrics"]
            self.rows.append(
                (
                    metrics["wall_seconds"],
                    self.process.memory_info().rss,
                    len(os.listdir("/proc/self/fd")),
                    threading.active_count(),
                    metrics["collect_seconds"] + metrics["update_seconds"],
                )
            )

    def close(self) -> None:
        gc.collect()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_pitfalls_mem_01_and_mem_02_flat_memory_and_constant_time(tmp_path: Path) -> None:
    watch = Watch()
    train(
        settings("cartpole", 20_000, checkpoint_every=500),
        tmp_path / "run",
        recorders=lambda _: [watch],
    )
    seconds, memory, files, threads, each = (
        np.array(column) for column in zip(*watch.rows, strict=True)
    )
    half = len(seconds) // 2
    slope = np.polyfit(seconds[half:] / 60, memory[half:] / 1e6, 1)[0]
    assert slope < 1.0, f"{slope:.2f} MB per minute"
    assert files[half:].max() - files[half:].min() <= 2
    assert threads[half:].max() == threads[half]
    early, late = np.median(each[100:1000]), np.median(each[-1000:])
    assert late < 1.10 * early, f"{early * 1e3:.2f} ms became {late * 1e3:.2f} ms"

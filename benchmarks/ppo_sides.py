"""A side of a throughput comparison: a process that works when told to, measured from outside.

Every side (Lamarckian, a peer library, a bare loop) is a script that warms up, prints ``{"ready": ...}``
and then answers each line ``measure N`` on its input with one line of JSON: the samples it collected and
learnt from (at least N) and the wall seconds that took. All sides stay warm, so repetitions can be
interleaved: what disturbs the machine disturbs every side alike. Processor time is taken here, over the
whole tree of the side's processes, in the same way for everybody.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

STARTUP_SECONDS = 180.0
MEASURE_SECONDS = 240.0


class SideFailed(Exception):
    """A side did not start, ended, or said nothing for too long."""


class Side:
    """One running side. ``settings`` are handed to ``script`` as JSON."""

    def __init__(
        self, name: str, python: str, script: str, settings: dict[str, Any], threads: int = 1
    ) -> None:
        self.name = name
        self.settings = settings
        here = Path(__file__).parent
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the side
        self._process = subprocess.Popen(
            [python, str(here / script), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "RAY_DEDUP_LOGS": "0"},
        )
        self._seen: dict[int, psutil.Process] = {}
        self.facts: dict[str, Any] = {}

    def wait_until_ready(self) -> None:
        """Wait until the side is warm. Raises SideFailed, and ends it, if it does not get there."""
        try:
            self.facts = self._read("ready", STARTUP_SECONDS)
        except SideFailed:
            self.close()
            raise

    def measure(self, samples: int) -> dict[str, float]:
        """Let the side process ``samples``; return samples per wall second and per CPU second."""
        before = self._cpu_seconds()
        assert self._process.stdin is not None
        self._process.stdin.write(f"measure {samples}\n")
        answer = self._read("samples", MEASURE_SECONDS)
        spent = self._cpu_seconds() - before
        return {
            "per_second": answer["samples"] / answer["seconds"],
            "per_cpu_second": answer["samples"] / max(spent, 1e-9),
            "samples": answer["samples"],
        }

    def close(self) -> None:
        """End the side and everything it started."""
        self._tree()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20.0)
        for process in self._seen.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.kill()
        self._process.wait()
        psutil.wait_procs(list(self._seen.values()), timeout=5.0)
        self._process.stdout.close()
        self._errors.close()

    def _tree(self) -> list[psutil.Process]:
        if self._process.poll() is not None:  # its number may be another process's by now
            return []
        try:
            root = psutil.Process(self._process.pid)
            tree = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        self._seen |= {process.pid: process for process in tree}
        return tree

    def _cpu_seconds(self) -> float:
        """Processor time of all processes of the side, including children that have ended."""
        total = 0.0
        for process in self._tree():
            try:
                total += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
        return total

    def _read(self, key: str, patience: float) -> dict[str, Any]:
        """Return the next JSON line that holds ``key``; other output is passed over."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not select.select([self._process.stdout], [], [], 1.0)[0]:
                continue
            line = self._process.stdout.readline()
            if not line:
                break
            if line.startswith("{"):
                found = json.loads(line)
                if key in found:
                    return dict(found)
        self._errors.seek(0)
        raise SideFailed(f"{self.name}: no answer\n{self._errors.read()[-2000:]}")


def serve(step: Callable[[], int], facts: dict[str, Any]) -> None:
    """Answer ``measure N`` by calling ``step``, which returns how many samples it processed."""
    print(json.dumps({"ready": True, **facts}), flush=True)
    for line in sys.stdin:
        wanted, samples = int(line.split()[1]), 0
        began = time.perf_counter()
        while samples < wanted:
            samples += step()
        seconds = time.perf_counter() - began
        print(json.dumps({"samples": samples, "seconds": seconds}), flush=True)

"""Whatever ends the parent, its workers end too, and nothing stays in memory or on disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent


def wait_gone(pids: list[int], seconds: float) -> list[int]:
    until = time.monotonic() + seconds
    left = pids
    while left and time.monotonic() < until:
        left = [p for p in left if psutil.pid_exists(p) and _alive(p)]
        time.sleep(0.05)
    return left


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("number", "entry", "when"),
    [
        (signal.SIGKILL, "counter", "collect"),
        (signal.SIGKILL, "ignore_stop", "update"),
        (signal.SIGTERM, "counter", "collect"),
        (signal.SIGINT, "counter", "update"),
        (signal.SIGKILL, "counter", "thread"),
    ],
)
def test_pitfalls_dst_08_no_worker_outlives_its_parent(
    number: signal.Signals, entry: str, when: str
) -> None:
    path = os.pathsep.join([str(HERE), *sys.path])
    with subprocess.Popen(
        [sys.executable, str(HERE / "parent_program.py"), entry, when],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    ) as parent:
        assert parent.stdout is not None
        line = parent.stdout.readline()
        while "threads" in line:
            line = parent.stdout.readline()
        pids = [int(word) for word in line.split()]
        assert len(pids) == 2
        time.sleep(0.2)
        assert all(psutil.pid_exists(pid) for pid in pids)
        for pid in [*pids, parent.pid]:  # memory without a name cannot be left behind
            assert "/dev/shm/" not in Path(f"/proc/{pid}/maps").read_text()
        os.kill(parent.pid, number)
        left = wait_gone(pids, 10.0)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        parent.communicate(timeout=20)
    assert left == []
    assert parent.returncode != 0


def test_a_parent_killed_while_it_starts_workers_leaves_none() -> None:
    path = os.pathsep.join([str(HERE), *sys.path])
    with subprocess.Popen(
        [sys.executable, str(HERE / "parent_program.py"), "counter", "collect"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as parent:
        pids: list[int] = []
        until = time.monotonic() + 20
        while not pids and time.monotonic() < until:
            pids = [child.pid for child in psutil.Process(parent.pid).children()]
        os.kill(parent.pid, signal.SIGKILL)
        assert pids
        left = wait_gone(pids, 10.0)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        parent.communicate(timeout=20)
    assert left == []


def test_pitfalls_dst_12_workers_start_from_a_program_without_a_main_guard() -> None:
    program = (
        "import lamarckian.distributed as d\n"
        "g = d.Processes().start('worker_entries:counter', [{}])\n"
        "print(g.receive(20.0).header['number'])\n"
        "g.close()\n"
    )
    path = os.pathsep.join([str(HERE), *sys.path])
    done = subprocess.run(
        [sys.executable],
        input=program,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "0", done.stderr

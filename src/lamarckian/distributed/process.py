"""Starting and ending one worker process.

A worker is a fresh interpreter (``python -c``), not a fork and not ``multiprocessing``: no
inherited threads, no ``__main__`` to import again, no guard needed in scripts or notebooks. It
inherits a socket and a file for crash reports, nothing else.

It dies with its parent: on Linux the kernel kills it (``PR_SET_PDEATHSIG``). That signal is tied to
the *thread* that started the worker, so one thread that lives as long as the process starts all of
them.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from lamarckian.distributed.memory import anonymous_file
from lamarckian.distributed.messages import wait_ready
from lamarckian.errors import ConfigError

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)
_BOOT = (
    "import json,sys;sys.path[:]=json.loads(sys.argv[1]);"
    "from lamarckian.distributed.child import main;main(*map(int,sys.argv[2:]))"
)
_HINTS = {
    signal.SIGKILL: "often the system's out-of-memory killer",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGABRT: "native code gave up",
    signal.SIGBUS: "memory or the disk behind it is full",
    signal.SIGTERM: "another program asked it to end",
}


def available_cores() -> int:
    """Return the cores this process may use: its affinity, and the quota of its control group."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        if quota != "max":
            cores = min(cores, max(1, -(-int(quota) // int(period))))
    return cores


@dataclass(slots=True, frozen=True)
class ThreadPlan:
    """How many workers with how many threads each on how many cores."""

    num_workers: int
    threads_per_worker: int
    cores: int

    @property
    def demand(self) -> int:
        """Threads that want to run at the same time."""
        return self.num_workers * self.threads_per_worker

    def describe(self) -> str:
        """Return the plan as one line."""
        return (
            f"threads: {self.num_workers} workers x {self.threads_per_worker} = {self.demand} "
            f"on {self.cores} cores"
        )

    def check(self, allow_oversubscription: bool) -> None:
        """Raise ConfigError if more threads than cores are asked for and that was not allowed."""
        if self.demand > self.cores and not allow_oversubscription:
            most = max(1, self.cores // self.threads_per_worker)
            raise ConfigError(
                f"workers: {self.num_workers} workers x {self.threads_per_worker} threads = "
                f"{self.demand} cores asked for, {self.cores} here; use at most {most} workers, or "
                "set allow_oversubscription if they mostly wait"
            )

    def environment(self) -> dict[str, str]:
        """Return the environment of a worker: thread pools are sized before any library loads."""
        return dict.fromkeys(_THREAD_VARIABLES, str(self.threads_per_worker))


@dataclass(slots=True)
class WorkerProcess:
    """A started process, our end of its socket, and its crash report file."""

    popen: subprocess.Popen[bytes]
    sock: socket.socket
    crash_file: int
    sentinel: int

    @property
    def pid(self) -> int:
        """The process id, also the id of its process group."""
        return self.popen.pid

    def dump_stacks(self) -> None:
        """Ask a hanging worker to write where it is into its crash report."""
        with contextlib.suppress(OSError, AttributeError):
            os.kill(self.pid, signal.SIGUSR1)

    def kill(self) -> None:
        """SIGKILL the worker and what it started in its process group; reaps nothing."""
        if self.popen.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)

    def reap(self, timeout: float) -> int | None:
        """Wait for the end and return the exit status (negative: signal), or None."""
        if self.popen.returncode is None and self.has_ended(timeout):
            # A zombie keeps its process group's number from being reused, so this is the moment to
            # end what the worker left behind in it.
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            self.popen.wait()
        return self.popen.returncode

    def has_ended(self, timeout: float) -> bool:
        """Wait for the end without reaping, so that the process id stays taken."""
        if self.sentinel < 0:
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
            return True
        return wait_ready(self.sentinel, timeout)

    def crash_report(self) -> str:
        """Return what the interpreter wrote when it crashed or was asked for its stacks."""
        with contextlib.suppress(OSError):
            return os.pread(self.crash_file, 1 << 16, 0).decode(errors="replace").strip()
        return ""

    def close(self) -> None:
        """Close the descriptors; the process has been reaped."""
        self.sock.close()
        if self.crash_file >= 0:
            os.close(self.crash_file)
            self.crash_file = -1
        if self.sentinel >= 0:
            os.close(self.sentinel)
            self.sentinel = -1


class _Spawner(threading.Thread):
    """The one thread that starts processes, alive until this process ends."""

    def __init__(self) -> None:
        super().__init__(name="lamarckian-spawner", daemon=True)
        self.owner = os.getpid()
        self.requests: queue.SimpleQueue[
            tuple[list[str], list[int], dict[str, str], Future[subprocess.Popen[bytes]]]
        ] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            command, descriptors, environment, answer = self.requests.get()
            try:
                answer.set_result(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        pass_fds=descriptors,
                        env=environment,
                        process_group=0,
                    )
                )
            except BaseException as error:
                answer.set_exception(error)
            del command, descriptors, environment, answer


_spawners: list[_Spawner] = []


def _start(
    command: list[str], descriptors: list[int], environment: dict[str, str]
) -> Future[subprocess.Popen[bytes]]:
    if not _spawners or _spawners[-1].owner != os.getpid() or not _spawners[-1].is_alive():
        _spawners[:] = [_Spawner()]
        _spawners[-1].start()
    answer: Future[subprocess.Popen[bytes]] = Future()
    _spawners[-1].requests.put((command, descriptors, environment, answer))
    return answer


def spawn(plan: ThreadPlan, extra_environment: Mapping[str, str]) -> WorkerProcess:
    """Start one worker in its own process group, so that Ctrl-C in a terminal reaches the parent
    only.

    Raises ConfigError where processes cannot be started like this.
    """
    if os.name != "posix" or not sys.executable:
        raise ConfigError(
            "placement processes: needs a POSIX system and a Python executable; use the in-process "
            "placement here"
        )
    path = [os.path.abspath(entry) if entry else os.getcwd() for entry in sys.path]
    ours, theirs = socket.socketpair()
    crash_file = anonymous_file("crash", 0)
    environment = {**os.environ, **plan.environment(), **extra_environment}
    command = [sys.executable, "-c", _BOOT, json.dumps(path)]
    command += [str(theirs.fileno()), str(crash_file), str(os.getpid())]
    try:
        popen = _start(command, [theirs.fileno(), crash_file], environment).result()
    except BaseException:
        ours.close()
        os.close(crash_file)
        raise
    finally:
        theirs.close()
    sentinel = os.pidfd_open(popen.pid) if hasattr(os, "pidfd_open") else -1
    return WorkerProcess(popen, ours, crash_file, sentinel)


def describe_exit(status: int) -> str:
    """Say in words how a process ended that sent no exception."""
    if status >= 0:
        return (
            f"ended by itself with exit code {status} and without an exception "
            "(os._exit, or native code that exits)"
        )
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = _HINTS.get(-status, "")  # type: ignore[call-overload]
    return f"was killed by {name}" + (f" ({hint})" if hint else "")


def usage(pid: int) -> tuple[int, float]:
    """Return ``(resident bytes, CPU seconds)`` of a process; zeros where /proc does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), cpu
    except (OSError, ValueError, IndexError):
        return 0, 0.0

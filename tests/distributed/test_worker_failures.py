"""Every bad end of a worker arrives as one correct message, in time, leaving nothing behind."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from lamarckian.distributed import Placement, Processes, WorkerOptions, placement
from lamarckian.errors import WorkerError


def drain(place: Placement, entry: str, configs: list[dict[str, object]], lines: list[str]) -> None:
    with place.start(f"worker_entries:{entry}", configs, lines.append) as group:
        while (received := group.receive(20.0)) is not None:
            received.release()


def run(configs: list[dict[str, object]], lines: list[str], **options: object) -> WorkerError:
    """Run workers that fail until the group gives up; return its error."""
    chosen = WorkerOptions(
        **{  # type: ignore[arg-type]
            "allow_oversubscription": True,
            "max_restarts": 0,
            "restart_backoff": 0.05,
            "stop_timeout": 1.0,
            **options,
        }
    )
    began = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        drain(Processes(chosen), "boom", configs, lines)
    assert time.monotonic() - began < 40.0  # three starts on a machine that does other things
    assert not [
        p for p in psutil.Process().children(recursive=True) if "child" in " ".join(p.cmdline())
    ]
    return caught.value


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("raise", "exception", "ValueError: the game broke at reset"),
        ("exit", "exit", "exit code 1"),
        ("kill", "signal", "SIGKILL (often the system's out-of-memory killer)"),
        ("segfault", "signal", "SIGSEGV"),
        ("sys.exit", "exception", "SystemExit: 3"),
    ],
)
def test_pitfalls_dst_01_each_end_has_its_own_message(how: str, kind: str, text: str) -> None:
    error = run([{"when": "step", "how": "none"}, {"when": "step", "how": how, "worker": 1}], [])
    assert error.kind == kind
    assert error.worker == 1
    assert text in str(error)
    assert "episode_seed=7, tick=12, player='red', action=[1, 2]" in str(error)
    assert error.context == {"episode_seed": 7, "tick": 12, "player": "red", "action": [1, 2]}
    if how in ("raise", "segfault"):
        assert "in _fail" in error.traceback_text or "_fail" in error.traceback_text


@pytest.mark.parametrize("how", ["hang", "busy"])
def test_a_hanging_worker_is_killed_and_its_stack_is_shown(how: str) -> None:
    error = run([{"when": "step", "how": how}], [], hung_after=0.8)
    assert error.kind == "hung"
    assert "no progress for" in str(error)
    assert "tick=12" in str(error)
    assert "_fail" in error.traceback_text


def test_a_worker_that_waits_for_credit_does_not_hang() -> None:
    options = WorkerOptions(allow_oversubscription=True, hung_after=0.4, max_restarts=0)
    with Processes(options).start("worker_entries:counter", [{}]) as group:
        first = group.receive(10.0)
        second = group.receive(10.0)
        assert first is not None
        assert second is not None
        assert group.receive(1.5) is None
        first.release()
        assert group.receive(10.0) is not None


def test_a_user_mistake_in_a_worker_keeps_its_exit_code() -> None:
    error = run([{"when": "step", "how": "user"}], [])
    assert error.exit_code == 2
    assert "observation 'y' is NaN" in str(error)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_pitfalls_dst_02_a_failed_construction_fails_the_run(how: str) -> None:
    error = run([{"when": "init", "how": how, "worker": 1}] * 2, [], max_restarts=5)
    assert error.worker == 1
    assert "during its construction" in str(error)


def test_a_construction_that_takes_too_long_is_named() -> None:
    error = run([{"when": "init", "how": "hang"}], [], start_timeout=2.0)
    assert "was not ready after 2 s (start_timeout)" in str(error)


def test_pitfalls_dst_03_a_crash_loop_ends_with_the_first_error() -> None:
    lines: list[str] = []
    error = run([{"when": "step", "how": "raise"}], lines, max_restarts=2)
    assert "the game broke" in str(error)
    assert any("2 restarts did not help" in note for note in error.__notes__)
    assert sum("restarting it" in line for line in lines) == 2
    assert "2 of 2 restarts used" in lines[-1]


def test_pitfalls_dst_07_a_killed_actor_is_replaced_and_the_run_says_so() -> None:
    lines: list[str] = []
    options = WorkerOptions(allow_oversubscription=True, restart_backoff=0.05, stop_timeout=1.0)
    with Processes(options).start("worker_entries:counter", [{}] * 3, lines.append) as group:
        victim = group.stats()[1].pid
        os.kill(victim, signal.SIGKILL)
        seen = set()
        until = time.monotonic() + 15
        while time.monotonic() < until and not (1 in seen and group.stats()[1].restarts == 1):
            received = group.receive(10.0)
            assert received is not None
            with received:
                if group.stats()[1].restarts == 1 and group.stats()[1].fragments:
                    seen.add(received.worker)
        assert group.stats()[1].pid != victim
    assert any("worker 1" in line and "SIGKILL" in line for line in lines)


def test_a_worker_with_data_that_cannot_travel_names_them() -> None:
    with pytest.raises(WorkerError, match=r"array 'x': dtype .* cannot travel"):
        drain(Processes(WorkerOptions(max_restarts=0)), "objects", [{}], [])


def test_an_exception_in_process_has_the_same_form() -> None:
    with pytest.raises(WorkerError, match="ValueError: the game broke") as caught:
        drain(placement("inprocess"), "boom", [{"when": "step", "how": "raise"}], [])
    assert caught.value.context["tick"] == 12
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_worker_that_ignores_every_request_to_stop_is_killed_in_time() -> None:
    options = WorkerOptions(stop_timeout=0.5)
    group = Processes(options).start("worker_entries:ignore_stop", [{}])
    pid = group.stats()[0].pid
    began = time.monotonic()
    group.close()
    assert time.monotonic() - began < 5.0
    assert not psutil.pid_exists(pid)


def test_an_interrupt_while_stopping_kills_at_once() -> None:
    options = WorkerOptions(stop_timeout=30.0)
    group = Processes(options).start("worker_entries:ignore_stop", [{}])
    pid = group.stats()[0].pid
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        group.close()
    assert time.monotonic() - began < 5.0
    assert not psutil.pid_exists(pid)

"""The benchmarks' own machinery: sides are measured and ended, every script is known to ``make bench``."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

# A side that starts a child of its own, as a library with workers does, and spends processor time.
SIDE = """
import subprocess, sys, time
sys.path.insert(0, {path!r})
from ppo_sides import serve
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
def step():
    began = time.process_time()
    while time.process_time() - began < 0.2:
        pass
    return 100
serve(step, {{"child": child.pid}})
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name: str) -> Any:
        return importlib.import_module(name)

    return load


def test_a_side_is_measured_and_leaves_nothing_behind(module: Any, tmp_path: Path) -> None:
    script = tmp_path / "side.py"
    script.write_text(SIDE.format(path=str(BENCHMARKS)))
    side = module("ppo_sides").Side("busy", sys.executable, str(script), {})
    try:
        side.wait_until_ready()
        # 300 samples are three steps of 0.2 s of processor time: 500 samples per CPU second at most, and
        # as the system counts that time in hundredths of a second, twice one of them less in the worst case.
        found = side.measure(300)
        assert found["samples"] == 300
        assert 300 < found["per_cpu_second"] <= 300 / (0.6 - 0.02)
        assert found["per_second"] <= found["per_cpu_second"] * 1.05
    finally:
        side.close()
    deadline = time.monotonic() + 5.0
    child = side.facts["child"]
    while psutil.pid_exists(child) and time.monotonic() < deadline:
        if psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.05)
    else:
        assert not psutil.pid_exists(child)


def test_a_side_that_dies_says_why(module: Any, tmp_path: Path) -> None:
    script = tmp_path / "side.py"
    script.write_text("raise SystemExit('no such game')")
    sides = module("ppo_sides")
    with pytest.raises(sides.SideFailed, match="no such game"):
        sides.Side("broken", sys.executable, str(script), {}).wait_until_ready()


def test_ratio_is_the_median_of_ratios_within_repetitions(module: Any) -> None:
    ratio = module("ppo_throughput")._ratio
    found = {
        "ours": [{"u": 10.0}, {"u": 40.0}, {"u": 30.0}],
        "theirs": [{"u": 5.0}, {"u": 10.0}, {"u": 10.0}],
    }
    # 10/5 = 2, 40/10 = 4, 30/10 = 3: the median is 3, though the medians are 30 and 10.
    row = ratio(found, {}, "ours", "theirs", "u", 3.5)
    assert (row["ratio"], row["lowest"], row["highest"], row["met"]) == (3.0, 2.0, 4.0, False)
    assert ratio(found, {}, "ours", "absent", "u", 1.0) is None


def test_interval_over_seeds_by_hand(module: Any) -> None:
    # 1, 2, 3: mean 2, deviation 1, t(2) = 4.303; 4.303 * 1 / sqrt(3) = 2.484.
    found = module("learning").interval([1.0, 2.0, 3.0])
    assert (found["mean"], found["low"], found["high"]) == (2.0, -0.484, 4.484)


def test_make_bench_knows_scripts_that_exist(module: Any) -> None:
    scripts = [benchmark.script for benchmark in module("run_all").BENCHMARKS]
    assert len(set(scripts)) == len(scripts)
    assert all((BENCHMARKS / f"{script}.py").is_file() for script in scripts)

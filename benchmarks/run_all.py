"""Run all benchmarks in a quick setting and say for each what it found. ``make bench`` calls this.

    python benchmarks/run_all.py [--full] [--peer-python peers/bin/python] [--only NAME ...]

Quick results are for reading and go to ``build/benchmarks``; ``--full`` takes the settings of the committed
results and writes to ``benchmarks/results`` (hours, on a machine with nothing else to do).

RLlib and Stable-Baselines3 are measured if an environment with them is named; the peers of the evolution
benchmarks if they are installed beside Lamarckian. What is not installed is skipped:

    python3 -m venv peers
    peers/bin/pip install "ray[rllib]==2.60.0" "stable-baselines3==2.9.2" torch gymnasium ale-py \\
        opencv-python-headless psutil
    .venv/bin/pip install cma pymoo pygmo scipy
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
FULL = HERE / "results"
QUICK = HERE.parent / "build" / "benchmarks"


@dataclass(frozen=True)
class Benchmark:
    """One script: its options when quick, the option that names its output, and what it needs."""

    script: str
    what: str
    quick: tuple[str, ...] = ()
    out: str = "--out"
    needs: tuple[str, ...] = ()
    takes_peer: bool = False
    only_full: bool = False

    def options(self, folder: Path, full: bool, peer_python: str | None) -> list[str]:
        """Return the command line behind the script's name."""
        options = [] if full else list(self.quick)
        if self.out == "--folder":
            options += [self.out, str(folder)]
        elif self.out:
            options += [self.out, str(folder / f"{self.script}.json")]
        if self.takes_peer and peer_python:
            options += ["--peer-python", peer_python]
        return options


BENCHMARKS = (
    Benchmark(
        "ppo_throughput",
        "PPO beside RLlib, Stable-Baselines3 and a bare loop",
        ("--quick", "--repetitions", "3"),
        "--folder",
        ("gymnasium", "ale_py", "psutil"),
        takes_peer=True,
    ),
    Benchmark(
        "learning",
        "how well and how fast PPO learns, over seeds",
        ("--seeds", "1", "--games", "cartpole", "pendulum"),
        "--folder",
        ("gymnasium",),
        takes_peer=True,
    ),
    Benchmark(
        "async_overhead",
        "cost of the asynchronous interface per decision",
        ("--repetitions", "3", "--decisions", "60000", "--controllers", "16", "256"),
    ),
    Benchmark(
        "games",
        "decisions per CPU second of the built-in games",
        ("--repetitions", "3", "--seconds", "0.3"),
        "--output",
    ),
    Benchmark(
        "network_throughput",
        "formats, batches and precisions of the image network",
        ("--repetitions", "1", "--threads", "1"),
        "--output",
    ),
    Benchmark("transport", "fragments between processes", ("--repetitions", "1"), "--output"),
    Benchmark("evolution_arrival", "one asynchronous arrival, one sort", ("--arrivals", "200")),
    Benchmark(
        "evolution_cma_es",
        "CMA-ES beside pycma",
        ("--problems", "sphere,rosenbrock", "--dimensions", "10", "--seeds", "2"),
        needs=("cma",),
    ),
    Benchmark(
        "evolution_nsga2",
        "NSGA-II beside pymoo and pygmo",
        ("--problems", "zdt1", "--seeds", "2", "--pygmo-seeds", "2"),
        needs=("pymoo", "pygmo", "scipy"),
    ),
    Benchmark("asynchrony", "what waiting costs an evolution", out="", only_full=True),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [benchmark.script for benchmark in BENCHMARKS]
    parser.add_argument("--full", action="store_true", help="the settings of the committed results")
    parser.add_argument("--peer-python", help="interpreter with RLlib and Stable-Baselines3")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    arguments = parser.parse_args()
    folder = FULL if arguments.full else QUICK
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    for benchmark in BENCHMARKS:
        if benchmark.script not in arguments.only:
            continue
        print(f"\n== {benchmark.script}: {benchmark.what}", flush=True)
        missing = [name for name in benchmark.needs if find_spec(name) is None]
        if missing:
            print(f"   skipped: {', '.join(missing)} not installed (see run_all.py --help)")
            continue
        if benchmark.only_full and not arguments.full:
            print("   skipped: does not depend on the machine; runs with --full")
            continue
        began = time.monotonic()
        command = [sys.executable, str(HERE / f"{benchmark.script}.py")]
        command += benchmark.options(folder, arguments.full, arguments.peer_python)
        code = subprocess.run(command, env=environment, check=False).returncode
        print(f"   {time.monotonic() - began:.0f} s, exit code {code}", flush=True)
        if code:
            failed.append(benchmark.script)
    print(f"\nresults are in {folder}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

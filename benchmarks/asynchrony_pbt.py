"""PBT over PPO, population 8: frames per second of a population trained in three ways.

    python benchmarks/asynchrony_pbt.py cartpole [--evaluations 24] [--epochs 4]

``together``   the whole population as one batched computation, in this process
``two groups`` two worker processes, each trains half of the population as one computation
``one by one`` two worker processes, each trains one member at a time
Wall time counts from the first proposal to the last outcome, measuring games and the run folder
included; frames are those of training only. CPU is that of all processes. On a shared machine frames
per CPU second tell more. ``benchmarks/asynchrony_pbt_ray.py`` does the same with Ray Tune and RLlib.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import torch

from lamarckian.evorl import population, searches
from lamarckian.evorl.rl_evaluator import RLTask
from lamarckian.runs import individuals
from lamarckian.runs.evolution import evolve
from lamarckian.runs.folder import Run
from lamarckian.runs.game_evolution import GameEvolutionRun

RESULTS = Path(__file__).parent / "results" / "asynchrony_pbt.json"
FRAMES = 32_768


def cpu_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)


def measure(game: str, way: str, evaluations: int, epochs: int) -> dict[str, Any]:
    task = msgspec.convert(
        {"frames": FRAMES, "algorithm": {"num_epochs": epochs}, "episodes": 8}, RLTask
    )
    where: dict[str, Any] = {}
    if way != "together":
        where = {"placement": "processes", "num_workers": 2, "mode": "steady-state"}
        if way == "one by one":
            where["num_in_flight"] = 8
    settings = GameEvolutionRun(
        problem=game,
        ec=searches.PBT(population=8),
        evaluations=evaluations,
        training=task,
        checkpoint_seconds=1000.0,
        **where,
    )
    with tempfile.TemporaryDirectory() as folder:
        cpu, wall = cpu_seconds(), time.perf_counter()
        result = evolve(settings, Path(folder) / "run")
        cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
        everyone = individuals.read_all(Run.open(Path(folder) / "run")).values()
        frames = sum(float(each.statistics.get("frames") or 0) for each in everyone)
    return {
        "frames_per_second": round(frames / result.seconds),
        "frames_per_second_start_included": round(frames / wall),
        "frames_per_cpu_second": round(frames / cpu),
        "seconds": round(result.seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "idle_share": round(result.idle_share, 3),
        "failures": result.failures,
        "best_score": result.best[0]["objectives"]["score"],
        "frames": frames,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("game", choices=["cartpole", "pong"])
    parser.add_argument("--evaluations", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--ways", default="together,two groups,one by one")
    options = parser.parse_args()
    torch.set_num_threads(1)
    key = f"{options.game}, {options.epochs} epochs"
    record: dict[str, Any] = {}
    if RESULTS.exists():
        record = json.loads(RESULTS.read_text(encoding="utf-8"))
    for way in options.ways.split(","):
        if way == "one by one":
            population.misfits = lambda *_: ["switched off for the comparison"]
        found = measure(options.game, way, options.evaluations, options.epochs)
        found["load_average"] = os.getloadavg()[0]
        record.setdefault(key, {})[way] = found
        print(key, way, found, flush=True)
        record["machine"] = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        }
        RESULTS.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

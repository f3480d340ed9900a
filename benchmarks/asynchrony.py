"""What waiting costs: idle workers and time to a result, by mode and number of workers.

    python benchmarks/asynchrony.py [--quick]

The search (NSGA-II on ZDT1), the modes and the bookkeeping are the real ones; only the time of an
evaluation is simulated: log-normal, sigma 1, median 1 s. Numbers do not depend on the machine.
Writes ``benchmarks/results/asynchrony.json`` and prints the tables of docs/asynchronous-evolution.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian import ec
from lamarckian.ec.indicators import hypervolume, reference_point
from lamarckian.evorl.simulation import Simulated, log_normal
from lamarckian.evorl.workflow import Mode, Silent, Workflow
from lamarckian.problems import make

RESULTS = Path(__file__).parent / "results" / "asynchrony.json"
WORKERS = (8, 64, 1000, 6000)
POPULATION = 100
TARGETS = (0.5, 0.7, 0.8, 0.85)
# first-n: the expected number is a share of the workers, and nothing waits in a queue; or it is all of
# the workers, and as many again wait in a queue.
VARIANTS: dict[str, tuple[Mode, float, float]] = {
    "generational": ("generational", 1.0, 1.0),
    "first-n, n = workers / 2": ("first-n", 0.5, 1.0),
    "first-n, n = workers / 8": ("first-n", 0.125, 1.0),
    "first-n, n = workers, two generations in flight": ("first-n", 1.0, 2.0),
    "steady-state": ("steady-state", 0.0, 1.0),
}


def workflow_for(
    variant: str, workers: int, seed: int, limit: int, evaluate: bool
) -> tuple[Workflow, Simulated]:
    mode, share, flight = VARIANTS[variant]
    problem = make("zdt1")
    size = max(1, round(share * workers))
    search = ec.make(
        "nsga2", problem.describe(), seed, problem.initialize, population=POPULATION,
        generation_size=size,
    )  # fmt: skip
    executor = Simulated(problem if evaluate else _Constant(), seed, workers, log_normal(seed))
    in_flight = 0 if mode == "generational" else round(flight * workers)
    return (
        Workflow(search, executor, Silent(), mode=mode, limit=limit, num_in_flight=in_flight),
        executor,
    )


class _Constant:
    """An evaluator for runs in which only time matters."""

    def evaluate(self, decision: Any, rng: Any) -> Any:
        from lamarckian.evaluator import Outcome

        return Outcome(np.zeros(2))


def idle_share(variant: str, workers: int, seed: int, rounds: int) -> float:
    """Idle share until the last proposal is out, so that the end of the run does not count."""
    limit = rounds * workers
    workflow, _ = workflow_for(variant, workers, seed, limit, evaluate=False)
    while workflow.search.num_proposed < limit and workflow.step():
        pass
    return workflow.idle_share


def times_to(variant: str, workers: int, seed: int, limit: int) -> dict[str, float | None]:
    """Simulated seconds until the hypervolume of the population reaches each target."""
    workflow, executor = workflow_for(variant, workers, seed, limit, evaluate=True)
    reference = reference_point(workflow.search.encoding)
    found: dict[str, float | None] = {str(target): None for target in TARGETS}
    checked = 0
    while workflow.step():
        if workflow.search.evaluations - checked < 50 or not len(workflow.search.population):
            continue
        checked = workflow.search.evaluations
        volume = hypervolume(workflow.search.population.costs, reference)
        for target in TARGETS:
            if volume >= target and found[str(target)] is None:
                found[str(target)] = executor.now()
        if found[str(TARGETS[-1])] is not None:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and seeds")
    quick = parser.parse_args().quick
    began = time.time()
    seeds = range(1 if quick else 3)
    idle: dict[str, dict[str, float]] = {}
    for variant in VARIANTS:
        idle[variant] = {}
        for workers in WORKERS:
            rounds = 200 if workers <= 64 else 12
            rounds = rounds // 5 if quick else rounds
            runs = [
                idle_share(variant, workers, seed, rounds)
                for seed in (seeds if workers < 1000 else [0])
            ]
            idle[variant][str(workers)] = round(float(np.mean(runs)), 4)
        print(variant, idle[variant], flush=True)
    reach: dict[str, dict[str, float | None]] = {}
    for variant in VARIANTS:
        runs_to = [times_to(variant, 64, seed, 30_000) for seed in seeds]
        reach[variant] = {}
        for target in runs_to[0]:
            values = [each[target] for each in runs_to]
            reach[variant][target] = (
                None
                if any(value is None for value in values)
                else round(float(np.median([v for v in values if v is not None])), 1)
            )
        print(variant, reach[variant], flush=True)
    record = {
        "what": "NSGA-II, population 100, ZDT1; log-normal evaluation times, sigma 1, median 1 s",
        "idle_share": idle,
        "seconds_to_hypervolume_64_workers": reach,
        "seeds": len(seeds),
        "computed_in_seconds": round(time.time() - began, 1),
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(tables(record))


def tables(record: dict[str, Any]) -> str:
    """Return the two tables of the documentation."""
    lines = ["| idle share | " + " | ".join(f"{w} workers" for w in WORKERS) + " |"]
    lines.append("|---" * (len(WORKERS) + 1) + "|")
    for variant, shares in record["idle_share"].items():
        cells = [f"{100 * shares[str(workers)]:.1f} %" for workers in WORKERS]
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    reach = record["seconds_to_hypervolume_64_workers"]
    lines += ["", "| 64 workers, seconds to hypervolume | " + " | ".join(map(str, TARGETS)) + " |"]
    lines.append("|---" * (len(TARGETS) + 1) + "|")
    for variant, times in reach.items():
        cells = []
        for target in TARGETS:
            value, base = times[str(target)], reach["generational"][str(target)]
            ratio = f" ({base / value:.1f}x)" if value and base else ""
            cells.append(f"{value:,.0f}{ratio}" if value else "not reached")
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""CMA-ES against pycma on the single-objective suite, d = 10 and 100.

    python benchmarks/evolution_cma_es.py --dimensions 10

pycma runs with its defaults from the same kind of start (a uniform point of the box, first step
0.3 of its width, bounds given) until it stops by itself or the budget is spent; ours then gets as
many evaluations as it used. Final values are compared by their medians over seeds; on the
multimodal functions a run ends in one of many local minima, so read the list and not one number.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import cma
import numpy as np

from lamarckian import ec, problems
from lamarckian.ec.cma_es import CMAES
from machine import machine_facts

RESULTS = Path(__file__).parent / "results" / "evolution_cma_es.json"
NAMES = "sphere,rosenbrock,rastrigin,ackley,griewank"


def run_pycma(problem: Any, seed: int, budget: int) -> tuple[float, int, float]:
    low, high = (bound[0] for bound in problem.describe().parts["x"].bounds())
    rng = np.random.default_rng(seed)
    start = time.process_time()
    strategy = cma.CMAEvolutionStrategy(
        rng.uniform(low, high, problem.num_variables),
        0.3 * (high - low),
        {"bounds": [low, high], "seed": seed + 1, "maxfevals": budget, "verbose": -9},
    )
    while not strategy.stop():
        x = np.array(strategy.ask())
        strategy.tell(list(x), problem.values(x)[:, 0].tolist())
    return strategy.result.fbest, strategy.result.evaluations, time.process_time() - start


def run_ours(problem: Any, seed: int, budget: int) -> tuple[float, float, bool]:
    start = time.process_time()
    search = ec.make("cma-es", problem.describe(), seed, problem.initialize)
    best = np.inf

    def note(each: ec.EC) -> None:
        nonlocal best
        best = min(best, float(each.population.costs.min()))

    ec.run(search, problem, budget, note)
    assert isinstance(search, CMAES)
    finite = bool(np.isfinite(search.sigma) and np.isfinite(search.covariance).all())
    return best, time.process_time() - start, finite


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=NAMES)
    parser.add_argument("--dimensions", default="10,100")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    for size in map(int, options.dimensions.split(",")):
        for name in options.problems.split(","):
            problem: Any = problems.make(name, num_variables=size)
            budget = 20_000 if size <= 10 else 60_000
            rows = []
            for seed in range(options.seeds):
                theirs, used, their_seconds = run_pycma(problem, seed, budget)
                mine, my_seconds, finite = run_ours(problem, seed, used)
                rows.append(
                    {
                        "evaluations": used,
                        "pycma": theirs,
                        "ours": mine,
                        "pycma_seconds": their_seconds,
                        "ours_seconds": my_seconds,
                        "ours_finite": finite,
                    }
                )
            medians = {key: float(np.median([row[key] for row in rows])) for key in rows[0]}
            results = json.loads(options.out.read_text()) if options.out.exists() else {}
            results["machine"] = machine_facts("numpy", "cma")
            results.setdefault("problems", {})[f"{name}-{size}"] = {
                "medians": medians,
                "runs": rows,
            }
            options.out.write_text(json.dumps(results, indent=1) + "\n")
            print(name, size, json.dumps(medians), flush=True)


if __name__ == "__main__":
    main()

"""NSGA-II against pymoo and pygmo: quality over seeds and CPU seconds, in one process.

    python benchmarks/evolution_nsga2.py --problems zdt1,dtlz2 --seeds 20

Needs pymoo 0.6, pygmo 2 and SciPy. Each library runs its own NSGA-II on its own implementation of
the problem: population 100, 25,000 evaluations. Runs of the three alternate, so that a busy machine
slows all alike; ``--who`` runs some of them only. Hypervolume reference points and true fronts are
those of ``lamarckian.problems``.
The result file is updated after every seed, and a later call goes on where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pygmo
import pymoo
from pymoo.algorithms.moo import nsga2 as pymoo_nsga2
from pymoo.optimize import minimize
from pymoo.problems import get_problem
from scipy.stats import ranksums

from lamarckian import ec, problems
from lamarckian.ec import indicators
from machine import machine_facts

POPULATION, EVALUATIONS = 100, 25_000
RESULTS = Path(__file__).parent / "results" / "evolution_nsga2.json"
ALL = "zdt1,zdt2,zdt3,zdt4,zdt6,dtlz1,dtlz2,dtlz3,dtlz4,dtlz5,dtlz6,dtlz7"


def run_ours(problem: Any, seed: int) -> tuple[float, np.ndarray]:
    start = time.process_time()
    search = ec.make("nsga2", problem.describe(), seed, problem.initialize, population=POPULATION)
    ec.run(search, problem, EVALUATIONS)
    seconds = time.process_time() - start
    return seconds, search.population.costs


def run_pymoo(name: str, problem: Any, seed: int) -> tuple[float, np.ndarray]:
    options = {} if name.startswith("zdt") else {"n_obj": 3}
    theirs = get_problem(name, n_var=problem.num_variables, **options)
    start = time.process_time()
    result = minimize(
        theirs, pymoo_nsga2.NSGA2(pop_size=POPULATION), ("n_eval", EVALUATIONS), seed=seed
    )
    return time.process_time() - start, result.pop.get("F")


def run_pygmo(name: str, problem: Any, seed: int) -> tuple[float, np.ndarray]:
    number = int(name[-1])
    theirs = pygmo.problem(
        pygmo.zdt(prob_id=number, param=problem.num_variables)
        if name.startswith("zdt")
        else pygmo.dtlz(prob_id=number, dim=problem.num_variables, fdim=3)
    )
    start = time.process_time()
    population = pygmo.population(theirs, size=POPULATION, seed=seed)
    algorithm = pygmo.algorithm(pygmo.nsga2(gen=EVALUATIONS // POPULATION - 1, seed=seed))
    population = algorithm.evolve(population)
    return time.process_time() - start, population.get_f()


def measure(who: str, name: str, seed: int, runs: dict[str, dict[str, list[float]]]) -> None:
    """Run one seed of one problem by one library and append what it gave to ``runs``."""
    problem: Any = problems.make(name)
    if who == "ours":
        seconds, costs = run_ours(problem, seed)
    elif who == "pymoo":
        seconds, costs = run_pymoo(name, problem, seed)
    else:
        seconds, costs = run_pygmo(name, problem, seed + 1)
    found = {
        "seconds": seconds,
        "hypervolume": indicators.hypervolume(
            costs, indicators.reference_point(problem.describe())
        ),
        "igd": indicators.igd(costs, problem.true_front(1000)),
    }
    for what, value in found.items():
        runs.setdefault(who, {}).setdefault(what, []).append(float(f"{value:.6g}"))


def report(runs: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Return medians, ratios of time and rank-sum tests of the runs so far, and the runs."""
    medians = {
        who: {what: float(np.median(values)) for what, values in numbers.items()}
        for who, numbers in runs.items()
    }
    seeds = {who: len(numbers["seconds"]) for who, numbers in runs.items()}
    result: dict[str, Any] = {"seeds": seeds, "medians": medians}
    for peer in ("pymoo", "pygmo"):
        if peer in medians and "ours" in medians:
            # Seeds that all have: these ran next to each other.
            both = min(seeds[peer], seeds["ours"])
            theirs, mine = (np.median(runs[who]["seconds"][:both]) for who in (peer, "ours"))
            result[f"times_faster_than_{peer}"] = float(theirs / mine)
    if not {"ours", "pymoo"} <= set(runs):
        return {**result, "runs": runs}
    for what, sign in (("hypervolume", 1.0), ("igd", -1.0)):
        ours, theirs = np.array(runs["ours"][what]), np.array(runs["pymoo"][what])
        statistic, p = ranksums(sign * ours, sign * theirs)
        worse = bool(p < 0.05 and statistic < 0)
        result[f"{what}_rank_sum"] = {"p": float(p), "significantly_worse": worse}
    result["runs"] = runs
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=ALL)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--who", default="ours,pymoo,pygmo")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    start = time.monotonic()
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    results["settings"] = {"population": POPULATION, "evaluations": EVALUATIONS}
    for seed in range(options.seeds):
        for name in options.problems.split(","):
            runs = results.setdefault("problems", {}).get(name, {}).get("runs", {})
            for who in options.who.split(","):
                if len(runs.get(who, {}).get("seconds", [])) > seed:
                    continue
                if time.monotonic() - start > options.seconds:
                    return
                measure(who, name, seed, runs)
                print(name, seed, who, runs[who]["seconds"][-1], flush=True)
            results["problems"][name] = report(runs)
            results["machine"] = machine_facts("numpy", "moocore", "pymoo", "pygmo")
            options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    assert pymoo.__version__.startswith("0.6")
    main()

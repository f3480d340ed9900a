"""NSGA-II against pymoo and pygmo: quality over seeds and CPU seconds, in one process.

    python benchmarks/evolution_nsga2.py --problems zdt1,dtlz2 --seeds 20

Needs pymoo 0.6, pygmo 2 and SciPy. Each library runs its own NSGA-II on its own implementation of
the problem: population 100, 25,000 evaluations. Runs of the three alternate, so that a busy machine
slows all alike. Hypervolume reference points and true fronts are those of ``lamarckian.problems``.
The result file is updated problem by problem.
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

from evolution_machine import machine_facts
from lamarckian import ec, problems
from lamarckian.ec import indicators

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


def measure(name: str, num_seeds: int, num_pygmo: int) -> dict[str, Any]:
    problem: Any = problems.make(name)
    reference = indicators.reference_point(problem.describe())
    front = problem.true_front(1000)
    runs: dict[str, dict[str, list[float]]] = {
        who: {"seconds": [], "hypervolume": [], "igd": []} for who in ("ours", "pymoo", "pygmo")
    }
    for seed in range(num_seeds):
        measured = {"ours": run_ours(problem, seed), "pymoo": run_pymoo(name, problem, seed)}
        if seed < num_pygmo:
            measured["pygmo"] = run_pygmo(name, problem, seed + 1)
        for who, (seconds, costs) in measured.items():
            runs[who]["seconds"].append(seconds)
            runs[who]["hypervolume"].append(indicators.hypervolume(costs, reference))
            runs[who]["igd"].append(indicators.igd(costs, front))
    medians = {
        who: {what: float(np.median(values)) for what, values in numbers.items()}
        for who, numbers in runs.items()
    }
    report: dict[str, Any] = {
        "seeds": num_seeds,
        "medians": medians,
        "times_faster_than_pymoo": medians["pymoo"]["seconds"] / medians["ours"]["seconds"],
        "times_faster_than_pygmo": medians["pygmo"]["seconds"] / medians["ours"]["seconds"],
        "runs": {
            who: {what: [float(f"{v:.6g}") for v in values] for what, values in numbers.items()}
            for who, numbers in runs.items()
        },
    }
    for what, sign in (("hypervolume", 1.0), ("igd", -1.0)):
        ours, theirs = np.array(runs["ours"][what]), np.array(runs["pymoo"][what])
        statistic, p = ranksums(sign * ours, sign * theirs)
        worse = bool(p < 0.05 and statistic < 0)
        report[f"{what}_rank_sum"] = {"p": float(p), "significantly_worse": worse}
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=ALL)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--pygmo-seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    for name in options.problems.split(","):
        report = measure(name, options.seeds, options.pygmo_seeds)
        results = json.loads(options.out.read_text()) if options.out.exists() else {}
        results["machine"] = machine_facts("numpy", "moocore", "pymoo", "pygmo")
        results["settings"] = {"population": POPULATION, "evaluations": EVALUATIONS}
        results.setdefault("problems", {})[name] = report
        options.out.write_text(json.dumps(results, indent=1) + "\n")
        shown = {key: value for key, value in report.items() if key != "runs"}
        print(name, json.dumps(shown), flush=True)


if __name__ == "__main__":
    assert pymoo.__version__.startswith("0.6")
    main()

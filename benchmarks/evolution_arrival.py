"""What one asynchronous arrival costs, and what a non-dominated sort costs.

    python benchmarks/evolution_arrival.py

One arrival is tell(1) + ask(1) in steady state, population 100, two objectives, 30 real variables.
The peer is pymoo, asked and told one by one (``infill`` with one offspring, ``advance``), if it is
installed. The sort is of 10,000 uniform points with three objectives, against a bare call of
moocore, if it is installed. Medians of five repetitions, in milliseconds of CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian import ec, problems
from lamarckian.ec import pareto
from machine import machine_facts

RESULTS = Path(__file__).parent / "results" / "evolution_arrival.json"
REPETITIONS = 5


def ours(num_arrivals: int) -> float:
    """Return milliseconds per arrival, evaluation excluded."""
    problem: Any = problems.make("zdt1")
    search = ec.make(
        "nsga2", problem.describe(), 0, problem.initialize, population=100, generation_size=1
    )
    rng = np.random.default_rng(0)
    waiting = search.ask(64)
    seconds = 0.0
    for step in range(400 + num_arrivals):
        individual = waiting.pop(int(rng.integers(len(waiting))))
        individual.outcome = problem.evaluate(individual.decision, rng)
        start = time.process_time()
        search.tell([individual])
        waiting += search.ask(1)
        if step >= 400:
            seconds += time.process_time() - start
    return 1000.0 * seconds / num_arrivals


def pymoo(num_arrivals: int) -> float:
    """The same with pymoo: one offspring per iteration."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.problems import get_problem

    problem = get_problem("zdt1")
    algorithm = NSGA2(pop_size=100, n_offsprings=1)
    algorithm.setup(problem, termination=("n_eval", 10**9), seed=1, verbose=False)
    seconds = 0.0
    for step in range(50 + num_arrivals):
        start = time.process_time()
        offspring = algorithm.ask()
        middle = time.process_time()
        algorithm.evaluator.eval(problem, offspring)
        resumed = time.process_time()
        algorithm.tell(infills=offspring)
        if step >= 50:
            seconds += middle - start + time.process_time() - resumed
    return 1000.0 * seconds / num_arrivals


def sort(use_moocore: bool, bare: bool = False) -> Callable[[], float]:
    points = np.random.default_rng(0).random((10_000, 3))

    def once() -> float:
        start = time.process_time()
        if bare:
            import moocore

            moocore.pareto_rank(points)
        else:
            pareto.sort(points, use_moocore)
        return 1000.0 * (time.process_time() - start)

    return once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrivals", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    measured: dict[str, Callable[[], float]] = {
        "arrival_ours": lambda: ours(options.arrivals),
        "sort_10000x3_ours": sort(use_moocore=True),
        "sort_10000x3_fallback": sort(use_moocore=False),
    }
    packages = ["numpy"]
    if pareto.HAS_MOOCORE:
        packages.append("moocore")
        measured["sort_10000x3_moocore"] = sort(use_moocore=True, bare=True)
    if find_spec("pymoo"):
        packages.append("pymoo")
        measured["arrival_pymoo"] = lambda: pymoo(options.arrivals // 10)
    values: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(REPETITIONS):
        for name, once in measured.items():
            values[name].append(once())
    report = {
        "machine": machine_facts(*packages),
        "milliseconds": {name: statistics.median(each) for name, each in values.items()},
        "all": values,
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["milliseconds"], indent=1))


if __name__ == "__main__":
    main()

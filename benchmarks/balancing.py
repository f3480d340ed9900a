"""How fast battles are fought, how long a whole search takes, and whether planted culprits are found.

    python benchmarks/balancing.py

Five entries are made too strong. The search (population 100, 250 generations, 48 battles per team) runs with
them; the census must expose all five, and no more than chance. Then they are brought back to what they were,
as a designer would who believes the census, and everything runs again: no planted entry may stand out, and
heroes and equipment among them leave the front (one skill in four is always there). Targets: 150,000 battles
per second and core, a search in 60 s of wall time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian.problems.balancing import NUM_TEAMS, Balancing
from lamarckian.runs.balancing import Plan, Round, balance
from machine import load, machine_facts

RESULT = Path(__file__).parent / "results" / "balancing.json"
PLANTED = {
    "hero:Halth": 1.15,
    "hero:Zana": 1.12,
    "equipment:Dawn Axe": 3.0,
    "equipment:Dusk Boots": 2.5,
    "skill:heal": 1.5,
}


def battles_per_second(rounds: int = 5) -> float:
    """Return battles per CPU second of one thread, compiling left out; the median of ``rounds``."""
    balancing = Balancing()
    units = balancing.draw(np.random.default_rng(0), 400)
    balancing.measure(units[:2])
    rates = []
    for _ in range(rounds):
        began = time.process_time()
        balancing.measure(units)
        spent = time.process_time() - began
        rates.append(len(units) * NUM_TEAMS * len(balancing.baselines) / spent)
    return float(np.median(rates))


def told(found: Round) -> dict[str, Any]:
    return {
        "seconds": round(found.seconds, 1),
        "evaluations": found.evaluations,
        "hypervolume": found.hypervolume,
        "imbalanced_in_front": found.imbalanced,
        "best": found.best,
        "exposed": {
            each.key: {"lift": round(each.lift, 3), "p_value": each.p_value}
            for each in found.exposed
        },
        "share_of_front": {key: round(found.front_share[key], 3) for key in PLANTED},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--generations", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    facts = machine_facts("numba")
    rate = battles_per_second()
    print(f"{rate:,.0f} battles per CPU second", flush=True)
    sides = {}
    for name, changes in (("planted", PLANTED), ("mended", {})):
        with tempfile.TemporaryDirectory() as folder:
            plan = Plan(changes=changes, generations=arguments.generations, seed=arguments.seed)
            sides[name] = told(balance(plan, Path(folder))[0])
        print(name, json.dumps(sides[name]), flush=True)
    report = {
        "benchmark": "balancing",
        "battles_per_cpu_second": round(rate),
        "target_battles": 150_000,
        "planted": PLANTED,
        "with_planted": sides["planted"],
        "after_the_nerf": sides["mended"],
        "all_exposed": set(PLANTED) <= set(sides["planted"]["exposed"]),
        "none_after": not set(PLANTED) & set(sides["mended"]["exposed"]),
        "seconds_target": 60,
        "machine": facts | {"load_average_after": load()},
    }
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What stepping SMAX through us costs beside JaxMARL's own compiled step.

    python benchmarks/smax_throughput.py --maps 3m 2s3z --games 64

Both sides play legal random actions drawn by numpy, in the same number of matches; JaxMARL's side is
``jax.jit(jax.vmap(env.step))`` with its own restart of ended matches, and hands back observations, legal
actions, the critic's state and rewards as numpy arrays, as ours does. Rounds alternate; the ratio is the
median of ratios within a round, of environment steps per CPU second. Needs the extra ``smax``. Target: at
least 0.9 of JaxMARL's bare step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from lamarckian.mdp.catalogue import make_batch
from machine import load, machine_facts

RESULT = Path(__file__).parent / "results" / "smax_throughput.json"


def ours(name: str, games: int) -> Callable[[], None]:
    game = make_batch(f"smax:{name}", games)
    game.reset(np.arange(games))
    rng = np.random.default_rng(0)

    def tick() -> None:
        legal = game.observe("ally").legal["action"]
        game.step({"ally": {"action": (rng.random(legal.shape) * legal).argmax(-1)}})

    return tick


def bare(name: str, games: int) -> Callable[[], None]:
    import jax
    from jaxmarl.environments.smax.heuristic_enemy_smax_env import HeuristicEnemySMAX
    from jaxmarl.environments.smax.smax_env import map_name_to_scenario

    env = HeuristicEnemySMAX(scenario=map_name_to_scenario(name))
    keys = jax.random.split(jax.random.PRNGKey(0), games)
    _, state = jax.jit(jax.vmap(env.reset))(keys)
    legal_of = jax.vmap(env.get_avail_actions)

    def advance(keys: Any, state: Any, actions: Any) -> Any:
        both = jax.vmap(jax.random.split)(keys)
        chosen = {agent: actions[:, unit] for unit, agent in enumerate(env.agents)}
        seen, state, rewards, dones, _ = jax.vmap(env.step)(both[:, 0], state, chosen)
        return both[:, 1], state, seen, rewards, dones["__all__"], legal_of(state)

    step = jax.jit(advance)
    rng = np.random.default_rng(0)
    legal = legal_of(state)

    def tick() -> None:
        nonlocal keys, state, legal
        masks = np.stack([np.asarray(legal[agent]) for agent in env.agents], axis=1)
        actions = (rng.random(masks.shape) * masks).argmax(-1).astype(np.int32)
        keys, state, seen, rewards, over, legal = step(keys, state, actions)
        for tree in (seen, rewards):
            for array in tree.values():
                np.asarray(array)
        np.asarray(over)

    return tick


def rate(tick: Callable[[], None], ticks: int, games: int) -> float:
    began = time.process_time()
    for _ in range(ticks):
        tick()
    return ticks * games / (time.process_time() - began)


def measure(name: str, games: int, ticks: int, rounds: int) -> dict[str, Any]:
    sides = {"ours": ours(name, games), "bare": bare(name, games)}
    compile_seconds = {}
    for side, tick in sides.items():
        began = time.perf_counter()
        tick()
        compile_seconds[side] = round(time.perf_counter() - began, 1)
        tick()
    found: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, tick in sides.items():
            found[side].append(rate(tick, ticks, games))
    ratios = [a / b for a, b in zip(found["ours"], found["bare"], strict=True)]
    return {
        "map": name,
        "games": games,
        "steps_per_cpu_second": {side: round(statistics.median(v)) for side, v in found.items()},
        "ratio": round(statistics.median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
        "seconds_to_compile_a_step": compile_seconds,
        "target": 0.9,
        "met": statistics.median(ratios) >= 0.9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--maps", nargs="+", default=["3m", "2s3z", "5m_vs_6m"])
    parser.add_argument("--games", type=int, default=64)
    parser.add_argument("--ticks", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    facts = machine_facts("jax", "jaxmarl")
    rows = []
    for name in arguments.maps:
        rows.append(measure(name, arguments.games, arguments.ticks, arguments.rounds))
        print(json.dumps(rows[-1]), flush=True)
    report = {
        "benchmark": "smax_throughput",
        "maps": rows,
        "machine": facts | {"load_average_after": load()},
    }
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

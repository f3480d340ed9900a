"""Decisions per CPU second of the built-in games by themselves: stepping and observing, no policy.

Batch games are stepped with random legal actions, drawn beforehand where there are no masks and outside the
measured time where there are; the living rows of all roles count. Games with turns or with a tick
are driven by hand, one match after the other, with random legal actions. Each figure is the median of
``--repetitions`` measurements of processor time on one core.

    python benchmarks/games.py --output benchmarks/results/games.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian.mdp.batch_game import BatchGame
from lamarckian.mdp.core import Arrays, random_actions
from lamarckian.mdp.games import (
    CartPole,
    ConnectFour,
    Duel,
    Pendulum,
    Pong,
    RockPaperScissors,
    Skirmish,
)
from lamarckian.mdp.tick import TickGame
from machine import machine_facts

BATCH: dict[str, tuple[int, Callable[[int], BatchGame]]] = {
    "pong": (256, Pong),
    "pong-image": (64, lambda num: Pong(num, image=True)),
    "cartpole": (256, CartPole),
    "pendulum": (256, Pendulum),
    "rps": (256, lambda num: RockPaperScissors(num, rounds=20)),
    "skirmish": (64, Skirmish),
    "skirmish, 5 a side, hybrid": (64, lambda num: Skirmish(num, units_per_side=5, heading=True)),
}
TICK: dict[str, Callable[[], TickGame]] = {"connect-four": ConnectFour, "duel": Duel}
TARGETS = {"pong": 1_500_000}


def batch_speed(make: Callable[[int], BatchGame], num: int, seconds: float) -> tuple[float, float]:
    """Return decisions per CPU second of the game alone, and the share spent on choosing actions."""
    game = make(num)
    game.reset(np.arange(num))
    rng = np.random.default_rng(0)
    masked = any(role.masked for role in game.roles.values())

    def draw() -> dict[str, Arrays]:
        return {
            name: random_actions(role, game.observe(name).legal, num * role.seats, rng)
            for name, role in game.roles.items()
        }

    prepared = [draw() for _ in range(1 if masked else 64)]
    decisions, used, choosing, tick = 0, 0.0, 0.0, 0
    while used < seconds:
        mark = time.process_time()
        actions = draw() if masked else prepared[tick % 64]
        choosing += time.process_time() - mark
        mark = time.process_time()
        for name in game.roles:
            game.observe(name)
            decisions += int(game.alive(name).sum()) if masked else num * game.roles[name].seats
        game.step(actions)
        used += time.process_time() - mark
        tick += 1
    return decisions / used, choosing / (used + choosing)


def tick_speed(make: Callable[[], TickGame], seconds: float) -> tuple[float, float]:
    """The same for a game of one match at a time."""
    game = make()
    rng = np.random.default_rng(0)
    decisions, used, choosing, seed = 0, 0.0, 0.0, 0
    while used < seconds:
        mark = time.process_time()
        start = game.reset(seed)
        try:
            start.send(None)
        except StopIteration:
            seed += 1
        used += time.process_time() - mark
        while not game.over:
            for player in game.overdue():
                mark = time.process_time()
                controller = game.controllers[player]
                seen = controller.observe()
                used += time.process_time() - mark
                mark = time.process_time()
                legal = {name: mask[None] for name, mask in seen.legal.items()}
                drawn = random_actions(game.roles[controller.role], legal, 1, rng)
                action = {name: array[0] for name, array in drawn.items()}
                choosing += time.process_time() - mark
                mark = time.process_time()
                controller.act(action)
                used += time.process_time() - mark
                decisions += 1
    return decisions / used, choosing / (used + choosing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=None)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU time of one measurement")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in (*BATCH, *TICK):
        speeds, shares = [], []
        num = BATCH[name][0] if name in BATCH else 1
        for _ in range(arguments.repetitions):
            speed, share = (
                batch_speed(BATCH[name][1], num, arguments.seconds)
                if name in BATCH
                else tick_speed(TICK[name], arguments.seconds)
            )
            speeds.append(speed)
            shares.append(share)
        row: dict[str, Any] = {
            "game": name,
            "matches": num,
            "decisions_per_cpu_second": round(statistics.median(speeds)),
            "lowest": round(min(speeds)),
            "highest": round(max(speeds)),
            "share_of_time_choosing_actions": round(statistics.median(shares), 3),
        }
        if name in TARGETS:
            row["target"] = TARGETS[name]
            row["target_met"] = row["decisions_per_cpu_second"] >= TARGETS[name]
        rows.append(row)
        print(f"{name:28} {row['decisions_per_cpu_second']:>12,} decisions per CPU second")
    result = {
        "machine": machine_facts(),
        "repetitions": arguments.repetitions,
        "games": rows,
    }
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

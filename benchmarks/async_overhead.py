"""What the asynchronous interface costs per decision, against a bare loop over the same games.

Both sides step the same game objects, call the same batched policy and record the same arrays; the bare
loop holds no coroutine, no gate, no seat and no match. CPU time of the process, medians over repetitions.

    python benchmarks/async_overhead.py --out benchmarks/results/async_overhead.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterable, Sequence

import numpy as np

from lamarckian import seeding
from lamarckian.mdp.collector import CollectorSettings, Seating
from lamarckian.mdp.core import Action, Arrays, Discrete, Input, Observation, Role
from lamarckian.mdp.garbage import rare_garbage_collection
from lamarckian.mdp.policy import Decisions, draw_noise
from lamarckian.mdp.tick import TickGame
from lamarckian.mdp.wave_collector import WaveCollector
from machine import machine_facts

LENGTH = 128
LIFE = 200
ROLE = Role(inputs={"vector": Input((4,))}, actions={"move": Discrete(3)})


class Walk(TickGame):
    """One player on a line: a few floating-point operations per tick, lives of ``LIFE`` ticks."""

    roles = {"walker": ROLE}

    def begin(self, rng: np.random.Generator, roles: Sequence[str]) -> Iterable[tuple[str, str]]:
        self.place = float(rng.random())
        self.speed = 0.0
        return [("walker", "w")]

    def view(self, player: str) -> Observation:
        place, speed = self.place, self.speed
        return Observation({"vector": np.array((place, speed, place - 1, speed + 1), np.float32)})

    def tick(self, actions: dict[str, Action]) -> None:
        self.speed = 0.9 * self.speed + 0.1 * (actions["w"]["move"] - 1)
        self.place += self.speed
        self.reward("w", -abs(self.place))
        if self.ticks + 1 == LIFE:
            self.finish("w", truncated=True)


class LinearPolicy:
    """A cheap policy: a linear map and an argmax, so that the interface is what is measured."""

    def __init__(self) -> None:
        self.role = ROLE
        self.version = 0
        self.memory: Arrays = {}
        self._weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)

    def act(
        self,
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        noise: np.ndarray | None,
    ) -> Decisions:
        logits = inputs["vector"] @ self._weights
        assert noise is not None
        move = (logits + noise).argmax(axis=1)
        log_prob = logits[np.arange(len(move)), move]
        return Decisions({"move": move}, {"move": move}, log_prob, logits[:, :1])

    def values(self, inputs: Arrays, state: Arrays, recurrent: Arrays) -> np.ndarray:
        return (inputs["vector"] @ self._weights)[:, :1]


class BareLoop:
    """The same work without the asynchronous interface."""

    def __init__(self, num: int) -> None:
        self.policy = LinearPolicy()
        self.games = [Walk() for _ in range(num)]
        self.rng = seeding.stream(0, "bare")
        self.serial = 0
        for game in self.games:
            self.begin(game)

    def begin(self, game: Walk) -> None:
        # reset() never waits in a TickGame: one step runs it to its end.
        self.serial += 1
        try:
            game.reset(self.serial).send(None)  # type: ignore[attr-defined]
        except StopIteration:
            return

    def collect(self) -> dict[str, np.ndarray]:
        num = len(self.games)
        shape = (LENGTH, num)
        out = {
            "vector": np.zeros((*shape, 4), np.float32),
            "move": np.zeros(shape, np.int64),
            "log_prob": np.zeros(shape, np.float32),
            "values": np.zeros((*shape, 1), np.float32),
            "rewards": np.zeros((*shape, 1), np.float32),
            "elapsed": np.ones(shape, np.int32),
            "terminated": np.zeros(shape, bool),
            "truncated": np.zeros(shape, bool),
            "starts": np.zeros(shape, bool),
            "valid": np.ones(shape, bool),
            "version": np.zeros(shape, np.int64),
        }
        policy = self.policy
        for t in range(LENGTH):
            seen = [game.view("w").inputs["vector"] for game in self.games]
            inputs = {"vector": np.array(seen, dtype=np.float32)}
            decisions = policy.act(inputs, {}, {}, {}, draw_noise(ROLE, num, self.rng))
            out["vector"][t] = inputs["vector"]
            out["move"][t] = decisions.actions["move"]
            out["log_prob"][t] = decisions.log_prob
            out["values"][t] = decisions.values
            moves = decisions.game_actions["move"].tolist()
            rewards = []
            for n, (game, move) in enumerate(zip(self.games, moves)):
                game.tick({"w": {"move": move}})
                game.ticks += 1
                walker = game.controllers["w"]
                rewards.append(walker.rewards)
                walker.rewards = [0.0]
                if not walker.alive:
                    out["truncated"][t, n] = True
                    policy.values({"vector": game.view("w").inputs["vector"][None]}, {}, {})
                    self.begin(game)
            out["rewards"][t] = rewards
        return out


def waves(num: int) -> WaveCollector:
    return WaveCollector(
        Walk,
        Seating({"walker": LinearPolicy()}, {"walker": "walker"}),
        CollectorSettings(num, LENGTH, lambda role: (0.99,), seed=1),
    )


def measure(num: int, repetitions: int, decisions: int) -> dict[str, float]:
    """CPU microseconds per decision of both sides, in turn so that both meet the same machine."""
    rounds = max(1, decisions // (LENGTH * num))
    bare, collector = BareLoop(num), waves(num)
    bare.collect()
    collector.collect()
    costs: dict[str, list[float]] = {"bare": [], "asynchronous": []}
    for _ in range(repetitions):
        mark = time.process_time()
        with (
            rare_garbage_collection()
        ):  # as the scheduler has it: neither side pays for the other's rule
            for _ in range(rounds):
                bare.collect()
        costs["bare"].append((time.process_time() - mark) / (rounds * LENGTH * num) * 1e6)
        before = collector.num_decisions
        mark = time.process_time()
        for _ in range(rounds):
            collector.collect()
        spent = time.process_time() - mark
        costs["asynchronous"].append(spent / (collector.num_decisions - before) * 1e6)
    collector.close()
    result = {f"{name}_us": statistics.median(values) for name, values in costs.items()}
    result["overhead_us"] = statistics.median(
        a - b for a, b in zip(costs["asynchronous"], costs["bare"])
    )
    return {name: round(value, 3) for name, value in result.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out")
    parser.add_argument("--controllers", type=int, nargs="+", default=[1, 16, 256, 4096])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=150_000)
    options = parser.parse_args()
    rows = []
    for num in options.controllers:
        decisions = options.decisions if num >= 256 else options.decisions // 10
        row = {"controllers": num, **measure(num, options.repetitions, decisions)}
        rows.append(row)
        print(json.dumps(row), flush=True)
    report = {
        "benchmark": "async_overhead",
        "unit": "CPU microseconds per decision, median",
        "target": {"controllers": 256, "overhead_us": 5.0},
        "repetitions": options.repetitions,
        "life_length": LIFE,
        "results": rows,
        "machine": machine_facts(),
    }
    if options.out:
        os.makedirs(os.path.dirname(options.out) or ".", exist_ok=True)
        with open(options.out, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()

"""How well and how fast PPO learns, over seeds, and beside Stable-Baselines3 at equal frames.

    python benchmarks/learning.py --peer-python peers/bin/python
    python benchmarks/learning.py --algorithm dqn --games cartpole

Every game is learned from scratch with its preset, over ``--seeds`` seeds; the last policy of each run is
measured, greedily, on 100 episodes of its own. The interval is the 95 % one of Student's t over seeds.

Sample efficiency: Gymnasium's CartPole-v1 and Pendulum-v1, both sides trained for the same frames and
measured in the same way at the same frames, a tenth of the budget apart. Stable-Baselines3 has the tuned
settings of its zoo (``learning_peer.py``). The number compared is the mean of the curve, so that learning
early counts.

Targets: CartPole 500, Pendulum -180, vector Pong score 0.95 against the rule bot. To install the
peer, see ``ppo_throughput.py``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lamarckian import config
from lamarckian.rl.presets import preset
from lamarckian.runs.training import TrainingRun, train
from machine import load, machine_facts

RESULTS = Path(__file__).parent / "results"
EPISODES = 100

TARGETS: dict[str, tuple[str, float]] = {
    "cartpole": ("return_mean", 500.0),
    "pendulum": ("return_mean", -180.0),
    "pong": ("score", 0.95),
}
EFFICIENCY = {"CartPole-v1": 100_000, "Pendulum-v1": 100_000}

# The two-sided 95 % quantile of Student's t by degrees of freedom.
STUDENT = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
}


class Curve:
    """A recorder that keeps what evaluations found."""

    def __init__(self) -> None:
        self.points: list[dict[str, float]] = []

    def record(self, event: str, fields: Mapping[str, Any]) -> None:
        if event == "evaluation":
            point = {"frames": fields["frames"], "score": fields["score"]}
            self.points.append(point | {"return_mean": fields["metrics"]["return_mean"]})

    def close(self) -> None:
        """Nothing is held back."""


def learn(
    game: str, seed: int, algorithm: str = "ppo", **settings: Any
) -> tuple[list[dict[str, float]], float]:
    """Train once; return the evaluations and the processor seconds of it all."""
    curve, spent = Curve(), time.process_time()
    record = config.build(
        TrainingRun,
        {
            "game": game,
            "seed": seed,
            "checkpoint_every": 0,
            "torch_threads": 1,
            "evaluation.episodes": EPISODES,
            **preset(algorithm, game),
            **settings,
        },
    )
    with tempfile.TemporaryDirectory() as folder:
        train(record, Path(folder) / "run", recorders=lambda _: [curve])
    return curve.points, time.process_time() - spent


def interval(values: list[float]) -> dict[str, Any]:
    """Return mean and 95 % interval over seeds."""
    mean = statistics.mean(values)
    half = 0.0
    if len(values) > 1:
        half = STUDENT[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return {
        "mean": round(mean, 3),
        "low": round(mean - half, 3),
        "high": round(mean + half, 3),
        "seeds": [round(value, 3) for value in values],
    }


def targets(game: str, seeds: int, frames: int, algorithm: str = "ppo") -> dict[str, Any]:
    """Learn one game over seeds and compare the last policies with its target."""
    key, target = TARGETS[game]
    values, seconds = [], []
    for seed in range(seeds):
        points, spent = learn(game, seed, algorithm, frames=frames)
        values.append(points[-1][key])
        seconds.append(spent)
        print(f"  {game} seed {seed}: {key} {values[-1]:.2f} in {spent:.0f} CPU s", flush=True)
    found = interval(values)
    return {
        "algorithm": algorithm,
        "game": game,
        "measured": key,
        "target": target,
        "frames": frames,
        "cpu_seconds": round(statistics.median(seconds), 1),
        **found,
        "met": found["mean"] >= target,
    }


def efficiency(name: str, seeds: int, frames: int, peer_python: str) -> dict[str, Any]:
    """Compare the mean of both learning curves at equal frames, seed by seed in turn."""
    curves: dict[str, list[list[float]]] = {"lamarckian": [], "stable-baselines3": []}
    for seed in range(seeds):
        points, _ = learn(f"gym:{name}", seed, frames=frames, **{"evaluation.every": frames // 10})
        curves["lamarckian"].append([point["return_mean"] for point in points[:10]])
        script = Path(__file__).parent / "learning_peer.py"
        command = [peer_python, str(script), name, str(seed), str(frames), str(EPISODES)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        curves["stable-baselines3"].append(json.loads(done.stdout.splitlines()[-1]))
        means = {side: statistics.mean(found[-1]) for side, found in curves.items()}
        print(
            f"  {name} seed {seed}: " + ", ".join(f"{k} {v:.1f}" for k, v in means.items()),
            flush=True,
        )
    areas = {side: interval([statistics.mean(c) for c in found]) for side, found in curves.items()}
    final = {side: interval([c[-1] for c in found]) for side, found in curves.items()}
    return {
        "game": name,
        "frames": frames,
        "mean_of_curve": areas,
        "at_the_end": final,
        "no_worse": areas["lamarckian"]["mean"] >= areas["stable-baselines3"]["mean"],
        "curves": {
            side: [round(statistics.mean(at), 2) for at in zip(*found, strict=False)]
            for side, found in curves.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--algorithm", default="ppo", help="whose presets are tried; others: no peer"
    )
    parser.add_argument("--games", nargs="*", choices=[*TARGETS], default=[*TARGETS])
    parser.add_argument("--compare", nargs="*", choices=[*EFFICIENCY], default=[*EFFICIENCY])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peer-python", help="interpreter with Stable-Baselines3")
    parser.add_argument("--share", type=float, default=1.0, help="share of the frames, to try out")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the JSON goes")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)

    def keep(name: str, facts: dict[str, Any], result: dict[str, Any]) -> None:
        report = {"benchmark": name, "episodes": EPISODES, "num_seeds": arguments.seeds, **result}
        report["machine"] = facts | {"load_average_after": load()}
        (arguments.folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")

    for game in arguments.games:
        facts = machine_facts("gymnasium")
        algorithm = arguments.algorithm
        frames = int(preset(algorithm, game)["frames"] * arguments.share)
        result = targets(game, arguments.seeds, frames, algorithm)
        print(
            f"{game}: {result['mean']:g} ({result['low']:g} to {result['high']:g}) after "
            f"{result['frames']:,} frames; target {result['target']:g}: "
            f"{'met' if result['met'] else 'MISSED'}",
            flush=True,
        )
        keep(f"learning_{game if algorithm == 'ppo' else f'{algorithm}_{game}'}", facts, result)
    if arguments.peer_python is None or arguments.algorithm != "ppo":
        print("Stable-Baselines3 is left out: it is compared with ppo, and needs --peer-python")
        return
    for name in arguments.compare:
        facts = machine_facts("gymnasium")
        frames = int(EFFICIENCY[name] * arguments.share)
        result = efficiency(name, arguments.seeds, frames, arguments.peer_python)
        keep(f"learning_{name.partition('-')[0].lower()}_peer", facts, result)
        found = result["mean_of_curve"]
        print(
            f"{name}, mean of the curve over {frames:,} frames: "
            + ", ".join(
                f"{k} {v['mean']:g} ({v['low']:g} to {v['high']:g})" for k, v in found.items()
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()

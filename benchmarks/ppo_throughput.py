"""PPO throughput of Lamarckian beside RLlib, Stable-Baselines3 and a bare loop, in one run.

    python benchmarks/ppo_throughput.py --peer-python peers/bin/python

The peers live in an environment of their own, so that their pins do not meet ours; without
``--peer-python`` only Lamarckian and the bare loops run:

    python3 -m venv peers
    peers/bin/pip install "ray[rllib]==2.60.0" "stable-baselines3==2.9.2" torch gymnasium ale-py \\
        opencv-python-headless psutil

Cases (all: one epoch over a batch that is one optimiser step, the network of Table III of the Lamarckian
paper, discount 0.99, clip 0.2, learning rate 0.01):

``pendulum``  Gymnasium's Pendulum-v1 as scalar environments, and as a native batch game; batch 8192.
``cartpole``  the native batch CartPole; batch 8192.
``ale``       Atari Pong as 84 x 84 x 4 images, four K4S2 convolutions and 256 units; batch 1024.
``pong``      vector Pong against the rule bot; batch 8192.

Every side is a warm process of its own (``ppo_sides.py``); one repetition measures each side once, in
turn. First the settings of each peer are tried once, and the fastest per wall second and per CPU second go
on. A ratio is the median of the ratios within repetitions. ``per_cpu_second`` counts the processor time of
all processes of a side. One file per case is written to ``--folder``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import load, machine_facts, versions
from ppo_sides import Side, SideFailed

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Spec:
    """How one side is started. ``library``: who it is; ``samples`` per measurement."""

    library: str
    settings: dict[str, Any]
    threads: int = 1

    @property
    def script(self) -> str:
        return {"lamarckian": "ppo_ours.py", "loop": "ppo_roofline.py"}.get(
            self.library, "ppo_peer.py"
        )


@dataclass(frozen=True)
class Case:
    """Fixed sides by name, candidates by peer, and the ratios that are wanted.

    ``wanted``: (numerator, denominator, unit, target).
    """

    samples: int
    sides: dict[str, Spec]
    peers: dict[str, list[Spec]] = field(default_factory=dict)
    wanted: list[tuple[str, str, str, float]] = field(default_factory=list)
    least: dict[str, float] = field(default_factory=dict)


def ours(game: str, games: int, batch: int, micro: int = 0, **more: Any) -> Spec:
    settings: dict[str, Any] = {
        "game": game,
        "algorithm.num_games": games,
        "algorithm.fragment_length": batch // games,
        "algorithm.num_epochs": 1,
        "algorithm.minibatch_size": 0,
        "algorithm.microbatch_size": micro,
        "algorithm.learning_rate": 0.01,
        "torch_threads": 1,
    }
    if game.startswith("ale"):
        settings |= {"game_options.num_threads": 1, "algorithm.network.hidden": []}
        settings |= {"algorithm.network.critic_hidden": [256, 128, 128, 64]}
    return Spec("lamarckian", settings | more)


def loop(game: str, games: int, batch: int, micro: int = 0) -> Spec:
    return Spec(
        "loop",
        {
            "game": game,
            "num_games": games,
            "fragment_length": batch // games,
            "microbatch_size": micro,
        },
    )


def peer(library: str, game: str, batch: int, envs: int, runners: int = 0, **more: Any) -> Spec:
    settings = {"library": library, "game": game, "batch": batch, "num_envs": envs}
    if library != "sb3":
        settings["num_runners"] = runners
    return Spec(library, settings | more)


GYM = "gym:Pendulum-v1"
TWO_ACTORS = {"placement": "processes", "num_actors": 2, "allow_oversubscription": True}
IMAGE = {"game": "ale:Pong", "games": 32, "batch": 1024, "micro": 256}

CASES = {
    "pendulum": Case(
        16_384,
        {
            "scalar": ours(GYM, 64, 8192),
            "scalar, 2 actors": ours(GYM, 64, 8192, **TWO_ACTORS),
            "scalar, bare loop": loop(GYM, 64, 8192),
            "native": ours("pendulum", 256, 8192),
            "native, bare loop": loop("pendulum", 256, 8192),
        },
        {
            "sb3": [peer("sb3", GYM, 8192, envs) for envs in (8, 32, 64)],
            "rllib": [
                peer("rllib", GYM, 8192, envs, runners)
                for runners, envs in ((0, 8), (0, 32), (1, 8), (1, 32), (2, 16), (2, 32))
            ],
        },
        [
            ("scalar", "rllib", "per_cpu_second", 3.0),
            ("scalar", "rllib", "per_second", 3.0),
            ("scalar, 2 actors", "rllib", "per_second", 3.0),
            ("scalar", "sb3", "per_cpu_second", 2.0),
            ("scalar", "sb3", "per_second", 2.0),
            ("scalar, 2 actors", "sb3", "per_second", 2.0),
            ("scalar", "scalar, bare loop", "per_cpu_second", 0.75),
            ("native", "rllib", "per_cpu_second", 12.0),
            ("native", "rllib", "per_second", 12.0),
            ("native", "native, bare loop", "per_cpu_second", 0.8),
        ],
    ),
    "cartpole": Case(
        32_768,
        {
            "native": ours("cartpole", 256, 8192),
            "native, bare loop": loop("cartpole", 256, 8192),
        },
        {"rllib": [peer("rllib", "gym:CartPole-v1", 8192, 32, runners) for runners in (0, 1)]},
        [
            ("native", "rllib", "per_cpu_second", 12.0),
            ("native", "rllib", "per_second", 12.0),
            ("native", "native, bare loop", "per_cpu_second", 0.8),
        ],
    ),
    "ale": Case(
        1024,
        {"image": ours(**IMAGE), "image, bare loop": loop(**IMAGE)},
        {
            "sb3": [peer("sb3", "ale:Pong", 1024, envs) for envs in (8, 32)],
            "rllib": [
                peer("rllib", "ale:Pong", 1024, envs, runners)
                for runners, envs in ((0, 16), (1, 16))
            ],
            "rllib-appo": [
                peer("rllib-appo", "ale:Pong", 512, 8, runners, fragment=32) for runners in (1, 2)
            ],
        },
        [
            ("image", "rllib", "per_cpu_second", 4.0),
            ("image", "rllib-appo", "per_cpu_second", 4.0),
            ("image", "sb3", "per_cpu_second", 2.0),
            ("image", "image, bare loop", "per_cpu_second", 0.8),
        ],
    ),
    "pong": Case(
        65_536,
        {"native": ours("pong", 256, 8192), "native, bare loop": loop("pong", 256, 8192)},
        {},
        [("native", "native, bare loop", "per_cpu_second", 0.8)],
        {"native": 20_000.0},
    ),
}

Measured = dict[str, float]


class Runner:
    """Starts sides with the right interpreter and keeps what they measured."""

    def __init__(self, peer_python: str | None, quick: bool) -> None:
        self.peer_python = peer_python
        self.quick = quick

    def start(self, name: str, spec: Spec) -> Side:
        peer_side = spec.script == "ppo_peer.py"
        python = self.peer_python if peer_side and self.peer_python else sys.executable
        return Side(name, python, spec.script, spec.settings, spec.threads)

    def search(self, case: Case) -> tuple[dict[str, Spec], list[dict[str, Any]]]:
        """Try each candidate of each peer once; return the ones that go on, and the table."""
        chosen: dict[str, Spec] = {}
        table: list[dict[str, Any]] = []
        if self.peer_python is None:
            return chosen, table
        for name, candidates in case.peers.items():
            found: list[tuple[Measured, Spec]] = []
            for spec in candidates[:1] if self.quick else candidates:
                try:
                    side = self.start(name, spec)
                    try:
                        side.wait_until_ready()
                        measured = side.measure(spec.settings["batch"])
                    finally:
                        side.close()
                except SideFailed as error:
                    print(f"  {error}", flush=True)
                    table.append({"peer": name, **spec.settings, "failed": str(error)[:300]})
                    continue
                found.append((measured, spec))
                table.append({"peer": name, **spec.settings, **_rounded(measured)})
                print(f"  tried {_row(f'{name} {_short(spec)}', measured)}", flush=True)
            for unit in ("per_cpu_second", "per_second") if found else ():
                best = max(found, key=lambda entry: entry[0][unit])[1]
                chosen[f"{name}|{unit}"] = best
        return chosen, table

    def measure(self, name: str, case: Case, repetitions: int) -> dict[str, Any]:
        """Run one case and return its report."""
        facts = machine_facts("gymnasium", "ale-py")
        best, table = self.search(case)
        specs = dict(case.sides)
        alias: dict[str, str] = {}
        for key, spec in best.items():
            title = f"{key.partition('|')[0]}: {_short(spec)}"
            specs[title] = spec
            alias[key] = title
        sides: dict[str, Side] = {}
        found: dict[str, list[Measured]] = {}
        samples = case.samples // 4 if self.quick else case.samples
        try:
            for title, spec in specs.items():
                sides[title] = self.start(title, spec)
                found[title] = []
            for side in sides.values():
                side.wait_until_ready()
            for number in range(repetitions):
                for title, side in list(sides.items()):
                    # A peer that is ten times slower need not run ten times longer.
                    least = specs[title].settings.get("batch", samples)
                    try:
                        measured = side.measure(min(samples, max(least, samples // 4)))
                    except SideFailed as error:
                        if specs[title].script != "ppo_peer.py":
                            raise
                        print(f"  {error}", flush=True)
                        del found[title]
                        sides.pop(title).close()
                        continue
                    found[title].append(measured)
                    if number == repetitions - 1:
                        print(f"  {_row(title, _medians(found[title]))}", flush=True)
        finally:
            for side in sides.values():
                side.close()
        ratios = [
            row
            for one, other, unit, target in case.wanted
            if (row := _ratio(found, alias, one, other, unit, target)) is not None
        ]
        for title, target in case.least.items():
            value = _medians(found[title])["per_cpu_second"]
            ratios.append(
                {
                    "of": title,
                    "unit": "per_cpu_second",
                    "value": round(value),
                    "target": target,
                    "met": value >= target,
                }
            )
        for row in ratios:
            print(f"  {_sentence(row)}", flush=True)
        return {
            "benchmark": f"ppo_{name}",
            "unit": "samples per wall second, samples per CPU second of all processes; medians",
            "machine": facts | {"load_average_after": load()},
            "peers": self.peer_versions(),
            "repetitions": repetitions,
            "samples_per_repetition": samples,
            "ratios": ratios,
            "sides": {
                title: {
                    "library": specs[title].library,
                    **_rounded(_medians(values)),
                    "all": [_rounded(value) for value in values],
                    "settings": specs[title].settings,
                }
                for title, values in found.items()
            },
            "tried": table,
        }

    def peer_versions(self) -> dict[str, str]:
        """Ask the peers' interpreter for the versions of what matters."""
        if self.peer_python is None:
            return {}
        names = ("ray", "stable-baselines3", "torch", "gymnasium", "ale-py", "numpy")
        if self.peer_python == sys.executable:
            return versions(*names)
        code = (
            "import json; from importlib.metadata import version; "
            f"print(json.dumps({{n: version(n) for n in {names!r}}}))"
        )
        done = subprocess.run(
            [self.peer_python, "-c", code], capture_output=True, text=True, check=False
        )
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def _ratio(
    found: dict[str, list[Measured]],
    alias: dict[str, str],
    one: str,
    other: str,
    unit: str,
    target: float,
) -> dict[str, Any] | None:
    against = alias.get(f"{other}|{unit}", other)
    if one not in found or against not in found:
        return None
    each = [a[unit] / b[unit] for a, b in zip(found[one], found[against], strict=True)]
    value = statistics.median(each)
    return {
        "of": one,
        "to": against,
        "unit": unit,
        "ratio": round(value, 3),
        "lowest": round(min(each), 3),
        "highest": round(max(each), 3),
        "target": target,
        "met": value >= target,
    }


def _short(spec: Spec) -> str:
    settings = spec.settings
    runners = f"{settings['num_runners']} runners x " if "num_runners" in settings else ""
    return f"{runners}{settings['num_envs']} environments"


def _medians(values: list[Measured]) -> Measured:
    return {key: statistics.median(v[key] for v in values) for key in values[0]}


def _rounded(values: Measured) -> Measured:
    return {key: round(value, 1) for key, value in values.items()}


def _row(title: str, values: Measured) -> str:
    return (
        f"{title:40} {values['per_second']:>10,.0f} per second "
        f"{values['per_cpu_second']:>10,.0f} per CPU second"
    )


def _sentence(row: dict[str, Any]) -> str:
    verdict = "met" if row["met"] else "MISSED"
    unit = row["unit"].replace("_", " ").replace("cpu", "CPU")
    if "ratio" in row:
        return (
            f"{row['of']} / {row['to']} {unit}: {row['ratio']:.2f} "
            f"({row['lowest']:.2f} to {row['highest']:.2f}); target {row['target']:g}: {verdict}"
        )
    return f"{row['of']} {unit}: {row['value']:,}; target {row['target']:,.0f}: {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=[*CASES], default=[*CASES])
    parser.add_argument("--peer-python", help="interpreter with RLlib and Stable-Baselines3")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one setting per peer, short runs")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the JSON goes")
    arguments = parser.parse_args()
    if arguments.peer_python is None:
        print("no --peer-python: RLlib and Stable-Baselines3 are left out")
    runner = Runner(arguments.peer_python, arguments.quick)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.cases:
        print(f"{name}:", flush=True)
        report = runner.measure(name, CASES[name], arguments.repetitions)
        path = arguments.folder / f"ppo_{name}.json"
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

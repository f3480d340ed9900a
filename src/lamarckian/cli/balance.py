"""``lamarckian balance``: find lineups that are imbalanced, and who is to blame."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lamarckian.cli import output
from lamarckian.errors import ConfigError


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "balance",
        help="search a game's lineups for imbalance and find who is to blame",
        description="Evolve lineups whose teams are far apart (NSGA-II, three objectives), compare with "
        "random lineups which heroes, soldiers, skills and equipment make teams too strong, and with "
        "--rounds weaken those and search again.",
    )
    parser.add_argument("--data", help="YAML file with heroes, soldiers, skills, equipment, rules")
    parser.add_argument(
        "--simulator", default="", help="module:function that fights the battles instead"
    )
    parser.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="KIND:NAME=FACTOR",
        help="make an entry stronger or weaker, e.g. hero:Corrin=0.9; again for more",
    )
    parser.add_argument("--population", type=int, default=100, help="lineups kept")
    parser.add_argument("--generations", type=int, default=250, help="selections of each search")
    parser.add_argument("--lineups", type=int, default=4000, help="random lineups of the census")
    parser.add_argument("--rounds", type=int, default=1, help="searches at most; see --nerf")
    parser.add_argument(
        "--nerf", type=float, default=0.9, help="factor for whoever stands out, between rounds"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random")
    parser.add_argument("--run", type=Path, help="folder of the rounds (default: runs/balance-N)")
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Balance; 0, or 130 if it was interrupted (the same command goes on)."""
    from lamarckian.runs.balancing import Plan, balance
    from lamarckian.runs.display import ConsoleRecorder

    plan = Plan(
        data=namespace.data,
        simulator=namespace.simulator,
        changes=dict(_change(text) for text in namespace.change),
        population=namespace.population,
        generations=namespace.generations,
        lineups=namespace.lineups,
        rounds=namespace.rounds,
        nerf=namespace.nerf,
        seed=namespace.seed,
    )
    folder = namespace.run or _free_folder()
    namespace.run_folder = None

    def recorders(settings: Any) -> Any:
        return lambda run: [
            ConsoleRecorder(
                title=f"balancing · {run.name}",
                target_frames=None,
                unit="evaluations",
                verbosity=output.verbosity(namespace),
            )
        ]

    rounds = balance(plan, folder, recorders=recorders, command=sys.argv[1:])
    document = {"run": str(folder), "rounds": [each.to_json() for each in rounds]}
    output.emit(namespace, document, "\n".join(_told(rounds)))
    planned = plan.generations * plan.population
    return 0 if rounds[-1].evaluations >= planned else 130


def _change(text: str) -> tuple[str, float]:
    key, equals, factor = text.rpartition("=")
    try:
        return key, float(factor if equals else "")
    except ValueError:
        raise ConfigError(
            f"--change: expected KIND:NAME=FACTOR, e.g. hero:Corrin=0.9, got {text!r}"
        ) from None


def _free_folder() -> Path:
    number = 0
    while (folder := Path("runs") / f"balance-{number}").exists():
        number += 1
    return folder


def _told(rounds: Sequence[Any]) -> list[str]:
    lines = []
    for number, each in enumerate(rounds):
        best = ", ".join(f"{name} {value:.3g}" for name, value in each.best.items())
        lines += [
            f"round {number}: {each.evaluations:,} lineups in {each.seconds:.1f} s; front of "
            f"{each.front_size}, {each.imbalanced} imbalanced; at most {best}",
        ]
        if each.changes:
            changed = ", ".join(f"{key} x {value:g}" for key, value in each.changes.items())
            lines.append(f"  changed: {changed}")
        rows = [
            (
                finding.key,
                f"{finding.in_strongest} of {finding.count}",
                finding.lift,
                f"{finding.p_value:.1e}",
                f"{100 * each.front_share.get(finding.key, 0.0):.0f} %",
            )
            for finding in each.exposed
        ]
        if rows:
            heads = ("stands out", "in strongest team", "times chance", "p-value", "of the front")
            lines.append(output.table(rows, heads))
        else:
            lines.append("  nothing stands out beyond chance")
    return lines

"""``lamarckian check-game``: play a game at random and name what is wrong with it."""

from __future__ import annotations

import argparse
from typing import Any

from lamarckian.cli import output
from lamarckian.errors import ConfigError


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "check-game",
        help="check a game and name what is wrong with it",
        description="Play a game at random and compare all it returns with what it declares. "
        "Exit code 2 if something must be mended.",
    )
    parser.add_argument(
        "game",
        help="a name from 'lamarckian games', gym:ID, gymvec:ID, ale:NAME, pettingzoo:FAMILY/NAME, "
        "envpool:ID or package.module:Name; options follow a question mark: ale:Pong?obs=ram",
    )
    parser.add_argument("--episodes", type=int, default=3, help="episodes to play (3)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first match (0)")
    parser.add_argument(
        "--deadline", type=float, default=10.0, help="seconds a single call may take (10)"
    )
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Print the report; return 2 if the game has problems."""
    from lamarckian.mdp.checking import check_game

    if namespace.episodes < 1 or namespace.deadline <= 0:
        raise ConfigError("--episodes must be at least 1 and --deadline above 0")
    report = check_game(
        namespace.game,
        episodes=namespace.episodes,
        seed=namespace.seed,
        deadline=namespace.deadline,
    )
    output.emit(namespace, report.as_dict(), _text(report))
    if report.ok:
        return 0
    if not namespace.json:
        count = len(report.problems)
        listed = "".join(f"\n  - {problem}" for problem in report.problems)
        output.note(f"lamarckian: {namespace.game}: {count} problem(s){listed}")
    return 2


def _text(report: Any) -> str:
    lines = [f"{report.game}: {'ok' if report.ok else 'has problems'}"]
    for name, role in report.roles.items():
        lines.append(f"  role {name}, {role['seats']} seat(s)")
        lines += [f"    sees {key}: {text}" for key, text in role["inputs"].items()]
        lines += [f"    does {key}: {text}" for key, text in role["actions"].items()]
    if report.decisions:
        lines.append(
            f"  {report.episodes} episodes ended, {report.decisions} decisions, "
            f"{report.decisions_per_second:,.0f} decisions per second"
        )
    for label, value in (("deterministic", report.deterministic), ("exact", report.exact_state)):
        if value is not None:
            words = {"deterministic": "equal seeds, equal matches", "exact": "exact resume"}
            lines.append(f"  {words[label]}: {'yes' if value else 'no'}")
    lines += [f"  note: {note}" for note in report.notes]
    return "\n".join(lines)

"""``lamarckian games``: the games that can be played by name."""

from __future__ import annotations

import argparse
from typing import Any

from lamarckian.cli import output
from lamarckian.errors import LamarckianError


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "games",
        help="list the games",
        description="List the games with their roles, what a player sees and does, and their options.",
    )
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Print the table of games."""
    from lamarckian.mdp.catalogue import GAMES, PREFIXES

    games = {name: _describe(name) for name in GAMES}
    prefixes = {prefix: example for prefix, (_, example) in PREFIXES.items()}
    document = {"games": games, "prefixes": prefixes}
    output.emit(namespace, document, _text(games, prefixes))
    return 0


def _describe(name: str) -> dict[str, Any]:
    from lamarckian.mdp.batch_game import BatchGame
    from lamarckian.mdp.catalogue import GAMES, make_game, option_names, resolve
    from lamarckian.mdp.checking_values import describe_role

    try:
        made = make_game(name, 1)
    except LamarckianError as error:  # an optional package is missing: the others can be listed
        return {"summary": GAMES[name].summary, "unavailable": str(error)}
    game = made if isinstance(made, BatchGame) else made[0]
    try:
        return {
            "summary": GAMES[name].summary,
            "kind": "batch" if isinstance(game, BatchGame) else "mdp",
            "roles": {role: describe_role(item) for role, item in game.roles.items()},
            "bots": [*game.bots, "random"],
            "options": option_names(resolve(name).make),
        }
    finally:
        game.close()


def _text(games: dict[str, Any], prefixes: dict[str, str]) -> str:
    lines: list[str] = []
    for name, game in games.items():
        lines.append(f"{name}: {game['summary']}")
        if "unavailable" in game:
            lines.append(f"  not available: {game['unavailable']}")
            continue
        for role, item in game["roles"].items():
            sees = ", ".join(f"{key} ({text})" for key, text in item["inputs"].items())
            does = ", ".join(f"{key} ({text})" for key, text in item["actions"].items())
            lines.append(f"  {role} x{item['seats']}: sees {sees}; does {does}")
        lines.append(f"  bots: {', '.join(game['bots'])}")
        if game["options"]:
            lines.append(f"  options: {', '.join(game['options'])}")
    lines.append("")
    lines.append("Others by prefix: " + ", ".join(prefixes.values()))
    lines.append("Your own: package.module:Name (a BatchGame, MDP, Gymnasium or PettingZoo class).")
    return "\n".join(lines)

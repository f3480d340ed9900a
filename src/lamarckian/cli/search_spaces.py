"""``lamarckian search-spaces``: what evolves in each problem and game."""

from __future__ import annotations

import argparse
from typing import Any

from lamarckian.cli import output
from lamarckian.errors import LamarckianError


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "search-spaces",
        help="list what evolves in each problem and game",
        description="List the parts of a decision, the objectives and the searches that fit, for "
        "all numeric problems, or for the problem, game or evaluator that is named.",
    )
    parser.add_argument("problem", nargs="?", help="a problem, a game, or module:Name")
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Print the search spaces."""
    from lamarckian.evorl.problems import STYLES, kind_of
    from lamarckian.mdp.catalogue import GAMES
    from lamarckian.problems.catalogue import PROBLEMS

    if namespace.problem is not None:
        document = {namespace.problem: _describe(namespace.problem, kind_of(namespace.problem))}
        output.emit(namespace, document, _text(document))
        return 0
    document = {name: _describe(name, "problem") for name in PROBLEMS}
    text = _text(document)
    text += f"\n\nGames, whose players are trained and evolved: {', '.join(GAMES)}."
    text += f"\nTheir styles, where a game declares behaviours: {', '.join(STYLES)}, styles:GAME."
    text += "\nOne of them, or your own: lamarckian search-spaces cartpole | my_module:MyProblem"
    whole: dict[str, Any] = {"problems": document, "games": list(GAMES), "styles": list(STYLES)}
    output.emit(namespace, whole, text)
    return 0


def _describe(name: str, kind: str) -> dict[str, Any]:
    from lamarckian.ec import SEARCHES
    from lamarckian.ec.support import misfits
    from lamarckian.evaluator import kind_of
    from lamarckian.evorl.problems import checked, make_evaluator

    try:
        encoding = checked(make_evaluator(name, {}, None), name).describe()
    except LamarckianError as error:
        if kind == "problem":
            return {"unavailable": str(error)}
        raise
    return {
        "parts": {part_name: describe_part(part) for part_name, part in encoding.parts.items()},
        "kinds": {part_name: kind_of(part) for part_name, part in encoding.parts.items()},
        "objectives": {each.name: each.direction for each in encoding.objectives},
        "constraints": list(encoding.constraints),
        "descriptors": [each.name for each in encoding.descriptors],
        "searches": [search for search in SEARCHES if not misfits(search, encoding)],
    }


def describe_part(part: Any) -> str:
    """Return one line about a part of a decision."""
    from lamarckian.evaluator import kind_of

    kind = kind_of(part)
    if kind == "permutation":
        return f"permutation of {part.num_chosen} of {part.num_items} items"
    if kind == "blob":
        return f"{len(part.shapes)} arrays, {part.size:,} numbers"
    many = f"{part.size} x " if part.shape else ""
    if kind == "categorical":
        return f"{many}one of {', '.join(map(str, part.choices))}"

    def bound(value: Any) -> str:
        return f"{value:g}" if isinstance(value, (int, float)) else f"{min(value):g}…"

    scale = ", log scale" if getattr(part, "scale", "") == "log" else ""
    high = part.high if isinstance(part.high, (int, float)) else max(part.high)
    return f"{many}{kind} from {bound(part.low)} to {high:g}{scale}"


def _text(document: dict[str, Any]) -> str:
    lines = []
    for name, space in document.items():
        if "unavailable" in space:
            lines.append(f"{name}: not available: {space['unavailable']}")
            continue
        parts = "; ".join(f"{part} ({text})" for part, text in space["parts"].items())
        goals = ", ".join(f"{way} {goal}" for goal, way in space["objectives"].items())
        lines.append(f"{name}: {parts}")
        lines.append(f"  {goals}; searches: {', '.join(space['searches'])}")
    return "\n".join(lines)

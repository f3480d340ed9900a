"""``lamarckian front``: the best individuals of an evolution."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lamarckian.cli import output
from lamarckian.errors import RunError


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "front",
        help="list the best individuals of an evolution",
        description="List the individuals of the last selection that nobody dominates, the best in "
        "the first objective first. With one objective: the best individual.",
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument(
        "--population", action="store_true", help="list the whole population instead"
    )
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Print the front. Raises RunError for a run that is none of evolution."""
    from lamarckian.runs import individuals
    from lamarckian.runs.folder import Run

    folder = Run.open(namespace.run)
    encoding = individuals.encoding_of(folder)
    selections = [entry for entry in folder.replay() if entry.event == "generation"]
    if not selections:
        raise RunError(f"{namespace.run}: no selection has taken place yet")
    last = selections[-1].fields
    everyone = individuals.read_all(folder)
    ids = [int(each) for each in last["population" if namespace.population else "front"]]
    members = [everyone[each] for each in ids if each in everyone]
    names = [objective.name for objective in encoding.objectives]
    sign = encoding.costs(individuals.ones(len(names)))
    members.sort(key=lambda each: (sign * individuals.floats(each.objectives)).tolist())
    document = {
        "run": str(namespace.run),
        "generation": last["generation"],
        "evaluations": last["evaluations"],
        "hypervolume": last["metrics"].get("hypervolume"),
        "individuals": [
            {
                "id": each.id,
                "objectives": dict(zip(names, each.objectives)),
                "generation": each.generation,
                "origin": list(each.operators),
                "parents": list(each.parents),
                "decision": individuals.readable(each.decision, encoding),
                "statistics": each.statistics,
                "weights": each.weights,
            }
            for each in members
        ],
    }
    rows = [
        (
            each.id,
            *(float(value) if value is not None else None for value in each.objectives),
            each.generation,
            "+".join(each.operators),
            short(individuals.readable(each.decision, encoding)),
        )
        for each in members
    ]
    text = output.table(rows, ("id", *names, "generation", "origin", "decision"))
    output.emit(namespace, document, text)
    return 0


def short(decision: dict[str, Any], limit: int = 60) -> str:
    """Return a decision as text, cut at ``limit`` characters."""
    parts = []
    for name, value in decision.items():
        if isinstance(value, list):
            shown = ", ".join(_number(each) for each in value[:4])
            parts.append(f"{name}=[{shown}{', …' if len(value) > 4 else ''}]")
        else:
            parts.append(f"{name}={_number(value)}")
    text = " ".join(parts)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

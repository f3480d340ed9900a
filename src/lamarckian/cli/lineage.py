"""``lamarckian lineage``: where an individual comes from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lamarckian.cli import output
from lamarckian.cli.front import short
from lamarckian.errors import UnknownName


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "lineage",
        help="show where an individual comes from",
        description="Follow an individual back to the first generation: along the line from which "
        "it inherited its weights (the first parent), with operators, hyperparameters and "
        "objectives; --all lists every ancestor.",
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("id", help="number of an individual, or front:N (see 'lamarckian front')")
    parser.add_argument("--all", action="store_true", help="all ancestors, not only the line")
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Print the lineage. Raises UnknownName for an individual that is not there."""
    from lamarckian.runs import individuals
    from lamarckian.runs.folder import Run
    from lamarckian.runs.players import identifier_of

    folder = Run.open(namespace.run)
    encoding = individuals.encoding_of(folder)
    everyone = individuals.read_all(folder)
    identifier = identifier_of(folder, namespace.id)
    if identifier not in everyone:
        raise UnknownName(
            f"{namespace.run}: there is no individual {identifier}; ids go from 0 to "
            f"{max(everyone, default=0)}"
        )
    chosen = individuals.ancestors(everyone, identifier, whole=namespace.all)
    names = [objective.name for objective in encoding.objectives]
    document = {
        "run": str(namespace.run),
        "id": identifier,
        "lineage": [
            {
                "id": each.id,
                "parents": list(each.parents),
                "origin": list(each.operators),
                "generation": each.generation,
                "status": each.status,
                "objectives": dict(zip(names, each.objectives)),
                "decision": individuals.readable(each.decision, encoding),
                "inherits_from": _donor(each, encoding),
                "writes_back": list(each.written),
                "weights": each.weights,
            }
            for each in chosen
        ],
    }
    rows = [
        (
            each.id,
            "+".join(each.operators),
            ", ".join(map(str, each.parents)),
            _donor(each, encoding),
            *(float(v) if v is not None else None for v in (*each.objectives, None)[: len(names)]),
            short(individuals.readable(each.decision, encoding), 80),
        )
        for each in chosen
    ]
    heads = ("id", "origin", "parents", "weights of", *names, "decision")
    output.emit(namespace, document, output.table(rows, heads))
    return 0


def _donor(stored: Any, encoding: Any) -> int | None:
    """Return whose weights an individual began with: its first parent's, if there are weights."""
    has_weights = any(type(part).__name__ == "Blob" for part in encoding.parts.values())
    return stored.parents[0] if has_weights and stored.parents else None

"""``lamarckian config``: every setting with its default, range and meaning."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from lamarckian import config
from lamarckian.cli import output
from lamarckian.errors import UnknownName, nearest

SETTINGS = True


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "config",
        help="list every setting",
        description="List every setting of a training run with its default, range and meaning. "
        "Settings given as --key value are applied first, so that the list shows the result.",
    )
    parser.add_argument("algorithm", nargs="?", help="show the settings of this algorithm")
    parser.add_argument("--yaml", action="store_true", help="print a config file to start from")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of the file")
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Print the settings. Raises UnknownName for an algorithm nobody has, ConfigError for a key."""
    from lamarckian.runs.training import (
        TrainingRun,
    )  # brings torch, which --help should not wait for

    if namespace.schema:
        print(output.to_json(msgspec.json.schema(TrainingRun)))
        return 0
    updates = config.overrides(extra)
    algorithms = config.variants(TrainingRun, "algorithm")
    name = namespace.algorithm
    if name is not None:
        chosen = {known.lower(): kind for known, kind in algorithms.items()}.get(name.lower())
        if chosen is None:
            known = ", ".join(algorithms)
            raise UnknownName(
                f"unknown algorithm '{name}'{nearest(name, algorithms) or ';'} known: {known}"
            )
        updates = {"algorithm": chosen(), **updates}
    record = config.build(TrainingRun, {"game": "GAME", **updates})
    if namespace.yaml and not namespace.json:
        print(config.dump_yaml(record), end="")
        return 0
    rows = config.describe(TrainingRun, record=record)
    document = [
        {
            "key": row.key,
            "type": row.type,
            "value": row.default,
            "range": row.constraint,
            "meaning": row.doc,
        }
        for row in rows
    ]
    output.emit(namespace, document, _text(rows))
    return 0


def _text(rows: list[config.Setting]) -> str:
    lines = []
    for row in rows:
        limits = f" ({row.constraint})" if row.constraint else ""
        lines.append(f"--{row.key} {_value(row)}\n      {row.type}{limits}")
        if row.doc:
            lines.append(f"      {row.doc}")
    return "\n".join(lines)


def _value(row: config.Setting) -> str:
    if row.key == "game":
        return "GAME"
    if row.default == "":
        return "''"
    return config.dump_yaml(row.default).removesuffix("\n").removesuffix("\n...").replace("\n", " ")

"""``lamarckian algorithms``: list what learns."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from lamarckian.cli import output


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "algorithms",
        help="list the algorithms",
        description="List the algorithms, and the games each has measured settings for.",
    )
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Print the algorithms."""
    from lamarckian import config
    from lamarckian.rl.presets import PRESETS, VARIANTS
    from lamarckian.runs.training import TrainingRun

    document = []
    for name, kind in config.variants(TrainingRun, "algorithm").items():
        summary = (inspect.getdoc(kind) or "").split("\n")[0]
        presets = [game for algorithm, game in PRESETS if algorithm == name]
        document.append({"name": name, "summary": summary, "presets": presets})
    for name, (base, sets) in VARIANTS.items():
        told = ", ".join(f"{key} {output.to_json(value)}" for key, value in sets.items())
        document.append({"name": name, "summary": f"{base} with {told}", "presets": []})
    rows = [(row["name"], row["summary"], ", ".join(row["presets"])) for row in document]
    text = output.table(rows, ("algorithm", "", "measured settings for"))
    output.emit(namespace, document, text + "\n\nsettings: lamarckian config ALGORITHM")
    return 0

"""What all commands share: their common options, tables, and the one JSON document of ``--json``.

Results go to stdout, everything else to stderr, so that a command can stand in a pipe.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec


class Verbosity:
    """How much a command says besides its result."""

    QUIET, NORMAL, VERBOSE = 0, 1, 2


def add_options(parser: argparse.ArgumentParser, *, json_output: bool = True) -> None:
    """Add ``-q``, ``-v`` and, for commands that print results, ``--json``."""
    group = parser.add_argument_group("output")
    group.add_argument("-q", "--quiet", action="store_true", help="say only how it ended")
    group.add_argument("-v", "--verbose", action="store_true", help="say more")
    if json_output:
        group.add_argument(
            "--json", action="store_true", help="print one JSON document, nothing else"
        )


def verbosity(namespace: argparse.Namespace) -> int:
    """Return the :class:`Verbosity` asked for; ``--json`` counts as quiet."""
    if getattr(namespace, "verbose", False):
        return Verbosity.VERBOSE
    if getattr(namespace, "quiet", False) or getattr(namespace, "json", False):
        return Verbosity.QUIET
    return Verbosity.NORMAL


def emit(namespace: argparse.Namespace, document: Any, text: str) -> None:
    """Print the result: ``document`` as JSON if ``--json`` was given, otherwise ``text``."""
    if getattr(namespace, "json", False):
        print(to_json(document))
    elif text:
        print(text)


def note(message: str) -> None:
    """Say something that is not a result, on stderr."""
    print(message, file=sys.stderr, flush=True)


def to_json(document: Any) -> str:
    """Return strict JSON; numbers that are not finite become null, paths become text."""
    return json.dumps(_plain(document), ensure_ascii=False, allow_nan=False, indent=2)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain(value.tolist())
    return _plain(msgspec.to_builtins(value))


def table(rows: Iterable[Sequence[Any]], heads: Sequence[str] = ()) -> str:
    """Return ``rows`` as text in aligned columns; the last column is not padded."""
    cells = [[_cell(each) for each in row] for row in rows]
    if heads:
        cells.insert(0, list(heads))
        cells.insert(1, ["-" * len(head) for head in heads])
    if not cells:
        return ""
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)

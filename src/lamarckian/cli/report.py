"""``lamarckian report``: a run as one HTML page, or one of its curves as a figure."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lamarckian.cli import output
from lamarckian.errors import ConfigError, RunError


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report",
        help="write a run as one HTML page",
        description="Write a run, running or finished, as one self-contained HTML page with curves, "
        "evaluations and replays; or one curve as SVG or CSV.",
    )
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument(
        "-o", "--output", type=Path, help="file to write (default: report.html in the run's folder)"
    )
    parser.add_argument(
        "--format", choices=("html", "svg", "csv"), default="html", help="default: html"
    )
    parser.add_argument("--metric", help="the curve of a figure, e.g. return_mean (svg, csv)")
    parser.add_argument("--no-replays", action="store_true", help="leave the replays out")
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Write the file. Raises RunError, ConfigError or UnknownName."""
    if namespace.format == "html":
        if namespace.metric:
            raise ConfigError("--metric: has no effect on a whole page; add --format svg or csv")
        return _page(namespace)
    if not namespace.metric:
        raise ConfigError(
            f"--format {namespace.format}: expected the curve to write, e.g. --metric return_mean"
        )
    return _figure(namespace)


def _page(namespace: argparse.Namespace) -> int:
    from lamarckian.viewer.report import write_report

    target = namespace.output or namespace.run / "report.html"
    written = write_report(namespace.run, target, [] if namespace.no_replays else None)
    document = {
        "path": str(written.path),
        "bytes": written.bytes,
        "replays": written.num_replays,
        "reason": written.reason,
    }
    text = f"{written.path}  {written.bytes / 1000:.0f} kB, {written.num_replays} replays"
    if written.reason:
        text += f"\nnot all replays: {written.reason}"
    output.emit(namespace, document, text)
    return 0


def _figure(namespace: argparse.Namespace) -> int:
    from lamarckian.runs.durable import write_file
    from lamarckian.viewer.figures import csv_figure, svg_figure

    figure = svg_figure if namespace.format == "svg" else csv_figure
    content = figure(namespace.run, namespace.metric).encode()
    target = namespace.output or Path(f"{namespace.metric}.{namespace.format}")
    try:
        write_file(target, content)
    except OSError as error:
        raise RunError(f"{target}: cannot write the figure: {error.strerror}") from None
    document = {"path": str(target), "bytes": len(content), "replays": 0}
    output.emit(namespace, document, str(target))
    return 0

"""``lamarckian resume``: continue a run that was stopped or killed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lamarckian.cli import output
from lamarckian.cli.train import add_recorders, recorders, report


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "resume",
        help="continue a run that was stopped or killed",
        description="Go on from the last good checkpoint. In one process the run continues bit for "
        "bit as if it had never stopped.",
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--frames", type=int, help="train up to so many frames instead")
    add_recorders(parser)
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Resume; exit code 0, or 130 if it was interrupted again."""
    from lamarckian.runs.training import TrainingRun, resume

    namespace.run_folder = namespace.run
    result = resume(
        namespace.run,
        frames=namespace.frames,
        recorders=lambda run: recorders(namespace, run, run.load_config(TrainingRun)),
    )
    return report(namespace, result)

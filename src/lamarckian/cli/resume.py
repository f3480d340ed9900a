"""``lamarckian resume``: continue a run that was stopped or killed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lamarckian.cli import evolve, output, train
from lamarckian.cli.run_options import add_recorders
from lamarckian.errors import ConfigError


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "resume",
        help="continue a run that was stopped or killed",
        description="Go on from the last good checkpoint; an evolution goes on from the last "
        "recorded evaluation. In one process the run continues bit for bit as if it had never "
        "stopped.",
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--frames", type=int, help="train up to so many frames instead")
    parser.add_argument("--evaluations", type=int, help="evolve up to so many evaluations instead")
    add_recorders(parser)
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Resume; exit code 0, or 130 if it was interrupted again."""
    from lamarckian.runs.folder import Run

    namespace.run_folder = namespace.run
    if "problem" in Run.open(namespace.run).settings():
        return _evolution(namespace)
    if namespace.evaluations is not None:
        raise ConfigError("--evaluations: this run is a training; extend it with --frames")
    from lamarckian.runs.training import TrainingRun, resume

    result = resume(
        namespace.run,
        frames=namespace.frames,
        recorders=lambda run: train.recorders(namespace, run, run.load_config(TrainingRun)),
    )
    return train.report(namespace, result)


def _evolution(namespace: argparse.Namespace) -> int:
    from lamarckian.runs.evolution import load_settings, resume

    if namespace.frames is not None:
        raise ConfigError("--frames: this run is an evolution; extend it with --evaluations")
    result = resume(
        namespace.run,
        evaluations=namespace.evaluations,
        recorders=lambda run: evolve.recorders(namespace, run, load_settings(run)),
    )
    return evolve.report(namespace, result)

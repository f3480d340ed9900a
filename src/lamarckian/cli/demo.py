"""``lamarckian demo``: learn Pong from scratch and end with something to watch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lamarckian.cli import output
from lamarckian.cli.run_options import add_recorders
from lamarckian.cli.train import recorders

SECONDS = 80.0
"""Most of about 90 seconds; a fast machine is done with its frames before."""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo",
        help="learn Pong in about 90 seconds and write a report to watch",
        description="Train PPO on Pong against the rule bot from scratch, then write one HTML page "
        "with the curves and replays of the first and the last policy.",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), help="page to write"
    )
    parser.add_argument("--run", type=Path, help="run folder (default: runs/pong-N)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="training time")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run")
    add_recorders(parser)
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Train, write the report, say how good the last policy is."""
    from lamarckian import config
    from lamarckian.rl.presets import preset
    from lamarckian.runs.folder import Run
    from lamarckian.runs.training import TrainingRun, train
    from lamarckian.viewer.recording import default_settings, record_replays
    from lamarckian.viewer.report import write_report

    settings = config.build(
        TrainingRun,
        {
            "game": "pong",
            **preset("ppo", "pong"),
            "seed": namespace.seed,
            "frames": 1_600_000,
            "max_seconds": namespace.seconds,
            "evaluation.every": 400_000,
            "evaluation.episodes": 50,
        },
    )
    result = train(
        settings,
        namespace.run,
        recorders=lambda run: recorders(namespace, run, settings),
        command=["demo"],
    )
    if not result.finished:
        return 130
    assert result.evaluation is not None
    replays, reason = record_replays(result.run)
    written = write_report(
        result.run,
        namespace.output,
        replays,
        defaults=default_settings(Run.open(result.run).settings()),
        no_replays_because=reason,
    )
    win_rate = result.evaluation["metrics"]["win_rate"]
    document = {
        **result.to_json(),
        "report": str(written.path),
        "win_rate": win_rate,
    }
    text = (
        f"after {result.frames:,} frames in {result.seconds:.0f} s the policy wins "
        f"{win_rate:.0%} of {result.evaluation['episodes']} matches against the rule bot "
        f"(score {result.evaluation['score']:.3f})\n"
        f"run:    {result.run}\n"
        f"report: {written.path}  (open it in a browser; it holds replays of the first and the last "
        "policy)"
    )
    output.emit(namespace, document, text)
    return 0

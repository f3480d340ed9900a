"""``lamarckian train``: learn to play a game."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from lamarckian import config
from lamarckian.cli import output
from lamarckian.cli.run_options import add_recorders, extra_recorders, read_file

SETTINGS = True


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "train",
        help="learn to play a game",
        description="Train a policy and keep everything in a run folder. Every setting of "
        "'lamarckian config' can be given as --key value.",
    )
    parser.add_argument("game", nargs="?", help="a game of 'lamarckian games'")
    parser.add_argument("--config", type=Path, help="YAML file with settings; options win over it")
    parser.add_argument("--run", type=Path, help="run folder (default: runs/GAME-N)")
    parser.add_argument("--actors", type=int, help="actor processes; implies --placement processes")
    parser.add_argument("--no-preset", action="store_true", help="start from the plain defaults")
    add_recorders(parser)
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Train; exit code 0, or 130 if it was interrupted (the run can be resumed)."""
    from lamarckian.runs.training import train

    settings = settings_from(namespace, extra)
    namespace.run_folder = namespace.run
    result = train(
        settings,
        namespace.run,
        recorders=lambda run: recorders(namespace, run, settings),
        command=sys.argv[1:],
    )
    return report(namespace, result)


def settings_from(namespace: argparse.Namespace, extra: list[str]) -> Any:
    """Merge defaults, preset, config file and options, in this order. Raises ConfigError."""
    from lamarckian.errors import ConfigError
    from lamarckian.rl.presets import algorithm_named, expand, preset
    from lamarckian.runs.training import TrainingRun

    updates: dict[str, Any] = {}
    file = expand(read_file(namespace.config))
    given = expand(config.overrides(extra))
    game = namespace.game or given.get("game") or file.get("game")
    if not game:
        raise ConfigError("train: which game? e.g. 'lamarckian train pong'; see 'lamarckian games'")
    chosen = given.get("algorithm") or given.get("algorithm.name")
    algorithm = algorithm_named(chosen or file.get("algorithm"))
    if chosen and algorithm != algorithm_named(file.get("algorithm")):
        file.pop("algorithm", None)  # the settings of another algorithm
    if not namespace.no_preset:
        updates |= preset(algorithm, str(game))
    record = config.build(TrainingRun, {"game": str(game), **updates})
    if file:
        record = config.apply(record, file)
    given["game"] = str(game)
    if namespace.actors is not None:
        given |= {"num_actors": namespace.actors, "placement": "processes"}
    return config.apply(record, given)


def recorders(namespace: argparse.Namespace, run: Any, settings: Any) -> list[Any]:
    """Build the recorders the options ask for."""
    from lamarckian.runs.display import ConsoleRecorder

    return [
        ConsoleRecorder(
            title=f"{settings.game} · {run.name}",
            target_frames=settings.frames,
            verbosity=output.verbosity(namespace),
        ),
        *extra_recorders(namespace, run),
    ]


def report(namespace: argparse.Namespace, result: Any) -> int:
    """Print what came out; 130 for an interrupted run."""
    text = f"run: {result.run}"
    if result.evaluation is not None:
        low, high = result.evaluation["score_interval"]
        text += (
            f"\nscore {result.evaluation['score']:.3f} (95 % interval {low:.3f} to {high:.3f}, "
            f"{result.evaluation['episodes']} episodes"
        )
        if result.evaluation["opponent"]:
            text += f" against {result.evaluation['opponent']}"
        text += ")"
    if not result.finished:
        text += f"\nstopped by {result.reason}; go on with: lamarckian resume {result.run}"
    output.emit(namespace, result.to_json(), text)
    return 0 if result.finished else 130

"""``lamarckian evolve``: search with evolution."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from lamarckian import config
from lamarckian.cli import output
from lamarckian.cli.run_options import add_recorders, extra_recorders, read_file
from lamarckian.errors import ConfigError

SETTINGS = True


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "evolve",
        help="search with evolution, training each candidate",
        description="Evolve a numeric problem (zdt1), the players of a game (cartpole), their styles "
        "(pong-styles, styles:GAME) or your own evaluator (my_module:MyProblem). Everything is kept in "
        "a run folder; --ec NAME chooses the search, --ec.KEY its settings.",
    )
    parser.add_argument("problem", nargs="?", help="see 'lamarckian search-spaces'")
    parser.add_argument("--config", type=Path, help="YAML file with settings; options win over it")
    parser.add_argument("--run", type=Path, help="run folder (default: runs/PROBLEM-N)")
    parser.add_argument(
        "--workers", type=int, help="worker processes; implies --placement processes"
    )
    parser.add_argument("--no-preset", action="store_true", help="start from the plain defaults")
    add_recorders(parser)
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Evolve; exit code 0, or 130 if it was interrupted (the run can be resumed)."""
    from lamarckian.runs.evolution import evolve

    settings = settings_from(namespace, extra)
    namespace.run_folder = namespace.run
    result = evolve(
        settings,
        namespace.run,
        recorders=lambda run: recorders(namespace, run, settings),
        command=sys.argv[1:],
    )
    return report(namespace, result)


def settings_from(namespace: argparse.Namespace, extra: list[str]) -> Any:
    """Merge defaults, config file and options, in this order. Raises ConfigError."""
    from lamarckian.runs.evolution import build_settings

    file = read_file(namespace.config)
    given: dict[str, Any] = config.overrides(extra)
    problem = namespace.problem or given.pop("problem", None) or file.get("problem")
    if not problem:
        raise ConfigError(
            "evolve: what? e.g. 'lamarckian evolve zdt1' or 'lamarckian evolve cartpole'; "
            "see 'lamarckian search-spaces'"
        )
    if namespace.workers is not None:
        given |= {"num_workers": namespace.workers, "placement": "processes"}
    return build_settings(str(problem), given, file, use_preset=not namespace.no_preset)


def recorders(namespace: argparse.Namespace, run: Any, settings: Any) -> list[Any]:
    """Build the recorders the options ask for."""
    from lamarckian.runs.display import ConsoleRecorder

    return [
        ConsoleRecorder(
            title=f"{settings.problem} · {run.name}",
            target_frames=settings.evaluations or None,
            first_frames=_evaluations_before(run),
            unit="evaluations",
            verbosity=output.verbosity(namespace),
        ),
        *extra_recorders(namespace, run),
    ]


def _evaluations_before(run: Any) -> int:
    """Return how many outcomes the journal of a resumed run holds."""
    counts = {"individual_told": 1, "batch_told": 0}
    return sum(
        int(entry.fields.get("count", counts[entry.event]))
        for entry in run.replay()
        if entry.event in counts
    )


def report(namespace: argparse.Namespace, result: Any) -> int:
    """Print what came out; 130 for an interrupted run."""
    lines = [
        f"run: {result.run}",
        f"{result.evaluations:,} evaluations in {result.seconds:.2f} s "
        f"({result.evaluations_per_second:,.0f}/s), {result.generations:,} selections, "
        f"{result.failures:,} failed",
    ]
    if result.indicators:
        lines.append(
            f"front of {result.front_size}: "
            + ", ".join(f"{name} {value:.5g}" for name, value in result.indicators.items())
        )
    elif result.best:
        best = result.best[0]
        values = ", ".join(f"{name} {value:.6g}" for name, value in best["objectives"].items())
        lines.append(f"front of {result.front_size}; individual {best['id']}: {values}")
    if not result.finished:
        lines.append(f"stopped by {result.reason}; go on with: lamarckian resume {result.run}")
    output.emit(namespace, result.to_json(), "\n".join(lines))
    return 0 if result.finished else 130

"""``lamarckian evaluate``: measure a trained policy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lamarckian.cli import output


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "evaluate",
        help="measure a trained policy",
        description="Play whole episodes with a run's policy and report means and intervals. Equal "
        "seeds give equal episodes.",
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--episodes", type=int, default=100, help="episodes to play (default 100)")
    add_checkpoint(parser)
    parser.add_argument("--seed", type=int, help="seed of the episodes (default: the run's own)")
    parser.add_argument("--opponent", help="bot of the other roles (default: as trained)")
    parser.add_argument(
        "--stochastic", action="store_true", help="draw actions instead of the most likely one"
    )
    output.add_options(parser)
    return parser


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses a checkpoint."""
    parser.add_argument(
        "--checkpoint", default="last", help="last, best, or an iteration (default last)"
    )


def which(namespace: argparse.Namespace) -> Any:
    """Return the chosen checkpoint as :meth:`Run.load` takes it. Raises ConfigError."""
    from lamarckian.errors import ConfigError

    text = namespace.checkpoint
    if text in ("last", "best"):
        return text
    if not text.isdigit():
        raise ConfigError(f"--checkpoint: expected last, best or a number, got {text!r}")
    return int(text)


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Evaluate and print."""
    from lamarckian import seeding
    from lamarckian.errors import ConfigError
    from lamarckian.runs.folder import Run
    from lamarckian.runs.training import load_policies

    if namespace.episodes < 1:
        raise ConfigError(f"--episodes: expected at least 1, got {namespace.episodes}")
    assembly = load_policies(Run.open(namespace.run), which(namespace), opponent=namespace.opponent)
    seed = namespace.seed
    if seed is None:
        seed = seeding.derive(assembly.training.seed, "evaluation")
    result = assembly.evaluate(
        num_episodes=namespace.episodes, seed=seed, greedy=not namespace.stochastic
    )
    document = {"run": namespace.run, "checkpoint": namespace.checkpoint, **result.to_json()}
    low, high = result.interval()
    against = f" against {result.opponent}" if result.opponent else ""
    lines = [
        f"score {result.main_score():.4f}  (95 % interval {low:.4f} to {high:.4f}, "
        f"{len(result.episodes)} lives{against})"
    ]
    lines += [f"  {name:24} {value:.4f}" for name, value in result.metrics().items()]
    lines += [f"  {name:24} {value:.4f}" for name, value in document["statistics"].items()]
    output.emit(namespace, document, "\n".join(lines))
    return 0

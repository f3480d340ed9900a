"""What the commands that make a run have in common: a settings file, and where numbers go."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lamarckian import config
from lamarckian.errors import ConfigError


def add_recorders(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose where numbers go besides the journal."""
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard curves too")
    parser.add_argument("--wandb", action="store_true", help="send curves to Weights & Biases too")


def extra_recorders(namespace: argparse.Namespace, run: Any) -> list[Any]:
    """Build the recorders asked for besides the console."""
    from lamarckian.runs.recorders import TensorBoardRecorder, WandbRecorder

    chosen: list[Any] = []
    if namespace.tensorboard:
        chosen.append(TensorBoardRecorder(run.path / "tensorboard"))
    if namespace.wandb:
        chosen.append(WandbRecorder(run.path / "wandb", name=run.name, settings=run.settings()))
    return chosen


def read_file(path: Path | None) -> dict[str, Any]:
    """Return the settings of a ``--config`` file, nothing without one. Raises ConfigError."""
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from None
    return dict(config.parse_yaml(text) or {})

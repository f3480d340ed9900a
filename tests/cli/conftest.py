"""Runs that several tests of the command line read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lamarckian.cli.main import main

SMALL = [
    *("--algorithm.num_games", "8", "--algorithm.fragment_length", "16"),
    *("--algorithm.minibatch_size", "64", "--algorithm.num_epochs", "1"),
    *("--algorithm.network.hidden", "[16]", "--algorithm.network.critic_hidden", "[16]"),
    *("--evaluation.episodes", "2", "--no-preset"),
]
"""Settings of a run of 128 decisions per iteration that costs next to nothing."""
BATCH = 8 * 16


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Any:
    """A function that runs a command and returns (exit code, its one JSON document)."""

    def call(*argv: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(list(argv))
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.fixture(scope="session")
def pong_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that trained ``left`` against the rule bot for two iterations."""
    path = tmp_path_factory.mktemp("shared") / "pong"
    frames = str(2 * BATCH)
    assert main(["train", "pong", "--run", str(path), "--frames", frames, "-q", *SMALL]) == 0
    return path


@pytest.fixture(scope="session")
def cartpole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of CartPole of two iterations."""
    path = tmp_path_factory.mktemp("shared") / "cartpole"
    frames = str(2 * BATCH)
    assert main(["train", "cartpole", "--run", str(path), "--frames", frames, "-q", *SMALL]) == 0
    return path

"""Presets reach what they promise, from scratch, each with one seed; one quick check in the default run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lamarckian import config
from lamarckian.rl.presets import preset
from lamarckian.runs.training import TrainingResult, TrainingRun, train


def learn(game: str, folder: Path, algorithm: str = "ppo", **settings: Any) -> TrainingResult:
    """Train with the game's preset and evaluate greedily on 100 episodes at the end."""
    known = preset(algorithm, game)
    assert known, f"no preset for {game}"
    record = config.build(
        TrainingRun, {"game": game, "evaluation.episodes": 100, **known, **settings}
    )
    return train(record, folder / "run")


def mean_return(result: TrainingResult) -> float:
    assert result.evaluation is not None
    return float(result.evaluation["metrics"]["return_mean"])


def test_cartpole_is_learned_well_beyond_chance_within_seconds(tmp_path: Path) -> None:
    # A player that draws actions evenly keeps the pole up for about 22 ticks.
    result = learn("cartpole", tmp_path, frames=20_000, seed=1, **{"evaluation.episodes": 32})
    assert mean_return(result) > 150.0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("game", ["cartpole", "gym:CartPole-v1"])
def test_cartpole_preset_reaches_500(game: str, tmp_path: Path) -> None:
    assert mean_return(learn(game, tmp_path)) >= 495.0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("game", ["cartpole", "gym:CartPole-v1"])
def test_cartpole_preset_of_dqn_reaches_500(game: str, tmp_path: Path) -> None:
    assert mean_return(learn(game, tmp_path, "dqn")) >= 495.0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("game", ["pendulum", "gym:Pendulum-v1"])
def test_pendulum_preset_reaches_minus_180(game: str, tmp_path: Path) -> None:
    assert mean_return(learn(game, tmp_path)) >= -180.0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pendulum_preset_of_sac_reaches_minus_180(tmp_path: Path) -> None:
    assert mean_return(learn("pendulum", tmp_path, "sac")) >= -180.0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_pong_preset_beats_the_rule_bot(tmp_path: Path) -> None:
    result = learn("pong", tmp_path)
    assert result.evaluation is not None
    assert result.evaluation["score"] >= 0.95

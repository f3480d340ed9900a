"""Whole runs: learning, stopping, killing, resuming."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lamarckian import config
from lamarckian.errors import ConfigError, GameError
from lamarckian.runs.folder import Run
from lamarckian.runs.training import TrainingRun, load_policies, resume, train

SMALL: dict[str, Any] = {
    "algorithm.num_games": 8,
    "algorithm.fragment_length": 16,
    "algorithm.minibatch_size": 64,
    "algorithm.num_epochs": 2,
    "algorithm.normalise_observations": True,
    "algorithm.normalise_values": "running",
    "algorithm.network": {"hidden": [32], "critic_hidden": [16]},
    "evaluation.episodes": 4,
    "checkpoint_every": 10,
}
BATCH = 8 * 16


def settings(game: str, batches: int, **more: Any) -> TrainingRun:
    return config.build(TrainingRun, {"game": game, "frames": batches * BATCH, **SMALL, **more})


def weights(path: Path) -> dict[str, str]:
    return {g: p.fingerprint() for g, p in load_policies(Run.open(path)).policies.items()}


def curve(path: Path) -> list[tuple[int, float]]:
    return [
        (entry.fields["iteration"], entry.fields["metrics"]["policy_loss"])
        for entry in Run.open(path).replay()
        if entry.event == "update"
    ]


@pytest.mark.parametrize("game", ["cartpole", "pendulum", "pong"])
def test_pitfalls_ck_01_a_resumed_run_continues_bit_for_bit(game: str, tmp_path: Path) -> None:
    train(settings(game, 20), tmp_path / "straight")
    train(settings(game, 10), tmp_path / "stopped")
    resume(tmp_path / "stopped", frames=20 * BATCH)
    assert weights(tmp_path / "straight") == weights(tmp_path / "stopped")
    assert curve(tmp_path / "straight") == curve(tmp_path / "stopped")


def test_pitfalls_ck_01_with_a_memory(tmp_path: Path) -> None:
    more = {
        "algorithm.network": {
            "hidden": [16],
            "critic_hidden": [8],
            "memory": "lstm",
            "memory_size": 8,
        },
        "algorithm.chunk_length": 8,
    }
    train(settings("cartpole", 12, **more), tmp_path / "straight")
    train(settings("cartpole", 6, **more), tmp_path / "stopped")
    resume(tmp_path / "stopped", frames=12 * BATCH)
    assert weights(tmp_path / "straight") == weights(tmp_path / "stopped")


def test_pitfalls_ck_09_seeds(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(settings("cartpole", 5, seed=seed), tmp_path / name)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert weights(tmp_path / "a") != weights(tmp_path / "c")


def test_pitfalls_ck_11_an_evaluation_can_be_repeated_exactly(tmp_path: Path) -> None:
    result = train(settings("cartpole", 5), tmp_path / "run")
    assert result.evaluation is not None
    again = load_policies(Run.open(tmp_path / "run")).evaluate(
        num_episodes=4, seed=result.evaluation["seed"], greedy=True
    )
    assert again.to_json() == result.evaluation
    recorded = [e for e in Run.open(tmp_path / "run").replay() if e.event == "evaluation"][-1]
    assert recorded.fields["weights"] == next(iter(weights(tmp_path / "run").values()))


def test_killed_in_the_middle_and_resumed(tmp_path: Path) -> None:
    """The same curve as an undisturbed run, although the process was killed without warning."""
    path = tmp_path / "killed run ü"
    code = (
        "import sys, msgspec\n"
        "from lamarckian.runs.training import TrainingRun, train\n"
        "train(msgspec.json.decode(sys.argv[1], type=TrainingRun), sys.argv[2])\n"
    )
    wanted = settings("cartpole", 400)
    child = subprocess.Popen(
        [sys.executable, "-c", code, msgspec.json.encode(wanted).decode(), str(path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if len(list((path / "checkpoints").glob("*.json"))) >= 2:
            break
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    assert child.wait(timeout=10) == -signal.SIGKILL
    reached = max(
        entry.fields["iteration"] for entry in Run.open(path).replay() if entry.event == "update"
    )
    frames = (reached // 10 + 3) * 10 * BATCH
    resume(path, frames=frames)
    train(msgspec.structs.replace(wanted, frames=frames), tmp_path / "straight")
    assert weights(path) == weights(tmp_path / "straight")
    iterations = [iteration for iteration, _ in curve(path)]
    assert iterations == list(range(1, frames // BATCH + 1))


def test_interrupt_stops_after_the_batch_at_hand_with_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "lamarckian",
        "train",
        "cartpole",
        "--run",
        str(path),
        "--json",
    ]
    command += ["--frames", "100000000", "--algorithm.num_games", "8"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        journal = path / "journal.jsonl"
        if journal.exists() and '"update"' in journal.read_text():
            break
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 130
    document = json.loads(out)
    assert document["finished"] is False
    assert document["reason"] == "SIGINT"
    assert Run.open(path).checkpoints()[-1].step == document["iterations"]


def test_pitfalls_cfg_06_saving_is_tried_before_the_first_step(tmp_path: Path) -> None:
    train(settings("cartpole", 1), tmp_path / "run")
    first = [entry.event for entry in Run.open(tmp_path / "run").replay()][:4]
    assert first == ["run_started", "config", "checkpoint", "update"] or "checkpoint" in first[:3]


def test_several_roles_learn_together_in_self_play(tmp_path: Path) -> None:
    result = train(settings("pong", 4, learn=["left", "right"]), tmp_path / "run")
    assert result.evaluation is not None
    assert result.evaluation["opponent"] == "self"
    # Zero-sum: what one side gains the other loses (LG-12: both sides are in the numbers).
    metrics = result.evaluation["metrics"]
    assert metrics["return_mean/left"] == pytest.approx(-metrics["return_mean/right"])


def test_pitfalls_cfg_01_settings_without_effect_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_actors: has no effect"):
        train(settings("cartpole", 1, num_actors=2))
    with pytest.raises(ConfigError, match="would play nobody"):
        train(settings("pong", 1, learn=["left", "right"], opponent="rule"))
    with pytest.raises(ConfigError, match="no role 'lft'; did you mean 'left'"):
        train(settings("pong", 1, learn=["lft"]))


def test_pitfalls_num_01_nan_from_a_game_never_reaches_the_weights(tmp_path: Path) -> None:
    with pytest.raises(GameError, match=r"rewards holds NaN"):
        train(settings("broken_games:NotANumber", 3), tmp_path / "run")
    loaded = Run.open(tmp_path / "run").load("last")
    assert all(np.isfinite(a).all() for n, a in loaded.arrays.items() if "/policy/" in n)


def test_a_game_that_cannot_be_saved_begins_new_matches_at_checkpoints(tmp_path: Path) -> None:
    """Alike in the run that goes on and in the one that is resumed from the same checkpoint."""
    often = {"checkpoint_every": 1}
    train(settings("gymvec:CartPole-v1", 20, **often), tmp_path / "straight")
    train(settings("gymvec:CartPole-v1", 10, **often), tmp_path / "stopped")
    resume(tmp_path / "stopped", frames=20 * BATCH)
    assert weights(tmp_path / "straight") == weights(tmp_path / "stopped")

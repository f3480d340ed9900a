"""Every algorithm fulfils the contract, on the command line and in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamarckian import config
from lamarckian.cli.main import main
from lamarckian.cli.train import add, settings_from
from lamarckian.errors import ConfigError, UnsupportedSpace
from lamarckian.mdp.core import Discrete, Input, Role
from lamarckian.rl.algorithm import AlgorithmSettings, Learner
from lamarckian.rl.assembly import Training, assemble, make_learners
from lamarckian.rl.impala import IMPALA
from lamarckian.rl.ppo import PPO
from lamarckian.rl.presets import PRESETS, VARIANTS, preset
from lamarckian.runs.evolution import build_settings
from lamarckian.runs.training import TrainingRun, resume, train

NAMES = sorted(config.variants(TrainingRun, "algorithm"))
CONTINUOUS = {"sac"}
"""Algorithms that want continuous actions."""
SETTINGS: dict[str, Any] = {
    "algorithm.num_games": 4,
    "algorithm.fragment_length": 16,
    "algorithm.network.hidden": [8],
    "algorithm.network.critic_hidden": [4],
    "algorithm.learning_starts": 32,
    "algorithm.batch_size": 16,
}


def game_for(name: str) -> str:
    return "pendulum" if name in CONTINUOUS else "cartpole"


def small(name: str, **more: Any) -> dict[str, Any]:
    """The settings of ``SETTINGS`` and ``more`` (group ``algorithm``) that the algorithm has."""
    known = {row.key for row in config.describe(config.variants(TrainingRun, "algorithm")[name])}
    wanted = SETTINGS | {f"algorithm.{key}": value for key, value in more.items()}
    return {key: value for key, value in wanted.items() if key.partition(".")[2] in known}


def settings_of(*args: str) -> TrainingRun:
    import argparse

    parser = add(argparse.ArgumentParser().add_subparsers())
    words = list(args)
    cut = next((i for i, word in enumerate(words) if word.startswith("--algorithm")), len(words))
    record: TrainingRun = settings_from(parser.parse_args(words[:cut]), words[cut:])
    return record


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_fulfils_the_contract(name: str) -> None:
    record = config.build(Training, {"game": game_for(name), "algorithm": name, **small(name)})
    algorithm: AlgorithmSettings = record.algorithm
    assert algorithm.num_games == 4
    assert algorithm.fragment_length == 16
    assert algorithm.chunk_length >= 1
    assert algorithm.per_head("discount", 2) == (0.99, 0.99)
    assembly = assemble(record)
    learner: Learner = make_learners(assembly)["player"]
    collector = assembly.make_collector(4, 0)
    stats = learner.update(collector.collect()["player"], 0.5)
    assert learner.policy.version == 1
    assert learner.num_updates >= 1
    assert stats["staleness_mean"] == 1.0  # drawn with version 0, learned by what is now version 1
    data, arrays = learner.state()
    json.dumps(data)
    again = make_learners(assemble(record))["player"]
    again.load_state(data, arrays)
    assert again.policy.fingerprint() == learner.policy.fingerprint()
    collector.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_role_that_cannot_be_learned_is_refused_before_anything_starts(name: str) -> None:
    record = config.build(Training, {"game": "cartpole", "algorithm": name})
    role = Role(inputs={"mask": Input((3,), dtype="bool", kind="mask")}, actions={"a": Discrete(2)})
    with pytest.raises(UnsupportedSpace):
        record.algorithm.make_policy(role, 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_every_algorithm_resumes_bit_for_bit(name: str, tmp_path: Path) -> None:
    record = config.build(
        TrainingRun,
        {
            "game": game_for(name),
            "algorithm": name,
            **small(name, normalise_observations=True, normalise_values="running"),
            "frames": 256,
            "evaluation.episodes": 2,
        },
    )
    whole = train(record, tmp_path / "whole")
    half = config.apply(record, {"frames": 128})
    train(half, tmp_path / "half")
    resumed = resume(tmp_path / "half", frames=256)
    assert resumed.iterations == whole.iterations
    assert resumed.metrics["total_loss"] == whole.metrics["total_loss"]
    assert resumed.evaluation == whole.evaluation


def test_the_algorithm_is_chosen_by_name_and_its_settings_are_checked(tmp_path: Path) -> None:
    record = settings_of("cartpole", "--algorithm", "impala", "--algorithm.rho_bar", "2")
    assert isinstance(record.algorithm, IMPALA)
    assert record.algorithm.rho_bar == 2.0
    assert settings_of("cartpole", "--algorithm.name", "impala").algorithm == IMPALA(
        **_nested(preset("impala", "cartpole"))
    )
    with pytest.raises(
        ConfigError, match=r"algorithm\.clip_range.*Known: algorithm\.learning_rate"
    ):
        settings_of("cartpole", "--algorithm", "impala", "--algorithm.clip_range", "0.1")
    with pytest.raises(ConfigError, match="did you mean 'impala'"):
        settings_of("cartpole", "--algorithm", "impla")
    file = tmp_path / "run.yaml"
    file.write_text("algorithm:\n  name: impala\n  c_bar: 0.5\n")
    given = settings_of("cartpole", "--config", str(file))
    assert isinstance(given.algorithm, IMPALA)
    assert given.algorithm.c_bar == 0.5
    # A name on the command line wins; the settings of the file's other algorithm go with it.
    other = settings_of("cartpole", "--config", str(file), "--algorithm", "ppo")
    assert other.algorithm == settings_of("cartpole").algorithm


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    record = config.build(TrainingRun, {"game": "cartpole", **flat}).algorithm
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_presets_are_settings_of_their_algorithm() -> None:
    for algorithm, game in PRESETS:
        record = config.build(TrainingRun, {"game": game, **preset(algorithm, game)})
        assert record.algorithm.__struct_config__.tag == algorithm


def test_a_preset_made_for_a_games_options_is_left_out_with_others() -> None:
    assert preset("ppo", "pong?points=5") == preset("ppo", "pong")
    assert preset("ppo", "ale:Pong")["game_options.image_size"] == 42
    assert preset("ppo", "ale:Pong?obs=ram") == {"algorithm": "ppo"}


def test_players_that_evolve_start_from_the_preset_of_their_game() -> None:
    plain = build_settings("cartpole", {}, use_preset=False)
    known = build_settings("cartpole", {"training.algorithm.num_games": 5})
    assert plain.training_data()["algorithm"] == {**msgspec.to_builtins(PPO()), "name": "ppo"}
    algorithm = known.training_data()["algorithm"]
    assert algorithm["num_games"] == 5  # what the user says wins
    assert algorithm["minibatch_size"] == PRESETS["ppo", "cartpole"]["algorithm.minibatch_size"]
    # It would fall to nothing within each evaluation, and the evaluator refuses it.
    assert algorithm["learning_rate_schedule"] == "constant"


def test_algorithms_are_listed_with_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algorithms", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted(row["name"] for row in rows) == sorted([*NAMES, *VARIANTS])
    assert all(row["summary"] for row in rows)
    assert main(["config", "impala", "--json"]) == 0
    shown = {row["key"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert shown["algorithm"] == "impala"
    assert shown["algorithm.rho_bar"] == 1.0

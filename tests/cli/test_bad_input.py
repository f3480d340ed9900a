"""What users are told when a game, a setting or a place is wrong: one message, exit code 2."""

from __future__ import annotations

import itertools
import json
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import BATCH, SMALL

from lamarckian import config
from lamarckian.cli.main import main
from lamarckian.errors import ConfigError, UnsupportedSpace
from lamarckian.rl.assembly import assemble, make_learners
from lamarckian.runs.folder import Run
from lamarckian.runs.training import TrainingRun, check


def train(game: str, path: Path, *options: str, batches: int = 4) -> int:
    frames = str(batches * BATCH)
    return main(["train", game, "--run", str(path), "--frames", frames, *SMALL, *options])


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """The one message on standard error; nothing else, and no traceback."""
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("lamarckian: ")]
    assert len(lines) == 1, err
    return lines[0]


@pytest.mark.parametrize(
    ("game", "words"),
    [
        ("InInit", ["making it raised RuntimeError: no paint left"]),
        ("InReset", ["tick 0", "seeds", "reset(): raised RuntimeError: cannot set up", "line"]),
        ("InStep", ["tick 39", "step(): raised RuntimeError: fell off the table", "in fail"]),
        ("WrongShape", ["tick 3", "input 'state'", "float32 (8, 4)", "float32 (8, 4, 1)"]),
        ("WrongType", ["tick 0", "input 'state'", "expected float32", "got <U"]),
        ("WrongKey", ["input 'state'", "got none; there are position"]),
        ("WrongReward", ["tick 40", "rewards of role 'player'", "(8, 1), got (8,)"]),
        ("Nothing", ["expected an Observation, got NoneType"]),
        ("NaNReward", ["rewards holds NaN", "lane 3", "on_bad_data=drop"]),
        ("NaNSeen", ["inputs/state holds NaN", "lane 2"]),
    ],
)
def test_pitfalls_env_03_a_broken_game_is_named(
    game: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    capsys.readouterr()
    started = time.monotonic()
    assert train(f"failing_games:{game}", path, "-q") == 2
    assert time.monotonic() - started < 60
    message = told(capsys)
    assert f"failing_games:{game}" in message
    for word in words:
        assert word in message
    if game == "InInit":
        assert not path.exists()
    elif game != "InReset":  # nothing saved is lost: step 0 at least is there and loads
        arrays = Run.open(path).load("last").arrays
        assert all(np.isfinite(array).all() for array in arrays.values())


def test_pitfalls_num_01_bad_episodes_can_be_left_out(tmp_path: Path, document: Any) -> None:
    frames = str(4 * BATCH)
    code, result = document(
        "train", "failing_games:NaNReward", "--run", str(tmp_path / "run"), "--frames", frames,
        *SMALL, "--on_bad_data", "drop", "--json",
    )  # fmt: skip
    assert code == 0
    assert result["finished"]
    assert result["metrics"]["rejected_data"] > 0


def test_pitfalls_env_12_doubles_are_cast(tmp_path: Path) -> None:
    assert train("failing_games:Doubles", tmp_path / "run", "-q", batches=1) == 0


def test_what_was_learned_is_kept_if_the_last_evaluation_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("failing_games:FailsInEvaluation", tmp_path / "run", "-q") == 2
    assert "two are too few" in told(capsys)
    assert Run.open(tmp_path / "run").checkpoints()[-1].step == 4


def test_pitfalls_ep_08_no_episode_ever_finishes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1,024 decisions of each of 8 endless matches: no NaN anywhere, and a message instead of a score."""
    path = tmp_path / "run"
    code = train("failing_games:Endless", path, "-v", "--json", batches=64)
    out, err = capsys.readouterr()
    assert code == 0
    result = json.loads(out)
    assert result["evaluation"] is None
    metrics = result["metrics"]
    assert metrics["episodes"] == 0
    assert metrics["current_length"] == 64 * 16
    assert metrics["reward_per_decision"] == 1.0
    assert None not in metrics.values()  # JSON's word for NaN
    assert "nan" not in (path / "journal.jsonl").read_text().lower()
    assert "0 episodes finished, current length 64" in err
    assert "0 episodes finished, current length 1,024: the policy is not evaluated" in err


# --- places ---------------------------------------------------------------------------------------


def test_pitfalls_cfg_09_any_writable_path_will_do(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "a b" / "ünï 日本"
    assert train("cartpole", path, "-q", batches=1) == 0
    code, result = document("evaluate", str(path), "--episodes", "2", "--json")
    assert (code, result["episodes"]) == (0, 2)
    assert main(["train", "cartpole", "--run", str(path), *SMALL]) == 2


def test_pitfalls_cfg_09_an_existing_run_is_not_overwritten(
    cartpole_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (cartpole_run / "journal.jsonl").read_bytes()
    capsys.readouterr()
    assert train("cartpole", cartpole_run, "-q") == 2
    assert f"lamarckian resume {cartpole_run}" in told(capsys)
    assert (cartpole_run / "journal.jsonl").read_bytes() == before


def test_pitfalls_cfg_09_an_unwritable_path_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a file"
    file.write_text("mine")
    started = time.monotonic()
    assert train("cartpole", file / "run", "-q") == 2
    assert time.monotonic() - started < 2
    message = told(capsys)
    assert "a file" in message
    assert "--run" in message
    if os.geteuid() != 0:  # who is root may write everywhere
        closed = tmp_path / "closed"
        closed.mkdir()
        closed.chmod(stat.S_IRUSR | stat.S_IXUSR)
        assert train("cartpole", closed / "run", "-q") == 2
        assert "closed" in told(capsys)
    assert main(["export", str(tmp_path), "-o", str(file / "x.onnx")]) == 2
    assert "holds no run" in told(capsys)


def test_pitfalls_cfg_03_no_network_and_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("the network is unreachable")

    for name in ("HOME", "USER", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.chdir(tmp_path)
    frames = ["--frames", str(BATCH)]
    assert main(["train", "cartpole", "-q", *frames, *SMALL]) == 0
    assert (tmp_path / "runs" / "cartpole-1" / "journal.jsonl").exists()


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--algorithm.learnig_rate", "1"], "did you mean 'algorithm.learning_rate'"),
        (["--algorithm.learning_rate", "-1"], "algorithm.learning_rate"),
        (["--algorithm.discount", "[0.9, 0.8]"], "expected one number or 1"),
        (["--algorithm.reward_weights", "[1, 2]"], "expected 1 numbers for the heads reward"),
        (["--algorithm", "pbo"], "ppo"),
        (["--frames", "many"], "frames"),
        (["--opponent", "rule"], "would play nobody"),
        (["--learn", "[lft]"], "no role 'lft'"),
        (["--max_staleness", "2"], "no effect with synchronous"),
        (["--num_actors", "2"], "no effect with placement in-process"),
        (["--game_options.colour", "red"], "colour"),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml"),
        (["--seed"], "needs a value"),
        (["--actors", "100000"], "use at most"),
        (["--actors", "-1"], "num_actors"),
    ],
)
def test_pitfalls_cfg_01_mistakes_are_told_before_anything_is_made(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    capsys.readouterr()
    started = time.monotonic()
    assert main(["train", "cartpole", "--run", str(path), *options]) == 2
    assert time.monotonic() - started < 2
    assert words in told(capsys)
    assert not path.exists()


def test_pitfalls_dst_06_too_many_actors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sum, what is here, and the way out."""
    games = ("--algorithm.num_games", "100000")
    capsys.readouterr()
    code = main(["train", "cartpole", "--run", str(tmp_path / "run"), "--actors", "64000", *games])
    assert code == 2
    message = told(capsys)
    for word in ("64000", "cores asked for", "use at most", "allow_oversubscription"):
        assert word in message


SMALL_NETWORK = {"algorithm.network.hidden": [4], "algorithm.network.critic_hidden": [4]}
OTHER_VALUES: dict[str, Any] = {
    "algorithm.num_games": 7,
    "algorithm.minibatch_size": 0,
    "algorithm.discount": [0.9],
    "algorithm.reward_weights": [1.0, 2.0],
    "algorithm.chunk_length": 7,
    "algorithm.normalise_values": "popart",
    "algorithm.bounds": "tanh",
    "algorithm.network.memory": "lstm",
    "placement": "processes",
    "num_actors": 1,
    "collection": "asynchronous",
    "max_staleness": 2,
    "opponent": "random",
    "learn": ["player"],
    "game_options": {"nonsense": 1},
}


def test_pitfalls_cfg_05_pairs_of_settings_fit_or_are_refused_at_once() -> None:
    refused = 0
    for one, two in itertools.combinations(OTHER_VALUES, 2):
        started = time.monotonic()
        try:
            given = {one: OTHER_VALUES[one], two: OTHER_VALUES[two]}
            settings = config.build(TrainingRun, {"game": "cartpole", **SMALL_NETWORK, **given})
            check(settings)
            make_learners(assemble(settings))
        except (ConfigError, UnsupportedSpace):
            refused += 1
        assert time.monotonic() - started < 2
    assert 0 < refused < len(OTHER_VALUES) * (len(OTHER_VALUES) - 1) / 2


# --- one JSON document ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        ("games",),
        ("algorithms",),
        ("config",),
        ("config", "ppo", "--algorithm.learning_rate", "1e-3"),
        ("check-game", "cartpole", "--episodes", "1"),
        ("doctor",),
        ("play", "rps"),
    ],
)
def test_results_are_one_json_document(argv: tuple[str, ...], document: Any) -> None:
    code, result = document(*argv, "--json")
    assert code == 0
    assert result


def test_errors_are_one_json_document_too(document: Any) -> None:
    code, result = document("train", "pnog", "--json")
    assert code == 2
    assert result["error"]["type"] == "UnknownName"
    assert "did you mean 'pong'" in result["error"]["message"]
    json.dumps(result)

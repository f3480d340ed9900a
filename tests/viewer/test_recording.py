"""Replays recorded from a real, tiny training."""

import json
from pathlib import Path

import pytest
from handmade_runs import empty_run

from lamarckian.cli import main as cli
from lamarckian.rl.ppo import PPO
from lamarckian.runs.training import Evaluating, TrainingRun, train
from lamarckian.viewer import recording


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = TrainingRun(
        game="cartpole",
        algorithm=PPO(num_games=4, fragment_length=16, minibatch_size=32, num_epochs=1),
        frames=256,
        torch_threads=1,
        evaluation=Evaluating(episodes=2),
        seed=5,
    )
    path = tmp_path_factory.mktemp("runs") / "cartpole"
    train(settings, path)
    return path


def test_first_and_last_policy_play_the_same_match(trained: Path) -> None:
    replays, reason = recording.record_replays(trained)
    assert reason == ""
    assert [replay.title for replay in replays] == ["First policy", "Last policy"]
    first, last = replays
    assert first.frames[0] == last.frames[0]
    assert first.drawing is not None
    assert first.info["frames trained"] == 0
    assert last.info["frames trained"] == 256
    assert last.info["evaluation"] > 0
    assert recording.record_replays(trained)[0] == replays


def test_the_first_policy_is_that_of_the_first_checkpoint(trained: Path) -> None:
    from lamarckian.rl.assembly import assemble
    from lamarckian.runs import Run
    from lamarckian.runs.training import load_policies

    run = Run.open(trained)
    anew = assemble(run.load_config(TrainingRun)).policies
    saved = load_policies(run, 0).policies
    assert {k: p.fingerprint() for k, p in anew.items()} == {
        k: p.fingerprint() for k, p in saved.items()
    }


def test_the_command_records_by_itself(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(trained), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["replays"] == 2
    page = (trained / "report.html").read_text(encoding="utf-8")
    # What was set by hand comes before what was not.
    assert page.index("algorithm.num_games") < page.index("at their defaults")
    assert page.index("at their defaults") < page.index("algorithm.discount")


def test_a_run_of_an_unknown_game_still_has_a_report(tmp_path: Path) -> None:
    replays, reason = recording.record_replays(empty_run(tmp_path / "run", game="no-such-game"))
    assert replays == []
    assert "no-such-game" in reason

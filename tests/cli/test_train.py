"""From the command line to a run and back: train, kill, resume, evaluate, export."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from conftest import BATCH, SMALL

from lamarckian.cli.main import main
from lamarckian.runs.folder import Run

HERE = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)]),
    "OMP_NUM_THREADS": "1",
}
ENDLESS_FRAMES = ("--frames", "1000000000")


def start(*argv: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lamarckian", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        cwd=cwd,
        start_new_session=True,
    )


def wait_for_updates(path: Path, number: int, child: subprocess.Popen[str]) -> None:
    """Wait until the run has learned ``number`` times."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        journal = path / "journal.jsonl"
        if journal.exists() and journal.read_text("utf-8").count('"update"') >= number:
            return
        if child.poll() is not None:
            raise AssertionError(f"ended early: {child.communicate()}")
        time.sleep(0.02)
    raise AssertionError("no update within a minute")


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def wait_until_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("game", ["cartpole", "pong", "connect-four"])
def test_train_tells_one_document(game: str, tmp_path: Path, document: Any) -> None:
    path = tmp_path / "run"
    code, result = document(
        "train", game, "--run", str(path), "--frames", str(2 * BATCH), *SMALL, "--json"
    )
    assert code == 0
    assert result["finished"]
    assert result["reason"] == "frames"
    assert result["frames"] >= 2 * BATCH
    assert result["iterations"] == len([e for e in Run.open(path).replay() if e.event == "update"])
    assert result["evaluation"]["opponent"] == {"pong": "rule", "connect-four": "greedy"}.get(
        game, ""
    )


def test_config_files_and_options(tmp_path: Path, document: Any) -> None:
    """Options win over the file, the file wins over defaults."""
    file = tmp_path / "mine.yaml"
    file.write_text("algorithm:\n  learning_rate: 2e-4\n  discount: 0.9\nseed: 5\n", "utf-8")
    path = tmp_path / "run"
    code, _ = document(
        "train", "cartpole", "--config", str(file), "--run", str(path), "--frames", "10", *SMALL,
        "--seed", "6", "--json",
    )  # fmt: skip
    assert code == 0
    settings = Run.open(path).settings()
    assert settings["seed"] == 6
    assert settings["algorithm"]["learning_rate"] == 2e-4
    assert settings["algorithm"]["discount"] == 0.9
    assert settings["algorithm"]["num_games"] == 8


def test_evaluate_is_repeatable(cartpole_run: Path, document: Any) -> None:
    argv = ("evaluate", str(cartpole_run), "--episodes", "3", "--json")
    code, result = document(*argv)
    assert code == 0
    assert result["episodes"] == 3
    assert document(*argv)[1] == result
    other = document(*argv, "--seed", "9")[1]
    assert other["seed"] == 9
    assert other["metrics"] != result["metrics"]
    assert document(*argv, "--checkpoint", "0")[1]["checkpoint"] == "0"


def test_evaluate_against_another_bot(pong_run: Path, document: Any) -> None:
    code, result = document(
        "evaluate", str(pong_run), "--episodes", "1", "--opponent", "random", "--json"
    )
    assert code == 0
    assert result["opponent"] == "random"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--episodes", "0"], "at least 1"),
        (["--checkpoint", "first"], "expected last, best or a number"),
        (["--checkpoint", "77"], "77"),
        (["--opponent", "rul"], "did you mean 'rule'"),
    ],
)
def test_evaluate_refuses(
    options: list[str], words: str, pong_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(pong_run), *options]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_export_to_onnx_and_bundle(cartpole_run: Path, tmp_path: Path, document: Any) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    file = tmp_path / "with space ü.onnx"
    code, result = document("export", str(cartpole_run), "-o", str(file), "--json")
    assert code == 0
    assert result["largest_difference"] < 1e-5
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    assert session.get_inputs()
    code, result = document(
        "export", str(cartpole_run), "-o", str(tmp_path / "bundle"), "--format", "bundle", "--json"
    )
    assert code == 0
    assert result["group"] == "player"


def test_export_refuses(
    cartpole_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "x.onnx")
    for options, words in (
        (["-o", target, "--group", "plyer"], "did you mean 'player'"),
        (["-o", str(tmp_path / "no" / "folder" / "x.onnx")], "no/folder"),
    ):
        capsys.readouterr()
        assert main(["export", str(cartpole_run), *options]) == 2
        err = capsys.readouterr().err
        assert words in err
        assert "Traceback" not in err
    assert not Path(target).exists()


def test_resume_goes_on_and_extends(tmp_path: Path, document: Any) -> None:
    """Two iterations, then two more: the same end as four at once."""
    ends = []
    for name, first in (("straight", 4), ("extended", 2)):
        path = str(tmp_path / name)
        argv = ("--run", path, "--frames", str(first * BATCH), *SMALL, "--json")
        assert document("train", "cartpole", *argv)[0] == 0
    code, result = document(
        "resume", str(tmp_path / "extended"), "--frames", str(4 * BATCH), "--json"
    )
    assert code == 0
    assert result["iterations"] == 4
    for name in ("straight", "extended"):
        argv = ("evaluate", str(tmp_path / name), "--episodes", "4", "--json")
        ends.append(document(*argv)[1] | {"run": ""})
    assert ends[0] == ends[1]


def test_killed_and_resumed(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "run ü"
    child = start(
        "train", "cartpole", "--run", str(path), *ENDLESS_FRAMES, *SMALL,
        "--checkpoint_every", "5", "--json",
    )  # fmt: skip
    wait_for_updates(path, 12, child)
    child.kill()
    child.communicate()
    reached = max(e.fields["iteration"] for e in Run.open(path).replay() if e.event == "update")
    frames = (reached + 10) * BATCH
    code, result = document("resume", str(path), "--frames", str(frames), "--json")
    assert code == 0
    assert result["frames"] == frames
    assert result["iterations"] == reached + 10
    steps = [e.fields["iteration"] for e in Run.open(path).replay() if e.event == "update"]
    assert steps == list(range(1, reached + 11))  # LOG-03: one axis, nothing twice


def test_pitfalls_perf_01_actors_have_one_thread_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two actors; the plan is told to who asks with -v."""
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv("LAMARCKIAN_NOTES", str(notes))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    path = str(tmp_path / "run")
    code = main(
        ["train", "failing_games:TellsThreads", "--run", path, "--frames", str(BATCH), *SMALL,
         "--actors", "2", "--allow_oversubscription", "true", "-v"]
    )  # fmt: skip
    assert code == 0
    found = {int(note.name): note.read_text() for note in notes.iterdir()}
    found.pop(os.getpid(), None)
    assert len(found) == 2
    assert set(found.values()) == {"1"}
    assert "threads: 2 workers x 1 = 2" in capsys.readouterr().err


def check_ending_with_actors(path: Path, number: signal.Signals) -> int:
    child = start(
        "train", "cartpole", "--run", str(path), *ENDLESS_FRAMES, *SMALL, "--actors", "2",
        "--allow_oversubscription", "true", "--checkpoint_every", "1", "--json",
    )  # fmt: skip
    try:
        wait_for_updates(path, 3, child)
        actors = family(child.pid)
        assert len(actors) >= 2
        child.send_signal(number)
        child.communicate(timeout=30)
        wait_until_gone(actors)
    finally:
        child.kill()
    arrays = Run.open(path).load("last").arrays
    assert all(np.isfinite(array).all() for array in arrays.values())
    return child.returncode


def test_pitfalls_dst_08_kill_of_the_parent_leaves_nothing(tmp_path: Path) -> None:
    assert check_ending_with_actors(tmp_path / "run", signal.SIGKILL) == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_pitfalls_dst_08_a_signal_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    assert check_ending_with_actors(tmp_path / "run", number) == 130


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "words", "code"),
    [
        ("InInit", ["no paint left"], 2),
        ("InReset", ["worker", "failing_games:InReset", "seeds", "cannot set up"], 2),
        ("InStep", ["worker", "failing_games:InStep", "seeds", "fell off the table"], 2),
        ("WrongShape", ["worker", "input 'state'", "(4, 4, 1)"], 2),
        ("Exits", ["worker", "exit code 7", "failing_games:Exits", "actor_seed"], 1),
        ("Killed", ["worker", "SIGKILL", "out-of-memory", "failing_games:Killed"], 1),
    ],
)
def test_pitfalls_dst_01_a_failing_actor_is_explained(
    game: str, words: list[str], code: int, tmp_path: Path
) -> None:
    """Restarted a few times, then the run fails with the first error; nothing is left running."""
    path = tmp_path / "run"
    child = start(
        "train", f"failing_games:{game}", "--run", str(path), *ENDLESS_FRAMES, *SMALL,
        "--actors", "2", "--allow_oversubscription", "true", "--checkpoint_every", "1", "-q",
    )  # fmt: skip
    out, err = child.communicate(timeout=280)
    assert child.returncode == code, err
    assert out == ""
    for word in words:
        assert word in err
    assert "EOFError" not in err
    assert "BrokenPipe" not in err
    if game != "InInit":
        assert Run.open(path).load("last").arrays


def test_json_errors_of_actors(tmp_path: Path, document: Any) -> None:
    code, result = document(
        "train", "cartpole", "--run", str(tmp_path / "run"), "--actors", "9999", "--json"
    )
    assert code == 2
    assert result["error"]["type"] == "ConfigError"
    json.dumps(result)

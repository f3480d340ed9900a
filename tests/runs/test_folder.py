"""The run folder: made where it can be written, owned by one process, resumed by its name."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from lamarckian.errors import ConfigError, RunError
from lamarckian.runs.folder import Run, is_run


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    game: str = "pong"
    learning_rate: float = 3e-4


def test_default_names_count_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(2):
        with Run.create(None, "pong") as run:
            names.append(str(run.path))
    (tmp_path / "runs" / "pong-7").mkdir()
    (tmp_path / "runs" / "pong-styles-9").mkdir()
    with Run.create(None, "pong") as run:
        names.append(str(run.path))
    with Run.create(None, "my game: A/B") as run:
        names.append(str(run.path))
    assert names == ["runs/pong-1", "runs/pong-2", "runs/pong-8", "runs/my-game-A-B-1"]


def test_the_settings_come_back(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", "pong", Settings(learning_rate=1e-5), seed=3) as run:
        assert run.load_config(Settings) == Settings(learning_rate=1e-5)
        run.change_config(Settings(learning_rate=2e-5))
    run = Run.open(tmp_path / "r")
    assert run.settings() == {"game": "pong", "learning_rate": 2e-5}
    started, first, second = run.replay()
    assert (started.fields["name"], started.fields["seed"]) == ("pong", 3)
    assert first.fields["settings"]["learning_rate"] == 1e-5
    assert second.fields["settings"]["learning_rate"] == 2e-5
    (tmp_path / "r" / "config.yaml").write_text("gam: pong\n")
    with pytest.raises(ConfigError, match="did you mean 'game'"):
        run.load_config(Settings)


def test_pitfalls_cfg_09_odd_paths_work(tmp_path: Path) -> None:
    path = tmp_path / "a b" / "ü" / "run"
    with Run.create(path, "x") as run:
        run.save(1, {"a": 1}, {"policy/w": np.ones(2)})
    with Run.resume(path) as run:
        assert run.load().state == {"a": 1}
    with pytest.raises(RunError, match=r"lamarckian resume \".*a b/ü/run\""):
        Run.create(path, "x")


def test_pitfalls_cfg_09_unwritable_path_fails_at_once_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bad = tmp_path / "file" / "run"
    with pytest.raises(RunError, match=r"file/run: cannot make the run folder here"):
        Run.create(bad, "x")


@pytest.mark.skipif(os.geteuid() != 0 and not Path("/usr/bin/unshare").exists(), reason="needs it")
def test_pitfalls_cfg_09_read_only_folder(tmp_path: Path) -> None:
    folder = tmp_path / "read only"
    folder.mkdir()
    folder.chmod(0o555)
    code = (
        "import os, sys\n"
        "from lamarckian.errors import RunError\n"
        "from lamarckian.runs.folder import Run\n"
        "if os.geteuid() == 0:\n"
        "    os.setgid(65534); os.setuid(65534)\n"
        "for path in (sys.argv[1], None):\n"
        "    try:\n"
        "        Run.create(path, 'x')\n"
        "    except RunError as error:\n"
        "        print(error)\n"
    )
    for parent in (tmp_path, *tmp_path.parents):
        if parent.owner() == "root" and parent not in (Path("/"), Path("/tmp")):
            parent.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(folder / "run")],
        cwd=folder, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert f"{folder}/run: cannot make the run folder here: Permission denied" in first
    assert f"{folder}/runs: cannot make a run folder here: Permission denied" in second


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="not empty and holds no run"):
        Run.create(tmp_path, "x")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunError, match="holds no run"):
        Run.open(tmp_path)


def test_a_wrong_name_lists_the_runs_there(tmp_path: Path) -> None:
    Run.create(tmp_path / "pong-1", "x").close()
    with pytest.raises(RunError, match=r"no such run folder; runs in .*: pong-1"):
        Run.open(tmp_path / "pong-2")


def test_readers_do_not_disturb_the_writer(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "r", "x")
    reader = Run.open(run.path)
    assert is_run(reader.path)
    assert reader.writer_pid == os.getpid()
    assert [entry.event for entry in reader.replay()] == ["run_started", "config"]
    with pytest.raises(RunError, match="for reading only"):
        reader.save(1, {}, {})
    with pytest.raises(RunError, match="is writing this run"):
        Run.resume(run.path)
    run.save(1, {}, {})
    run.close()
    assert reader.writer_pid is None
    assert reader.load().info.step == 1


def test_the_checkpoint_event_survives_going_back_to_it(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", "x") as run:
        run.save(10, {}, {})
        run.journal.record("update", {"iteration": 11})
    with Run.resume(run.path) as run:
        run.go_back(run.load().info)
        assert [entry.event for entry in run.replay()] == [
            "run_started", "config", "checkpoint", "resumed",
        ]  # fmt: skip

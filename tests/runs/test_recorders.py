"""What a run shows and sends: little, true, and never in the way of training."""

import io
import logging
import math
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lamarckian.errors import MissingDependency
from lamarckian.metrics import METRICS, Recorder
from lamarckian.runs import display
from lamarckian.runs.display import NORMAL, QUIET, VERBOSE, ConsoleRecorder, Status
from lamarckian.runs.journal import Journal, read
from lamarckian.runs.recorders import (
    JournalRecorder,
    MultiRecorder,
    TensorBoardRecorder,
    WandbRecorder,
    scalars,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def update(number: int, **metrics: float | None) -> dict[str, Any]:
    return {
        "iteration": number, "frames": 400 * number, "decisions": 100 * number,
        "samples": 100 * number, "metrics": metrics,
    }  # fmt: skip


def play_run(verbosity: int, seconds: float, updates: int, **options: Any) -> list[str]:
    stream, clock = io.StringIO(), Clock()
    console = ConsoleRecorder(
        target_frames=400 * updates, verbosity=verbosity, stream=stream, clock=clock, **options
    )
    for number in range(1, updates + 1):
        clock.now = 100.0 + seconds * number / updates
        console.record(
            "episode_batch", {"frames": 400 * number, "episodes": 2, "returns": [1.0, 2.0]}
        )
        console.record("update", update(number, return_mean=1.5, win_rate=0.25, entropy=0.7))
        if number % 10 == 0:
            console.record("worker_failed", {"worker": "actor 3", "reason": "killed"})
    console.record("finished", {})
    console.close()
    return stream.getvalue().splitlines()


def test_pitfalls_log_05_at_most_one_line_in_ten_seconds() -> None:
    lines = play_run(NORMAL, seconds=60.0, updates=600)
    # 60 seconds hold 6 lines, the first comes at once, the last says how it ended.
    assert 6 <= len(lines) <= 8
    assert lines[-1].startswith("finished: 240,000 frames in 1:00")
    assert "[actor 3 failed: killed (x" in lines[1]


def test_pitfalls_log_05_quiet_gives_only_the_end() -> None:
    (line,) = play_run(QUIET, seconds=60.0, updates=600)
    assert line.startswith("finished: 240,000 frames in 1:00  return 1.5  win rate 0.25")


def test_a_run_resumed_at_its_end_claims_nothing_of_its_play() -> None:
    stream = io.StringIO()
    console = ConsoleRecorder(stream=stream, clock=Clock())
    console.record("finished", {"metrics": {}})
    assert stream.getvalue() == "finished: 0 frames in 0:00\n"


def test_verbose_gives_every_update() -> None:
    assert 600 <= len(play_run(VERBOSE, seconds=60.0, updates=600)) <= 608


def test_a_line_has_progress_speed_and_time_left() -> None:
    lines = play_run(NORMAL, seconds=40.0, updates=4)
    # 400 frames in 10 s: 40 frames/s; after 2 of 4 updates 800 frames are left: 20 s.
    assert lines[1] == (
        " 50%  800/1,600 frames  0:20  return 1.5  win rate 0.25  40 frames/s  ETA 0:20"
    )


def test_a_resumed_run_counts_its_speed_from_where_it_resumes() -> None:
    status = Status(target_frames=2000, begun=0.0, first_frames=1000)
    status.take("update", update(3))
    assert status.frames_per_second(10.0) == 20.0
    assert status.seconds_left(10.0) == 40.0


def test_pitfalls_ep_08_no_episode_yet_is_said_and_no_nan_is_shown() -> None:
    stream = io.StringIO()
    console = ConsoleRecorder(target_frames=10_000, verbosity=VERBOSE, stream=stream)
    for number in range(1, 11):
        console.record(
            "update",
            update(
                number, return_mean=math.nan, current_length=12345.0, reward_per_decision=0.25,
                episodes=0.0, length_mean=None,
            ),
        )  # fmt: skip
    console.record("stopped", {"reason": "interrupted"})
    text = stream.getvalue()
    assert "0 episodes finished, current length 12,345, reward per decision 0.25" in text
    assert "nan" not in text.lower().replace("return_mean not finite", "")
    assert "stopped (interrupted): 4,000 frames" in text.splitlines()[-1]


def test_pitfalls_log_06_frames_decisions_and_samples_are_three_numbers(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    recorder = JournalRecorder(journal)
    # A frame skip of 4: 400 frames, 100 decisions; 2 epochs do not count a sample twice.
    recorder.record("update", update(1))
    recorder.close()
    journal.close()
    (entry,) = read(tmp_path)
    assert entry.fields["frames"] == 4 * entry.fields["decisions"]
    assert entry.fields["samples"] == entry.fields["decisions"]
    texts = {METRICS[name].unit for name in ("frames", "decisions", "samples")}
    assert texts == {"frames", "decisions", "samples"}
    assert METRICS["decisions_per_cpu_second"].what != METRICS["samples_per_cpu_second"].what


def test_the_live_panel_draws_and_leaves() -> None:
    lines = play_run(NORMAL, seconds=60.0, updates=30, live=True, title="pong-1")
    text = "\n".join(lines)
    assert "pong-1" in text
    assert "return mean 1.5" in text
    assert "actor 3 failed: killed" in text
    assert "finished: 12,000 frames in 1:00" in lines[-1]
    assert "\x1b[?25h" in text  # the cursor is back


def test_roles_have_their_own_numbers() -> None:
    status = Status(target_frames=None, begun=0.0)
    status.take(
        "update", update(1, episodes=3.0, **{"return_mean/red": 1.0, "return_mean/blue": -1.0})
    )
    assert display.line(status, 5.0) == (
        "400 frames  0:05  return red 1  return blue -1  80 frames/s"
    )


def test_an_evolution_shows_its_search() -> None:
    status = Status(target_frames=None, begun=0.0)
    for number in range(24):
        status.take("individual_told", {"id": str(number), "status": "failed" if number else "ok"})
    status.take("generation", {"generation": 1, "front": ["a", "b"], "evaluations": 24})
    assert display.line(status, 5.0) == (
        "0:05  generation 1  evaluations 24  failed evaluations 23  front size 2"
    )


def test_a_number_that_is_not_finite_is_named() -> None:
    status = Status(target_frames=None, begun=0.0)
    status.take("update", update(1, episodes=1.0, policy_loss=math.inf))
    assert "policy_loss not finite" in display.line(status, 1.0)
    status.take("update", update(2, policy_loss=1.0))
    assert "not finite" not in display.line(status, 1.0)


def test_every_metric_of_the_panel_is_in_the_catalogue() -> None:
    names = [name for _, group in display._PANEL for name in group]
    assert set(names) <= METRICS.keys()
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (61.9, "1:01"), (3600, "1:00:00"), (90_061, "25:01:01")]
)
def test_durations(seconds: float, text: str) -> None:
    assert display.duration(seconds) == text


def test_a_terminal_that_went_away_does_not_stop_training() -> None:
    stream = io.StringIO()
    console = ConsoleRecorder(stream=stream, live=False)
    stream.close()
    console.record("update", update(1))
    console.record("finished", {})
    console.close()


class Broken:
    closed = False

    def record(self, event: str, fields: Mapping[str, Any]) -> None:
        raise ConnectionError("no network")

    def close(self) -> None:
        self.closed = True
        raise OSError("no network")


class Kept:
    def __init__(self) -> None:
        self.events: list[str] = []

    def record(self, event: str, fields: Mapping[str, Any]) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.events.append("closed")


def test_pitfalls_cfg_03_a_failing_recorder_never_stops_training(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    kept = Kept()
    recorder = MultiRecorder([Broken(), kept])
    for _ in range(3):
        recorder.record("update", {})
    recorder.close()
    assert kept.events == ["update", "update", "update", "closed"]
    assert [entry.message for entry in caplog.records] == [
        "Broken failed and is switched off; training goes on: no network"
    ]
    journal = Journal(tmp_path)
    strict = MultiRecorder([JournalRecorder(journal)])
    with pytest.raises(TypeError, match="unknown event"):
        strict.record("nonsense", {})
    journal.close()
    assert isinstance(strict, Recorder)
    assert isinstance(ConsoleRecorder(stream=io.StringIO()), Recorder)


class FakeWandb(types.ModuleType):
    """Stands for the service: remembers what it is told and fails as it is told."""

    def __init__(self, fails: tuple[str, ...] = ()) -> None:
        super().__init__("wandb")
        self.fails = fails
        self.inits: list[str] = []
        self.logged: list[dict[str, float]] = []
        self.broken = False

    def Settings(self, **options: Any) -> dict[str, Any]:  # noqa: N802 - its name there
        return options

    def init(self, *, mode: str, **options: Any) -> "FakeWandb":
        self.inits.append(mode)
        if mode in self.fails:
            raise TimeoutError("service did not answer")
        return self

    def define_metric(self, name: str, step_metric: str) -> None:
        self.step = step_metric

    def log(self, numbers: dict[str, float]) -> None:
        if self.broken:
            raise ConnectionError("gone")
        self.logged.append(numbers)

    def finish(self) -> None:
        self.inits.append("finished")


@pytest.fixture
def no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def wandb_with(monkeypatch: pytest.MonkeyPatch, folder: Path, fake: FakeWandb) -> WandbRecorder:
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return WandbRecorder(folder, name="x", settings={"a": 1})


@pytest.mark.usefixtures("no_login")
def test_pitfalls_cfg_03_wandb_is_offline_without_a_login(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = FakeWandb()
    recorder = wandb_with(monkeypatch, tmp_path, fake)
    recorder.record("update", update(1, entropy=0.5, policy_loss=math.nan))
    recorder.record("warning", {"message": "x"})
    recorder.close()
    recorder.close()
    assert fake.inits == ["offline", "finished"]
    assert fake.logged == [
        {"train/iteration": 1.0, "train/decisions": 100.0, "train/samples": 100.0,
         "train/entropy": 0.5, "frames": 400},
    ]  # fmt: skip
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password x\n")
    assert wandb_with(monkeypatch, tmp_path, FakeWandb()).mode == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert wandb_with(monkeypatch, tmp_path, FakeWandb()).mode == "disabled"


@pytest.mark.usefixtures("no_login")
def test_pitfalls_cfg_03_loss_of_network_never_stops_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "x")
    fake = FakeWandb(fails=("online",))
    recorder = wandb_with(monkeypatch, tmp_path, fake)
    assert fake.inits == ["online", "offline"]
    assert recorder.mode == "offline"
    fake.broken = True
    for number in range(3):
        recorder.record("update", update(number))
    recorder.close()
    assert sum("switched off" in entry.message for entry in caplog.records) == 1
    dead = wandb_with(monkeypatch, tmp_path, FakeWandb(fails=("online", "offline")))
    dead.record("update", update(1))
    dead.close()


@pytest.mark.parametrize(
    ("module", "make", "command"),
    [
        ("wandb", lambda path: WandbRecorder(path, name="x"), "lamarckian[wandb]"),
        ("tensorboard", TensorBoardRecorder, "lamarckian[tensorboard]"),
    ],
)
def test_pitfalls_ins_03_a_missing_extra_gives_its_install_command(
    module: str, make: Any, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # what an import of an absent package meets
    with pytest.raises(MissingDependency) as caught:
        make(tmp_path)
    assert f"pip install '{command}'" in str(caught.value)
    assert caught.value.exit_code == 2


def test_tensorboard_gets_numbers_over_frames(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int | None) -> None:
            assert purge_step == 400

        def add_scalar(self, name: str, value: float, step: int) -> None:
            if step > 1000:
                raise OSError("disk full")
            written.append((name, value, step))

        def close(self) -> None:
            written.append(("closed", 0.0, 0))

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))
    recorder = TensorBoardRecorder(tmp_path, resumed_at=400)
    recorder.record("update", update(2, entropy=0.5))
    assert ("train/entropy", 0.5, 800) in written
    with caplog.at_level(logging.WARNING):
        recorder.record("update", update(9, entropy=0.5))
        recorder.record("update", update(2, entropy=0.5))
    assert len(caplog.records) == 1
    recorder.close()


def test_scalars_carry_the_role() -> None:
    fields = {"frames": 1, "role": "red", "metrics": {"return_mean": 2.0}}
    assert list(scalars("episode_batch", fields)) == [("episodes/return_mean/red", 2.0)]

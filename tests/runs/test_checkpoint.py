"""Checkpoints: equal when read back, whole after any kill, small on disk, readable for years."""

import errno
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from lamarckian.errors import CheckpointError
from lamarckian.runs import checkpoint as checkpoints
from lamarckian.runs.checkpoint import Keep
from lamarckian.runs.folder import Run

GOLDEN = Path(__file__).parent.parent / "golden" / "run_v0.1"

ARRAYS: dict[str, Any] = {
    "policy/weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "policy/scale": np.float64(0.1),
    "optimiser/step": np.array(7, dtype=np.int64),
    "optimiser/empty": np.zeros((0, 4), dtype=np.float16),
    "replay/frames": np.arange(12, dtype=np.uint8).reshape(3, 4).T,
    "replay/done": np.array([True, False]),
    "loose": np.arange(3, dtype=">i4"),
}
STATE: dict[str, Any] = {
    "rng": {"state": 2**127 + 1, "words": [1, (2, 3)]},
    "best": -math.inf,
    "sum": 0.1 + 0.2,
    "counts": {"frames": np.int64(3), "on": np.bool_(True), "none": None, "text": "ü"},
}


def blobs(folder: Path) -> set[str]:
    return {path.name for path in (folder / "blobs").iterdir()}


def test_everything_comes_back_equal(tmp_path: Path) -> None:
    info = checkpoints.save(tmp_path, 3, STATE, ARRAYS, score=1.5, sequence=9)
    back = checkpoints.load(tmp_path)
    assert back.warnings == []
    assert (back.info.step, back.info.sequence, back.info.score) == (3, 9, 1.5)
    assert info == back.info
    assert back.state == {
        "rng": {"state": 2**127 + 1, "words": [1, [2, 3]]},
        "best": -math.inf,
        "sum": 0.30000000000000004,
        "counts": {"frames": 3, "on": True, "none": None, "text": "ü"},
    }
    assert back.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(back.arrays[name], array)
        assert back.arrays[name].dtype == np.asarray(array).dtype.newbyteorder("=")
        assert back.arrays[name].shape == np.asarray(array).shape
        back.arrays[name][...] = 1  # writable, and nobody else's


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    array=hn.arrays(
        st.one_of(hn.boolean_dtypes(), hn.integer_dtypes(), hn.unsigned_integer_dtypes(),
                  hn.floating_dtypes(sizes=(16, 32, 64))),
        hn.array_shapes(min_dims=0, min_side=0, max_side=4),
    ),
    turned=st.booleans(),
)  # fmt: skip
def test_any_array_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, turned: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    value = array.T if turned else array
    digest = checkpoints.write_blob(folder, {"a": value}).sha256
    back = checkpoints.read_blob(folder, digest)["a"]
    native = value.astype(value.dtype.newbyteorder("="))
    assert back.dtype == native.dtype
    assert back.shape == value.shape
    assert back.tobytes() == native.tobytes()


@pytest.mark.parametrize(
    ("state", "arrays", "part"),
    [
        ({"a": {"b": [1, np.ones(2)]}}, {}, r"state.a.b\[1\] is a ndarray"),
        ({"a": {1: 2}}, {}, "key 1"),
        ({}, {"p/x": np.array(["a"])}, "'p/x' has dtype <U1"),
        ({}, {"p/x": np.array([None])}, "'p/x' has dtype object"),
        ({}, {"p/x": np.ones(1, dtype=complex)}, "complex128"),
    ],
)
def test_what_cannot_be_stored_is_named(tmp_path: Path, state: Any, arrays: Any, part: str) -> None:
    with pytest.raises(CheckpointError, match=part):
        checkpoints.save(tmp_path, 1, state, arrays)
    assert list(tmp_path.iterdir()) == []


def test_equal_parts_are_stored_once_and_read_alone(tmp_path: Path) -> None:
    one = checkpoints.save(tmp_path, 1, {}, {"policy/w": np.ones(4), "optimiser/m": np.ones(1)})
    two = checkpoints.save(tmp_path, 2, {}, {"policy/w": np.ones(4), "optimiser/m": np.ones(2)})
    assert one.parts["policy"] == two.parts["policy"]
    assert len(blobs(tmp_path)) == 3
    assert list(checkpoints.load(tmp_path, parts=["policy"]).arrays) == ["policy/w"]


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, 1, {"learner": 1}, {"policy/w": np.ones(1)})
    checkpoints.load(tmp_path, require=["learner", "policy"])
    with pytest.raises(CheckpointError, match=r"lacks 'lerner'; did you mean 'learner'\?"):
        checkpoints.load(tmp_path, require=["policy", "lerner"])
    with pytest.raises(CheckpointError, match="lacks 'optimiser'"):
        checkpoints.load(tmp_path, parts=["optimiser"])
    with pytest.raises(CheckpointError, match="no checkpoint of step 2; there are 1"):
        checkpoints.load(tmp_path, 2)


def test_last_best_and_every_stay_and_the_rest_goes(tmp_path: Path) -> None:
    scores = {1: 0.1, 2: 0.9, 3: math.nan, 4: 0.9, 5: 0.2, 6: None, 7: 0.3, 8: 0.0, 9: 0.1}
    for step, score in scores.items():
        checkpoints.save(
            tmp_path, step, {}, {"policy/w": np.full(2, step)},
            score=score, sequence=step, keep=Keep(last=2, best=1, every=5),
        )  # fmt: skip
    # Newest two, the best (the first of two equals), and each fifth.
    assert [info.step for info in checkpoints.available(tmp_path)] == [2, 5, 8, 9]
    assert len(blobs(tmp_path)) == 4
    assert checkpoints.load(tmp_path, "best").info.step == 2
    assert checkpoints.load(tmp_path).arrays["policy/w"].tolist() == [9, 9]


def test_last_is_last_in_time_not_in_steps(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, 30, {}, {}, sequence=5)
    checkpoints.save(tmp_path, 20, {}, {}, sequence=8)  # after a resume from step 10
    assert checkpoints.load(tmp_path).info.step == 20


def test_blobs_of_individuals_and_pinned_ones_are_not_collected(tmp_path: Path) -> None:
    (tmp_path / "individuals").mkdir()
    held = checkpoints.save(tmp_path, 1, {}, {"policy/w": np.ones(1)}).parts["policy"].sha256
    pinned = checkpoints.save(tmp_path, 2, {}, {"policy/w": np.ones(2)}).parts["policy"].sha256
    (tmp_path / "individuals" / "a.json").write_text(f'{{"weights": "{held}"}}')
    for step in range(3, 7):
        arrays = {"policy/w": np.ones(step)}
        checkpoints.save(tmp_path, step, {}, arrays, sequence=step, pinned=[pinned])
    assert {f"{held}.safetensors", f"{pinned}.safetensors"} <= blobs(tmp_path)
    assert len(blobs(tmp_path)) == 4
    (tmp_path / "blobs" / ".tmp-rest").write_bytes(b"x")
    checkpoints.write_blob(tmp_path, {"orphan": np.ones(9)})
    checkpoints.collect_garbage(tmp_path, [pinned])
    assert len(blobs(tmp_path)) == 4


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_flip, damage_cut, damage_empty, os.unlink])
@pytest.mark.parametrize("where", ["blob", "manifest"])
def test_a_damaged_latest_falls_back_with_a_warning(
    tmp_path: Path, damage: Any, where: str
) -> None:
    run = Run.create(tmp_path / "run", "x")
    for step in (1, 2):
        assert run.save(step, {"step": step}, {"policy/w": np.full(3, step)}) is not None
    newest = run.checkpoints()[-1]
    blob = checkpoints.blob_path(run.path, newest.parts["policy"].sha256)
    damage(blob if where == "blob" else run.path / "checkpoints" / "2.json")
    loaded = run.load()
    assert loaded.state == {"step": 1}
    assert loaded.arrays["policy/w"].tolist() == [1, 1, 1]
    if where == "blob" or damage is not os.unlink:
        assert len(loaded.warnings) == 1
        assert "2.json" in loaded.warnings[0] or blob.name in loaded.warnings[0]
        assert [entry.event for entry in run.replay()][-1] == "checkpoint_damaged"
        with pytest.raises(CheckpointError):
            run.load(2)
    # The damaged step can be written again.
    run.go_back(loaded.info)
    run.save(2, {"step": 2}, {"policy/w": np.full(3, 2)})
    assert run.load().state == {"step": 2}
    run.close()


def test_all_damaged_is_an_error_that_names_each(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, 1, {}, {})
    damage_cut(tmp_path / "checkpoints" / "1.json")
    with pytest.raises(CheckpointError, match=r"every checkpoint is damaged.*1\.json"):
        checkpoints.load(tmp_path)
    with pytest.raises(CheckpointError, match="no checkpoint in this run"):
        checkpoints.load(tmp_path / "none")


def test_a_later_schema_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SCHEMA", 99)
    checkpoints.save(tmp_path, 1, {}, {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"schema 99.*upgrade"):
        checkpoints.load(tmp_path, 1)


def test_pitfalls_cfg_06_the_first_state_is_saved_and_loaded_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create(tmp_path / "run", "x")
    run.rehearse(STATE, ARRAYS)
    assert [info.step for info in run.checkpoints()] == [0]
    with pytest.raises(CheckpointError, match=r"state.env is a function"):
        run.rehearse({"env": damage_cut}, {})
    monkeypatch.setattr(checkpoints, "_from_json", lambda value: {**value, "best": 1.0})
    with pytest.raises(CheckpointError, match="state 'best' does not come back"):
        checkpoints.rehearse(run.path, {"best": 2.0}, {})
    run.close()


def test_pitfalls_ck_07_no_room_is_seen_before_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run.create(tmp_path / "run", "x")
    assert run.save(1, {}, {"policy/w": np.ones(10)}) is not None
    before = blobs(run.path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=3 << 20))
    assert run.save(2, {}, {"policy/w": np.ones(1 << 19)}) is None
    assert "about 5 MB needed, 3 MB free" in caplog.text
    assert blobs(run.path) == before
    assert run.replay()[-1].event == "checkpoint_failed"
    assert run.load().info.step == 1
    run.close()


# Children find the package the way this process does, installed or not.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

FILLER = """
import logging, sys
from pathlib import Path
import numpy as np
from lamarckian.runs.checkpoint import Keep
from lamarckian.runs.folder import Run
logging.basicConfig(stream=sys.stdout, format="%(message)s")
folder = Path(sys.argv[1])
run = Run.create(folder / "run", "x", keep=Keep(last=100))
saved = []
for step in range(1, 13):
    run.journal.record("update", {"iteration": step})
    if run.save(step, {"step": step}, {"policy/w": np.full(60_000, step)}):
        saved.append(step)
with (folder / "filler").open("wb", buffering=0) as other:  # the rest is taken by somebody else
    try:
        for _ in range(1 << 16):
            other.write(b"x" * 512)
    except OSError:
        pass
for step in range(13, 100):
    run.journal.record("update", {"iteration": step})
(folder / "filler").unlink()
run.journal.record("update", {"iteration": 100})
run.close()
run = Run.resume(folder / "run")
last = run.load()
events = [entry.event for entry in run.replay()]
run.close()
print("saved", saved, "last", last.state["step"], last.warnings, float(last.arrays["policy/w"][0]))
print("gap" if "journal_gap" in events else "no gap", events[-1])
"""


def test_pitfalls_ck_07_a_small_disk(tmp_path: Path) -> None:
    """A real file system of 4 MB: checkpoints of 0.5 MB each, then nothing is left at all."""
    script = (
        f"mount -t tmpfs -o size=4m tmpfs '{tmp_path}' && exec '{sys.executable}' -c \"$0\" "
        f"'{tmp_path}'"
    )
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            ["unshare", "-rm", "sh", "-c", f"mount -t tmpfs -o size=4m tmpfs '{tmp_path}'"],
            capture_output=True,
        ).returncode
    ):
        pytest.skip("this machine does not allow a private mount")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, FILLER],
        env=ENVIRONMENT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    # A save asks for its 469 KiB and 1024 KiB of room: 4096 - 5 * 469 = 1751 is enough for a sixth,
    # 4096 - 6 * 469 = 1282 is not enough for a seventh.
    assert lines[-2] == "saved [1, 2, 3, 4, 5, 6] last 6 [] 6.0"
    assert lines[-1] == "gap update"
    assert sum("the disk is full" in line for line in lines) == 6
    assert any("an event was not written" in line for line in lines)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_pitfalls_ck_07_a_disk_that_fills_up_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """The disk is full at the first, second or third synced file of a save."""
    run = Run.create(tmp_path / "run", "x")
    arrays = {"policy/w": np.ones(10), "optimiser/m": np.ones(5)}
    assert run.save(1, {"a": 1}, arrays) is not None
    real, calls = os.fsync, [0]

    def full(descriptor: int) -> None:
        calls[0] += 1
        # Two syncs to a file: its content and its folder.
        if calls[0] == 2 * after + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    changed = {name: array + 1 for name, array in arrays.items()}
    assert run.save(2, {"a": 2}, changed) is None
    monkeypatch.undo()
    assert run.load().state == {"a": 1}
    assert run.save(3, {"a": 3}, changed) is not None
    assert run.load().state == {"a": 3}
    run.close()
    assert list(run.path.rglob(".tmp-*")) == []


# Imports once and forks for each life, because the imports take longer than the saves. The saver
# says each step it has saved; after its death the parent says "dead".
SAVER = """
import os, sys
from pathlib import Path
import numpy as np
from lamarckian.runs.folder import Run

def save_for_ever():
    run = Run.resume(Path(sys.argv[1]))
    loaded = run.load()
    run.go_back(loaded.info)
    step = loaded.info.step
    print(os.getpid(), flush=True)
    while True:
        step += 1
        arrays = {"policy/w": np.full(2000, step), "optimiser/m": np.full(500, step % 3)}
        run.save(step, {"step": step}, arrays, score=float(step % 7))
        print(step, flush=True)

while sys.stdin.readline():
    child = os.fork()
    if child == 0:
        save_for_ever()
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


def kill_at_random_moments(tmp_path: Path, times: int) -> None:
    run = Run.create(tmp_path / "run", "x")
    run.rehearse({"step": 0}, {"policy/w": np.zeros(2000), "optimiser/m": np.zeros(500)})
    run.close()
    draw = random.Random(5)
    newest = whole = 0
    server = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(run.path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    for _ in range(times):
        server.stdin.write(b"again\n")
        server.stdin.flush()
        saver = int(server.stdout.readline())
        # Some saves whole, then a moment within the next one or two.
        said = [int(server.stdout.readline()) for _ in range(draw.randrange(3))]
        whole += len(said)
        time.sleep(draw.random() * 0.01)
        os.kill(saver, signal.SIGKILL)
        # The kill may tear the saver's last word: its digits then stand before "dead" on one line.
        while not (word := server.stdout.readline()).endswith(b"dead\n"):
            said.append(int(word))
        promised = max(said, default=newest)
        reader = Run.open(run.path)
        loaded = reader.load(require=["step", "policy", "optimiser"])
        assert loaded.warnings == []
        newest = loaded.info.step
        assert newest >= promised  # what was reported as saved is saved
        assert loaded.state == {"step": newest}
        assert (loaded.arrays["policy/w"] == newest).all()
        assert (loaded.arrays["optimiser/m"] == newest % 3).all()
        assert reader.load("best").info.score is not None or newest == 0
    server.stdin.close()
    server.stdout.close()
    assert server.wait() == 0
    steps = [e.fields["step"] for e in Run.open(run.path).replay() if e.event == "checkpoint"]
    assert steps == sorted(set(steps))
    Run.resume(run.path).close()
    assert list(run.path.rglob(".tmp-*")) == []
    assert len(blobs(run.path)) <= 8
    assert newest >= whole > 0


def test_pitfalls_ck_06_kill_during_saves(tmp_path: Path) -> None:
    kill_at_random_moments(tmp_path, 15)


@pytest.mark.slow
def test_pitfalls_ck_06_kill_during_saves_fifty_times(tmp_path: Path) -> None:
    kill_at_random_moments(tmp_path, 50)


def test_pitfalls_ck_04_golden_run_of_release_0_1(tmp_path: Path) -> None:
    run = Run.open(GOLDEN)
    loaded = run.load(require=["rng", "best", "policy", "optimiser", "replay"])
    assert loaded.warnings == []
    assert loaded.info.schema == 1
    assert loaded.info.version == "0.1.0"
    assert loaded.state["rng"]["state"] == 2**127 + 1
    assert loaded.state["best"] == -math.inf
    assert loaded.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded.arrays[name], array)
    entries = run.replay()
    assert [entry.event for entry in entries] == [
        "run_started", "config", "update", "checkpoint", "finished",
    ]  # fmt: skip
    assert math.isnan(entries[2].fields["metrics"]["entropy"])
    assert run.settings() == {"game": "pong", "learning_rate": 3e-4, "name": "3e-4"}

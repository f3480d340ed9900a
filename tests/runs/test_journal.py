"""The journal: one writer, checked lines, a torn end mended, one axis over resumes."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamarckian.errors import RunError
from lamarckian.runs import events
from lamarckian.runs.journal import FILE_NAME, Journal, read, replay


def write(folder: Path, count: int) -> Path:
    journal = Journal(folder)
    for number in range(count):
        journal.append(events.Update(iteration=number, frames=10 * number))
    journal.close()
    return folder / FILE_NAME


def test_a_line_is_json_with_number_and_checksum(tmp_path: Path) -> None:
    line = write(tmp_path, 1).read_bytes()
    document = json.loads(line)
    assert document["n"] == 1
    assert document["d"]["type"] == "update"
    body = line[: line.index(b',"c":')]
    assert document["c"] == f"{zlib.crc32(body):08x}"


def test_entries_come_back_typed_and_numbered(tmp_path: Path) -> None:
    entries = list(read(write(tmp_path, 3)))
    assert [entry.sequence for entry in entries] == [1, 2, 3]
    assert entries[2].typed() == events.Update(iteration=2, frames=20)
    assert abs(entries[0].time - time.time()) < 60


def test_numbers_that_are_not_finite_are_null_with_a_name(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    metrics = {"entropy": math.nan, "ratio.max/50%": math.inf, "score": None, "x": -math.inf}
    journal.record("update", {"iteration": 1, "metrics": metrics})
    journal.record("episode_batch", {"frames": 1, "episodes": 2, "returns": [1.0, math.nan]})
    journal.close()
    lines = (tmp_path / FILE_NAME).read_text().splitlines()

    def refuse(word: str) -> float:
        raise AssertionError(f"bare {word} in the journal")

    first, second = (json.loads(line, parse_constant=refuse) for line in lines)
    assert first["d"]["metrics"]["entropy"] is None
    assert first["x"]["metrics.entropy"] == "nan"
    assert second["x"] == {"returns.1": "nan"}
    update, batch = read(tmp_path)
    assert math.isnan(update.fields["metrics"]["entropy"])
    assert update.fields["metrics"]["ratio.max/50%"] == math.inf
    assert update.fields["metrics"]["x"] == -math.inf
    assert update.fields["metrics"]["score"] is None
    assert math.isnan(batch.fields["returns"][1])


def test_a_writer_is_strict_and_a_reader_is_lenient(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(TypeError, match="unknown event 'updat'"):
        journal.record("updat", {})
    with pytest.raises(TypeError, match=r"event 'update'.*lost"):
        journal.record("update", {"iteration": 1, "lost": 2})
    journal.record("update", {"iteration": 1})
    journal.close()
    later = b'{"n":2,"t":1.0,"d":{"type":"update","iteration":2,"later":[1]}'
    other = b'{"n":3,"t":1.0,"d":{"type":"from_the_future","a":1}'
    with (tmp_path / FILE_NAME).open("ab") as stream:
        for body in (later, other):
            stream.write(body + b',"c":"%08x"}\n' % zlib.crc32(body))
    entries = list(read(tmp_path))
    assert entries[1].fields["later"] == [1]
    assert entries[1].typed() == events.Update(iteration=2)
    assert (entries[2].event, entries[2].fields, entries[2].typed()) == (
        "from_the_future", {"a": 1}, None,
    )  # fmt: skip


def test_every_event_round_trips(tmp_path: Path) -> None:
    sample = {"int": 3, "str": "ü", "dict": {"a": 1.0}, "list": []}
    journal = Journal(tmp_path)
    sent = []
    for kind in events.EVENTS.values():
        needed = [field for field in msgspec.structs.fields(kind) if field.required]
        values = {
            field.name: sample[getattr(field.type, "__origin__", field.type).__name__]
            for field in needed
        }
        sent.append(kind(**values))
        journal.append(sent[-1])
    journal.close()
    assert [entry.typed() for entry in read(tmp_path)] == sent


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cut=st.integers(1, 400), junk=st.binary(max_size=40).filter(lambda junk: junk[:1] != b"\n"))
def test_a_torn_end_is_cut_off_and_recorded(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    file = write(folder, 4)
    whole = file.read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == 10]
    cut = min(cut, len(whole) - ends[0])  # at least the first line stays
    file.write_bytes(whole[: len(whole) - cut] + junk)
    kept = sum(end <= len(whole) - cut for end in ends)
    torn = len(whole) - cut + len(junk) - ends[kept - 1]
    before = [entry.sequence for entry in read(folder)]
    assert before == list(range(1, kept + 1))
    journal = Journal(folder)
    number = journal.append(events.Update(iteration=99))
    journal.close()
    entries = list(read(folder))
    assert [entry.sequence for entry in entries] == list(range(1, number + 1))
    assert file.read_bytes().startswith(whole[: ends[kept - 1]])
    repairs = [
        entry.fields["bytes_removed"] for entry in entries if entry.event == "journal_repaired"
    ]
    assert repairs == ([torn] if torn else [])


def test_a_damaged_line_in_the_middle_is_left_out_and_named(tmp_path: Path) -> None:
    file = write(tmp_path, 5)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"frames":20', b'"frames":21')
    file.write_bytes(b"".join(lines))
    damaged: list[int] = []
    assert [entry.sequence for entry in read(tmp_path, damaged)] == [1, 2, 4, 5]
    assert damaged == [3]
    journal = Journal(tmp_path)  # nothing behind it is cut off
    assert journal.sequence == 5
    journal.close()


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("my notes\n")
    with pytest.raises(RunError, match="not a journal"):
        Journal(tmp_path)
    assert (tmp_path / FILE_NAME).read_text() == "my notes\n"
    Path(tmp_path / FILE_NAME).unlink()
    Journal(tmp_path).close()  # the lock was given back


def test_a_first_line_torn_is_a_new_journal(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b'{"n":1,"t":176')
    journal = Journal(tmp_path)
    assert [entry.event for entry in read(tmp_path)] == ["journal_repaired"]
    journal.close()


def test_long_lines_are_found_from_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(events.Warned(message="x" * 300_000))
    journal.append(events.Warned(message="y" * 200_000))
    journal.close()
    with (tmp_path / FILE_NAME).open("ab") as stream:
        stream.write(b'{"n":3' + b"z" * 150_000)
    journal = Journal(tmp_path)
    assert journal.sequence == 3  # the repair itself
    journal.close()


def test_pitfalls_log_03_one_monotone_axis_over_three_resumes(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    frames = 0
    saved = 0, 0  # frames and sequence of the last checkpoint
    for lap in range(4):
        if lap:
            journal = Journal(tmp_path)
            frames = saved[0]
            journal.resume(saved[1], step=frames)
        for step in range(10):
            frames += 5
            journal.append(events.Update(iteration=frames // 5, frames=frames))
            if step == 3 + lap:
                saved = frames, journal.append(events.Checkpoint(step=frames))
        journal.close()
    axis = [entry.fields["frames"] for entry in replay(tmp_path) if entry.event == "update"]
    # Laps keep 4, 5 and 6 updates, the last one all 10: 25 updates of 5 frames.
    assert axis == list(range(5, 130, 5))
    steps = [entry.fields["step"] for entry in replay(tmp_path) if entry.event == "checkpoint"]
    assert steps == [20, 45, 75, 110]
    everything = list(read(tmp_path))
    assert [entry.sequence for entry in everything] == list(range(1, len(everything) + 1))


def test_a_second_writer_is_told_the_pid(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(RunError, match=rf"pid {os.getpid()}\)") as caught:
        Journal(tmp_path)
    assert caught.value.exit_code == 2
    journal.close()
    journal.close()
    Journal(tmp_path).close()
    with pytest.raises(RunError, match="closed"):
        journal.append(events.Finished())


# Children find the package the way this process does, installed or not.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

CHILD = """
import sys, time
from pathlib import Path
from lamarckian.runs import events
from lamarckian.runs.journal import Journal
journal = Journal(Path(sys.argv[1]))
print("open", flush=True)
number = 0
while True:
    number += 1
    journal.append(events.Update(iteration=number, metrics={"entropy": 0.5}))
"""


def test_a_killed_writer_blocks_nobody_and_loses_no_whole_line(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, env=ENVIRONMENT
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    with pytest.raises(RunError, match=rf"pid {child.pid}\)"):
        Journal(tmp_path)
    time.sleep(0.1)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    damaged: list[int] = []
    entries = list(read(tmp_path, damaged))
    assert len(entries) > 100
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    journal = Journal(tmp_path)
    assert journal.sequence == len(entries) + len(damaged)
    journal.close()


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    journal = Journal(tmp_path)

    def work(thread: int) -> None:
        for number in range(200):
            journal.append(events.Update(iteration=number, frames=thread))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    assert [entry.sequence for entry in read(tmp_path)] == list(range(1, 801))


def test_pitfalls_ck_07_a_full_disk_costs_events_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.append(events.Update(iteration=1))
    real = os.write

    def half(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    assert journal.append(events.Update(iteration=2)) == 1
    assert journal.append(events.Update(iteration=3)) == 1
    monkeypatch.undo()
    assert journal.append(events.Update(iteration=4)) == 3
    journal.close()
    damaged: list[int] = []
    first, gap, last = read(tmp_path, damaged)
    assert damaged == []
    assert first.fields["iteration"] == 1
    assert gap.fields["events_lost"] == 2
    assert last.fields["iteration"] == 4


def test_an_append_is_cheap(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    metrics = {f"metric_{index}": index * 0.37 for index in range(30)}
    best = math.inf
    for _ in range(5):
        start = time.process_time()
        for number in range(300):
            journal.record("update", {"iteration": number, "frames": number, "metrics": metrics})
        best = min(best, (time.process_time() - start) / 300)
    journal.close()
    assert best < 200e-6  # 11 us on an idle core; room for a busy one


def test_reading_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot read the journal"):
        list(read(tmp_path))

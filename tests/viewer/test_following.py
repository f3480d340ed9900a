"""Following a journal while it is written: the same as reading it whole, piece by piece."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from handmade_runs import SETTINGS, small_run
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian.errors import RunError
from lamarckian.runs import Run, events
from lamarckian.runs.journal import FILE_NAME, replay
from lamarckian.viewer.following import Following, Tail
from lamarckian.viewer.summary import summarise


def drain(tail: Tail, most: int) -> list[int]:
    """Read until nothing comes; what counts is what came since the last restart."""
    numbers: list[int] = []
    restarts = tail.restarts
    at_end = False
    while not at_end:
        entries, at_end = tail.read(most), tail.at_end
        if tail.restarts != restarts:
            numbers, restarts = [], tail.restarts
        numbers += [entry.sequence for entry in entries]
    return numbers


@given(
    steps=st.lists(
        st.one_of(st.just("update"), st.just("note"), st.integers(0, 30)), min_size=1, max_size=25
    ),
    most=st.integers(1, 2000),
)
@settings(max_examples=40, deadline=None)
def test_pieces_make_up_what_a_replay_keeps(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | int], most: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    early = Tail(folder / "run")
    with Run.create(folder / "run", "pong", SETTINGS) as run:
        so_far: list[int] = []
        restarts = 0
        for number, step in enumerate(steps):
            if step == "update":
                run.journal.append(events.Update(iteration=number))
            elif step == "note":
                run.journal.append(events.Noted(text="so"))
            else:
                run.journal.resume(min(int(step), run.journal.sequence))
            if number % 3 == 0:
                new = drain(early, most)
                so_far = new if early.restarts != restarts else so_far + new
                restarts = early.restarts
    new = drain(early, most)
    so_far = new if early.restarts != restarts else so_far + new
    kept = [entry.sequence for entry in replay(folder / "run")]
    assert sorted(so_far) == sorted(kept)
    assert sorted(drain(Tail(folder / "run"), most)) == sorted(kept)


def test_a_line_counts_once_it_is_whole(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    journal = run / FILE_NAME
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-7])
    tail = Tail(run)
    before = drain(tail, 1 << 20)
    with journal.open("ab") as stream:
        stream.write(whole[-7:])
    assert drain(tail, 1 << 20) == [before[-1] + 1]
    assert tail.damaged == 0


def test_damaged_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    journal = run / FILE_NAME
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"update", b"upsate")
    journal.write_bytes(b"".join(lines))
    tail = Tail(run)
    assert 4 not in drain(tail, 1 << 20)
    assert tail.damaged == 1


def test_a_journal_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    tail = Tail(run)
    first = drain(tail, 1 << 20)
    other = small_run(tmp_path / "other", num_updates=3)
    os.replace(other / FILE_NAME, run / FILE_NAME)
    tail.read()
    assert tail.restarts == 1
    assert tail.offset == (run / FILE_NAME).stat().st_size
    assert len(first) > 20


def test_following_ends_with_what_the_report_says(tmp_path: Path) -> None:
    path = small_run(tmp_path / "run")
    following = Following(path)
    while following.poll():
        pass
    live, report = following.refresh(), summarise(path)
    following.refresh()
    for name in ("name", "status", "seed", "wall", "totals", "settings", "notes", "evaluations"):
        assert getattr(live, name) == getattr(report, name), name
    for name in live.series.keys() - {"entropy"}:  # it has a gap, and nan is not itself
        ours, theirs = live.series[name], report.series[name]
        assert [each.values for each in ours] == [each.values for each in theirs], name
    assert live.series.keys() == report.series.keys()


def test_a_resume_takes_curves_back(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "pong", SETTINGS) as run:
        following = Following(tmp_path / "run")
        for number in (1, 2, 3):
            run.journal.append(
                events.Update(iteration=number, frames=number, metrics={"entropy": float(number)})
            )
        following.poll()
        assert following.refresh().series["entropy"][0].x == [1.0, 2.0, 3.0]
        run.journal.resume(run.journal.sequence - 2)
        run.journal.append(events.Update(iteration=2, frames=2, metrics={"entropy": 9.0}))
        assert following.poll()
        assert following.refresh().series["entropy"][0].x == [1.0, 2.0]
        assert following.status() == "running"
    assert following.poll()  # nobody writes it any more
    assert following.status() == "interrupted"


def test_a_folder_that_went_away_is_named(tmp_path: Path) -> None:
    tail = Tail(small_run(tmp_path / "run"))
    (tmp_path / "run" / FILE_NAME).unlink()
    with pytest.raises(RunError, match="journal"):
        tail.read()

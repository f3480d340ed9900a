"""Requests to a run: pause, go on, stop, note; and what becomes of those nobody hears."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lamarckian import config
from lamarckian.errors import RunError
from lamarckian.evorl import searches
from lamarckian.runs import control, events
from lamarckian.runs.control import Request
from lamarckian.runs.evolution import EvolutionRun, evolve
from lamarckian.runs.folder import Run
from lamarckian.runs.training import TrainingRun, resume, train

TINY = {
    "game": "cartpole",
    "frames": 64 * 20,
    "algorithm.num_games": 4,
    "algorithm.fragment_length": 16,
    "algorithm.minibatch_size": 64,
    "algorithm.num_epochs": 1,
    "evaluation.episodes": 0,
}


class Asks:
    """A recorder that acts as somebody who watches: at an event it sends requests."""

    def __init__(self, run: Run, at: Mapping[str, list[Request]]) -> None:
        self.run, self.at = run, dict(at)
        self.later: list[threading.Thread] = []

    def record(self, event: str, fields: Mapping[str, Any]) -> None:
        for request in self.at.pop(event, ()):
            control.send(self.run.path, request)
        if event == "paused":
            path = self.run.path

            def go_on() -> None:
                time.sleep(0.1)
                control.send(path, Request(action="note", text="while it stands"))
                control.send(path, Request(action="continue"))

            self.later.append(threading.Thread(target=go_on))
            self.later[-1].start()

    def close(self) -> None:
        for thread in self.later:
            thread.join()


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LOOK_SECONDS", 0.01)


def names_of(path: Path) -> list[str]:
    return [entry.event for entry in Run.open(path).replay()]


def test_a_training_pauses_goes_on_stops_and_resumes(tmp_path: Path) -> None:
    path = tmp_path / "run"
    asks = {"update": [Request(action="pause")], "continued": [Request(action="stop")]}
    settings = config.build(TrainingRun, TINY)
    result = train(settings, path, recorders=lambda run: [Asks(run, asks)])
    assert (result.finished, result.reason) == (False, "request")
    events_of_it = names_of(path)
    at = events_of_it.index("paused")
    assert events_of_it[at : at + 3] == ["paused", "noted", "continued"]
    assert events_of_it[-1] == "stopped"
    [pause] = [e.fields["seconds"] for e in Run.open(path).replay() if e.event == "continued"]
    assert pause >= 0.1
    assert not list((path / control.FOLDER).iterdir())

    # A pause that nobody heard in time does not hold up the next process.
    (path / control.FOLDER / "0.json").write_bytes(b'{"action":"pause"}')
    assert resume(path).finished
    assert "noted" in names_of(path)


@pytest.mark.parametrize("mode", ["generational", "steady-state"])  # arrays, and tasks
def test_an_evolution_obeys_between_two_pieces_of_work(mode: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    asks = {"generation": [Request(action="pause")], "continued": [Request(action="stop")]}
    settings = EvolutionRun(
        problem="zdt1", mode=mode, ec=searches.NSGA2(population=8), evaluations=8000
    )
    result = evolve(settings, path, recorders=lambda run: [Asks(run, asks)])
    assert result.reason == "request"
    assert {"paused", "continued", "noted", "stopped"} <= set(names_of(path))
    [pause] = [e.fields["seconds"] for e in Run.open(path).replay() if e.event == "continued"]
    assert pause >= 0.1


def test_a_note_to_a_finished_run_is_recorded_at_once_and_survives_a_resume(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "game", {}) as run:
        assert control.send(run.path, Request(action="note", text="heard"))
        assert len(list((run.path / control.FOLDER).iterdir())) == 1
    assert not control.send(run.path, Request(action="note", text="it likes the left wall"))
    with pytest.raises(RunError, match="no process writes this run"):
        control.send(run.path, Request(action="pause"))
    with pytest.raises(RunError, match="1 to 2000 characters"):
        control.send(run.path, Request(action="note", text=" "))
    with Run.resume(run.path) as again:
        again.journal.append(events.Warned(message="undone"))
        again.journal.resume(2)
    last = Run.open(run.path).replay()
    assert [entry.event for entry in last] == ["run_started", "config", "noted", "resumed"]
    assert last[2].fields == {"text": "it likes the left wall"}


def test_what_is_no_request_is_dropped(tmp_path: Path) -> None:
    heard: list[tuple[str, Any]] = []

    class Hears:
        def record(self, event: str, fields: Mapping[str, Any]) -> None:
            heard.append((event, fields))

        def close(self) -> None: ...

    with Run.create(tmp_path / "run", "game", {}) as run:
        folder = run.path / control.FOLDER
        folder.mkdir()
        (folder / "1.json").write_bytes(b'{"action":"launch"}')
        (folder / "2.json").write_bytes(b'{"action":"note","te')
        (folder / ".tmp-half.json").write_bytes(b'{"action":"stop"}')
        (folder / "3.json").write_bytes(b'{"action":"note","text":"kept"}')
        mailbox = control.Mailbox(run, Hears())
        assert mailbox.obey() == ("", 0.0)
    assert heard == [("noted", {"text": "kept"})]
    assert [path.name for path in folder.iterdir()] == [".tmp-half.json"]

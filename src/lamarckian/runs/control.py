"""Requests to a run: pause, go on, stop, and a note for the record.

A request is a small file in the folder ``control/`` of the run, written whole or not at all. The process that
writes the run looks there between two pieces of work, does what it says, records it and removes the file:
nobody else writes a running run's journal. Requests to pause, go on or stop that were made before the run
started belong to an earlier process and are dropped; notes are kept.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lamarckian.errors import RunError
from lamarckian.metrics import Recorder
from lamarckian.runs import events
from lamarckian.runs.durable import TEMPORARY, write_file
from lamarckian.runs.folder import Run
from lamarckian.runs.journal import Journal

FOLDER = "control"
LOOK_SECONDS = 0.2
"""How often a run looks for requests; looking costs one listing of a folder."""
MAX_TEXT = 2000
REASON = "request"
"""The reason in the ``stopped`` event of a run that was stopped by a request."""

Action = Literal["pause", "continue", "stop", "note"]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a run. ``text`` is that of a note."""

    action: Action
    text: Annotated[str, Meta(max_length=MAX_TEXT)] = ""


def send(run_path: str | Path, request: Request) -> bool:
    """Ask the run at ``run_path``; True if its process will hear it, False if it is done already.

    A note to a run that nobody writes is recorded at once. Raises RunError for any other request to such a
    run, for an empty or too long note, and if the folder cannot be written.
    """
    run = Run.open(run_path)
    if request.action == "note" and not 0 < len(request.text.strip()) <= MAX_TEXT:
        raise RunError(f"a note has 1 to {MAX_TEXT} characters, got {len(request.text)}")
    if run.writer_pid is None:
        if request.action != "note":
            raise RunError(f"{run.path}: no process writes this run; nobody can {request.action}")
        journal = Journal(run.path)
        try:
            journal.append(events.Noted(text=request.text))
        finally:
            journal.close()
        return False
    folder = run.path / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        name = f"{time.time_ns():020d}-{os.getpid()}.json"
        write_file(folder / name, msgspec.json.encode(request))
    except OSError as error:
        raise RunError(f"{folder}: cannot write the request: {error.strerror}") from None
    return True


class Mailbox:
    """The run's own side. Made before the first piece of work; one thread alone uses it."""

    def __init__(self, run: Run, recorder: Recorder) -> None:
        self._folder = run.path / FOLDER
        self._recorder = recorder
        self._next_look = 0.0
        for request in self._take():
            if request.action == "note":
                self._recorder.record("noted", {"text": request.text})

    def obey(self, interrupted: Sequence[str] = ()) -> tuple[str, float]:
        """Do what was asked; return (why the run is to stop or "", seconds it was paused).

        While paused it returns only to go on, to stop, or when ``interrupted`` is no longer empty.
        """
        if time.monotonic() < self._next_look:
            return "", 0.0
        paused_since: float | None = None
        while True:
            reason = ""
            for request in self._take():
                if request.action == "note":
                    self._recorder.record("noted", {"text": request.text})
                elif request.action == "pause" and paused_since is None:
                    self._recorder.record("paused", {})
                    paused_since = time.perf_counter()
                elif request.action == "stop":
                    reason = REASON
                elif request.action == "continue" and paused_since is not None:
                    paused = time.perf_counter() - paused_since
                    self._recorder.record("continued", {"seconds": paused})
                    return "", paused
            if reason or interrupted or paused_since is None:
                break
            time.sleep(LOOK_SECONDS)
        self._next_look = time.monotonic() + LOOK_SECONDS
        return reason, 0.0 if paused_since is None else time.perf_counter() - paused_since

    def _take(self) -> list[Request]:
        """Read and remove what is there, the oldest first; what is no request is dropped."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return []  # nobody has asked for anything yet
        requests = []
        for name in names:
            if name.startswith(TEMPORARY) or not name.endswith(".json"):
                continue
            path = self._folder / name
            with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
                requests.append(msgspec.json.decode(path.read_bytes(), type=Request))
            with contextlib.suppress(OSError):
                path.unlink()
        return requests

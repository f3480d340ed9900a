"""Following a run through its journal alone, while it is written and after it has ended."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from lamarckian.errors import RunError
from lamarckian.runs import Run
from lamarckian.runs.events import LASTING
from lamarckian.runs.journal import FILE_NAME, Entry, parse
from lamarckian.viewer.generations import Generations
from lamarckian.viewer.summary import Builder, Summary

PIECE_BYTES = 4 << 20
"""So much of a journal is read at a time, so that a long one shows something before it is all read."""


class Tail:
    """Reads the journal in the run folder ``folder`` piece by piece; only whole lines are taken.

    Events that a resume went back behind are left out as :func:`lamarckian.runs.journal.replay` leaves
    them out. If that concerns events that were handed out already, :meth:`read` starts over: then
    ``restarts`` has grown and everything before counts no more.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE_NAME
        self.restarts = 0
        self.damaged = 0
        self.offset = 0
        self.at_end = False
        self._identity = 0
        self._last = 0
        self._cuts: set[tuple[int, int]] = set()

    @property
    def size(self) -> int:
        """Bytes of the journal now; 0 if it is gone."""
        try:
            return self.file.stat().st_size
        except OSError:
            return 0

    def read(self, most: int = PIECE_BYTES) -> list[Entry]:
        """Return the entries of about the next ``most`` bytes that count; ``at_end`` tells if that
        was the last piece for now.

        Raises RunError if the journal cannot be read.
        """
        try:
            with self.file.open("rb") as stream:
                state = os.fstat(stream.fileno())
                if state.st_ino != self._identity or state.st_size < self.offset:
                    self._identity = state.st_ino
                    self._cuts = _cuts(stream.fileno(), state.st_size)
                    self._restart()
                stream.seek(self.offset)
                data = stream.read(most)
                if data and not data.endswith(b"\n"):
                    data += stream.readline()
        except OSError as error:
            raise RunError(f"{self.file}: cannot read the journal: {error.strerror}") from None
        # A torn last line is not waited for: it is whole at a later look, or never.
        self.at_end = self.offset + len(data) >= state.st_size
        end = data.rfind(b"\n") + 1
        self.offset += end
        entries = []
        for line in data[:end].splitlines(keepends=True):
            entry = parse(line)
            if entry is None:
                self.damaged += 1
                continue
            if entry.event == "resumed":
                cut = (int(entry.fields["from_sequence"]), entry.sequence)
                if cut not in self._cuts:
                    self._cuts.add(cut)
                    if self._last > cut[0]:
                        self._restart()
                        return self.read(most)
            self._last = entry.sequence
            if entry.event in LASTING or not self._is_cut(entry.sequence):
                entries.append(entry)
        return entries

    def _restart(self) -> None:
        if self.offset:
            self.restarts += 1
        self.offset = self.damaged = self._last = 0

    def _is_cut(self, sequence: int) -> bool:
        return any(low < sequence < high for low, high in self._cuts)


def _cuts(descriptor: int, size: int) -> set[tuple[int, int]]:
    """Find the resumes of a whole journal without reading its other events."""
    found: set[tuple[int, int]] = set()
    if not size:
        return found
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as text:
        place = text.find(b'"type":"resumed"')
        while place >= 0:
            stop = text.find(b"\n", place) + 1 or size
            entry = parse(text[text.rfind(b"\n", 0, place) + 1 : stop])
            if entry is not None and entry.event == "resumed":
                found.add((int(entry.fields["from_sequence"]), entry.sequence))
            place = text.find(b'"type":"resumed"', stop)
    return found


class Following:
    """One run and all that its journal has said so far. One thread at a time may use it.

    ``version`` grows whenever there is something new to show.
    """

    def __init__(self, path: Path) -> None:
        self.run = Run.open(path)
        self.tail = Tail(path)
        self.version = 0
        self.is_read = False
        self._begin()

    def _begin(self) -> None:
        self.summary = Summary(self.run.name, self.run.path)
        self.generations = Generations()
        self._builder = Builder(self.summary)
        self._restarts = self.tail.restarts
        self._status = ""

    def poll(self) -> bool:
        """Read on by one piece; True if there is something new. Raises RunError."""
        entries = self.tail.read()
        if self.tail.restarts != self._restarts:
            self._begin()
        for entry in entries:
            self._builder.take(entry)
            self.generations.take(entry)
        was_read, self.is_read = self.is_read, self.tail.at_end
        status = self.status()
        changed = bool(entries) or status != self._status or was_read != self.is_read
        self._status = status
        self.version += changed
        return changed

    def status(self) -> str:
        """``running``, ``paused``, ``stopped``, ``finished`` or ``interrupted``."""
        status = self.summary.status
        if status in ("running", "paused") and self.run.writer_pid is None:
            return "interrupted"
        return status

    def refresh(self) -> Summary:
        """Return the summary with the curves as they are now."""
        self._builder.finish()
        return self.summary

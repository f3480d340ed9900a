"""The journal: an append-only file of typed events, the truth about a run.

One event is one line of JSON::

    {"n":17,"t":1767225600.25,"d":{"type":"update",...},"c":"9f3a01bc"}

``n`` counts from 1 without gaps, ``t`` is seconds since 1970, ``d`` is the event
(:mod:`lamarckian.runs.events`), ``c`` is the CRC-32 of everything before ``,"c"``. Numbers
that are not finite are null in ``d``; ``x`` then says where and what:
``{"metrics.entropy":"nan"}``.

One process writes. Every line is handed to the operating system at once, so a killed process loses
nothing; events others rely on are also synced to the disk. A line torn by a power cut or a kill
is cut off when the journal is opened again, and that is recorded.

After a resume from a checkpoint the events behind it are history that did not happen; they stay in
the file, and :func:`replay` leaves them out, so that every curve has one monotone axis.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from lamarckian.errors import RunError
from lamarckian.runs.events import EVENTS, LASTING, SYNCED, JournalGap, JournalRepaired, Resumed
from lamarckian.runs.locking import FileLock

FILE_NAME = "journal.jsonl"
LOCK_NAME = "journal.lock"

_log = logging.getLogger("lamarckian.runs")
_encode = msgspec.json.Encoder().encode
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
_TAIL = len(b',"c":"00000000"}')
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line read back: its number, its time in seconds since 1970, its event and its fields."""

    sequence: int
    time: float
    event: str
    fields: dict[str, Any]

    def typed(self) -> msgspec.Struct | None:
        """Return the event as its class, or None if this release does not know it."""
        kind = EVENTS.get(self.event)
        if kind is None:
            return None
        known = {field.encode_name for field in msgspec.structs.fields(kind)}
        given = {name: value for name, value in self.fields.items() if name in known}
        return msgspec.convert(given | {"type": self.event}, kind)


class _Line(msgspec.Struct, frozen=True):
    n: int
    t: float
    d: dict[str, Any]
    x: dict[str, str] = {}


_decode = msgspec.json.Decoder(_Line).decode


class Journal:
    """The writer. Holds the run's lock from construction to :meth:`close`; safe across threads.

    Raises RunError if another process writes, if the folder cannot be written, or if the file is
    there and is no journal.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._lock = FileLock(folder / LOCK_NAME)
        self._guard = threading.Lock()
        self._lost = 0
        try:
            removed, self.sequence = self._open()
        except BaseException:
            self._lock.release()
            raise
        if removed:
            self.append(JournalRepaired(bytes_removed=removed))
            _log.warning("%s: cut off a torn end of %d bytes", self.path, removed)

    def _open(self) -> tuple[int, int]:
        try:
            self._descriptor = os.open(self.path, _FLAGS, 0o644)
        except OSError as error:
            raise RunError(f"{self.path}: cannot write the journal: {error.strerror}") from None
        try:
            end, sequence = _last_good(self._descriptor, self.path)
            size = os.fstat(self._descriptor).st_size
            if end < size:
                os.ftruncate(self._descriptor, end)
                os.fsync(self._descriptor)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._size = end
        return size - end, sequence

    def record(self, event: str, fields: Mapping[str, Any]) -> int:
        """Append the event of that name; return its sequence number (see :meth:`append`).

        Raises TypeError for an event or a field that :mod:`lamarckian.runs.events` does not
        declare: that is a mistake in the program, never in the user's input.
        """
        kind = EVENTS.get(event)
        if kind is None:
            raise TypeError(f"journal: unknown event '{event}'; known: {', '.join(EVENTS)}")
        try:
            return self.append(msgspec.convert({**fields, "type": event}, kind))
        except msgspec.ValidationError as error:
            raise TypeError(f"journal: event '{event}': {error}") from None

    def append(self, event: msgspec.Struct) -> int:
        """Append one event and return its sequence number.

        If the disk is full the event is lost and the number of the last event is returned; the
        count of lost events is recorded as soon as there is room. Raises RunError once closed.
        """
        name = str(event.__struct_config__.tag)
        with self._guard:
            if self._lost and not self._write("journal_gap", self._gap()):
                self._lost += 1
                return self.sequence
            self._lost = 0
            if not self._write(name, event):
                self._lost = 1
            return self.sequence

    def _gap(self) -> msgspec.Struct:
        return JournalGap(events_lost=self._lost, reason="no space left on the disk")

    def _write(self, name: str, event: msgspec.Struct) -> bool:
        if self._descriptor < 0:
            raise RunError(f"{self.path}: the journal is closed")
        body = _encode(event)
        extra = b""
        # The encoder turns nan and inf into null, so only a line with a null can hide one.
        if b"null" in body and (special := dict(_non_finite(event))):
            extra = b',"x":' + _encode(special)
        number = self.sequence + 1
        line = b'{"n":%d,"t":%.6f,"d":%b%b' % (
            number,
            time.time(),
            body,
            extra,
        )
        line += b',"c":"%08x"}\n' % zlib.crc32(line)
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if name in SYNCED:
                os.fsync(self._descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            _log.warning("%s: an event was not written: %s", self.path, error.strerror)
            return False
        self._size += len(line)
        self.sequence = number
        return True

    def resume(self, from_sequence: int, step: int = 0) -> int:
        """Record that events after ``from_sequence`` no longer count; return the new number."""
        return self.append(Resumed(from_sequence=from_sequence, step=step))

    def sync(self) -> None:
        """Make everything written so far survive a power cut."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync, close, and give the lock back. Idempotent."""
        with self._guard:
            if self._descriptor < 0:
                return
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                _log.warning("%s: not synced: %s", self.path, error.strerror)
            os.close(self._descriptor)
            self._descriptor = -1
            self._lock.release()


def read(path: Path, damaged: list[int] | None = None) -> Iterator[Entry]:
    """Yield every whole entry of the journal (file or run folder) at ``path``, in file order.

    May run while the journal is being written. Lines that are torn or whose checksum is wrong are
    left out; their 1-based line numbers are added to ``damaged`` if that is given. Raises RunError
    if there is no journal.
    """
    file = path / FILE_NAME if path.is_dir() else path
    try:
        stream = file.open("rb")
    except OSError as error:
        raise RunError(f"{file}: cannot read the journal: {error.strerror}") from None
    with stream:
        for number, line in enumerate(stream, 1):
            entry = parse(line)
            if entry is not None:
                yield entry
            elif damaged is not None:
                damaged.append(number)


def replay(path: Path, damaged: list[int] | None = None) -> list[Entry]:
    """Return the entries that still count: what a resume went back behind is left out.

    Raises RunError as :func:`read`.
    """
    kept: list[Entry] = []
    for entry in read(path, damaged):
        if entry.event == "resumed":
            boundary = int(entry.fields["from_sequence"])
            lasting = []
            while kept and kept[-1].sequence > boundary:
                last = kept.pop()
                if last.event in LASTING:
                    lasting.append(last)
            kept += reversed(lasting)
        kept.append(entry)
    return kept


def parse(line: bytes) -> Entry | None:
    """Return the entry of one line, its newline included; None if it is torn or damaged."""
    if not line.endswith(b'"}\n') or len(line) <= _TAIL:
        return None
    cut = len(line) - 1 - _TAIL
    body, tail = line[:cut], line[cut:-1]
    if tail != b',"c":"%08x"}' % zlib.crc32(body):
        return None
    try:
        parsed = _decode(body + b"}")
    except msgspec.DecodeError:
        return None
    fields = parsed.d
    event = str(fields.pop("type", ""))
    for where, name in parsed.x.items():
        _restore(fields, where.split("."), _SPECIAL.get(name, math.nan))
    return Entry(sequence=parsed.n, time=parsed.t, event=event, fields=fields)


def _non_finite(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield ``(dotted place, "nan" | "inf" | "-inf")`` for each number that is not finite."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield where, str(value)
        return
    items: Iterator[tuple[Any, Any]]
    if isinstance(value, msgspec.Struct):
        items = ((name, getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, Mapping):
        items = iter(value.items())
    elif isinstance(value, (list, tuple)):
        items = iter(enumerate(value))
    else:
        return
    for name, each in items:
        # A name may hold dots itself; it is escaped so that the place stays readable back.
        step = str(name).replace("%", "%25").replace(".", "%2E")
        yield from _non_finite(each, f"{where}.{step}" if where else step)


def _restore(fields: Any, steps: list[str], value: float) -> None:
    for position, step in enumerate(steps):
        name = step.replace("%2E", ".").replace("%25", "%")
        key: Any = int(name) if isinstance(fields, list) else name
        if position == len(steps) - 1:
            fields[key] = value
        else:
            fields = fields[key]


def _last_good(descriptor: int, path: Path) -> tuple[int, int]:
    """Return ``(offset behind the last whole line, its sequence number)``, reading from the end."""
    size = os.fstat(descriptor).st_size
    window = 1 << 16
    while size:
        start = max(0, size - window)
        os.lseek(descriptor, start, os.SEEK_SET)
        block = bytearray()
        while len(block) < size - start:
            piece = os.read(descriptor, size - start - len(block))
            if not piece:
                break
            block += piece
        end = block.rfind(b"\n") + 1
        while end > 0:
            begin = block.rfind(b"\n", 0, end - 1) + 1
            if begin == 0 and start > 0:
                break  # the line may begin before this block
            entry = parse(bytes(block[begin:end]))
            if entry is not None:
                return start + end, entry.sequence
            end = begin
        if start == 0:
            if b"\n" in block or not block.startswith(b'{"n":1'[: len(block)]):
                raise RunError(f"{path}: this is not a journal of a run; it is left as it is")
            return 0, 0
        window *= 4
    return 0, 0

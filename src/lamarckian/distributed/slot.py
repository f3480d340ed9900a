"""One slot of weights per host: whoever fetches them fills it, every actor of the host reads it.

The slot is nameless shared memory (:mod:`lamarckian.distributed.weights`). A small file in a
private folder says where it is: process and descriptor of the one who fills it. Actors open the
descriptor through ``/proc`` and keep the memory even when that process dies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from lamarckian.distributed.layout import Array, Arrays
from lamarckian.distributed.memory import SharedBlock
from lamarckian.distributed.security import check_private
from lamarckian.distributed.weights import WeightReader, WeightWriter
from lamarckian.errors import ConfigError, WorkerError

_FILE = "weights.slot"
_LOOK_EVERY = 0.5


class SlotAddress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a slot is to be found on this host."""

    process: int
    descriptor: int
    size: int


class SlotHolder:
    """Fills the slot of this host; ``folder`` must be private (mode 0700)."""

    def __init__(self, folder: Path) -> None:
        check_private(folder)
        self._folder = folder
        self._writer: WeightWriter | None = None

    def publish(self, version: int, arrays: Mapping[str, Array]) -> None:
        """Make ``arrays`` the newest weights of this host's actors.

        Weights of another layout get a new slot; readers change over by themselves.
        """
        if self._writer is not None:
            try:
                self._writer.publish(version, arrays)
                return
            except ConfigError:
                self._writer.close()
        self._writer = WeightWriter(arrays)
        self._writer.publish(version, arrays)
        block = self._writer.block
        address = SlotAddress(process=os.getpid(), descriptor=block.fileno(), size=block.size)
        fresh = self._folder / f"{_FILE}.{os.getpid()}"
        fresh.write_bytes(msgspec.json.encode(address))
        fresh.replace(self._folder / _FILE)

    def close(self) -> None:
        """Drop the slot; actors keep what they have mapped. Idempotent."""
        if self._writer is not None:
            (self._folder / _FILE).unlink(missing_ok=True)
            self._writer.close()
            self._writer = None


class SlotWeights:
    """An actor's view of its host's weights."""

    def __init__(self, folder: Path) -> None:
        check_private(folder)
        self._path = folder / _FILE
        self._reader: WeightReader | None = None
        self._file: tuple[int, int] | None = None
        self._look_at = 0.0
        self._version = -1

    def weights(self, timeout: float = 0.0) -> tuple[int, Arrays] | None:
        """Return ``(version, arrays)`` if newer than those returned last, else None.

        Waits up to ``timeout`` seconds for them. The arrays are the caller's own.
        """
        give_up = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            if self._reader is None or now >= self._look_at:
                self._look_at = now + _LOOK_EVERY
                self._look()
            if self._reader is not None and self._reader.newer_than(self._version):
                self._version, arrays = self._reader.read()
                return self._version, arrays
            if now >= give_up:
                return None
            time.sleep(min(0.005, give_up - now))

    def close(self) -> None:
        """Drop the memory."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _look(self) -> None:
        """Open the slot, or the one that took its place."""
        try:
            facts = self._path.stat()
            file = (facts.st_ino, facts.st_mtime_ns)
            if file == self._file:
                return
            address = msgspec.json.decode(self._path.read_bytes(), type=SlotAddress)
            path = f"/proc/{address.process}/fd/{address.descriptor}"
            block = SharedBlock.attach(os.open(path, os.O_RDONLY | os.O_CLOEXEC), address.size)
            reader = WeightReader(block)
        except (OSError, msgspec.MsgspecError, WorkerError):
            return  # not there yet, or its holder has just died: look again later
        self.close()
        self._reader, self._file = reader, file

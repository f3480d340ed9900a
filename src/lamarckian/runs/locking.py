"""One writer per run: a file lock that ends with its process, however it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lamarckian.errors import RunError

if sys.platform == "win32":
    import msvcrt

    # The lock covers one byte far behind the text, so that others can still read the holder's pid.
    _LOCKED_BYTE = 1 << 20

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FileLock:
    """An exclusive lock held from construction to :meth:`release`, or to the end of the process.

    The kernel drops it when the holder dies, so a lock file left by a killed run blocks nobody.
    The file holds the holder's pid and is left in place: removing it would let two processes lock
    two different files of one name.

    Raises RunError naming the holder's pid if another process, or another object of this one,
    holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunError(f"{path}: cannot open the lock file: {error.strerror}") from None
        try:
            _try_lock(descriptor)
        except OSError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise RunError(
                f"{path.parent}: another process (pid {holder}) is writing this run; "
                "wait for it or stop it first"
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder(path: Path) -> int | None:
    """Return the pid that holds the lock at ``path``, or None if nobody does."""
    if not path.exists():
        return None
    try:
        FileLock(path).release()
    except RunError:
        text = path.read_text(errors="replace").strip()
        return int(text) if text.isdigit() else -1
    return None

"""Files that are either there whole or not there: temporary name, sync, rename, sync the folder."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

TEMPORARY = ".tmp-"


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` survive a power cut, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return  # Windows cannot open folders, and does not need to.
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes | bytearray | memoryview) -> None:
    """Write ``data`` to ``path`` so that a reader, or a crash, sees the old file or the new one.

    Raises OSError (disk full, not writable); the old file is intact then and no rest is left.
    """
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
            if hasattr(os, "fchmod"):
                os.fchmod(descriptor, 0o644)  # mkstemp makes files only their owner can read
        finally:
            os.close(descriptor)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    sync_folder(path.parent)


def sweep(folder: Path) -> int:
    """Remove temporary files a killed writer left in ``folder``; return how many."""
    removed = 0
    for path in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
    return removed

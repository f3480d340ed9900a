"""Shared memory without a name: nothing to leak, whatever ends a process and however.

A :class:`SharedBlock` is an anonymous file mapped by the processes that hold its descriptor. On
Linux it is a ``memfd`` sealed at its size; elsewhere it is a temporary file unlinked at birth.
Descriptors travel over the control socket, so there is never an entry in ``/dev/shm`` and a block
is gone when the last process that maps it is gone, SIGKILL included.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from dataclasses import dataclass

from lamarckian.errors import ConfigError, WorkerError

_HAS_MEMFD = hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")


@dataclass(slots=True, frozen=True)
class MemoryProbe:
    """What :func:`probe` found; ``kind`` is ``memfd`` or ``unlinked-file``."""

    kind: str
    note: str


def probe() -> MemoryProbe:
    """Create, map and drop one small block, and say which kind of shared memory this machine gives.

    Raises ConfigError if no block can be made at all.
    """
    SharedBlock.create(mmap.PAGESIZE).close()
    if _HAS_MEMFD:
        return MemoryProbe(
            "memfd", "anonymous memory (memfd); the size of /dev/shm does not matter"
        )
    folder = tempfile.gettempdir()
    return MemoryProbe(
        "unlinked-file",
        f"no memfd on this system: shared memory is an unlinked temporary file under {folder}",
    )


def anonymous_file(label: str, size: int) -> int:
    """Return a descriptor of a nameless file of ``size`` bytes; the caller closes it."""
    if _HAS_MEMFD:
        fd = os.memfd_create(f"lamarckian-{label}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile(prefix="lamarckian-") as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, size)
    except OSError:
        os.close(fd)
        raise
    return fd


class SharedBlock:
    """A fixed number of bytes shared by the processes that hold its descriptor.

    The owner of a block is whoever called :meth:`create` or :meth:`attach`; each owner closes its
    own. Arrays made from :attr:`view` keep the mapping alive; it goes when the last of them goes.
    """

    __slots__ = ("_fd", "_map", "size", "view")

    def __init__(self, fd: int, size: int, *, writable: bool) -> None:
        self._fd = fd
        self.size = size
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._map: mmap.mmap | None = mmap.mmap(fd, size, mmap.MAP_SHARED, protection)
        self.view: memoryview = memoryview(self._map)

    @classmethod
    def create(cls, size: int, label: str = "block") -> SharedBlock:
        """Make a zeroed block of ``size`` bytes; pages cost memory only once they are written.

        Raises ConfigError if the system refuses.
        """
        if size <= 0:
            raise ConfigError(f"shared memory: expected a size above 0 bytes, got {size}")
        try:
            fd = anonymous_file(label, size)
            if _HAS_MEMFD:
                seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            return cls(fd, size, writable=True)
        except OSError as error:
            raise ConfigError(
                f"shared memory: the system refused a block of {size:,} bytes ({error}); "
                "use smaller fragments, fewer workers, or the in-process placement"
            ) from error

    @classmethod
    def attach(cls, fd: int, size: int, *, writable: bool = False) -> SharedBlock:
        """Map the block behind ``fd``, which this object owns from now on.

        Raises WorkerError if the file is not the announced size, or could shrink under the reader.
        """
        actual = os.fstat(fd).st_size
        if actual != size:
            os.close(fd)
            raise WorkerError(f"shared memory: {size:,} bytes announced, {actual:,} found")
        if _HAS_MEMFD and not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            os.close(fd)
            raise WorkerError("shared memory: the block is not sealed against shrinking")
        block = cls(fd, size, writable=writable)
        os.close(fd)  # the mapping lives on without it
        block._fd = -1
        return block

    def fileno(self) -> int:
        """Return the creator's descriptor, for sending it to another process (-1 once attached)."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor and drop the mapping (later, if arrays still look at it)."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.view = memoryview(b"")
        self._map = None

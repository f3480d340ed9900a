"""One slot of weights for all actors of a learner: the newest version wins, nobody waits.

The block holds two buffers and a sequence counter. Publication ``n`` goes into buffer ``n % 2``:

1. ``begin[n % 2] = n``   (the old content of this buffer, publication n - 2, is void from here)
2. copy the arrays, set ``version[n % 2]``
3. ``latest = n``

A reader takes ``n = latest``, copies buffer ``n % 2`` out, then looks at ``begin[n % 2]``. If it
still says ``n``, the copy is whole: whoever overwrites this buffer sets ``begin`` to ``n + 2``
*before* the first byte of data. Otherwise the reader starts again with the newer publication. A
learner killed in the middle of a publication leaves ``latest`` on the other, finished buffer.

Why this is sound: the counters are 8-byte aligned words stored and loaded whole by CPython's
memoryview. Stores must become visible in program order. x86 guarantees it; for weaker machines
:func:`_fence` puts a lock release followed by a lock acquire (a full barrier in practice) between
the steps.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Mapping

import numpy as np

from lamarckian.distributed import layout as arrays_layout
from lamarckian.distributed.layout import Array, Arrays, Layout
from lamarckian.distributed.memory import SharedBlock
from lamarckian.errors import ConfigError, WorkerError

_MAGIC = 0x4C4D4B5745494748
_LATEST, _NEWEST_VERSION, _BUFFER_BYTES = 1, 2, 3
_BEGIN, _VERSION = 4, 6
_CONTROL_BYTES = mmap.PAGESIZE
_barrier = threading.Lock()


def _fence() -> None:
    with _barrier:
        pass
    with _barrier:
        pass


def check_same_layout(layout: Layout, arrays: Mapping[str, Array]) -> None:
    """Raise ConfigError unless ``arrays`` have the names, dtypes and shapes of ``layout``."""
    given = arrays_layout.specs_of(arrays)
    known = {entry.name: (entry.dtype, entry.shape) for entry in layout.entries}
    for name in [*known, *given]:
        if known.get(name) != given.get(name):
            raise ConfigError(
                f"weights: {name!r} was {known.get(name, 'absent')} when first published and is "
                f"{given.get(name, 'absent')} now; the layout is fixed, start a new group instead"
            )


class WeightWriter:
    """The learner's end; fixes the layout at construction and publishes version after version."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._layout = arrays_layout.plan(arrays_layout.specs_of(arrays))
        stride = -(-self._layout.end // mmap.PAGESIZE) * mmap.PAGESIZE
        self.block = SharedBlock.create(_CONTROL_BYTES + 2 * stride, "weights")
        self._words = self.block.view[:_CONTROL_BYTES].cast("Q")
        self._words[0] = _MAGIC
        self._words[_BUFFER_BYTES] = stride
        self._views: list[Arrays] = []
        for index in range(2):
            start = _CONTROL_BYTES + index * stride
            memory = self.block.view[start : start + stride]
            arrays_layout.finish(memory, self._layout, b"")
            self._views.append(arrays_layout.views(memory, self._layout))

    def publish(self, version: int, arrays: Mapping[str, Array]) -> None:
        """Make ``arrays`` the newest weights.

        Raises ConfigError for another layout or a version that is not above the last.
        """
        check_same_layout(self._layout, arrays)
        words = self._words
        number = words[_LATEST] + 1
        if (number > 1 and version < words[_NEWEST_VERSION]) or version < 0:
            raise ConfigError(
                f"weights: version {version} after {words[_NEWEST_VERSION]}; versions only grow"
            )
        words[_BEGIN + number % 2] = number
        _fence()
        for name, view in self._views[number % 2].items():
            np.copyto(view, arrays[name])
        words[_VERSION + number % 2] = version
        _fence()
        words[_LATEST] = number
        words[_NEWEST_VERSION] = version

    def close(self) -> None:
        """Drop the block; readers keep theirs."""
        self._views = []
        self._words.release()
        self.block.close()


class WeightReader:
    """An actor's end: polls for a newer version and copies it out whole."""

    def __init__(self, block: SharedBlock) -> None:
        self._block = block
        self._words = block.view[:_CONTROL_BYTES].cast("Q")
        stride = int(self._words[_BUFFER_BYTES])
        if self._words[0] != _MAGIC or block.size != _CONTROL_BYTES + 2 * stride:
            raise WorkerError("weights: the shared block is not a weight slot")
        self._memory = [
            block.view[_CONTROL_BYTES + i * stride : _CONTROL_BYTES + (i + 1) * stride]
            for i in range(2)
        ]
        self._layout, _ = arrays_layout.read_layout(self._memory[0])

    def newer_than(self, version: int) -> bool:
        """Whether a version above ``version`` is there; costs one look at memory."""
        return self._words[_LATEST] > 0 and self._words[_NEWEST_VERSION] > version

    def read(self, timeout: float = 10.0) -> tuple[int, Arrays]:
        """Return ``(version, arrays)`` of the newest publication; the arrays are the caller's own.

        Raises WorkerError if the learner publishes faster than this process can copy for
        ``timeout`` seconds, or has not published yet.
        """
        give_up = time.monotonic() + timeout
        words = self._words
        if words[_LATEST] == 0:
            raise WorkerError("weights: nothing has been published yet")
        while True:
            number = words[_LATEST]
            _fence()
            copy = bytearray(self._memory[number % 2][: self._layout.end])
            version = words[_VERSION + number % 2]
            _fence()
            if words[_BEGIN + number % 2] == number:
                return version, arrays_layout.views(memoryview(copy), self._layout)
            if time.monotonic() > give_up:
                raise WorkerError(
                    f"weights: overwritten during every copy for {timeout:g} s; publish less often"
                )

    def close(self) -> None:
        """Drop the block."""
        self._memory = []
        self._words.release()
        self._block.close()

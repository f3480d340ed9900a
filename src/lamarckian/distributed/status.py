"""What a worker last said about itself, in memory that outlives it.

A small shared block that the worker writes and its parent reads: state, time of the last progress,
counters, and the context (episode seed, tick, player, last action ...). It needs no message and no
cooperation to be read, so it is there after SIGKILL and while the worker hangs.

Context texts go into two places in turn; the counter moves after the text is complete, so a worker
killed while writing leaves the one before.
"""

from __future__ import annotations

import enum
import time
from typing import Any

import msgspec
import numpy as np

from lamarckian.distributed.memory import SharedBlock

_TEXT = 4000
_START = 128
STATUS_BYTES = 8192
_STATE, _PROGRESS, _WAITED, _FRAGMENTS, _BYTES, _TEXTS, _LENGTH = 0, 1, 2, 3, 4, 5, 6


class State(enum.IntEnum):
    """Where a worker is: only a RUNNING one can be found hanging."""

    STARTING = 0
    RUNNING = 1
    WAITING = 2


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.size <= 32 and value.dtype != object:
        return value.tolist()
    return repr(value)[:200]


_encoder = msgspec.json.Encoder(enc_hook=_plain)


class StatusBoard:
    """Both ends of a status block; the worker writes, the parent reads."""

    def __init__(self, block: SharedBlock) -> None:
        self.block = block
        self._words = block.view[:_START].cast("q")
        self._facts: dict[str, Any] = {}

    def progress(self, state: State = State.RUNNING) -> None:
        """Worker: note that something was done just now."""
        self._words[_STATE] = state
        self._words[_PROGRESS] = time.monotonic_ns()

    def sent(self, num_bytes: int) -> None:
        """Worker: count one fragment."""
        self._words[_FRAGMENTS] += 1
        self._words[_BYTES] += num_bytes

    def waited(self, nanoseconds: int) -> None:
        """Worker: count time spent waiting for the parent."""
        self._words[_WAITED] += nanoseconds

    def set_context(self, facts: dict[str, Any]) -> None:
        """Worker: update the facts shown when something goes wrong."""
        self._facts.update(facts)
        text = _encoder.encode(self._facts)
        if len(text) > _TEXT:
            short = {key: repr(value)[:100] for key, value in self._facts.items()}
            text = _encoder.encode(short)
            if len(text) > _TEXT:
                text = b'{"context":"too large to keep"}'
        number = self._words[_TEXTS] + 1
        start = _START + (number % 2) * _TEXT
        self.block.view[start : start + len(text)] = text
        self._words[_LENGTH + number % 2] = len(text)
        self._words[_TEXTS] = number

    def context(self) -> dict[str, Any]:
        """Parent: the last complete context, or an empty dict."""
        number = self._words[_TEXTS]
        length = self._words[_LENGTH + number % 2]
        if number == 0 or not 0 < length <= _TEXT:
            return {}
        start = _START + (number % 2) * _TEXT
        try:
            found = msgspec.json.decode(bytes(self.block.view[start : start + length]))
        except msgspec.MsgspecError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def state(self) -> State:
        """Parent: where the worker is."""
        value = int(self._words[_STATE])
        return State(value) if value in (0, 1, 2) else State.RUNNING

    @property
    def idle_seconds(self) -> float:
        """Parent: seconds since the worker last made progress."""
        return (time.monotonic_ns() - self._words[_PROGRESS]) / 1e9

    @property
    def waited_seconds(self) -> float:
        """Parent: seconds the worker spent waiting for credit, weights or tasks."""
        return self._words[_WAITED] / 1e9

    @property
    def fragments(self) -> int:
        """Parent: fragments sent."""
        return int(self._words[_FRAGMENTS])

    @property
    def bytes(self) -> int:
        """Parent: bytes sent."""
        return int(self._words[_BYTES])

    def close(self) -> None:
        """Drop the block."""
        self._words = memoryview(bytearray(_START)).cast("q")
        self.block.close()

"""Stopping politely: the first signal asks, the second one ends the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts() -> Iterator[list[str]]:
    """Turn the first SIGINT or SIGTERM into a polite request; a second one ends the process."""
    asked: list[str] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        asked.append(signal.Signals(number).name)

    previous = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, handle)
    except ValueError:
        # Not the main thread: the owner of the process handles its signals.
        pass
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

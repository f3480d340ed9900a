"""Python's search for reference cycles, kept out of the way of waves."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Let Python look for reference cycles less often inside; restored afterwards.

    A wave makes thousands of short-lived containers, which reference counts free. At Python's default of
    700 allocations the cycle search runs several times per wave.
    """
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], 50_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)

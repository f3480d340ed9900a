"""Random numbers for many matches at once, one independent stream per match.

A batch game draws for whichever matches happen to restart at a tick. With a counter per match, what a
match draws depends on its seed and on how often it drew before, never on its neighbours: a batch of G
equals G single games, and the whole state is two integer arrays.

The generator is SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-53


class RowStreams:
    """One stream per row. ``keys`` and ``counters`` are uint64 ``[G]`` and are the whole state."""

    __slots__ = ("counters", "keys")

    def __init__(self, seeds: NDArray[np.int64]) -> None:
        self.keys = np.array(
            [seeding.sequence(int(seed), "game").generate_state(1, np.uint64)[0] for seed in seeds],
            np.uint64,
        )
        self.counters = np.zeros(len(self.keys), np.uint64)

    def uniform(self, rows: NDArray[np.int64], count: int) -> NDArray[np.float64]:
        """Draw ``count`` numbers in [0, 1) for each of ``rows`` (distinct): float64 ``[R, count]``."""
        steps = np.arange(1, count + 1, dtype=np.uint64)
        bits = self.keys[rows, None] + (self.counters[rows, None] + steps) * _GAMMA
        self.counters[rows] += np.uint64(count)
        bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
        bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
        bits ^= bits >> np.uint64(31)
        unit: NDArray[np.float64] = (bits >> np.uint64(11)) * _TO_UNIT
        return unit

    def integers(self, rows: NDArray[np.int64], high: int, count: int) -> NDArray[np.int64]:
        """Draw ``count`` integers in [0, high) for each of ``rows``: int64 ``[R, count]``."""
        return (self.uniform(rows, count) * high).astype(np.int64)

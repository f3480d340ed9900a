"""Counter-based random numbers: one stream per individual, computed for many at once.

Number ``j`` of individual ``i`` is a pure function of (run key, ``i``, attempt, ``j``). Hence a
proposal is the same whether it was asked for alone or with a hundred others, there is no generator
state to save, and the whole block is one array computation (a NumPy generator per individual costs
about 20 µs each, which is more than everything else a generation does for it).

The mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable
pseudorandom number generators", OOPSLA 2014); each individual starts at a hashed position of its
sequence.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding

Bits: TypeAlias = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_30, _SHIFT_27, _SHIFT_31 = np.uint64(30), np.uint64(27), np.uint64(31)
_SHIFT_11 = np.uint64(11)
_ATTEMPT = np.uint64(0xD1342543DE82EF95)
_UNIT = 2.0**-53


def _mix(bits: Bits) -> Bits:
    """Scramble ``bits`` in place and return it."""
    bits ^= bits >> _SHIFT_30
    bits *= _MULTIPLY_1
    bits ^= bits >> _SHIFT_27
    bits *= _MULTIPLY_2
    bits ^= bits >> _SHIFT_31
    return bits


def run_key(seed: int, *name: str | int) -> np.uint64:
    """Return the 64-bit key of a family of streams under the run's seed."""
    return np.uint64(seeding.sequence(seed, *name).generate_state(1, np.uint64)[0])


class Draws:
    """``num`` random words for each of P individuals, handed out column by column."""

    __slots__ = ("_cursor", "_words")

    def __init__(self, key: np.uint64, ids: NDArray[np.int64], num: int, attempt: int = 0) -> None:
        starts = ids.astype(np.uint64)
        starts *= _STEP
        starts ^= key
        starts += np.array([attempt], np.uint64) * _ATTEMPT
        _mix(starts)
        steps = np.arange(1, num + 1, dtype=np.uint64)
        steps *= _STEP
        self._words = _mix(starts[:, None] + steps)
        self._cursor = 0

    def bits(self, num: int) -> Bits:
        """Return the next ``num`` words per individual, uint64 [P, num]."""
        start = self._cursor
        self._cursor = start + num
        if self._cursor > self._words.shape[1]:
            raise IndexError("more random words taken than were planned")
        return self._words[:, start : self._cursor]

    def uniform(self, num: int) -> NDArray[np.float64]:
        """Return the next ``num`` numbers in [0, 1) per individual, float64 [P, num]."""
        return to_uniform(self.bits(num))

    def below(self, bound: int | NDArray[np.int64], num: int) -> NDArray[np.int64]:
        """Return the next ``num`` whole numbers in [0, bound) per individual, int64 [P, num]."""
        return (self.uniform(num) * bound).astype(np.int64)


def to_uniform(bits: Bits) -> NDArray[np.float64]:
    """Turn the upper 53 bits of each word into a number in [0, 1); the lower 11 stay free."""
    return np.asarray((bits >> _SHIFT_11) * _UNIT, np.float64)

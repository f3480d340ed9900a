"""Random numbers for proposals: one row of random words per individual, made in blocks.

The words of individual ``i`` at attempt ``a`` are row ``i mod BLOCK`` of a block that depends on
(seed, search, ``i div BLOCK``, ``a``) alone; a block is always drawn whole. Hence a proposal is the
same whether it was asked for alone or with a hundred others, and there is no generator state to
save. A generator per individual would have the same properties at about 35 µs each, which is more
than everything else that is done for an individual of an array problem.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.evaluator import Floats

Bits: TypeAlias = NDArray[np.uint64]

BLOCK = 64
_ATTEMPTS = 16
_SHIFT = np.uint64(12)
_ONE = np.float64(1.0).view(np.uint64)


class Draws:
    """``num_words`` random words for each of P individuals, handed out column by column."""

    __slots__ = ("_cursor", "_words")

    def __init__(self, words: Bits) -> None:
        self._words = words
        self._cursor = 0

    def bits(self, num: int) -> Bits:
        """Return the next ``num`` words per individual, uint64 [P, num]."""
        start = self._cursor
        self._cursor = start + num
        if self._cursor > self._words.shape[1]:
            raise IndexError("more random words taken than were planned")
        return self._words[:, start : self._cursor]

    def uniform(self, num: int) -> Floats:
        """Return the next ``num`` numbers in [0, 1) per individual, float64 [P, num]."""
        return to_uniform(self.bits(num))

    def below(self, bound: int, num: int) -> NDArray[np.int64]:
        """Return the next ``num`` whole numbers in [0, bound) per individual, int64 [P, num]."""
        return (self.uniform(num) * bound).astype(np.int64)


class DrawSource:
    """Makes the :class:`Draws` of a search."""

    def __init__(self, seed: int, name: str, num_words: int) -> None:
        self.num_words = num_words
        self._rng = seeding.stream(seed, "ec", name, "variation")
        self._start = self._rng.bit_generator.state
        self._block = (-1, -1)
        self._words = np.empty((0, num_words), np.uint64)

    def draws(self, ids: NDArray[np.int64], attempt: int = 0) -> Draws:
        """Return the words of ``ids`` (rising, at least one) at ``attempt``."""
        first, last = int(ids[0]) // BLOCK, int(ids[-1]) // BLOCK
        blocks = [self._whole(block, attempt) for block in range(first, last + 1)]
        words = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        start = int(ids[0]) - first * BLOCK
        if int(ids[-1]) - int(ids[0]) == len(ids) - 1:
            return Draws(words[start : start + len(ids)])
        return Draws(words[ids - first * BLOCK])

    def _whole(self, block: int, attempt: int) -> Bits:
        if self._block != (block, attempt):
            # Blocks lie 2^64 draws apart within one stream: they never overlap.
            self._rng.bit_generator.state = self._start
            self._rng.bit_generator.advance(  # type: ignore[attr-defined]
                (block * _ATTEMPTS + attempt) << 64
            )
            raw = self._rng.bit_generator.random_raw(BLOCK * self.num_words)
            self._words = np.asarray(raw, np.uint64).reshape(BLOCK, self.num_words)
            self._block = (block, attempt)
        return self._words


def to_uniform(bits: Bits) -> Floats:
    """Turn the upper 52 bits of each word into a number in [0, 1); the lower 12 stay free.

    They become the fraction of a float in [1, 2), which needs no conversion from integers.
    """
    fraction = bits >> _SHIFT
    fraction |= _ONE
    uniform = fraction.view(np.float64)
    uniform -= 1.0
    return uniform

"""Random numbers for proposals: one row of random words per individual, made in blocks.

The words of individual ``i`` are row ``i mod block_size`` of a block that depends on (seed, search,
``i div block_size``) alone; a block is always drawn whole. Hence a proposal is the same whether it
was asked for alone or with a hundred others, and there is no generator state to save. A generator
per individual would have the same properties at about 35 µs each, which is more than everything
else that is done for an individual of an array problem. Later attempts, which are rare, have rows
of their own in the same stream.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.evaluator import Floats

Bits: TypeAlias = NDArray[np.uint64]

#: Blocks hold about this many words, and so many rows at least and at most.
_BLOCK_WORDS, _FEWEST, _MOST = 1 << 15, 8, 512
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
        rows = _BLOCK_WORDS // max(num_words, 1)
        self.block_size = min(max(1 << max(rows.bit_length() - 1, 0), _FEWEST), _MOST)
        self._rng = seeding.stream(seed, "ec", name, "variation")
        self._start = self._rng.bit_generator.state
        self._block = -1
        self._words = np.empty((0, num_words), np.uint64)

    def draws(self, ids: NDArray[np.int64], attempt: int = 0) -> Draws:
        return Draws(self.words(ids, attempt))

    def words(self, ids: NDArray[np.int64], attempt: int = 0) -> Bits:
        """Return the words of ``ids`` (rising, at least one) at ``attempt``, uint64 [P, num_words].

        Attempts run from 0 to 15.
        """
        listed = ids.tolist()
        if attempt:
            rows = [self._drawn(each * _ATTEMPTS + attempt, 1) for each in listed]
            return np.concatenate(rows)
        rows = []
        for block in range(listed[0] // self.block_size, listed[-1] // self.block_size + 1):
            inside = ids[ids // self.block_size == block]
            rows.append(self.block(block)[inside - block * self.block_size])
        return np.concatenate(rows)

    def block(self, number: int) -> Bits:
        """Return the words of ids from ``number`` × ``block_size`` on, for attempt 0."""
        if self._block != number:
            self._words = self._drawn(number * _ATTEMPTS, self.block_size)
            self._block = number
        return self._words

    def _drawn(self, place: int, rows: int) -> Bits:
        # Places lie 2^64 draws apart within one stream: what begins there never overlaps.
        self._rng.bit_generator.state = self._start
        self._rng.bit_generator.advance(place << 64)  # type: ignore[attr-defined]
        raw = self._rng.bit_generator.random_raw(rows * self.num_words)
        return np.asarray(raw, np.uint64).reshape(rows, self.num_words)


def to_uniform(bits: Bits) -> Floats:
    """Turn the upper 52 bits of each word into a number in [0, 1); the lower 12 stay free.

    They become the fraction of a float in [1, 2), which needs no conversion from integers.
    """
    fraction = bits >> _SHIFT
    fraction |= _ONE
    uniform = fraction.view(np.float64)
    uniform -= 1.0
    return uniform

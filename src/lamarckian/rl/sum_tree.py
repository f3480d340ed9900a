"""A sum tree: numbers in slots, drawn in proportion, changed in logarithmic time.

Shape letters: ``B`` numbers touched at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SumTree:
    """Non-negative numbers in ``capacity`` slots, whole batches at a time.

    A parent is always the sum of its two children as they are, never a running difference: no error
    builds up, and a tree rebuilt from its leaves is equal bit by bit.
    """

    def __init__(self, capacity: int) -> None:
        self.depth = max(1, (capacity - 1).bit_length())
        self.capacity = capacity
        self._nodes = np.zeros(2 << self.depth, np.float64)

    @property
    def leaves(self) -> NDArray[np.float64]:
        """The numbers, float64 ``[capacity]``, a view."""
        first = 1 << self.depth
        return self._nodes[first : first + self.capacity]

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def set(self, slots: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Put ``values`` ``[B]`` into ``slots`` ``[B]``; of equal slots the last one counts."""
        nodes, at = self._nodes, np.asarray(slots, np.int64) + (1 << self.depth)
        nodes[at] = values
        for _ in range(self.depth):
            at >>= 1
            nodes[at] = nodes[2 * at] + nodes[2 * at + 1]

    def load(self, leaves: NDArray[np.float64]) -> None:
        """Replace all numbers: ``leaves`` ``[capacity]``."""
        first = 1 << self.depth
        self._nodes[first : first + self.capacity] = leaves
        for level in range(self.depth - 1, -1, -1):
            low, high = 1 << level, 2 << level
            self._nodes[low:high] = (
                self._nodes[2 * low : 2 * high : 2] + self._nodes[2 * low + 1 : 2 * high : 2]
            )

    def find(self, levels: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the slot in which each of ``levels`` ``[B]``, within [0, total), falls.

        Slots lie side by side, each as wide as its number; one of width 0 is never found.
        """
        nodes, left = self._nodes, np.array(levels, np.float64)
        at = np.ones(len(left), np.int64)
        for _ in range(self.depth):
            at *= 2
            width = nodes[at]
            # Rounding may leave a level at the very end of the left half while the right is empty.
            right = (left >= width) & (nodes[at + 1] > 0.0)
            left -= np.where(right, width, 0.0)
            at += right
        return at - (1 << self.depth)

"""Pictures of Pong: 84 by 84 pixels of coverage, the last four ticks stacked.

A pixel's value is 255 times the share of it that is covered, so that movements of less than a pixel can be
seen. All matches are drawn with a handful of array operations; the stack is a window that slides over a
longer buffer, so that older pictures are not copied at every tick.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lamarckian.mdp.core import Array

SIZE = 84
STACK = 4
_SCALE = SIZE / 160
_BALL = 4 * _SCALE
_BAT_HEIGHT = 15 * _SCALE
_OWN_COLUMNS = slice(8, 11)
_ENEMY_COLUMNS = slice(73, 76)
_LENGTH = 4 * STACK
_PATCH = np.arange(4)


def _coverage(pixels: Array, start: Array, length: float) -> Array:
    """Share of each pixel ``[p, p + 1]`` that lies within ``[start, start + length]``."""
    overlap = np.minimum(pixels + 1, start + length) - np.maximum(pixels, start)
    share: Array = np.clip(overlap, 0.0, 1.0)
    return share


def _bat_columns() -> NDArray[np.uint8]:
    """A bat's column of pixels for each of its whole positions 0 ... 145: uint8 ``[146, SIZE]``."""
    tops = np.arange(146)[:, None] * _SCALE
    return np.round(255 * _coverage(np.arange(SIZE)[None], tops, _BAT_HEIGHT)).astype(np.uint8)


class Picture:
    """The picture stacks of all matches, once from each side."""

    def __init__(self, num_games: int) -> None:
        self._buffer = np.zeros((2, num_games, _LENGTH, SIZE, SIZE), np.uint8)
        self._newest = STACK - 1
        self._bat = _bat_columns()
        self._games = np.arange(num_games)[:, None, None]

    def add(self, bats: Array, x: Array, y: Array, fresh: NDArray[np.int64]) -> None:
        """Draw the present tick: bat tops ``[2, G]``, the ball's left and top ``[G]``.

        The ``fresh`` matches have just begun a round: their whole stack becomes this picture.
        """
        buffer = self._buffer
        self._newest += 1
        if self._newest == _LENGTH:
            buffer[:, :, : STACK - 1] = buffer[:, :, _LENGTH - STACK + 1 :]
            self._newest = STACK - 1
        columns = self._bat[np.round(bats).astype(np.int64)]
        left, top = x[:, None] * _SCALE, y[:, None] * _SCALE
        across = np.clip(left.astype(np.int64), 0, SIZE - 4) + _PATCH
        down = (np.clip(top.astype(np.int64), 0, SIZE - 4) + _PATCH)[:, :, None]
        share = _coverage(down, top[:, :, None], _BALL) * _coverage(across, left, _BALL)[:, None]
        ball = np.round(255 * share).astype(np.uint8)
        for side in (0, 1):
            now = buffer[side, :, self._newest]
            now[...] = 0
            now[:, :, _OWN_COLUMNS] = columns[side, :, :, None]
            now[:, :, _ENEMY_COLUMNS] = columns[1 - side, :, :, None]
            where = (self._games, down, (SIZE - 1 - across if side else across)[:, None, :])
            now[where] = np.maximum(now[where], ball)
            if len(fresh):
                past = slice(self._newest - STACK + 1, self._newest)
                buffer[side, fresh, past] = now[fresh, None]

    def view(self, side: int) -> NDArray[np.uint8]:
        """Return the stacks seen from the left (0) or the right (1): ``[G, STACK, SIZE, SIZE]``."""
        return self._buffer[side, :, self._newest - STACK + 1 : self._newest + 1]

    def load(self, stack: NDArray[np.uint8]) -> None:
        """Continue from a copy of what ``view(0)`` returned."""
        self._newest = STACK - 1
        self._buffer[0, :, :STACK] = stack
        self._buffer[1, :, :STACK] = stack[..., ::-1]


def centres(image: NDArray[np.uint8]) -> tuple[Array, Array]:
    """Return the rows of the own bat's and of the ball's centre ``[N]`` in the newest picture.

    A ball hidden before a bat's columns is taken to be where the own bat is.
    """
    newest = image[:, -1]
    rows = np.arange(SIZE) + 0.5
    bat_pixels = newest[:, :, _OWN_COLUMNS.start].astype(np.float64)
    bat = bat_pixels @ rows / np.maximum(bat_pixels.sum(1), 1.0)
    field = newest[:, :, _OWN_COLUMNS.stop : _ENEMY_COLUMNS.start].max(axis=2).astype(np.float64)
    total = field.sum(1)
    ball = np.where(total > 0, field @ rows / np.maximum(total, 1.0), bat)
    return bat, ball

"""The actions of episodes that are still running: what rebuilds a deterministic environment at resume."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from lamarckian.mdp.core import Arrays

LIMIT = 50_000
"""Ticks kept at most: a longer episode is not rebuilt, but cut off at resume."""

_TRIM_EVERY = 512


class ReplayLog:
    """Actions per tick, part -> ``[N, ...]``, back to the start of the oldest running episode."""

    def __init__(self) -> None:
        self._ticks: list[Arrays] = []
        self._first = 0

    def clear(self) -> None:
        self._ticks = []
        self._first = 0

    def append(self, actions: Arrays) -> None:
        """Keep a copy of the actions of the next tick."""
        self._ticks.append({name: np.array(array) for name, array in actions.items()})

    def trim(self, oldest: int) -> None:
        """Forget ticks before ``oldest``, and those beyond the limit; cheap to call at each tick."""
        if len(self._ticks) % _TRIM_EVERY:
            return
        end = self._first + len(self._ticks)
        keep = max(oldest, end - LIMIT)
        del self._ticks[: keep - self._first]
        self._first = keep

    def running(self, began: Sequence[int], tick: int) -> tuple[list[int], Arrays]:
        """Return (kept actions per row, part -> all rows' actions one after the other).

        ``began`` is the tick at which each row's episode started. A row whose start was forgotten keeps
        nothing, so that its count is smaller than its length.
        """
        lengths = [tick - start if start >= self._first else 0 for start in began]
        if not self._ticks:
            return lengths, {}
        parts: Arrays = {}
        for name in self._ticks[0]:
            rows = [
                self._ticks[t][name][row]
                for row, length in enumerate(lengths)
                for t in range(tick - length - self._first, tick - self._first)
            ]
            sample = self._ticks[0][name]
            parts[name] = np.stack(rows) if rows else np.zeros((0, *sample.shape[1:]), sample.dtype)
        return lengths, parts

    def restore(
        self, began: Sequence[int], tick: int, lengths: Sequence[int], actions: Arrays
    ) -> None:
        """Rebuild the log from what :meth:`running` returned."""
        self._first = tick - max(lengths, default=0)
        self._ticks = [
            {
                name: np.zeros((len(began), *array.shape[1:]), array.dtype)
                for name, array in actions.items()
            }
            for _ in range(self._first, tick)
        ]
        offset = 0
        for row, length in enumerate(lengths):
            for t in range(length):
                for name, array in actions.items():
                    self._ticks[len(self._ticks) - length + t][name][row] = array[offset + t]
            offset += length

    @staticmethod
    def warn_if_cut(name: str, rows: Sequence[int]) -> None:
        """Warn about episodes that could not be rebuilt."""
        if rows:
            warnings.warn(
                f"{name}: {len(rows)} running episode(s) could not be rebuilt from seed and actions "
                "(the environment is not deterministic, or the episode is too long) and are cut off; "
                "this resume is not exact",
                stacklevel=3,
            )

"""Where staleness comes from: how old the weights were, how long a decision lay, how long it travelled.

The staleness of a decision is the learner's version at the update minus the version that drew it. With
``sent`` the moment its fragment was finished, it is the sum of three parts, all in versions:

broadcast
    the learner's version at ``sent`` minus the version the actor held then: weights on their way.
hold
    the version the actor held then minus the one that drew the decision: waiting in the fragment, while
    the actor already plays with newer weights.
gather
    the learner's version at the update minus its version at ``sent``: credit, transport, queue, batch.

A synchronous run has 0 + 0 + 1: the update itself makes a version.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

REMEMBERED = 4096
"""So many publications are remembered; what was sent before the oldest counts as sent then."""

PARTS = ("broadcast", "hold", "gather")


class Delays:
    """Keeps when which version was published, and splits the staleness of what arrives.

    Times are seconds of the wall clock, the only one that hosts share. Where two hosts disagree by some
    milliseconds the line between broadcast and gather moves; their sum does not.
    """

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=REMEMBERED)
        self._versions: deque[Mapping[str, int]] = deque(maxlen=REMEMBERED)
        self._notes: list[tuple[str, int, int, NDArray[np.int64]]] = []

    def published(self, now: float, versions: Mapping[str, int]) -> None:
        """Note that ``versions`` (group -> version) are the newest since ``now``."""
        self._times.append(now)
        self._versions.append(dict(versions))

    def arrived(self, group: str, sent: float, held: int, drawn: NDArray[np.int64]) -> None:
        """Note a fragment that will be learned from.

        ``held`` is the version its actor had at ``sent``; ``drawn`` those of its decisions, int64 ``[n]``.
        """
        newest = held
        if self._times:
            place = max(0, bisect_right(self._times, sent) - 1)
            newest = self._versions[place].get(group, held)
        # An actor cannot hold what was not published: with clocks apart, the order of events decides.
        newest = max(newest, held)
        if self._versions:
            newest = min(newest, max(held, self._versions[-1].get(group, held)))
        self._notes.append((group, newest, held, drawn))

    def split(self, versions: Mapping[str, int]) -> dict[str, float]:
        """Return the mean of each part over what arrived since the last call.

        ``versions`` are the learner's, after the update. Names as in :mod:`lamarckian.metrics`.
        """
        notes, self._notes = self._notes, []
        total = sum(len(drawn) for *_, drawn in notes)
        sums = dict.fromkeys(PARTS, 0.0)
        for group, newest, held, drawn in notes:
            sums["broadcast"] += (newest - held) * len(drawn)
            sums["hold"] += float((held - drawn).sum())
            sums["gather"] += (versions[group] - newest) * len(drawn)
        return {f"staleness_{name}": value / max(1, total) for name, value in sums.items()}

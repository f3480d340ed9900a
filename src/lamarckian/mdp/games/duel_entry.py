"""``duel`` of the catalogue: the bout as its players wait for each other, or on the clock."""

from __future__ import annotations

from typing import Any

from lamarckian.mdp.core import MDP
from lamarckian.mdp.games.duel import Duel
from lamarckian.mdp.realtime import RealTime


def duel(real_time: bool = False, hertz: float = 30.0, **options: Any) -> MDP:
    """Return a :class:`Duel`; with ``real_time`` its tick runs ``hertz`` times a second and never waits.

    ``options`` are those of :class:`Duel`. On the clock a bout lasts as long as it lasts: training is as fast
    as the clock allows for the number of matches, so play many side by side.
    """
    game = Duel(**options)
    return RealTime(game, hertz=hertz) if real_time else game

"""Games that go wrong on purpose."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lamarckian.mdp.batch_game import RowStep
from lamarckian.mdp.core import Arrays
from lamarckian.mdp.games.cartpole import CartPole


class NotANumber(CartPole):
    """Pays NaN to one row at the 17th tick."""

    ticks = 0

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        steps = super().step(actions)
        self.ticks += 1
        if self.ticks == 17:
            steps["player"].rewards[3] = np.nan
        return steps

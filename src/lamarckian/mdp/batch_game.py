"""Games stepped as arrays: many matches at once, no coroutine per decision.

A :class:`BatchGame` plays ``G`` matches in lockstep. Each role owns ``N = G * seats`` rows, match-major:
row ``n`` is seat ``n % seats`` of match ``n // seats``. Every living row acts at every tick; games in
which players alternate, join or decide at different rates are written as an :class:`MDP` instead.

Shape letters: ``G`` matches, ``N`` rows of a role, ``K`` reward heads, ``F`` final rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamarckian.mdp.core import Arrays, Observation, Role


@dataclass(slots=True)
class RowStep:
    """What one tick did to the rows of one role.

    ``rewards``     float32 ``[N, K]`` (zero for rows that were already out).
    ``terminated``, ``truncated``  bool ``[N]``: the row's life ended with this tick. Never both.
    ``final_rows``  int64 ``[F]``: the truncated rows, ascending, and ``final`` their true last
                    observation (arrays with leading F), taken before the match was reset.
    ``outcomes``    name -> float32 ``[N]``, read only where a life ended: ``score`` and ``result``
                    (+1, 0, -1) are known names, any other is a statistic of that life. A nan
                    says that the number is not known for this life.
    """

    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    final: Observation | None = None
    outcomes: Arrays = field(default_factory=dict)

    def outcome(self, row: int) -> dict[str, float]:
        """Return what is known of the life that ended in ``row``."""
        values = {name: float(array[row]) for name, array in self.outcomes.items()}
        return {name: value for name, value in values.items() if not math.isnan(value)}


class BatchGame(ABC):
    """Many matches in lockstep, with reset in the same tick that ended a match.

    The constructor takes ``num_games`` and the game's own options; nothing runs before :meth:`reset`.
    ``observe`` may return views that the next ``step`` changes: whoever keeps them copies.
    """

    roles: Mapping[str, Role]
    num_games: int
    bots: ClassVar[Mapping[str, Any]] = {}
    """Named rule players, see :data:`lamarckian.mdp.core.Bot`; the first is the default opponent."""
    frames_per_decision: int = 1
    """Ticks of the underlying game per decision (frame skip)."""
    exact_state = True
    """True if :meth:`state` holds everything, so that a resumed run continues bit for bit."""

    @abstractmethod
    def reset(self, seeds: NDArray[np.int64]) -> None:
        """Start all matches; ``seeds`` int64 ``[G]``. Equal seeds give equal matches."""

    @abstractmethod
    def observe(self, role: str) -> Observation:
        """Return the rows' observations now: arrays with leading N, masks included."""

    @abstractmethod
    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        """Apply ``role -> part -> [N, ...]`` and advance one tick. Rows that are out are ignored.

        A match that ends is reset within the same call: the next :meth:`observe` shows its new start.
        """

    def alive(self, role: str) -> NDArray[np.bool_]:
        """Which rows decide at the next tick, bool ``[N]``."""
        return np.ones(self.num_games * self.roles[role].seats, np.bool_)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the whole state as (JSON-compatible data, arrays)."""
        raise ValueError(f"{type(self).__name__} cannot save its state")

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        raise ValueError(f"{type(self).__name__} cannot restore its state")

    def frame(self, game: int) -> dict[str, Any] | None:
        """Return JSON-compatible data from which a viewer draws match ``game`` now, or None."""
        return None

    def close(self) -> None:
        """Release what the game holds. Safe to call twice."""

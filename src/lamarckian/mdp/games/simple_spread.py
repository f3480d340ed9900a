"""Simple spread: players cover landmarks together without bumping into each other."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Array
from lamarckian.mdp.games.drawing import Drawing, circle, scene, text
from lamarckian.mdp.games.particles import SHOWN, WIDTH, Body, ParticleGame, scatter

SIZE = 0.15
COVERED = 0.1


class SimpleSpread(ParticleGame):
    """``num_players`` players and as many landmarks; the game ``simple_spread_v3`` of ``mpe2``.

    All earn together: minus the sum over landmarks of the distance of the nearest player. Each earns alone:
    -1 for every player it overlaps. The reward is (1 - ``local_ratio``) of the first and ``local_ratio`` of
    the second.

    Input ``observation``, float32 ``[6 N]``: own speed and place, offsets to the landmarks and to the other
    players, and two numbers for each of these that are always 0 (nobody speaks).

    Statistics of a life: ``covered``, the landmarks with a player within 0.1 at the end, ``distance``, the
    sum over landmarks of the distance of the nearest player at the end, and ``collisions``, how many
    players this one overlapped, summed over the ticks.
    """

    drawing: ClassVar[Drawing] = scene(
        WIDTH,
        WIDTH,
        circle("landmarks", 0.05 / (2 * SHOWN) * WIDTH, "#ebcb8b"),
        circle("players", SIZE / (2 * SHOWN) * WIDTH, "#88c0d0"),
        text("score", WIDTH / 2, 20, 16),
    )

    def __init__(
        self,
        num_games: int,
        *,
        num_players: int = 3,
        local_ratio: float = 0.5,
        max_ticks: int = 25,
        continuous: bool = False,
    ) -> None:
        if num_players < 1:
            raise ConfigError(f"SimpleSpread num_players: expected at least 1, got {num_players}")
        if not 0.0 <= local_ratio <= 1.0:
            raise ConfigError(f"SimpleSpread local_ratio: expected 0 to 1, got {local_ratio}")
        self.local_ratio = local_ratio
        super().__init__(
            num_games,
            [Body("agent", SIZE, collides=True)] * num_players,
            [Body()] * num_players,
            num_words=2,
            num_extras=0,
            max_ticks=max_ticks,
            continuous=continuous,
        )
        self._between = ~np.eye(num_players, dtype=np.bool_)[..., None]

    def see(self, player: int) -> list[int]:
        others = [n for n in range(self.num_players) if n != player]
        seen = self.rows("speed", player) + self.rows("place", player)
        for body in (*range(self.num_players, self.num_bodies), *others):
            seen += self.rows("offset", player, body)
        return seen + [row for other in others for row in self.rows("words", other)]

    def begin(self, games: NDArray[np.int64]) -> None:
        scatter(self, games)

    def earn(self) -> NDArray[np.float64]:
        count = self.num_players
        away = self.distance[:, count:].min(axis=0).sum(axis=0)
        bumps = ((self.distance[:, :count] < 2 * SIZE) & self._between).sum(axis=1)
        self._sums += bumps
        rewards: NDArray[np.float64] = -(1 - self.local_ratio) * away - self.local_ratio * bumps
        return rewards

    def outcomes(self) -> dict[str, Array]:
        nearest = self.distance[:, self.num_players :].min(axis=0)
        everybody = np.ones((self.num_players, 1))
        return {
            "covered": (nearest < COVERED).sum(axis=0) * everybody,
            "distance": nearest.sum(axis=0) * everybody,
            "collisions": self._sums,
        }

    def show(self, game: int) -> dict[str, Any]:
        count = self.num_players
        nearest = self.distance[:, count:, game].min(axis=0)
        return {
            "players": self.points(range(count), game),
            "landmarks": self.points(range(count, 2 * count), game),
            "score": f"covered {int((nearest < COVERED).sum())} of {count}",
        }

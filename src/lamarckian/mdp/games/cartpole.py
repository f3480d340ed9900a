"""CartPole-v1 as a batch game: the dynamics, limits and rewards of Gymnasium's environment.

Source: Barto, Sutton, Anderson, Neuronlike adaptive elements that can solve difficult learning control
problems (1983), in the form Gymnasium gives it (Euler steps of 0.02 s). Tests compare the two step by step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import Arrays, Discrete, Input, Observation, Role
from lamarckian.mdp.games import snapshot
from lamarckian.mdp.games.drawing import Drawing, line, rect, scene, text
from lamarckian.mdp.games.row_streams import RowStreams

GRAVITY = 9.8
MASS_POLE = 0.1
MASS_TOTAL = 1.1
HALF_LENGTH = 0.5
POLE_MOMENT = MASS_POLE * HALF_LENGTH
FORCE = 10.0
TIME_STEP = 0.02
X_LIMIT = 2.4
ANGLE_LIMIT = 12 * 2 * math.pi / 360
START_RANGE = 0.05


class CartPole(BatchGame):
    """Keep a pole upright on a cart that is pushed left (0) or right (1).

    Input ``state``, float32 ``[4]``: position, velocity, angle, angular velocity. Reward 1 a tick. Terminates
    when the cart leaves 2.4 or the pole 12 degrees; truncated after ``max_ticks`` ticks, with the final
    observation. A match that falls at the very last tick counts as terminated.
    """

    drawing: ClassVar[Drawing] = scene(
        4.8,
        2.0,
        line("track", 0.01, "#4c566a"),
        rect("cart", 0.5, 0.3, "#88c0d0"),
        line("pole", 0.08, "#ebcb8b"),
        text("tick", 0.3, 0.2, 0.15),
    )
    _SAVED = ("_state", "_ticks")

    def __init__(self, num_games: int, *, max_ticks: int = 500) -> None:
        for name, value in (("num_games", num_games), ("max_ticks", max_ticks)):
            if value < 1:
                raise ConfigError(f"CartPole {name}: expected at least 1, got {value}")
        self.num_games = num_games
        self.max_ticks = max_ticks
        self.roles: Mapping[str, Role] = {
            "player": Role(inputs={"state": Input((4,))}, actions={"push": Discrete(2)})
        }
        self._state = np.zeros((4, num_games))
        self._ticks = np.zeros(num_games, np.int64)
        self.streams = RowStreams(np.zeros(num_games, np.int64))

    def reset(self, seeds: NDArray[np.int64]) -> None:
        if len(seeds) != self.num_games:
            raise ConfigError(f"CartPole reset: expected {self.num_games} seeds, got {len(seeds)}")
        self.streams = RowStreams(seeds)
        self._restart(np.arange(self.num_games))

    def observe(self, role: str) -> Observation:
        return Observation({"state": self._view()})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        num = self.num_games
        x, x_speed, angle, angle_speed = self._state
        force = np.where(np.asarray(actions["player"]["push"]) == 1, FORCE, -FORCE)
        cosine, sine = np.cos(angle), np.sin(angle)
        push = (force + POLE_MOMENT * angle_speed * angle_speed * sine) / MASS_TOTAL
        turn = (GRAVITY * sine - cosine * push) / (
            HALF_LENGTH * (4.0 / 3.0 - MASS_POLE * cosine * cosine / MASS_TOTAL)
        )
        pull = push - POLE_MOMENT * turn * cosine / MASS_TOTAL
        x += TIME_STEP * x_speed
        x_speed += TIME_STEP * pull
        angle += TIME_STEP * angle_speed
        angle_speed += TIME_STEP * turn
        self._ticks += 1
        terminated = (np.abs(x) > X_LIMIT) | (np.abs(angle) > ANGLE_LIMIT)
        truncated = (self._ticks >= self.max_ticks) & ~terminated
        step = RowStep(np.ones((num, 1), np.float32), terminated, truncated)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            final = np.flatnonzero(truncated)
            if len(final):
                step.final_rows = final
                step.final = Observation({"state": self._view()[final]})
            self._restart(ended)
        return {"player": step}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"game": "cartpole"}, snapshot.take(self, self._SAVED)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, self._SAVED, arrays)

    def frame(self, game: int) -> dict[str, Any] | None:
        x, _, angle, _ = (float(value) for value in self._state[:, game])
        middle, top = x + 2.4, 1.5
        return {
            "tick": int(self._ticks[game]),
            "track": [[0.0, 1.65, 4.8, 1.65]],
            "cart": [[middle - 0.25, top]],
            "pole": [[middle, top, middle + math.sin(angle), top - math.cos(angle)]],
        }

    def _view(self) -> NDArray[np.float32]:
        return self._state.T.astype(np.float32)

    def _restart(self, rows: NDArray[np.int64]) -> None:
        draws = self.streams.uniform(rows, 4)
        self._state[:, rows] = START_RANGE * (2.0 * draws.T - 1.0)
        self._ticks[rows] = 0

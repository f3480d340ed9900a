"""Pendulum-v1 as a batch game: the dynamics, limits and rewards of Gymnasium's environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import Arrays, Continuous, Input, Observation, Role
from lamarckian.mdp.games import snapshot
from lamarckian.mdp.games.drawing import Drawing, circle, line, scene, text
from lamarckian.mdp.games.row_streams import RowStreams

GRAVITY = 10.0
MASS = 1.0
LENGTH = 1.0
TIME_STEP = 0.05
MAX_TORQUE = 2.0
MAX_SPEED = 8.0


class Pendulum(BatchGame):
    """Swing a pendulum up and hold it there with a weak motor.

    Input ``state``, float32 ``[3]``: cosine, sine, angular velocity. Action ``torque``, one number in
    [-2, 2]. Reward -(angle^2 + 0.1 velocity^2 + 0.001 torque^2), angle in [-pi, pi), all before the tick.
    Starts at any angle with a velocity in [-1, 1]; truncated after ``max_ticks`` ticks, never terminated.
    """

    drawing: ClassVar[Drawing] = scene(
        2.6,
        2.6,
        line("rod", 0.15, "#ebcb8b"),
        circle("axle", 0.06, "#88c0d0"),
        text("torque", 0.3, 0.2, 0.12),
    )
    _SAVED = ("_angle", "_speed", "_torque", "_ticks")

    def __init__(self, num_games: int, *, max_ticks: int = 200) -> None:
        for name, value in (("num_games", num_games), ("max_ticks", max_ticks)):
            if value < 1:
                raise ConfigError(f"Pendulum {name}: expected at least 1, got {value}")
        self.num_games = num_games
        self.max_ticks = max_ticks
        torque = Continuous(1, (-MAX_TORQUE,), (MAX_TORQUE,))
        self.roles: Mapping[str, Role] = {
            "player": Role(inputs={"state": Input((3,))}, actions={"torque": torque})
        }
        self._angle = np.zeros(num_games)
        self._speed = np.zeros(num_games)
        self._torque = np.zeros(num_games)
        self._ticks = np.zeros(num_games, np.int64)
        self._view = np.zeros((num_games, 3), np.float32)
        self.streams = RowStreams(np.zeros(num_games, np.int64))

    def reset(self, seeds: NDArray[np.int64]) -> None:
        if len(seeds) != self.num_games:
            raise ConfigError(f"Pendulum reset: expected {self.num_games} seeds, got {len(seeds)}")
        self.streams = RowStreams(seeds)
        self._restart(np.arange(self.num_games))
        self._look()

    def observe(self, role: str) -> Observation:
        return Observation({"state": self._view})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        num = self.num_games
        torque = np.asarray(actions["player"]["torque"], np.float64).reshape(num)
        torque = self._torque = np.clip(torque, -MAX_TORQUE, MAX_TORQUE)
        angle, speed = self._angle, self._speed
        wrapped = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = wrapped * wrapped + 0.1 * speed * speed + 0.001 * torque * torque
        speed += (
            3 * GRAVITY / (2 * LENGTH) * np.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
        ) * TIME_STEP
        np.clip(speed, -MAX_SPEED, MAX_SPEED, out=speed)
        angle += speed * TIME_STEP
        self._ticks += 1
        truncated = self._ticks >= self.max_ticks
        rewards = (-cost).astype(np.float32)[:, None]
        step = RowStep(rewards, np.zeros(num, np.bool_), truncated)
        self._look()
        if truncated.any():
            ended = np.flatnonzero(truncated)
            step.final_rows = ended
            step.final = Observation({"state": self._view[ended]})
            self._restart(ended)
            self._look()
        return {"player": step}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"game": "pendulum"}, snapshot.take(self, self._SAVED)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, self._SAVED, arrays)
        self._look()

    def frame(self, game: int) -> dict[str, Any] | None:
        angle = float(self._angle[game])
        middle = 1.3
        return {
            "tick": int(self._ticks[game]),
            "angle": angle,
            "torque": round(float(self._torque[game]), 3),
            "rod": [[middle, middle, middle - math.sin(angle), middle - math.cos(angle)]],
            "axle": [[middle, middle]],
        }

    def _look(self) -> None:
        np.cos(self._angle, out=self._view[:, 0], casting="same_kind")
        np.sin(self._angle, out=self._view[:, 1], casting="same_kind")
        self._view[:, 2] = self._speed

    def _restart(self, rows: NDArray[np.int64]) -> None:
        draws = 2.0 * self.streams.uniform(rows, 2) - 1.0
        self._angle[rows] = math.pi * draws[:, 0]
        self._speed[rows] = draws[:, 1]
        self._torque[rows] = 0.0
        self._ticks[rows] = 0

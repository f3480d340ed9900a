"""Vector Pong for two players, many matches at once.

The rules follow the vector Pong of the Lamarckian paper (section IV): an arena of 160 by 160, 20 rounds an
episode, ten numbers per observation, strictly zero-sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.behaviours import acting
from lamarckian.mdp.core import Array, Arrays, Behaviour, Discrete, Input, Observation, Role
from lamarckian.mdp.games import pong_image, snapshot
from lamarckian.mdp.games.drawing import Drawing, rect, scene, text
from lamarckian.mdp.games.row_streams import RowStreams

WIDTH = 160
TOP, BOTTOM = 34, 194
BALL = 4
BALL_START = (78.0, 112.0)
BALL_SPEED = 4.0
SERVE_MIN, SERVE_MAX = 1.2, 4.0
BAT_WIDTH, BAT_HEIGHT = 5, 15
BAT_LEFT, BAT_RIGHT = 16, 139
BAT_START = 107.0
BAT_SPEED = 4.0
BAT_LOWEST = BOTTOM - BAT_HEIGHT
BALL_LOWEST = BOTTOM - BALL
SPIN = 0.7
UP, STOP, DOWN = 0, 1, 2


def rule(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Go down if the bat's centre is above the ball's, else up; sees only its own observation."""
    if "image" in inputs:
        bat, ball = pong_image.centres(inputs["image"])
    else:
        state = inputs["state"]
        bat = state[:, 0] + np.float32(BAT_HEIGHT / 2 / WIDTH)
        ball = state[:, 9] + np.float32(BALL / 2 / WIDTH)
    return {"move": np.where(bat < ball, DOWN, UP)}


class Pong(BatchGame):
    """Two bats and a ball.

    A tick: both bats move by 4 (up, stop, down), within the arena; then the ball moves. A wall reflects
    it. A bat whose face it crosses at this tick, and whose span it overlaps there, flips ``vx`` and adds
    0.7 times the bat's own displacement to ``vy`` (0 for a bat that pushes against the wall). A ball
    past an edge pays (-1, +1) or (+1, -1); a round of more than ``max_ticks`` ticks is a tie and pays
    nothing. The next round serves from the centre; the bats stay. After ``rounds`` rounds the episode
    ends: both rows terminate at the same tick and the bats go back to their starts.

    Input ``state``, float32 ``[10]``: own bat y, enemy bat y, then (x, y) of the ball at the last four
    ticks, oldest first. y = (top - 34) / 160, x = left / 160; the right player sees 1 - x, in all four
    positions, also in those a new round starts with. With ``image`` the input is ``image`` instead, uint8
    ``[4, 84, 84]``: the last four ticks, oldest first, mirrored for the right player, so that the own bat
    is always on the left.

    Outcomes: ``score`` = (self - enemy + rounds) / (2 rounds), ``result``, ``points`` and
    ``activeness``, the share of moving actions in all actions of the episode.
    """

    bots: ClassVar[Mapping[str, Any]] = {"rule": rule}
    drawing: ClassVar[Drawing] = scene(
        WIDTH,
        WIDTH,
        rect("left", BAT_WIDTH, BAT_HEIGHT, "#88c0d0"),
        rect("right", BAT_WIDTH, BAT_HEIGHT, "#ebcb8b"),
        rect("ball", BALL, BALL, "#ffffff"),
        text("score", WIDTH / 2, 12, 10),
    )
    _SAVED = (
        "_ball",
        "_speed",
        "_bats",
        "_points",
        "_active",
        "_round",
        "_round_ticks",
        "_ticks",
        "_left",
        "_right",
    )

    def __init__(
        self, num_games: int, *, rounds: int = 20, max_ticks: int = 1000, image: bool = False
    ) -> None:
        for name, value in (("num_games", num_games), ("rounds", rounds), ("max_ticks", max_ticks)):
            if value < 1:
                raise ConfigError(f"Pong {name}: expected at least 1, got {value}")
        self.num_games = num_games
        self.rounds = rounds
        self.max_ticks = max_ticks
        self.image = image
        inputs = (
            {"image": Input((pong_image.STACK, pong_image.SIZE, pong_image.SIZE), "uint8", "image")}
            if image
            else {"state": Input((10,))}
        )
        seat = Role(
            inputs=inputs,
            actions={"move": Discrete(3)},
            behaviours={"activeness": Behaviour(acting("move", UP, DOWN), "lazy", "active")},
        )
        self.roles: Mapping[str, Role] = {"left": seat, "right": seat}
        # Positions are (x, y) rows of [2, G]; of bats and of counts, row 0 is left and row 1 right.
        self._ball = np.zeros((2, num_games), np.float32)
        self._speed = np.zeros((2, num_games), np.float32)
        self._bats = np.zeros((2, num_games), np.float32)
        self._points = np.zeros((2, num_games), np.int64)
        self._active = np.zeros((2, num_games), np.int64)
        self._round = np.zeros(num_games, np.int64)
        self._round_ticks = np.zeros(num_games, np.int64)
        self._ticks = np.zeros(num_games, np.int64)
        self._left = np.zeros((num_games, 10), np.float32)
        self._right = np.zeros((num_games, 10), np.float32)
        self._everybody = np.arange(num_games)
        self._picture = pong_image.Picture(num_games) if image else None
        self.streams = RowStreams(np.zeros(num_games, np.int64))

    def reset(self, seeds: NDArray[np.int64]) -> None:
        if len(seeds) != self.num_games:
            raise ConfigError(f"Pong reset: expected {self.num_games} seeds, got {len(seeds)}")
        self.streams = RowStreams(seeds)
        self._start_episode(self._everybody)
        self._start_round(self._everybody)
        self._look(self._everybody)

    def observe(self, role: str) -> Observation:
        if self._picture is not None:
            return Observation({"image": self._picture.view(int(role == "right"))})
        return Observation({"state": self._left if role == "left" else self._right})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        num = self.num_games
        bats, ball, speed = self._bats, self._ball, self._speed
        moves = np.empty((2, num), np.float32)
        moves[0] = actions["left"]["move"]
        moves[1] = actions["right"]["move"]
        moves -= 1.0
        self._active += moves != 0.0
        before = bats.copy()
        moves *= BAT_SPEED
        bats += moves
        np.maximum(bats, TOP, out=bats)
        np.minimum(bats, BOTTOM - BAT_HEIGHT, out=bats)

        x, y = ball
        x_before = x.copy()
        ball += speed
        wall = (y < TOP) | (y > BALL_LOWEST)
        if wall.any():
            self._reflect(np.flatnonzero(wall))
        hit = np.empty((2, num), np.bool_)
        edge = BAT_LEFT + BAT_WIDTH
        np.logical_and(x_before > edge, x <= edge, out=hit[0])
        np.logical_and(x_before < BAT_RIGHT - BALL, x >= BAT_RIGHT - BALL, out=hit[1])
        if hit.any():
            hit &= (y < bats + BAT_HEIGHT) & (y + BALL > bats)
            side, row = np.nonzero(hit)
            speed[0, row] = -speed[0, row]
            speed[1, row] += np.float32(SPIN) * (bats[side, row] - before[side, row])

        self._round_ticks += 1
        self._ticks += 1
        rewards = np.zeros((2, num, 1), np.float32)
        ended = np.zeros(num, np.bool_)
        outcomes: tuple[Arrays, Arrays] = ({}, {})
        lost_left = x < 0
        lost_right = x > WIDTH - BALL
        over = np.flatnonzero(lost_left | lost_right | (self._round_ticks > self.max_ticks))
        if len(over):
            np.subtract(lost_right, lost_left, out=rewards[0, :, 0], dtype=np.float32)
            np.negative(rewards[0], out=rewards[1])
            self._points[0] += lost_right
            self._points[1] += lost_left
            self._round[over] += 1
            last = over[self._round[over] >= self.rounds]
            if len(last):
                ended[last] = True
                outcomes = self._outcomes(last)
                self._start_episode(last)
            self._start_round(over)
        self._look(over)
        return {
            role: RowStep(rewards[n], ended.copy(), np.zeros(num, np.bool_), outcomes=outcomes[n])
            for n, role in enumerate(("left", "right"))
        }

    def state(self) -> tuple[dict[str, Any], Arrays]:
        arrays = snapshot.take(self, self._SAVED)
        if self._picture is not None:
            arrays["stack"] = self._picture.view(0).copy()
        return {"game": "pong", "rounds": self.rounds, "max_ticks": self.max_ticks}, arrays

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, self._SAVED, arrays)
        if self._picture is not None:
            self._picture.load(snapshot.checked(self, "stack", arrays, self._picture.view(0)))

    def frame(self, game: int) -> dict[str, Any] | None:
        left, right = (float(y) - TOP for y in self._bats[:, game])
        x, y = (float(value) for value in self._ball[:, game])
        points = self._points[:, game].tolist()
        return {
            "tick": int(self._ticks[game]),
            "round": int(self._round[game]),
            "points": points,
            "score": f"{points[0]} : {points[1]}",
            "ball": [[x, y - TOP]],
            "left": [[BAT_LEFT, left]],
            "right": [[BAT_RIGHT, right]],
        }

    def _reflect(self, rows: NDArray[np.int64]) -> None:
        y = self._ball[1, rows]
        y = np.where(y < TOP, 2 * TOP - y, 2 * BALL_LOWEST - y)
        self._ball[1, rows] = np.clip(y, TOP, BALL_LOWEST)
        self._speed[1, rows] = -self._speed[1, rows]

    def _start_episode(self, rows: NDArray[np.int64]) -> None:
        self._bats[:, rows] = BAT_START
        for counts in (self._points, self._active):
            counts[:, rows] = 0
        self._round[rows] = 0
        self._ticks[rows] = 0

    def _start_round(self, rows: NDArray[np.int64]) -> None:
        draws = self.streams.uniform(rows, 3)
        self._ball[0, rows], self._ball[1, rows] = BALL_START
        self._speed[0, rows] = np.where(draws[:, 0] < 0.5, -BALL_SPEED, BALL_SPEED)
        rise = SERVE_MIN + (SERVE_MAX - SERVE_MIN) * draws[:, 1]
        self._speed[1, rows] = np.where(draws[:, 2] < 0.5, -rise, rise)
        self._round_ticks[rows] = 0

    def _look(self, fresh: NDArray[np.int64]) -> None:
        """Bring the observations up to date; ``fresh`` rows have just begun a round."""
        if self._picture is not None:
            self._picture.add(self._bats - TOP, self._ball[0], self._ball[1] - TOP, fresh)
            return
        left, right = self._left, self._right
        left[:, :2] = (self._bats.T - np.float32(TOP)) * np.float32(1 / WIDTH)
        right[:, 0] = left[:, 1]
        right[:, 1] = left[:, 0]
        for view in (left, right):
            view[:, 2:8] = view[:, 4:10]
        x = self._ball[0] * np.float32(1 / WIDTH)
        left[:, 8] = x
        np.subtract(np.float32(1), x, out=right[:, 8])
        left[:, 9] = right[:, 9] = (self._ball[1] - np.float32(TOP)) * np.float32(1 / WIDTH)
        if len(fresh):
            for view in (left, right):
                view[fresh, 2:8] = np.tile(view[fresh, 8:10], 3)

    def _outcomes(self, rows: NDArray[np.int64]) -> tuple[Arrays, Arrays]:
        both: list[Arrays] = []
        ticks = np.maximum(self._ticks, 1)
        for side in (0, 1):
            own, enemy = self._points[side], self._points[1 - side]
            values: dict[str, Array] = {
                "score": (own - enemy + self.rounds) / (2 * self.rounds),
                "result": np.sign(own - enemy),
                "points": own,
                "activeness": self._active[side] / ticks,
            }
            both.append({name: value.astype(np.float32) for name, value in values.items()})
        return both[0], both[1]

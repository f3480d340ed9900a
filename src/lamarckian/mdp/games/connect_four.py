"""Connect four: turns, and rewards that are earned while the other one moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError, GameError
from lamarckian.mdp.core import Action, Arrays, Discrete, Input, Observation, Role
from lamarckian.mdp.games.drawing import Drawing, circle, rect, scene, text
from lamarckian.mdp.tick import TickGame

ROWS, COLUMNS = 6, 7
CELLS = ROWS * COLUMNS
_CENTRE_FIRST = 0.01 * np.array([0, 1, 2, 3, 2, 1, 0])


def _lines() -> NDArray[np.int64]:
    """Every four cells in a row, column or diagonal as 0/1 rows: ``[69, 42]``, cells row-major."""
    lines = []
    for row in range(ROWS):
        for column in range(COLUMNS):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                cells = [(row + n * down, column + n * right) for n in range(4)]
                if all(r < ROWS and 0 <= c < COLUMNS for r, c in cells):
                    line = np.zeros(CELLS, np.int64)
                    line[[r * COLUMNS + c for r, c in cells]] = 1
                    lines.append(line)
    return np.array(lines)


LINES = _lines()


def _sides(inputs: Arrays) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Own and enemy discs as 0/1 ``[N, 42]``."""
    board = inputs["board"].reshape(-1, 2, CELLS).astype(np.int64)
    return board[:, 0], board[:, 1]


def _landing(own: NDArray[np.int64], enemy: NDArray[np.int64]) -> NDArray[np.int64]:
    """The cell where a disc lands in each column, -1 if it is full: ``[N, 7]``."""
    height = (own + enemy).reshape(-1, ROWS, COLUMNS).sum(axis=1)
    row = ROWS - 1 - height
    return np.where(row >= 0, row * COLUMNS + np.arange(COLUMNS), -1)


def winning_columns(own: NDArray[np.int64], enemy: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Columns in which ``own`` completes four at once: bool ``[N, 7]``."""
    three = ((own @ LINES.T == 3) & (enemy @ LINES.T == 0)).astype(np.int64)
    completes = (three @ LINES > 0) & (own == 0)
    cell = _landing(own, enemy)
    wins: NDArray[np.bool_] = np.take_along_axis(completes, np.maximum(cell, 0), axis=1)
    return wins & (cell >= 0)


def _choose(value: NDArray[Any], legal: NDArray[np.bool_], rng: np.random.Generator) -> Arrays:
    """Take the best legal column, ties broken at random."""
    noisy = value + 1e-6 * rng.random(value.shape)
    return {"column": np.where(legal, noisy, -np.inf).argmax(axis=1)}


def random(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Drop anywhere."""
    return _choose(np.zeros(legal["column"].shape), legal["column"], rng)


def greedy(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Win if that is possible now, else block, else drop anywhere."""
    own, enemy = _sides(inputs)
    value = 2.0 * winning_columns(own, enemy) + winning_columns(enemy, own)
    return _choose(value, legal["column"], rng)


def careful(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Look two moves ahead: win, block, never open a win for the enemy, and prefer the centre."""
    own, enemy = _sides(inputs)
    cell = _landing(own, enemy)
    value = 4.0 * winning_columns(own, enemy) + 2.0 * winning_columns(enemy, own) + _CENTRE_FIRST
    row = np.arange(len(own))
    for column in range(COLUMNS):
        after = own.copy()
        after[row, np.maximum(cell[:, column], 0)] = 1
        value[:, column] -= winning_columns(enemy, after).any(axis=1)
    return _choose(value, legal["column"], rng)


class ConnectFour(TickGame):
    """Drop discs into seven columns; four in a row win.

    Roles ``first`` and ``second`` with equal spaces. Input ``board``: own discs, then the enemy's, row 0
    on top; float32 ``[84]``, or with ``image`` float32 ``[2, 6, 7]`` of kind image. Action ``column``
    with full columns masked. The winner gets +1, the loser -1, at a draw both 0; the loser's reward comes
    while the winner moves. Score 1, 0.5 or 0; statistic ``moves``. A player who goes offline loses.
    """

    bots: ClassVar[Mapping[str, Any]] = {"greedy": greedy, "random": random, "careful": careful}
    drawing: ClassVar[Drawing] = scene(
        COLUMNS,
        ROWS + 1,
        rect("frame", COLUMNS, ROWS, "#2e3440"),
        circle("first", 0.42, "#ebcb8b"),
        circle("second", 0.42, "#bf616a"),
        text("turn", COLUMNS / 2, 0.6, 0.5),
    )

    def __init__(self, *, image: bool = False) -> None:
        board = (
            Input((2, ROWS, COLUMNS), kind="image") if image else Input((2 * CELLS,), kind="vector")
        )
        seat = Role(
            inputs={"board": board}, actions={"column": Discrete(COLUMNS)}, masked=("column",)
        )
        self.roles = {"first": seat, "second": seat}
        self._shape = board.shape
        self._discs = np.zeros((2, ROWS, COLUMNS), np.float32)
        self._turn = 0
        self._moves = 0

    def begin(self, rng: np.random.Generator, roles: Sequence[str]) -> Iterable[tuple[str, str]]:
        if set(roles) != set(self.roles):
            raise ConfigError(
                f"connect four needs both roles, first and second; got {', '.join(roles) or 'none'}"
            )
        self._discs[:] = 0.0
        self._turn = 0
        self._moves = 0
        return [("first", "first"), ("second", "second")]

    def deciders(self) -> Iterable[str]:
        return ["second" if self._turn else "first"]

    def view(self, player: str) -> Observation:
        own = self._discs if player == "first" else self._discs[::-1]
        legal = self._discs[:, 0].sum(axis=0) == 0.0
        return Observation({"board": own.reshape(self._shape).copy()}, {"column": legal})

    def tick(self, actions: dict[str, Action]) -> None:
        mover = ("first", "second")[self._turn]
        other = ("second", "first")[self._turn]
        if mover not in actions:
            self._end(other, mover)
            return
        column = int(actions[mover]["column"])
        height = int(self._discs[:, :, column].sum()) if 0 <= column < COLUMNS else ROWS
        if height >= ROWS:
            raise GameError(
                f"ConnectFour tick {self.ticks}: player {mover!r} chose column {column}, "
                "which is full or does not exist; legal columns are in the mask 'column'"
            )
        self._discs[self._turn, ROWS - 1 - height, column] = 1.0
        self._moves += 1
        if (LINES @ self._discs[self._turn].reshape(CELLS) == 4).any():
            self._end(mover, other)
        elif self._moves == CELLS:
            for player in (mover, other):
                self.finish(player, score=0.5, result=0, moves=float(self._moves))
        self._turn = 1 - self._turn

    def frame(self) -> dict[str, Any] | None:
        first, second = (
            [[int(c) + 0.5, int(r) + 1.5] for r, c in np.argwhere(discs)] for discs in self._discs
        )
        return {
            "tick": self._moves,
            "turn": ("first", "second")[self._turn],
            "frame": [[0, 1]],
            "first": first,
            "second": second,
        }

    def _end(self, winner: str, loser: str) -> None:
        moves = float(self._moves)
        self.reward(winner, 1.0)
        self.reward(loser, -1.0)
        self.finish(winner, score=1.0, result=1, moves=moves)
        self.finish(loser, score=0.0, result=-1, moves=moves)

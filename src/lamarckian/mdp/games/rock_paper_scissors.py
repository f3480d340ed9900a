"""Rock, paper, scissors: the smallest game whose only equilibrium is mixed (1/3 each)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import Arrays, Bot, Discrete, Input, Observation, Role
from lamarckian.mdp.games import snapshot
from lamarckian.mdp.games.drawing import Drawing, scene, text

ROCK, PAPER, SCISSORS = 0, 1, 2
NAMES = ("rock", "paper", "scissors")
NOTHING_YET = 3


def random(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Play the equilibrium."""
    return {"throw": rng.integers(0, 3, len(inputs["last"]))}


def copycat(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Repeat what the enemy threw last; open with rock."""
    seen = inputs["last"][:, 1]
    return {"throw": np.where(seen == NOTHING_YET, ROCK, seen)}


def counter(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Beat what the enemy threw last; open with rock."""
    seen = inputs["last"][:, 1]
    return {"throw": np.where(seen == NOTHING_YET, ROCK, (seen + 1) % 3)}


def always(throw: int) -> Bot:
    """Return a bot that always throws the same."""

    def bot(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
        return {"throw": np.full(len(inputs["last"]), throw, np.int64)}

    return bot


class RockPaperScissors(BatchGame):
    """Two players throw at once; the winner of a round gets +1, the loser -1. Zero-sum.

    Input ``last``, int64 ``[2]``: what oneself and what the enemy threw in the round before (3 in the first
    round; so the one-shot game, ``rounds`` 1, is played blind). After ``rounds`` rounds both rows
    terminate. ``score`` = (won - lost + rounds) / (2 rounds); statistics: the share of each throw.
    """

    bots: ClassVar[Mapping[str, Any]] = {
        "random": random,
        "always_rock": always(ROCK),
        "always_paper": always(PAPER),
        "always_scissors": always(SCISSORS),
        "copycat": copycat,
        "counter": counter,
    }
    drawing: ClassVar[Drawing] = scene(
        100, 60, text("first", 25, 30, 10), text("second", 75, 30, 10), text("score", 50, 10, 8)
    )
    _SAVED = ("_last", "_throws", "_lead", "_round")

    def __init__(self, num_games: int, *, rounds: int = 1) -> None:
        for name, value in (("num_games", num_games), ("rounds", rounds)):
            if value < 1:
                raise ConfigError(f"RockPaperScissors {name}: expected at least 1, got {value}")
        self.num_games = num_games
        self.rounds = rounds
        seat = Role(
            inputs={"last": Input((2,), "int64", "category", num_categories=4)},
            actions={"throw": Discrete(3)},
        )
        self.roles: Mapping[str, Role] = {"first": seat, "second": seat}
        self._last = np.full((num_games, 2), NOTHING_YET, np.int64)
        self._throws = np.zeros((num_games, 2, 3), np.int64)
        self._lead = np.zeros(num_games, np.int64)
        self._round = np.zeros(num_games, np.int64)

    def reset(self, seeds: NDArray[np.int64]) -> None:
        if len(seeds) != self.num_games:
            raise ConfigError(
                f"RockPaperScissors reset: expected {self.num_games} seeds, got {len(seeds)}"
            )
        self._restart(np.arange(self.num_games))

    def observe(self, role: str) -> Observation:
        return Observation({"last": self._last if role == "first" else self._last[:, ::-1]})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        num = self.num_games
        games = np.arange(num)
        self._last = np.stack([actions[role]["throw"] for role in self.roles], 1).astype(np.int64)
        for side in (0, 1):
            self._throws[games, side, self._last[:, side]] += 1
        # 0: equal, 1: the first beats the second, 2: it is beaten.
        ahead = (self._last[:, 0] - self._last[:, 1]) % 3
        won = np.where(ahead == 2, -1, ahead)
        self._lead += won
        self._round += 1
        ended = self._round >= self.rounds
        steps = {}
        for side, role in enumerate(self.roles):
            sign = 1 - 2 * side
            step = steps[role] = RowStep(
                (sign * won).astype(np.float32)[:, None], ended.copy(), np.zeros(num, np.bool_)
            )
            if ended.any():
                lead = sign * self._lead
                step.outcomes = {
                    "score": ((lead + self.rounds) / (2 * self.rounds)).astype(np.float32),
                    "result": np.sign(lead).astype(np.float32),
                }
                shares = self._throws[:, side] / self._round[:, None]
                for throw, name in enumerate(NAMES):
                    step.outcomes[name] = shares[:, throw].astype(np.float32)
        if ended.any():
            self._restart(np.flatnonzero(ended))
        return steps

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"game": "rps", "rounds": self.rounds}, snapshot.take(self, self._SAVED)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, self._SAVED, arrays)

    def frame(self, game: int) -> dict[str, Any] | None:
        first, second = ((*NAMES, "-")[throw] for throw in self._last[game])
        lead = int(self._lead[game])
        return {
            "tick": int(self._round[game]),
            "first": first,
            "second": second,
            "score": f"{lead:+d}",
        }

    def _restart(self, rows: NDArray[np.int64]) -> None:
        self._last[rows] = NOTHING_YET
        self._throws[rows] = 0
        self._lead[rows] = 0
        self._round[rows] = 0

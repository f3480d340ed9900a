"""Any batch game as an asynchronous game: for people, mixed casts, and whatever is played by coroutines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lamarckian.errors import ConfigError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.batching import direct
from lamarckian.mdp.core import (
    Action,
    Array,
    Arrays,
    Controller,
    Observation,
    action_dtype,
    action_shape,
)
from lamarckian.mdp.tick import TickGame


class BatchAsMDP(TickGame):
    """One match of a :class:`BatchGame` (``num_games`` = 1), each row a player with a coroutine.

    The player of seat ``s`` of ``role`` is called ``role`` or, where the role has several seats,
    ``role:s``. A match ends when all lives have ended; a row the game restarts alone begins a new match,
    not a second life. ``roles`` given to :meth:`reset` must be all roles of the game. A player that is
    offline acts with zeros.

    Raises ConfigError if the game plays more than one match.
    """

    def __init__(self, game: BatchGame) -> None:
        if game.num_games != 1:
            raise ConfigError(
                f"BatchAsMDP: expected a game with num_games = 1, got {game.num_games}; "
                "build the game with num_games=1"
            )
        self.game = game
        self.roles = game.roles
        self._places = {
            role if declared.seats == 1 else f"{role}:{seat}": (role, seat)
            for role, declared in game.roles.items()
            for seat in range(declared.seats)
        }

    def begin(self, rng: np.random.Generator, roles: Sequence[str]) -> Iterable[tuple[str, str]]:
        return self._start(roles)

    @direct
    async def reset(self, seed: int, roles: Sequence[str] | None = None) -> list[Controller]:
        # The seed goes to the game itself: the same match as a batch with this seed plays.
        self.game.reset(np.array([seed], np.int64))
        return await super().reset(seed, roles)

    def deciders(self) -> Iterable[str]:
        alive = {role: self.game.alive(role) for role in self.roles}
        return [
            player
            for player, (role, seat) in self._places.items()
            if player in self.controllers and alive[role][seat]
        ]

    def view(self, player: str) -> Observation:
        if player in self._finals:
            return self._finals[player]
        role, seat = self._places[player]
        return _row(self._seen(role), seat)

    def tick(self, actions: dict[str, Action]) -> None:
        steps = self.game.step({role: self._joint(role, actions) for role in self.roles})
        self._cache.clear()
        for player, controller in list(self.controllers.items()):
            if not controller.alive:
                continue
            role, seat = self._places[player]
            step = steps[role]
            for head, amount in enumerate(step.rewards[seat].tolist()):
                self.reward(player, amount, head)
            if step.terminated[seat] or step.truncated[seat]:
                self._end(player, seat, step)

    def frame(self) -> dict[str, Any] | None:
        return self.game.frame(0)

    def close(self) -> None:
        self.game.close()

    def _start(self, roles: Sequence[str]) -> list[tuple[str, str]]:
        missing = set(self.roles) - set(roles)
        if missing:
            raise ConfigError(f"a batch game needs all its roles; nobody plays {sorted(missing)}")
        self._finals: dict[str, Observation] = {}
        self._cache: dict[str, Observation] = {}
        return [(role, player) for player, (role, _) in self._places.items()]

    def _seen(self, role: str) -> Observation:
        if role not in self._cache:
            self._cache[role] = self.game.observe(role)
        return self._cache[role]

    def _joint(self, role: str, actions: dict[str, Action]) -> Arrays:
        declared = self.roles[role]
        joint = {
            part: np.zeros((declared.seats, *action_shape(space)), action_dtype(space))
            for part, space in declared.actions.items()
        }
        for player, action in actions.items():
            owner, seat = self._places[player]
            if owner == role:
                for part, array in joint.items():
                    array[seat] = action[part]
        return joint

    def _end(self, player: str, seat: int, step: RowStep) -> None:
        truncated = bool(step.truncated[seat])
        outcome = {name: float(array[seat]) for name, array in step.outcomes.items()}
        score = outcome.pop("score", None)
        result = outcome.pop("result", None)
        if truncated and step.final is not None:
            at = int(np.searchsorted(step.final_rows, seat))
            seen = _row(step.final, at)
            legal = {k: np.array(v) for k, v in seen.legal.items()}
            self._finals[player] = Observation(_copied(seen.inputs), legal, _copied(seen.state))
        self.finish(
            player,
            truncated=truncated,
            score=score,
            result=None if result is None else round(result),
            **outcome,
        )


def _row(seen: Observation, n: int) -> Observation:
    return Observation(
        {name: array[n] for name, array in seen.inputs.items()},
        {name: array[n] for name, array in seen.legal.items()},
        {name: array[n] for name, array in seen.state.items()},
    )


def _copied(arrays: Arrays) -> dict[str, Array]:
    return {name: np.array(array) for name, array in arrays.items()}

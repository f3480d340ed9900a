"""Policies with known behaviour, for testing games, collectors and return estimators without a network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lamarckian.mdp.core import (
    Array,
    Arrays,
    Continuous,
    Discrete,
    MultiDiscrete,
    Role,
    to_game_action,
)
from lamarckian.mdp.policy import Decisions

Critic = Callable[[Arrays], Array]


class UniformPolicy:
    """Draws uniformly among legal actions; its critic is a function of the inputs.

    ``critic`` maps inputs (leading N) to values ``[N, K]``; a number means that constant everywhere.
    With ``counting`` it keeps a memory that counts its decisions since the start of a life.
    """

    def __init__(self, role: Role, critic: Critic | float = 0.0, *, counting: bool = False) -> None:
        self.role = role
        self.version = 0
        self.memory: Arrays = {"count": np.zeros(1, np.float32)} if counting else {}
        self._critic = critic

    def act(
        self,
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        noise: NDArray[np.float32] | None,
    ) -> Decisions:
        num = len(next(iter(inputs.values())))
        actions: Arrays = {}
        game_actions: Arrays = {}
        log_prob = np.zeros(num, np.float32)
        column = 0
        for name, part in self.role.actions.items():
            if isinstance(part, Continuous):
                raw = np.zeros((num, part.size), np.float32)
                if noise is not None:
                    raw = noise[:, column : column + part.size]
                column += part.size
                log_prob -= (raw**2).sum(axis=1) / 2 + part.size * np.float32(np.log(2 * np.pi) / 2)
                actions[name], game_actions[name] = raw, to_game_action(part, raw, "clip")
                continue
            sizes = (part.num,) if isinstance(part, Discrete) else part.nums
            mask = legal.get(name, np.ones((num, sum(sizes)), bool))
            picks, start = [], 0
            for size in sizes:
                allowed = mask[:, start : start + size]
                allowed = allowed | ~allowed.any(axis=1, keepdims=True)
                counts = allowed.sum(axis=1)
                uniform = np.zeros(num) if noise is None else noise[:, column]
                rank = np.minimum((uniform * counts).astype(np.int64), counts - 1) + 1
                picks.append(np.argmax(np.cumsum(allowed, axis=1) >= rank[:, None], axis=1))
                log_prob -= np.log(counts).astype(np.float32)
                start += size
                column += 1
            chosen = np.stack(picks, axis=1) if isinstance(part, MultiDiscrete) else picks[0]
            actions[name] = game_actions[name] = chosen
        memory = {name: array + 1 for name, array in recurrent.items()}
        return Decisions(game_actions, actions, log_prob, self.values(inputs, state, {}), memory)

    def values(self, inputs: Arrays, state: Arrays, recurrent: Arrays) -> NDArray[np.float32]:
        num = len(next(iter(inputs.values())))
        if callable(self._critic):
            return np.asarray(self._critic(inputs), np.float32).reshape(num, self.role.num_rewards)
        return np.full((num, self.role.num_rewards), self._critic, np.float32)

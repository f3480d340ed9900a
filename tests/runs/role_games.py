"""Batch games whose roles differ."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import (
    Arrays,
    Continuous,
    Discrete,
    Input,
    MultiDiscrete,
    Observation,
    Role,
)


class ThreeRoles(BatchGame):
    """Three roles with three different spaces; ten ticks; everybody is paid its first number."""

    roles = {
        "scout": Role(inputs={"x": Input((3,))}, actions={"go": Discrete(4)}),
        "tank": Role(
            inputs={"x": Input((5,)), "kind": Input((), "int64", "category", num_categories=3)},
            actions={"aim": Continuous(2, (-1, -1), (1, 1)), "fire": Discrete(2)},
            rewards=("damage", "victory"),
        ),
        "medic": Role(inputs={"y": Input((2,))}, actions={"who": MultiDiscrete((2, 3))}, seats=2),
    }

    def __init__(self, num_games: int) -> None:
        self.num_games = num_games
        self.rng = np.random.default_rng(0)
        self.ticks = 0

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self.rng = np.random.default_rng(int(seeds[0]))
        self.ticks = 0

    def observe(self, role: str) -> Observation:
        rows = self.num_games * self.roles[role].seats
        inputs = {}
        for name, item in self.roles[role].inputs.items():
            shape = (rows, *item.shape)
            inputs[name] = (
                self.rng.integers(0, 3, shape)
                if item.kind == "category"
                else self.rng.normal(size=shape).astype(np.float32)
            )
        return Observation(inputs)

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        self.ticks += 1
        steps = {}
        for name, role in self.roles.items():
            rows = self.num_games * role.seats
            first = next(iter(actions[name].values()))
            assert len(first) == rows
            ended = np.full(rows, self.ticks % 10 == 0)
            paid = np.ones((rows, role.num_rewards), np.float32)
            steps[name] = RowStep(paid, ended, np.zeros(rows, bool))
        return steps

    exact_state = False


class Unequal(ThreeRoles):
    """Two roles with equal spaces; the second is paid a thousand times as much for the same deed."""

    roles = {
        "poor": Role(inputs={"x": Input((3,))}, actions={"go": Discrete(2)}),
        "rich": Role(inputs={"x": Input((3,))}, actions={"go": Discrete(2)}),
    }

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        steps = super().step(actions)
        for name, scale in (("poor", 1.0), ("rich", 1000.0)):
            steps[name].rewards[:, 0] = scale * (actions[name]["go"] == 1)
        return steps

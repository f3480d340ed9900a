"""Games with known values, small enough to follow by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np

from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.batching import Gate, direct
from lamarckian.mdp.collector import CollectorSettings, Seating
from lamarckian.mdp.core import MDP, Controller, Discrete, Input, Observation, Role
from lamarckian.mdp.tick import TickGame
from lamarckian.testing.policies import UniformPolicy

ROLE = Role(inputs={"x": Input((1,))}, actions={"a": Discrete(2)})


def view(value: float) -> Observation:
    return Observation({"x": np.array([value], np.float32)})


class Count(TickGame):
    """One player; the observation is the tick, the reward is 1, life ends after ``length`` ticks."""

    roles = {"p": ROLE}

    def __init__(self, length: int = 8, end: str = "terminated") -> None:
        self.length, self.end = length, end

    def begin(self, rng, roles):
        return [("p", "p")]

    def view(self, player):
        return view(self.ticks)

    def tick(self, actions):
        self.reward("p", 1.0)
        if self.ticks + 1 == self.length:
            self.finish("p", truncated=self.end == "truncated", score=0.5)


class Lives(TickGame):
    """One player whose successive lives have the given lengths and ends; observations never repeat."""

    roles = {"p": ROLE}

    def __init__(self, plan) -> None:
        self.plan, self.life, self.seen = list(plan), -1, 0

    def begin(self, rng, roles):
        self.life += 1
        self.age = 0
        return [("p", "p")]

    def view(self, player):
        return view(self.seen)

    def tick(self, actions):
        self.seen += 1
        self.age += 1
        self.reward("p", float(self.seen))
        length, truncated = self.plan[self.life % len(self.plan)]
        if self.age == length:
            self.finish("p", truncated=truncated)


class Turns(TickGame):
    """Two players alternate; player 1 is paid 5 during player 2's move, which ends the game."""

    roles = {"one": ROLE, "two": ROLE}

    def begin(self, rng, roles):
        return [("one", "1"), ("two", "2")]

    def deciders(self):
        return ["1"] if self.ticks % 2 == 0 else ["2"]

    def view(self, player):
        return view(self.ticks)

    def tick(self, actions):
        if self.ticks == 1:
            self.reward("1", 5.0)
            self.reward("2", 1.0)
            self.finish_all()


class DieEarly(TickGame):
    """Agents 0 and 1 start; 1 dies at tick 3, 2 joins at tick 5, the match ends at 10."""

    roles = {"agent": Role(inputs=ROLE.inputs, actions=ROLE.actions, seats=3)}
    revive = False

    def begin(self, rng, roles):
        return [("agent", "0"), ("agent", "1")]

    def view(self, player):
        return view(self.ticks)

    def tick(self, actions):
        done = self.ticks + 1
        for player, controller in self.controllers.items():
            if controller.alive:
                self.reward(player, 1.0 + 10 * int(player))
        if done == 3:
            self.finish("1")
        if done == 5:
            self.join("agent", "2")
        if done == 6 and self.revive:
            self.join("agent", "1")
        if done == 10:
            self.finish_all()


class Duel(TickGame):
    """Two players on a shared tick; ``length`` ticks."""

    roles = {"red": ROLE, "blue": ROLE}
    length = 10

    def begin(self, rng, roles):
        return [("red", "r"), ("blue", "b")]

    def view(self, player):
        return view(self.ticks)

    def tick(self, actions):
        for player in actions:
            self.reward(player, 1.0)
        if self.ticks + 1 == self.length:
            self.finish_all(truncated=True)


class SlowController(Controller):
    def __init__(self, game):
        self.game, self.role, self.player, self.age = game, "p", "p", 0

    def observe(self):
        return view(self.age)

    async def act(self, action):
        await asyncio.sleep(0)
        self.age += 1
        if self.age == 10:
            self.alive, self.terminated = False, True
        return [1.0]


class Slow(MDP):
    """An ordinary asyncio game whose reset takes ``seconds`` in game 0."""

    roles = {"p": ROLE}
    made = 0

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    async def reset(self, seed, roles=None):
        await asyncio.sleep(self.seconds)
        return [SlowController(self)]


class CountBatch(BatchGame):
    """The batch view of :class:`Lives`: row ``n`` follows its own plan."""

    def __init__(self, num_games: int, plan) -> None:
        self.roles = {"p": ROLE}
        self.num_games, self.plan = num_games, list(plan)

    def reset(self, seeds):
        self.life = np.zeros(self.num_games, int)
        self.age = np.zeros(self.num_games, int)
        self.seen = np.zeros(self.num_games, np.float32)

    def observe(self, role):
        return Observation({"x": self.seen[:, None]})

    def step(self, actions: Mapping[str, Mapping[str, np.ndarray]]):
        self.seen += 1
        self.age += 1
        rewards = self.seen[:, None].copy()
        plans = [self.plan[k % len(self.plan)] for k in self.life]
        over = self.age == np.array([p[0] for p in plans])
        cut = np.array([p[1] for p in plans])
        final = np.flatnonzero(over & cut)
        step = RowStep(
            rewards, over & ~cut, over & cut, final, Observation({"x": self.seen[final, None]})
        )
        self.life += over
        self.age[over] = 0
        return {"p": step}

    def state(self):
        return {}, {k: getattr(self, k).copy() for k in ("life", "age", "seen")}

    def load_state(self, data, arrays):
        for k, v in arrays.items():
            setattr(self, k, v.copy())


def seating(*roles: str, critic=0.0, counting=False, learn=None, role=ROLE) -> Seating:
    """Each role with a policy of its own."""
    policies = {r: UniformPolicy(role, critic, counting=counting) for r in learn or roles}
    return Seating(policies, {r: r for r in policies})


def settings(num_games=1, length=4, discount=0.9, seed=3, chunk=0) -> CollectorSettings:
    return CollectorSettings(num_games, length, lambda role: (discount,), seed, chunk)


@direct
async def never(gate: Gate | None = None) -> None:
    await (gate or Gate())

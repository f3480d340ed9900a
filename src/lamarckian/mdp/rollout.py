"""The two coroutines of the paper, and what they hold while they play.

``train`` drives a training player: its decisions and rewards become experience. ``evaluate`` only plays.
``spar`` drives a sparring player, whose rewards nobody reads. All three are a few lines; hand your own to
a collector to script decisions, skip data or shape what a player does. Below them: the seat a coroutine
holds, and the waves that serve many seats with one call.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import numpy as np

from lamarckian.errors import GameError
from lamarckian.mdp.batching import Gate, Wave, direct
from lamarckian.mdp.core import Array, Arrays, Bot, Controller, Input, Observation, Role, mask_size
from lamarckian.mdp.fragments import FragmentStore, Lane
from lamarckian.mdp.policy import Decisions, Policy, draw_noise


@direct
async def train(controller: Controller, seat: Seat) -> None:
    """Play one life; every decision and every reward becomes experience."""
    seat.begin(await controller.ready())
    while controller.alive:
        action = await seat.decide(controller.observe())
        seat.reward(await controller.act(action))


@direct
async def evaluate(controller: Controller, seat: Seat) -> None:
    """Play one life; nothing is kept but its return."""
    seat.begin(await controller.ready())
    while controller.alive:
        action = await seat.decide(controller.observe(), learn=False)
        seat.reward(await controller.act(action))


@direct
async def spar(controller: Controller, seat: Seat) -> None:
    """Play one life against the training players; rewards are never read."""
    await controller.ready()
    while controller.alive:
        await controller.act(await seat.decide(controller.observe()))
        seat.length += 1


PlayerFunction = Callable[[Controller, Any], Awaitable[None]]
"""A coroutine function ``(controller, seat)`` that plays one life."""


class Seat:
    """What a player coroutine holds: it decides through a policy or a bot, and reports rewards.

    ``decide`` returns an awaitable of the action to hand to ``controller.act``. ``reward`` reports what
    ``act`` returned, also for decisions the coroutine took itself: rewards of such scripted acts count
    towards the last recorded decision, discounted by the acts in between.
    """

    __slots__ = ("_returns", "_stream", "controller", "lane", "length", "memory", "wave")

    def __init__(
        self,
        controller: Controller,
        wave: DecisionWave,
        num_rewards: int,
        stream: Callable[[], np.random.Generator],
        lane: Lane | None = None,
    ) -> None:
        self.controller = controller
        self.wave = wave
        self.lane = lane
        self.memory: Arrays = wave.memory
        self.length = 0
        """Acts so far."""
        self._returns = [0.0] * num_rewards
        self._stream = stream

    @property
    def rng(self) -> np.random.Generator:
        """The random stream of this match's player functions."""
        return self._stream()

    def decide(self, observation: Observation, learn: bool = True) -> Awaitable[dict[str, Any]]:
        """Ask for an action. ``learn`` False keeps the decision out of the learning data."""
        wave = self.wave
        gate = Gate()
        pending = wave.pending
        pending.append((self, gate, observation, learn))
        if len(pending) == wave.max_size:
            wave.full.append(wave)
        return gate

    def begin(self, rewards: Sequence[float]) -> None:
        """Report what was paid before the first decision: it counts in the return only."""
        for head, amount in enumerate(rewards):
            self._returns[head] += amount

    def reward(self, rewards: Sequence[float]) -> None:
        """Report the ``K`` rewards of one act."""
        self.length += 1
        returns = self._returns
        if len(rewards) != len(returns):
            raise GameError(
                f"act {self.length}: expected {len(returns)} rewards, one per reward head, "
                f"got {len(rewards)}"
            )
        if len(returns) == 1:
            returns[0] += rewards[0]
        else:
            for head, amount in enumerate(rewards):
                returns[head] += amount
        lane = self.lane
        if lane is not None and not lane.fresh:
            if lane.elapsed == 0:
                lane.paid = tuple(rewards)
                lane.elapsed = 1
            else:
                assert self.wave.store is not None
                self.wave.store.pay(lane, rewards)

    @property
    def returns(self) -> tuple[float, ...]:
        """Undiscounted sums per reward head so far."""
        return tuple(self._returns)


Request = tuple[Seat, Gate, Observation, bool]


class DecisionWave:
    """Requests that are served together (see :mod:`lamarckian.mdp.batching`): the common part."""

    memory: Arrays
    """Zero memory of one player."""
    store: FragmentStore | None = None

    def __init__(self, role: Role, rng: np.random.Generator, max_size: int) -> None:
        self.role = role
        self.rng = rng
        self.max_size = max_size
        self.memory = {}
        self.full: list[Wave] = []
        self.pending: list[Request] = []
        self.num_decisions = 0
        self.num_waves = 0
        self.seconds = 0.0
        """Time spent on serving."""

    @property
    def size(self) -> int:
        return len(self.pending)

    @property
    def version(self) -> int:
        """Version of the policy that decides; 0 for a rule player."""
        return 0

    def withdraw(self, seat: Seat) -> None:
        """Forget what ``seat`` asked for: its match is over."""
        if any(request[0] is seat for request in self.pending):
            self.pending = [request for request in self.pending if request[0] is not seat]

    def flush(self) -> None:
        """Serve all pending requests with one call and open their gates."""
        requests, self.pending = self.pending, []
        if not requests:
            return
        mark = time.perf_counter()
        try:
            seen = self._stack(requests)
        except (ValueError, TypeError, KeyError):
            requests = [request for request in requests if self._fits(request)]
            if not requests:
                return
            seen = self._stack(requests)
        self.num_decisions += len(requests)
        self.num_waves += 1
        game_actions = self.serve(requests, *seen)
        if len(game_actions) == 1:
            ((name, array),) = game_actions.items()
            actions = [{name: row} for row in _rows(array)]
        else:
            parts = [(name, _rows(array)) for name, array in game_actions.items()]
            actions = [{name: rows[n] for name, rows in parts} for n in range(len(requests))]
        for request, action in zip(requests, actions, strict=True):
            request[1].set(action)
        self.seconds += time.perf_counter() - mark

    def serve(
        self, requests: list[Request], inputs: Arrays, legal: Arrays, state: Arrays
    ) -> Arrays:
        """Return the game actions, part -> ``[N, ...]``."""
        raise TypeError(f"{type(self).__name__} does not decide")

    def _stack(self, requests: list[Request]) -> tuple[Arrays, Arrays, Arrays]:
        role = self.role
        seen = [request[2] for request in requests]
        return (
            {
                k: _stack([o.inputs[k] for o in seen], v.dtype, v.shape)
                for k, v in role.inputs.items()
            },
            {
                k: _stack([o.legal[k] for o in seen], "bool", (mask_size(role.actions[k]),))
                for k in role.masked
            },
            {
                k: _stack([o.state[k] for o in seen], v.dtype, v.shape)
                for k, v in role.state.items()
            },
        )

    def _fits(self, request: Request) -> bool:
        """Fail the match of a player whose observation contradicts the role; others are served."""
        seat, gate, observation, _ = request
        wrong = contradiction(self.role, observation)
        if wrong:
            gate.fail(GameError(f"decision {seat.length}: {wrong}"))
        return not wrong


class BotWave(DecisionWave):
    """Requests to a rule player, served together."""

    def __init__(
        self, bot: Bot, role: Role, rng: np.random.Generator, max_size: int = 4096
    ) -> None:
        super().__init__(role, rng, max_size)
        self.bot = bot

    def serve(
        self, requests: list[Request], inputs: Arrays, legal: Arrays, state: Arrays
    ) -> Arrays:
        return self.bot(inputs, legal, self.rng)


class PolicyWave(DecisionWave):
    """Requests to one policy, served together.

    ``greedy`` plays the most likely action. With a ``store``, decisions of seats that own a lane are
    written there.
    """

    def __init__(
        self,
        policy: Policy,
        rng: np.random.Generator,
        *,
        greedy: bool = False,
        max_size: int = 4096,
        store: FragmentStore | None = None,
    ) -> None:
        super().__init__(policy.role, rng, max_size)
        self.policy = policy
        self.greedy = greedy
        self.store = store
        self.memory = policy.memory

    @property
    def version(self) -> int:
        return self.policy.version

    def serve(
        self, requests: list[Request], inputs: Arrays, legal: Arrays, state: Arrays
    ) -> Arrays:
        policy = self.policy
        recurrent = {
            name: np.stack([request[0].memory[name] for request in requests])
            for name in self.memory
        }
        noise = None if self.greedy else draw_noise(self.role, len(requests), self.rng)
        decisions = policy.act(inputs, legal, state, recurrent, noise)
        if self.store is not None:
            self._record(self.store, requests, inputs, legal, state, recurrent, decisions)
        if decisions.recurrent:
            # Copied: a row handed out must not change when the policy reuses its arrays.
            memory = {name: np.array(array) for name, array in decisions.recurrent.items()}
            for n, request in enumerate(requests):
                request[0].memory = {name: array[n] for name, array in memory.items()}
        return decisions.game_actions

    def _record(
        self,
        store: FragmentStore,
        requests: list[Request],
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        decisions: Decisions,
    ) -> None:
        lanes = [request[0].lane for request in requests]
        learn = [request[3] for request in requests]
        if None in lanes:
            keep = [n for n, lane in enumerate(lanes) if lane is not None]
            if not keep:
                return
            lanes = [lanes[n] for n in keep]
            learn = [learn[n] for n in keep]
            inputs, legal, state, recurrent, actions = (
                {k: v[keep] for k, v in group.items()}
                for group in (inputs, legal, state, recurrent, decisions.actions)
            )
            decisions = Decisions({}, actions, decisions.log_prob[keep], decisions.values[keep])
        skipped = [] if all(learn) else [n for n, wanted in enumerate(learn) if not wanted]
        store.record(
            cast("list[Lane]", lanes), skipped, inputs, legal, state, recurrent, decisions,
            self.policy.version,
        )  # fmt: skip


def contradiction(role: Role, observation: Observation) -> str:
    """Return how ``observation`` differs from what ``role`` declares, or an empty string."""
    masks = {k: Input((mask_size(role.actions[k]),), "bool", "mask") for k in role.masked}
    for kind, declared, group in (
        ("input", role.inputs, observation.inputs),
        ("legal mask", masks, observation.legal),
        ("state", role.state, observation.state),
    ):
        for name, item in declared.items():
            if name not in group:
                return f"observation has no {kind} {name!r}; it has: {', '.join(group) or 'none'}"
            try:
                array = np.asarray(group[name], item.dtype)
            except (TypeError, ValueError) as error:
                return f"{kind} {name!r}: expected {item.dtype} numbers, got {error}"
            if array.shape != item.shape:
                return f"{kind} {name!r}: expected shape {item.shape}, got {array.shape}"
    return ""


def _stack(rows: list[Array], dtype: str, shape: tuple[int, ...]) -> Array:
    out: Array = np.array(rows, dtype=dtype)
    if out.shape[1:] != shape:
        raise ValueError("rows of another shape than declared")
    return out


def _rows(array: Array) -> list[Any]:
    """One action per request: plain numbers for scalars, arrays otherwise."""
    return array.tolist() if array.ndim == 1 else list(array)

"""The two coroutines of the paper, and what they hold while they play.

``train`` drives a training player: its decisions and rewards become experience. ``evaluate`` only plays.
``spar`` drives a sparring player, whose rewards nobody reads. All three are a few lines; hand your own to
a collector to script decisions, skip data or shape what a player does. Below them: the seat a coroutine
holds, and the waves that serve many seats with one call.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from lamarckian.errors import GameError
from lamarckian.mdp.batching import Gate, Wave, direct, open_gates
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


class Question(Gate):
    """Where a seat waits for its action; serves one decision after the other."""

    __slots__ = ("asked", "part")

    def __init__(self, part: str) -> None:
        super().__init__()
        self.asked = False
        """True from the question until somebody has taken the answer."""
        self.part = part

    def __await__(self) -> Generator[Gate, None, dict[str, Any]]:
        if not self.is_set:
            yield self
        if self.error is not None:
            raise self.error
        self.asked = False
        answer: dict[str, Any] = {self.part: self.value} if self.part else self.value
        return answer


class Seat:
    """What a player coroutine holds: it decides through a policy or a bot, and reports rewards.

    ``decide`` returns an awaitable of the action to hand to ``controller.act``. ``reward`` reports what
    ``act`` returned, also for decisions the coroutine took itself: rewards of such scripted acts count
    towards the last recorded decision, discounted by the acts in between.
    """

    __slots__ = (
        "_question", "_returns", "_stream", "_total", "controller", "lane", "length", "memory",
        "wave",
    )  # fmt: skip

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
        self._total = 0.0
        """The return, where there is one reward head."""
        self._returns = [] if num_rewards == 1 else [0.0] * num_rewards
        self._question = Question(wave.part)
        self._stream = stream

    @property
    def rng(self) -> np.random.Generator:
        """The random stream of this match's player functions."""
        return self._stream()

    def decide(self, observation: Observation, learn: bool = True) -> Awaitable[dict[str, Any]]:
        """Ask for an action. ``learn`` False keeps the decision out of the learning data.

        Only the arrays are kept until the answer, and all that the wave needs goes into one tuple: what
        thousands of players hold while they wait decides how much of it stays in the processor's cache.
        """
        wave = self.wave
        question = self._question
        if question.asked:  # whoever asked before has given up, or two ask at once
            question = self._question = Question(wave.part)
            wave.asked_twice = True
        question.asked = True
        question.is_set = False
        question.waiter = None
        try:
            seen = (
                observation.inputs[wave.only_input] if wave.only_input else wave.seen(observation)
            )
        except KeyError:
            wrong = contradiction(wave.role, observation)
            raise GameError(f"decision {self.length}: {wrong}") from None
        lane = self.lane
        pending = wave.pending
        if lane is None:
            pending.append((self, question, seen, learn, -1, 0, 0.0))
        else:
            pending.append((self, question, seen, learn, lane.number, lane.elapsed, lane.paid))
            lane.elapsed = 0
        if len(pending) == wave.max_size:
            wave.full.append(wave)
        return question

    def begin(self, rewards: Sequence[float]) -> None:
        """Report what was paid before the first decision: it counts in the return only."""
        if len(rewards):
            self._count(rewards)

    def reward(self, rewards: Sequence[float]) -> None:
        """Report the ``K`` rewards of one act."""
        self.length += 1
        lane = self.lane
        if not self._returns and len(rewards) == 1 and lane is not None and lane.elapsed == 0:
            # The common case: one head, one act per decision.
            amount = rewards[0]
            self._total += amount
            lane.paid = amount
            lane.elapsed = 1
            return
        self._count(rewards)
        if lane is not None and self.wave.store is not None:
            self.wave.store.pay(lane, rewards)

    def _count(self, rewards: Sequence[float]) -> None:
        returns = self._returns
        heads = len(returns) or 1
        if len(rewards) != heads:
            raise GameError(
                f"act {self.length}: expected {heads} rewards, one per reward head, "
                f"got {len(rewards)}"
            )
        if heads == 1:
            self._total += rewards[0]
            return
        for head, amount in enumerate(rewards):
            returns[head] += amount

    @property
    def returns(self) -> tuple[float, ...]:
        """Undiscounted sums per reward head so far."""
        return tuple(self._returns) or (self._total,)


Request = tuple[Seat, Question, Any, bool, int, int, Any]
"""Seat, where the answer goes, what it saw, whether to learn, and its lane's number, acts and pay."""


class Requests(NamedTuple):
    """The requests of one wave, column by column."""

    seats: tuple[Seat, ...]
    questions: tuple[Question, ...]
    seen: tuple[Any, ...]
    learn: tuple[bool, ...]
    lanes: tuple[int, ...]
    elapsed: tuple[int, ...]
    paid: tuple[Any, ...]


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
        self.asked_twice = False
        """True if a seat may have more than one pending request."""
        self.num_decisions = 0
        self.num_waves = 0
        self.seconds = 0.0
        """Time spent on serving."""
        self.part = next(iter(role.actions)) if len(role.actions) == 1 else ""
        """The action part, if there is one only."""
        plain = len(role.inputs) == 1 and not role.masked and not role.state
        self.only_input = next(iter(role.inputs)) if plain else ""
        """The input, if observations are nothing but this."""

    @property
    def size(self) -> int:
        return len(self.pending)

    @property
    def version(self) -> int:
        """Version of the policy that decides; 0 for a rule player."""
        return 0

    def seen(self, observation: Observation) -> list[Array]:
        """Return the declared arrays of an observation: inputs, masks, state. Raises KeyError."""
        role = self.role
        return [
            *[observation.inputs[name] for name in role.inputs],
            *[observation.legal[name] for name in role.masked],
            *[observation.state[name] for name in role.state],
        ]

    def withdraw(self, seat: Seat) -> None:
        """Forget what ``seat`` asked for: its match is over."""
        mine = [request for request in self.pending if request[0] is seat]
        if mine:
            self.pending = [request for request in self.pending if request[0] is not seat]
            if seat.lane is not None:  # what the decision before had earned
                seat.lane.elapsed, seat.lane.paid = mine[0][5:]

    def flush(self) -> None:
        """Serve all pending requests with one call and open their gates."""
        pending, self.pending = self.pending, []
        if not pending:
            return
        mark = time.perf_counter()
        requests = Requests(*zip(*pending, strict=True))
        try:
            seen = self._stack(requests.seen)
        except (ValueError, TypeError):
            pending = [request for request in pending if self._fits(request)]
            if not pending:
                return
            requests = Requests(*zip(*pending, strict=True))
            seen = self._stack(requests.seen)
        self.num_decisions += len(pending)
        self.num_waves += 1
        game_actions = self.serve(requests, *seen)
        if self.part:
            actions = _rows(game_actions[self.part])
        else:
            parts = [(name, _rows(array)) for name, array in game_actions.items()]
            actions = [{name: rows[n] for name, rows in parts} for n in range(len(pending))]
        open_gates(requests.questions, actions)
        self.seconds += time.perf_counter() - mark

    def serve(self, requests: Requests, inputs: Arrays, legal: Arrays, state: Arrays) -> Arrays:
        """Return the game actions, part -> ``[N, ...]``."""
        raise TypeError(f"{type(self).__name__} does not decide")

    def _stack(self, seen: tuple[Any, ...]) -> tuple[Arrays, Arrays, Arrays]:
        role = self.role
        if self.only_input:
            item = role.inputs[self.only_input]
            return {self.only_input: _stack(seen, item.dtype, item.shape)}, {}, {}
        columns = zip(*seen, strict=True)
        return (
            {k: _stack(next(columns), v.dtype, v.shape) for k, v in role.inputs.items()},
            {k: _stack(next(columns), "bool", (mask_size(role.actions[k]),)) for k in role.masked},
            {k: _stack(next(columns), v.dtype, v.shape) for k, v in role.state.items()},
        )

    def _fits(self, request: Request) -> bool:
        """Fail the match of a player whose observation contradicts the role; others are served."""
        seat, question, seen = request[:3]
        arrays = iter([seen] if self.only_input else seen)
        role = self.role
        observation = Observation(
            {name: next(arrays) for name in role.inputs},
            {name: next(arrays) for name in role.masked},
            {name: next(arrays) for name in role.state},
        )
        wrong = contradiction(role, observation)
        if wrong:
            question.fail(GameError(f"decision {seat.length}: {wrong}"))
        return not wrong


class BotWave(DecisionWave):
    """Requests to a rule player, served together."""

    def __init__(
        self, bot: Bot, role: Role, rng: np.random.Generator, max_size: int = 4096
    ) -> None:
        super().__init__(role, rng, max_size)
        self.bot = bot

    def serve(self, requests: Requests, inputs: Arrays, legal: Arrays, state: Arrays) -> Arrays:
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

    def serve(self, requests: Requests, inputs: Arrays, legal: Arrays, state: Arrays) -> Arrays:
        policy = self.policy
        seats = requests.seats
        recurrent = {name: np.stack([seat.memory[name] for seat in seats]) for name in self.memory}
        noise = None if self.greedy else draw_noise(self.role, len(seats), self.rng)
        decisions = policy.act(inputs, legal, state, recurrent, noise)
        if self.store is not None:
            self._record(self.store, requests, inputs, legal, state, recurrent, decisions)
        if decisions.recurrent:
            # Copied: a row handed out must not change when the policy reuses its arrays.
            memory = {name: np.array(array) for name, array in decisions.recurrent.items()}
            for n, seat in enumerate(seats):
                seat.memory = {name: array[n] for name, array in memory.items()}
        return decisions.game_actions

    def _record(
        self,
        store: FragmentStore,
        requests: Requests,
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        decisions: Decisions,
    ) -> None:
        _, _, _, learn, lanes, elapsed, paid = requests
        if self.asked_twice or -1 in lanes:
            # Of the questions of one seat the last is recorded: nobody acts on the others. What the
            # decision before them had earned came with the first.
            self.asked_twice = False
            first = {lane: n for n, lane in reversed(list(enumerate(lanes)))}
            last = {lane: n for n, lane in enumerate(lanes) if lane >= 0}
            if not last:
                return
            keep = list(last.values())
            lanes = tuple(last)
            learn = tuple(learn[n] for n in keep)
            elapsed = tuple(elapsed[first[lane]] for lane in lanes)
            paid = tuple(paid[first[lane]] for lane in lanes)
            inputs, legal, state, recurrent, actions = (
                {k: v[keep] for k, v in group.items()}
                for group in (inputs, legal, state, recurrent, decisions.actions)
            )
            decisions = Decisions({}, actions, decisions.log_prob[keep], decisions.values[keep])
        skipped = [] if all(learn) else [n for n, wanted in enumerate(learn) if not wanted]
        earned = (elapsed, paid)
        store.record(
            lanes, earned, skipped, inputs, legal, state, recurrent, decisions, self.policy.version
        )


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


def _stack(rows: Sequence[Array], dtype: str, shape: tuple[int, ...]) -> Array:
    out: Array = np.array(rows, dtype=dtype)
    if out.shape[1:] != shape:
        raise ValueError("rows of another shape than declared")
    return out


def _rows(array: Array) -> list[Any]:
    """One action per request: plain numbers for scalars, arrays otherwise."""
    return array.tolist() if array.ndim == 1 else list(array)

"""The two coroutines of the paper, and the matches that run them.

``train`` drives a training player: its decisions and rewards become experience. ``evaluate`` only plays.
``spar`` drives a sparring player, whose rewards nobody reads. All three are a few lines; hand your own to
:class:`Cast` to script decisions, skip data or shape what a player does. Everything below them is
bookkeeping: seats, waves and matches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lamarckian import seeding
from lamarckian.errors import GameError, LamarckianError
from lamarckian.mdp.batching import Gate, Lane, Scheduler, direct, is_direct
from lamarckian.mdp.core import MDP, Array, Arrays, Bot, Controller, Observation
from lamarckian.mdp.fragments import FragmentStore
from lamarckian.mdp.fragments import Lane as StoreLane
from lamarckian.mdp.policy import Policy, draw_noise
from lamarckian.mdp.trajectory import EpisodeRecord


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


class Seat:
    """What a player coroutine holds: it decides through a policy or a bot, and reports rewards.

    ``decide`` returns an awaitable of the action to hand to ``controller.act``. ``reward`` reports what
    ``act`` returned, also for decisions the coroutine took itself: rewards of such scripted acts count
    towards the last recorded decision, discounted by the acts in between.
    """

    __slots__ = ("_returns", "controller", "lane", "length", "memory", "rng", "wave")

    def __init__(self, controller: Controller, wave: PolicyWave | None, num_rewards: int) -> None:
        self.controller = controller
        self.wave = wave
        self.lane: StoreLane | None = None
        self.memory: Arrays = {} if wave is None else wave.policy.memory
        self.rng: np.random.Generator | None = None
        self.length = 0
        self._returns = [0.0] * num_rewards

    def decide(self, observation: Observation, learn: bool = True) -> Awaitable[dict[str, Any]]:
        """Ask for an action. ``learn`` False keeps the decision out of the learning data."""
        assert self.wave is not None
        return self.wave.request(self, observation, learn)

    def begin(self, rewards: Sequence[float]) -> None:
        """Report what was paid before the first decision: it counts in the return only."""
        for head, amount in enumerate(rewards):
            self._returns[head] += amount

    def reward(self, rewards: Sequence[float]) -> None:
        """Report the ``K`` rewards of one act."""
        self.length += 1
        returns = self._returns
        for head, amount in enumerate(rewards):
            returns[head] += amount
        if self.lane is not None:
            assert self.wave is not None
            assert self.wave.store is not None
            self.wave.store.pay(self.lane, rewards)

    @property
    def returns(self) -> tuple[float, ...]:
        """Undiscounted sums per reward head so far."""
        return tuple(self._returns)


class BotSeat(Seat):
    """A seat whose decisions come from a rule player, one at a time."""

    __slots__ = ("bot",)

    def __init__(self, controller: Controller, bot: Bot, rng: np.random.Generator, heads: int):
        super().__init__(controller, None, heads)
        self.bot = bot
        self.rng = rng

    def decide(self, observation: Observation, learn: bool = True) -> Awaitable[dict[str, Any]]:
        assert self.rng is not None
        inputs = {name: array[None] for name, array in observation.inputs.items()}
        legal = {name: array[None] for name, array in observation.legal.items()}
        actions = self.bot(inputs, legal, self.rng)
        gate = Gate()
        gate.set({name: array[0] for name, array in actions.items()})
        return gate


class PolicyWave:
    """Requests to one policy, served together (see :mod:`lamarckian.mdp.batching`).

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
        self.policy = policy
        self.rng = rng
        self.greedy = greedy
        self.max_size = max_size
        self.store = store
        self.num_decisions = 0
        self.num_waves = 0
        self._seats: list[Seat] = []
        self._gates: list[Gate] = []
        self._observations: list[Observation] = []
        self._learn: list[bool] = []

    @property
    def size(self) -> int:
        return len(self._seats)

    def request(self, seat: Seat, observation: Observation, learn: bool) -> Gate:
        gate = Gate()
        self._seats.append(seat)
        self._gates.append(gate)
        self._observations.append(observation)
        self._learn.append(learn)
        return gate

    def withdraw(self, seat: Seat) -> None:
        """Forget what ``seat`` asked for: its match is over."""
        for n in reversed([n for n, other in enumerate(self._seats) if other is seat]):
            for pending in (self._seats, self._gates, self._observations, self._learn):
                del pending[n]

    def flush(self) -> None:
        """Serve all pending requests with one call of the policy and open their gates."""
        if not self._seats:
            return
        seats, self._seats = self._seats, []
        gates, self._gates = self._gates, []
        observations, self._observations = self._observations, []
        learn, self._learn = self._learn, []
        policy = self.policy
        role = policy.role
        inputs = {
            name: _stack([o.inputs[name] for o in observations], item.dtype)
            for name, item in role.inputs.items()
        }
        legal = {
            name: _stack([o.legal[name] for o in observations], "bool") for name in role.masked
        }
        state = {
            name: _stack([o.state[name] for o in observations], item.dtype)
            for name, item in role.state.items()
        }
        recurrent = {
            name: np.stack([seat.memory[name] for seat in seats]) for name in policy.memory
        }
        num = len(seats)
        noise = None if self.greedy else draw_noise(role, num, self.rng)
        decisions = policy.act(inputs, legal, state, recurrent, noise)
        self.num_decisions += num
        self.num_waves += 1
        if self.store is not None:
            self._record(seats, learn, inputs, legal, state, recurrent, decisions)
        for name, array in decisions.recurrent.items():
            for n, seat in enumerate(seats):
                if seat.memory is policy.memory:
                    seat.memory = {}
                seat.memory[name] = array[n]
        parts = [(name, _rows(array)) for name, array in decisions.game_actions.items()]
        if len(parts) == 1:
            name, rows = parts[0]
            for gate, row in zip(gates, rows, strict=True):
                gate.set({name: row})
        else:
            for n, gate in enumerate(gates):
                gate.set({name: rows[n] for name, rows in parts})

    def _record(
        self,
        seats: list[Seat],
        learn: list[bool],
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        decisions: Any,
    ) -> None:
        assert self.store is not None
        lanes = [seat.lane for seat in seats if seat.lane is not None]
        if len(lanes) < len(seats):
            keep = np.array([n for n, seat in enumerate(seats) if seat.lane is not None], np.int64)
            learn = [learn[n] for n in keep]
            inputs, legal, state, recurrent = (
                {k: v[keep] for k, v in group.items()}
                for group in (inputs, legal, state, recurrent)
            )
            decisions = type(decisions)(
                game_actions={},
                actions={k: v[keep] for k, v in decisions.actions.items()},
                log_prob=decisions.log_prob[keep],
                values=decisions.values[keep],
            )
        if lanes:
            self.store.record(
                lanes, learn, inputs, legal, state, recurrent, decisions, self.policy.version
            )


def _stack(rows: list[Array], dtype: str) -> Array:
    return np.array(rows, dtype=dtype)


def _rows(array: Array) -> list[Any]:
    """One action per request: plain numbers for scalars, arrays otherwise."""
    return array.tolist() if array.ndim == 1 else list(array)


PlayerFunction = Callable[[Controller, Any], Awaitable[None]]


@dataclass(slots=True)
class Cast:
    """Who plays a role: a policy's wave or a bot, and the coroutine that drives it.

    ``learns`` True gives the seat a lane in the wave's store. ``name`` labels the opponent in records.
    """

    player: PlayerFunction
    wave: PolicyWave | None = None
    bot: Bot | None = None
    learns: bool = False
    name: str = ""


@dataclass(slots=True)
class MatchResult:
    """What a match left behind: one record per life; ``error`` if it failed."""

    seed: int
    episodes: list[EpisodeRecord] = field(default_factory=list)
    error: LamarckianError | None = None
    num_offline: int = 0


class Match:
    """One game object that plays one match after the other, with a cast for each role.

    A player coroutine that raises fails its match only: siblings are cancelled, other matches go on. A
    player that stops acting, or makes no decision within the scheduler's patience, is declared offline
    and the game goes on without it.
    """

    def __init__(
        self,
        mdp: MDP,
        cast: Mapping[str, Cast],
        scheduler: Scheduler,
        *,
        name: str,
        ended: Callable[[Match, MatchResult], None],
    ) -> None:
        self.mdp = mdp
        self.cast = cast
        self.scheduler = scheduler
        self.name = name
        self.ended = ended
        self.frames: list[dict[str, Any]] | None = None
        self._has_joiners = type(mdp).joining is not MDP.joining
        self._idle_lanes: dict[str, list[StoreLane]] = {}
        self._running: dict[str, tuple[Lane, Controller, Seat]] = {}
        self._helpers: list[Lane] = []
        self._result = MatchResult(0)
        self._rng = np.random.default_rng(0)
        self._open = False
        self._admitting = False
        self._stamp = -1
        self._since = 0.0

    def play(self, seed: int) -> None:
        """Start a match; ``ended`` is told when it is over."""
        self._result = MatchResult(seed)
        self._rng = seeding.stream(seed, "players")
        self._open = True
        self._admitting = True
        self._stamp = -1
        self._start(self._begin(seed), by_hand=self.mdp.direct_controllers)

    def scan(self, now: float, idle: bool) -> bool:
        """Give up on players the game waits for in vain; see :class:`Scheduler`."""
        if not self._open:
            return False
        stamp = sum(seat.length for _, _, seat in self._running.values())
        stamp += 1_000_003 * len(self._result.episodes)
        if stamp != self._stamp and not idle:
            self._stamp, self._since = stamp, now
            return False
        if not idle and now - self._since < self.scheduler.patience:
            return False
        self._since = now
        overdue = self.mdp.overdue()
        for player in overdue:
            self._abandon(player)
        if not overdue and not idle and self._running:
            waiting = ", ".join(sorted(self._running))
            self._fail(
                GameError(
                    f"{self.name}: no decision and no reward for {self.scheduler.patience:.0f} s while "
                    f"{waiting} waited; the game's act() or reset() does not return"
                )
            )
            return True
        return bool(overdue)

    def stop(self) -> None:
        """End the match where it is; nobody is told, unfinished experience is dropped."""
        self._open = False
        for lane in [lane for lane, _, _ in self._running.values()] + self._helpers:
            lane.stop()
        for _, controller, seat in self._running.values():
            self._discard(controller, seat)
        self._running.clear()
        self._helpers.clear()

    def longest_running(self) -> int:
        """Decisions so far of the longest life still going on."""
        return max((seat.length for _, _, seat in self._running.values()), default=0)

    async def _begin(self, seed: int) -> None:
        roles = None if set(self.cast) == set(self.mdp.roles) else list(self.cast)
        controllers = await self.mdp.reset(seed, roles)
        if not controllers:
            raise GameError(f"{self.name}: reset() returned no controller")
        for controller in controllers:
            self._enter(controller)
        if self._has_joiners:
            self._start(self._admit(), by_hand=self.mdp.direct_controllers)
        else:
            self._admitting = False
            self._maybe_over()

    async def _admit(self) -> None:
        while (controller := await self.mdp.joining()) is not None:
            self._enter(controller)
        self._admitting = False
        self._maybe_over()

    def _start(self, coroutine: Any, *, by_hand: bool) -> None:
        self._helpers.append(
            self.scheduler.start(
                coroutine, lambda error: self._fail(error) if error else None, by_hand=by_hand
            )
        )

    def _enter(self, controller: Controller) -> None:
        cast = self.cast.get(controller.role)
        if cast is None:
            raise GameError(
                f"{self.name}: reset() returned a controller of role {controller.role!r}, which nobody "
                f"plays; roles cast: {', '.join(self.cast)}"
            )
        heads = self.mdp.roles[controller.role].num_rewards
        seat: Seat
        if cast.bot is not None:
            seat = BotSeat(controller, cast.bot, self._rng, heads)
        else:
            seat = Seat(controller, cast.wave, heads)
            seat.rng = self._rng
            if cast.learns:
                idle = self._idle_lanes.setdefault(controller.role, [])
                seat.lane = idle.pop() if idle else StoreLane()
        player = controller.player
        lane = self.scheduler.start(
            cast.player(controller, seat),  # type: ignore[arg-type]
            lambda error: self._left(player, controller, seat, cast, error),
            by_hand=self.mdp.direct_controllers and is_direct(cast.player),
        )
        self._running[player] = (lane, controller, seat)

    def _left(
        self,
        player: str,
        controller: Controller,
        seat: Seat,
        cast: Cast,
        error: BaseException | None,
    ) -> None:
        """A player coroutine has ended."""
        if error is not None:
            self._fail(error, player)
            return
        running = self._running.get(player)
        if running is not None and running[1] is controller:
            del self._running[player]
        try:
            if controller.alive:
                self._result.num_offline += 1
                self.mdp.offline(player)
            self._settle(controller, seat, cast)
        except Exception as caught:
            self._fail(caught, player)
            return
        self._maybe_over()

    def _abandon(self, player: str) -> None:
        lane, controller, seat = self._running.pop(player)
        lane.stop()
        wave = self.cast[controller.role].wave
        if wave is not None:
            wave.withdraw(seat)
        self._result.num_offline += 1
        self.mdp.offline(player)
        self._settle(controller, seat, self.cast[controller.role])
        self._maybe_over()

    def _settle(self, controller: Controller, seat: Seat, cast: Cast) -> None:
        if seat.lane is not None:
            assert cast.wave is not None
            assert cast.wave.store is not None
            cast.wave.store.end(
                seat.lane,
                terminated=controller.terminated,
                final=None if controller.terminated else controller.observe(),
                recurrent=seat.memory,
            )
            self._idle_lanes[controller.role].append(seat.lane)
            seat.lane = None
        outcome = controller.outcome()
        self._result.episodes.append(
            EpisodeRecord(
                role=controller.role,
                returns=seat.returns,
                length=seat.length,
                frames=seat.length,
                score=outcome.score,
                result=outcome.result,
                statistics=outcome.statistics,
                opponent=self._opponent(controller.role),
                seed=self._result.seed,
                offline=outcome.offline or not (controller.terminated or controller.truncated),
                policy_version=cast.wave.policy.version if cast.wave is not None else 0,
            )
        )

    def _opponent(self, role: str) -> str:
        return ",".join(sorted({c.name for r, c in self.cast.items() if r != role and c.name}))

    def _maybe_over(self) -> None:
        if self._open and not self._running and not self._admitting:
            self._close()

    def _fail(self, error: BaseException, player: str | None = None) -> None:
        if not self._open:
            return
        who = "" if player is None else f", player {player!r}"
        if isinstance(error, GameError) and self.name in str(error):
            self._result.error = error
        else:
            wrapped = GameError(
                f"{self.name} (seed {self._result.seed}){who}: {type(error).__name__}: {error}"
            )
            wrapped.__cause__ = error
            self._result.error = wrapped
        for lane, controller, seat in self._running.values():
            lane.stop()
            self._discard(controller, seat)
        self._running.clear()
        self._close()

    def _discard(self, controller: Controller, seat: Seat) -> None:
        """Drop what a seat asked for and what it has not finished recording."""
        wave = self.cast[controller.role].wave
        if wave is not None:
            wave.withdraw(seat)
            if seat.lane is not None and wave.store is not None:
                wave.store.drop(seat.lane)
                self._idle_lanes[controller.role].append(seat.lane)
                seat.lane = None

    def _close(self) -> None:
        self._open = False
        for helper in self._helpers:
            helper.stop()
        self._helpers.clear()
        self.ended(self, self._result)

"""Games that do not wait: the tick runs on a clock, and whoever is late is played by a rule.

:class:`RealTime` puts any :class:`~lamarckian.mdp.tick.TickGame` on a clock. At each tick the game advances
with the actions that have arrived; a player that was due and has not acted is late, and its role's late
policy decides: ``repeat`` its last action, ``idle`` (no action: the game does what it does without one) or
``scripted`` (a rule player). Nothing ever waits for a player, so a match always ends.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Literal

from lamarckian import seeding
from lamarckian.errors import ConfigError, GameError, nearest
from lamarckian.mdp.batching import Clock, Gate, direct, driver
from lamarckian.mdp.core import MDP, Action, Bot, Controller, Observation, PlayerResult
from lamarckian.mdp.tick import TickController, TickGame

LatePolicy = Literal["repeat", "idle", "scripted"]

EDGES_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 33.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)


class Lateness:
    """Decision latencies: from the moment a player could decide to its action's arrival.

    ``edges`` are the upper bin edges in milliseconds, ``counts`` has one bin more for what lies above.
    A decision is late if its first tick passed without it. ``overruns`` are ticks the game itself began
    more than one period behind the clock. Two of them add up bin by bin.
    """

    __slots__ = ("counts", "decisions", "edges", "late", "max_ms", "offline", "overruns", "ticks")

    def __init__(self) -> None:
        self.edges = EDGES_MS
        self.counts = [0] * (len(EDGES_MS) + 1)
        self.decisions = 0
        self.late = 0
        self.max_ms = 0.0
        self.overruns = 0
        self.ticks = 0
        self.offline = 0

    def add(self, seconds: float, late: bool) -> None:
        """Count one decision."""
        milliseconds = 1000.0 * seconds
        self.counts[bisect_left(EDGES_MS, milliseconds)] += 1
        self.decisions += 1
        self.late += late
        self.max_ms = max(self.max_ms, milliseconds)

    def merge(self, other: Lateness) -> None:
        """Add what another match counted."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        for name in ("decisions", "late", "overruns", "ticks", "offline"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.max_ms = max(self.max_ms, other.max_ms)

    def percentile(self, share: float) -> float:
        """Upper edge in milliseconds of the bin that holds ``share`` (0 to 1) of the decisions."""
        need = share * self.decisions
        total = 0
        for edge, count in zip(self.edges, self.counts, strict=False):
            total += count
            if total >= need:
                return min(edge, self.max_ms)
        return self.max_ms

    @property
    def late_share(self) -> float:
        return self.late / self.decisions if self.decisions else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data for reports."""
        return {
            "edges_ms": list(self.edges),
            "counts": list(self.counts),
            "p50_ms": self.percentile(0.5),
            "p99_ms": self.percentile(0.99),
            "max_ms": self.max_ms,
            "late_share": self.late_share,
            "decisions": self.decisions,
            "ticks": self.ticks,
            "overruns": self.overruns,
            "offline_players": self.offline,
        }


class RealTimeController(Controller):
    """A player on the clock: it may be late, and its act is for the next tick at which it is due."""

    def __init__(self, match: RealTime, inner: TickController, now: float) -> None:
        self.match = match
        self.inner = inner
        self.role = inner.role
        self.player = inner.player
        self.due_since = now
        """When this player could decide; the latency of its decision counts from here."""
        self.heard = now
        self.missed = False
        self.offline = False
        self.acting = False
        self.last: Action | None = None
        self.rewards = [0.0] * match.roles[inner.role].num_rewards
        self.gate: Gate | None = None

    @property
    def alive(self) -> bool:  # type: ignore[override]
        return self.inner.alive

    @property
    def terminated(self) -> bool:  # type: ignore[override]
        return self.inner.terminated

    @property
    def truncated(self) -> bool:  # type: ignore[override]
        return self.inner.truncated

    def observe(self) -> Observation:
        return self.inner.observe()

    @direct
    async def ready(self) -> Sequence[float]:
        if self.alive and not self.inner.due:
            self.gate = Gate()
            await self.gate
        return self.take()

    def act(self, action: Action) -> RealTimeController:
        self.match.arrived(self, action)
        return self

    def __await__(self) -> Generator[Any, Any, Sequence[float]]:
        if self.alive and self.acting:
            self.gate = Gate()
            yield from self.gate.__await__()
        return self.take()

    def take(self) -> list[float]:
        """Return what accrued since the last call."""
        rewards, self.rewards = self.rewards, [0.0] * len(self.rewards)
        return rewards

    def outcome(self) -> PlayerResult:
        result = self.inner.outcome()
        result.offline = result.offline or self.offline
        return result


class RealTime(MDP):
    """A :class:`TickGame` whose tick runs at ``hertz`` on ``clock`` and never waits.

    ``late`` names the late policy of each role (or one for all); ``scripted`` gives the rule players for
    roles that need one (default: the game's first bot). A player silent for ``offline_after`` seconds is
    offline: the late policy plays on for it, and it is back as soon as it acts. ``lateness`` counts this
    object's matches together.

    Works with players of any kind, under the platform's scheduler (whose clock counts then) or awaited
    from a program's own asyncio loop (wall clock only).
    Raises ConfigError for an unknown role, policy or rate.
    """

    direct_controllers = True

    def __init__(
        self,
        game: TickGame,
        *,
        hertz: float = 30.0,
        clock: Clock | None = None,
        late: LatePolicy | Mapping[str, LatePolicy] = "repeat",
        scripted: Mapping[str, Bot] | None = None,
        offline_after: float = 5.0,
    ) -> None:
        if hertz <= 0 or offline_after <= 0:
            raise ConfigError(
                f"RealTime: expected hertz and offline_after > 0, got {hertz}, {offline_after}"
            )
        self.game = game
        self.roles = game.roles
        self.clock = clock if clock is not None else Clock()
        self.period = 1.0 / hertz
        self.offline_after = offline_after
        self.lateness = Lateness()
        self.late: dict[str, str] = dict.fromkeys(game.roles, late) if isinstance(late, str) else {
            **dict.fromkeys(game.roles, "repeat"), **late
        }  # fmt: skip
        for role, policy in self.late.items():
            if role not in game.roles:
                raise ConfigError(f"RealTime late: no role {role!r}{nearest(role, game.roles)}")
            if policy not in ("repeat", "idle", "scripted"):
                raise ConfigError(
                    f"RealTime late: expected repeat, idle or scripted for {role}, got {policy!r}"
                )
        default = next(iter(game.bots.values()), None)
        self.scripted: dict[str, Bot] = dict(scripted or {})
        for role, policy in self.late.items():
            if policy == "scripted" and role not in self.scripted:
                if default is None:
                    raise ConfigError(
                        f"RealTime: role {role!r} is scripted but there is no bot for it"
                    )
                self.scripted[role] = default
        self.players: dict[str, RealTimeController] = {}
        self._match = 0
        self._ticker: asyncio.Task[None] | None = None

    @direct
    async def reset(self, seed: int, roles: Sequence[str] | None = None) -> list[Controller]:
        self._match += 1
        started = await self.game.reset(seed, roles)
        scheduler = driver()
        if scheduler is not None:
            self.clock = scheduler.clock
        now = self.clock.now()
        self._error: Exception | None = None
        self.players = {}
        for inner in started:
            self._seat(inner, now)
        self._rng = seeding.stream(seed, "late")
        self._next = now + self.period
        self._over = False
        if scheduler is not None:
            self._arm()
        else:
            if self.clock.simulated:
                raise GameError("RealTime: a simulated clock needs the platform's scheduler")
            self._ticker = asyncio.get_running_loop().create_task(self._tick_for_ever(self._match))
        return list(self.players.values())

    @direct
    async def joining(self) -> Controller | None:
        inner = await self.game.joining()
        return None if inner is None else self._seat(inner, self.clock.now())

    def overdue(self) -> list[str]:
        return []

    def offline(self, player: str) -> None:
        """A player that left: the late policy plays on for it until its life ends."""
        controller = self.players[player]
        if not controller.offline:
            controller.offline = True
            self.lateness.offline += 1

    def close(self) -> None:
        self._match += 1
        if self._ticker is not None and not self._ticker.get_loop().is_closed():
            self._ticker.cancel()
        self._ticker = None
        self.game.close()

    @property
    def bots(self) -> Mapping[str, Bot]:  # type: ignore[override]
        """The rule players of the game on the clock."""
        return self.game.bots

    @property
    def drawing(self) -> Any:
        """How a viewer draws the game's frames, if the game says so."""
        return getattr(self.game, "drawing", None)

    def frame(self) -> dict[str, Any] | None:
        return self.game.frame()

    def arrived(self, controller: RealTimeController, action: Action) -> None:
        """An action came in: for the coming tick, or the first at which the player is due again."""
        if self._error is not None:
            raise self._error
        if controller.acting:
            raise GameError(
                f"{type(self.game).__name__} tick {self.game.ticks}: player {controller.player!r} acted "
                "twice; await act() before acting again"
            )
        now = self.clock.now()
        self.lateness.add(now - controller.due_since, controller.missed)
        controller.heard = now
        controller.offline = False
        controller.missed = False
        controller.last = action
        controller.acting = controller.inner.alive

    def _seat(self, inner: Controller, now: float) -> RealTimeController:
        assert isinstance(inner, TickController)
        controller = self.players[inner.player] = RealTimeController(self, inner, now)
        return controller

    def _arm(self) -> None:
        match = self._match
        self.clock.call_at(self._next, lambda: self._on_time(match))

    def _on_time(self, match: int) -> None:
        if match != self._match or self._over:
            return
        self._tick_or_fail()
        if not self._over:
            self._arm()

    async def _tick_for_ever(self, match: int) -> None:
        while match == self._match and not self._over:
            await asyncio.sleep(max(0.0, self._next - self.clock.now()))
            self._tick_or_fail()

    def _tick_or_fail(self) -> None:
        """What the game raises is raised in its players: there somebody hears it."""
        try:
            self._tick()
        except Exception as error:
            self._error = error
            self._over = True
            for controller in self.players.values():
                if controller.gate is not None:
                    controller.gate.fail(error)

    def _tick(self) -> None:
        """One tick of the world, whoever is ready."""
        now = self.clock.now()
        game = self.game
        self.lateness.ticks += 1
        behind = now - self._next
        if behind > self.period:
            self.lateness.overruns += 1
        # The tick keeps its rhythm; after a long stall of the process it does not race to catch up.
        self._next = self._next + self.period if behind < 1.0 else now + self.period
        due = [self.players[name] for name in game.overdue() if name in self.players]
        actions: dict[str, Action] = {}
        for controller in due:
            if controller.acting:
                assert controller.last is not None
                actions[controller.player] = controller.last
            else:
                controller.missed = True
                substitute = self._substitute(controller)
                if substitute is not None:
                    actions[controller.player] = substitute
                if now - controller.heard >= self.offline_after:
                    self.offline(controller.player)
        game.tick_once(actions)
        self._over = game.over
        for controller in self.players.values():
            paid = controller.inner.take_rewards()
            for head, amount in enumerate(paid):
                controller.rewards[head] += amount
            waits = controller.acting or controller.gate is not None
            if waits and (not controller.alive or controller.inner.due):
                controller.acting = False
                controller.due_since = now
                gate, controller.gate = controller.gate, None
                if gate is not None:
                    gate.set()

    def _substitute(self, controller: RealTimeController) -> Action | None:
        policy = self.late[controller.role]
        if policy == "repeat":
            return controller.last
        if policy == "idle":
            return None
        seen = controller.observe()
        answer = self.scripted[controller.role](
            {name: array[None] for name, array in seen.inputs.items()},
            {name: array[None] for name, array in seen.legal.items()},
            self._rng,
        )
        return {part: array[0] for part, array in answer.items()}

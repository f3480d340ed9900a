"""Matches: one game object that plays one match after the other, with somebody in every seat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from lamarckian import seeding
from lamarckian.errors import GameError, LamarckianError
from lamarckian.mdp import fragments
from lamarckian.mdp.batching import Lane, Scheduler, is_direct
from lamarckian.mdp.core import MDP, Controller, Observation
from lamarckian.mdp.rollout import DecisionWave, PlayerFunction, Seat
from lamarckian.mdp.trajectory import EpisodeRecord


@dataclass(slots=True)
class Cast:
    """Who plays a role: the coroutine that drives it, and the wave through which it decides.

    ``learns`` True gives the seat a lane in the wave's store. ``name`` labels the opponent in records.
    """

    player: PlayerFunction
    wave: DecisionWave
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
        self._idle_lanes: dict[str, list[fragments.Lane]] = {}
        self._has_joiners = type(mdp).joining is not MDP.joining
        self._running: dict[int, tuple[Lane, Controller, Seat]] = {}
        self._helpers: list[Lane] = []
        self._result = MatchResult(0)
        self._rng: np.random.Generator | None = None
        self._open = False
        self._begun = False
        self._admitting = False
        self._progress = -1
        self._since = 0.0
        self._dead: set[int] = set()

    def play(self, seed: int) -> None:
        """Start a match; ``ended`` is told when it is over."""
        self._result = MatchResult(seed)
        self._rng = None
        self._open = True
        self._begun = False
        self._admitting = True
        self._progress = -1
        self._dead.clear()
        self._start(self._begin(seed), by_hand=self.mdp.direct_controllers)

    def scan(self, now: float, idle: bool) -> bool:
        """Give up on players the game waits for in vain; see :class:`Scheduler`."""
        if not self._open:
            return False
        dead = {key for key, (_, controller, _) in self._running.items() if not controller.alive}
        stuck = dead if idle else dead & self._dead
        self._dead = dead
        for key in stuck:
            self._abandon(key)
        if stuck:
            return True
        progress = sum(seat.length for _, _, seat in self._running.values())
        progress += 1_000_003 * (len(self._result.episodes) + self._begun)
        if progress != self._progress and not idle:
            self._progress, self._since = progress, now
            return False
        if not idle and now - self._since < self.scheduler.patience:
            return False
        self._since = now
        return self._give_up(idle)

    def stop(self) -> None:
        """End the match where it is; nobody is told, unfinished experience is dropped."""
        self._open = False
        self._end_all()
        self._idle_lanes.clear()

    @property
    def is_open(self) -> bool:
        """True while a match goes on."""
        return self._open

    def longest_running(self) -> int:
        """Decisions so far of the longest life still going on."""
        return max((seat.length for _, _, seat in self._running.values()), default=0)

    def players_rng(self) -> np.random.Generator:
        """The stream of this match's player functions, made when first asked for."""
        if self._rng is None:
            self._rng = seeding.stream(self._result.seed, "players")
        return self._rng

    def _give_up(self, idle: bool) -> bool:
        overdue = set(self.mdp.overdue()) if self._begun else set()
        late = [
            k for k, (_, controller, _) in self._running.items() if controller.player in overdue
        ]
        for key in late:
            self._abandon(key)
        if late or (self._begun and not self._running):
            return bool(late)
        waiting = ", ".join(sorted(c.player for _, c, _ in self._running.values()))
        what = f"act() while {waiting} waited" if self._begun else "reset()"
        span = "and nothing is left to wait for" if idle else f"for {self.scheduler.patience:g} s"
        self._fail(
            GameError(f"no decision and no reward {span}: the game does not return from {what}")
        )
        return True

    async def _begin(self, seed: int) -> None:
        roles = None if set(self.cast) == set(self.mdp.roles) else list(self.cast)
        controllers = await self.mdp.reset(seed, roles)
        if not controllers:
            raise GameError("reset() returned no controller")
        self._begun = True
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
                f"reset() returned a controller of role {controller.role!r}, which nobody plays; "
                f"roles cast: {', '.join(self.cast)}"
            )
        heads = self.mdp.roles[controller.role].num_rewards
        place: fragments.Lane | None = None
        if cast.learns:
            assert cast.wave.store is not None
            idle = self._idle_lanes.setdefault(controller.role, [])
            place = idle.pop() if idle else cast.wave.store.lane()
        seat = Seat(controller, cast.wave, heads, self.players_rng, place)
        key = id(controller)
        lane = self.scheduler.start(
            cast.player(controller, seat),  # type: ignore[arg-type]
            partial(self._left, key),
            by_hand=self.mdp.direct_controllers and is_direct(cast.player),
        )
        self._running[key] = (lane, controller, seat)

    def _left(self, key: int, error: BaseException | None) -> None:
        """A player coroutine has ended."""
        _, controller, seat = self._running[key]
        if error is not None:
            self._fail(error, controller.player)
        else:
            self._leave(key, controller, seat)

    def _abandon(self, key: int) -> None:
        lane, controller, seat = self._running[key]
        lane.stop()
        seat.wave.withdraw(seat)
        self._leave(key, controller, seat)

    def _leave(self, key: int, controller: Controller, seat: Seat) -> None:
        """Close a life; whoever leaves while its player lives is offline, and the game goes on."""
        del self._running[key]
        try:
            offline = controller.alive
            final = None if controller.terminated else controller.observe()
            if offline:
                self._result.num_offline += 1
                self.mdp.offline(controller.player)
            self._settle(controller, seat, final, offline)
        except Exception as caught:
            self._discard(controller, seat)
            self._fail(caught, controller.player)
            return
        self._maybe_over()

    def _settle(
        self, controller: Controller, seat: Seat, final: Observation | None, offline: bool
    ) -> None:
        cast = self.cast[controller.role]
        if seat.lane is not None:
            assert cast.wave.store is not None
            cast.wave.store.end(
                seat.lane, terminated=final is None, final=final, recurrent=seat.memory
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
                offline=offline or outcome.offline,
                policy_version=cast.wave.version,
            )
        )

    def _opponent(self, role: str) -> str:
        others = [cast for other, cast in self.cast.items() if other != role]
        names = {cast.name for cast in others if cast.name}
        return ",".join(sorted(names)) or ("self" if any(c.learns for c in others) else "")

    def _maybe_over(self) -> None:
        if self._open and not self._running and not self._admitting:
            self._close()

    def _fail(self, error: BaseException, player: str | None = None) -> None:
        if not self._open:
            return
        who = "" if player is None else f", player {player!r}"
        kind = "" if isinstance(error, GameError) else f"{type(error).__name__}: "
        wrapped = GameError(f"{self.name} (seed {self._result.seed}){who}: {kind}{error}")
        wrapped.__cause__ = error
        self._result.error = wrapped
        self._end_all()
        self._close()

    def _end_all(self) -> None:
        """Cancel players and helpers, and forget what they have not finished."""
        running = list(self._running.values())
        self._running.clear()
        for lane, _, _ in running:
            lane.stop()
        for _, controller, seat in running:
            self._discard(controller, seat)
        for helper in self._helpers:
            helper.stop()
        self._helpers.clear()

    def _discard(self, controller: Controller, seat: Seat) -> None:
        """Drop what a seat asked for and what it has not finished recording."""
        seat.wave.withdraw(seat)
        if seat.lane is not None and seat.wave.store is not None:
            seat.wave.store.drop(seat.lane)
            self._idle_lanes[controller.role].append(seat.lane)
            seat.lane = None

    def _close(self) -> None:
        self._open = False
        for helper in self._helpers:
            helper.stop()
        self._helpers.clear()
        self.ended(self, self._result)

"""Games with a common tick, written without any asyncio: begin, view, tick.

:class:`TickGame` turns three plain methods into an asynchronous :class:`~lamarckian.mdp.core.MDP`:
players who must decide at this tick are awaited, the last one to act advances the game, and each player
is resumed only when its own next decision is due. Turns, different decision rates, early leavers and late
joiners are all the question "who decides now?".
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np

from lamarckian import seeding
from lamarckian.errors import GameError
from lamarckian.mdp.batching import Gate, direct
from lamarckian.mdp.core import MDP, Action, Controller, Observation, PlayerResult

MAX_IDLE_TICKS = 1_000_000
"""So many ticks in a row without anybody to decide are taken for a game that hangs."""


class TickController(Controller):
    """A player of a :class:`TickGame`. Awaiting it means: until my next decision is due, or I am out."""

    __slots__ = (
        "_spare",
        "alive",
        "due",
        "final",
        "game",
        "gate",
        "out",
        "player",
        "result",
        "rewards",
        "role",
        "terminated",
        "truncated",
    )

    def __init__(self, game: TickGame, role: str, player: str) -> None:
        self.game = game
        self.role = role
        self.player = player
        self.alive = True
        self.terminated = False
        self.truncated = False
        self.out = False
        """True once the tick that ended this life is over: nothing is paid any more."""
        self.final: Observation | None = None
        self.due = False
        """True while the game awaits this player's action."""
        self.rewards = [0.0] * game.roles[role].num_rewards
        self.gate: Gate | None = None
        """Where the player waits, if it waits."""
        self._spare: Gate | None = None
        self.result = PlayerResult()

    def observe(self) -> Observation:
        return self.game.view(self.player) if self.final is None else self.final

    @direct
    async def ready(self) -> Sequence[float]:
        return await self

    def act(self, action: Action) -> TickController:
        game = self.game
        if not self.due:
            raise GameError(
                f"{type(game).__name__} tick {game.ticks}: player {self.player!r} acted when it was "
                f"not awaited (awaited: {game.overdue() or 'nobody'}); await act() before acting again"
            )
        if game.solo is self:
            # Nobody else to wait for: this act is the tick.
            game.tick({self.player: action})
            game.ticks += 1
            if not self.alive or game.solo is not self:
                self.due = False
                game.num_awaited = 0
                if not game.settle_tick():
                    game.advance()
            return self
        self.due = False
        game.actions[self.player] = action
        game.num_awaited -= 1
        if not game.num_awaited:
            game.advance()
        return self

    def __await__(self) -> Generator[Any, Any, Sequence[float]]:
        # Most often the tick is over by now, and nobody has to wait.
        if not self.due and self.alive:
            gate = self.gate = self._spare or Gate()
            self._spare = None
            yield gate
            if gate.error is not None:
                raise gate.error
            gate.is_set = False
            self._spare = gate
        rewards = self.rewards
        self.rewards = [0.0] * len(rewards)
        return rewards

    def outcome(self) -> PlayerResult:
        return self.result

    def take_rewards(self) -> list[float]:
        """Return what accrued since the last call, and start again from zero."""
        rewards = self.rewards
        self.rewards = [0.0] * len(rewards)
        return rewards


class TickGame(MDP):
    """Base class of games with a common tick.

    Write :meth:`begin` (set the board up and say who plays), :meth:`view` (what a player sees) and
    :meth:`tick` (apply actions). Inside ``tick`` call :meth:`reward`, :meth:`finish`, :meth:`finish_all`
    and :meth:`join`. Override :meth:`deciders` if not everybody decides at each tick.
    """

    direct_controllers = True
    controllers: dict[str, TickController]
    solo: TickController | None = None
    """The only player of a match in which everybody decides at every tick."""

    @abstractmethod
    def begin(self, rng: np.random.Generator, roles: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Set up a match and return ``(role, player name)`` of who plays from the start."""

    @abstractmethod
    def view(self, player: str) -> Observation:
        """Return what ``player`` sees now; also called once after its end."""

    @abstractmethod
    def tick(self, actions: dict[str, Action]) -> None:
        """Advance by one tick. Players who are offline have no entry in ``actions``."""

    def deciders(self) -> Iterable[str]:
        """Return the living players who decide at the coming tick (all, unless overridden)."""
        return [name for name, controller in self.controllers.items() if controller.alive]

    # What begin() and tick() may call.

    def reward(self, player: str, amount: float, head: int = 0) -> None:
        """Pay ``player``; it receives the sum when it must decide again or is out."""
        controller = self.controllers[player]
        if not controller.out:
            controller.rewards[head] += amount

    def finish(
        self,
        player: str,
        *,
        truncated: bool = False,
        score: float | None = None,
        result: int | None = None,
        **statistics: float,
    ) -> None:
        """End the life of ``player``: terminated, or truncated by a limit outside the game."""
        controller = self.controllers[player]
        if not controller.alive:
            return
        self._somebody_ended = True
        controller.alive = False
        controller.truncated = truncated
        controller.terminated = not truncated
        controller.result = PlayerResult(score, result, statistics, controller.result.offline)

    def finish_all(self, *, truncated: bool = False) -> None:
        """End every life that still goes on, without a result of its own."""
        for name, controller in self.controllers.items():
            if controller.alive:
                self.finish(name, truncated=truncated)

    def join(self, role: str, player: str) -> None:
        """Let a player enter now, or come back: a new life under the same name."""
        old = self.controllers.get(player)
        if old is not None and old.alive:
            raise GameError(f"{type(self).__name__}: player {player!r} cannot join, it is playing")
        if old is not None and not old.out:
            self._leave(old)
        controller = TickController(self, role, player)
        self.controllers[player] = controller
        self.solo = None
        self._joined.append(controller)
        if self._door is not None:
            self._open_door(self._joined.popleft())

    # The MDP contract.

    @direct
    async def reset(self, seed: int, roles: Sequence[str] | None = None) -> list[Controller]:
        self.ticks = 0
        self.over = False
        self.actions: dict[str, Action] = {}
        self.num_awaited = 0
        self._somebody_ended = False
        self.controllers = {}
        self.solo = None
        self._joined: deque[TickController] = deque()
        self._door: Gate | None = None
        self._all_decide = type(self).deciders is TickGame.deciders
        wanted = list(self.roles) if roles is None else list(roles)
        for role, player in self.begin(self._stream(seed), wanted):
            self.controllers[player] = TickController(self, role, player)
        started: list[Controller] = list(self.controllers.values())
        if len(started) == 1 and self._all_decide and not self._joined:
            self.solo = self.controllers[started[0].player]
        self._await_deciders()
        return started

    @direct
    async def joining(self) -> Controller | None:
        if self._joined:
            return self._joined.popleft()
        if self.over:
            return None
        self._door = Gate()
        controller: Controller | None = await self._door
        return controller

    def overdue(self) -> list[str]:
        return sorted(name for name, controller in self.controllers.items() if controller.due)

    def offline(self, player: str) -> None:
        """Count ``player`` out for the rest of its life; the match goes on without its actions."""
        controller = self.controllers[player]
        if not controller.alive:
            return
        controller.result.offline = True
        awaited = controller.due
        self.finish(player, truncated=True)
        self._leave(controller)
        if awaited:
            self.num_awaited -= 1
            if not self.num_awaited:
                self.advance()

    def advance(self) -> None:
        """Run ticks until a living player must decide or the match is over."""
        for _ in range(MAX_IDLE_TICKS):
            actions, self.actions = self.actions, {}
            self.tick(actions)
            self.ticks += 1
            if self.settle_tick():
                return
        raise GameError(
            f"{type(self).__name__}: nobody decided for {MAX_IDLE_TICKS} ticks while players live; "
            "deciders() must name somebody in the end, or tick() end their lives"
        )

    def tick_once(self, actions: dict[str, Action]) -> None:
        """Run one tick with ``actions``, whoever is awaited: for whom the game does not wait."""
        for controller in self.controllers.values():
            controller.due = False
        self.num_awaited = 0
        self.actions = {}
        self.tick(actions)
        self.ticks += 1
        self.settle_tick()

    def settle_tick(self) -> bool:
        """After a tick: let go who is out, await who decides next. False if the game just runs on."""
        if self._somebody_ended:
            self._somebody_ended = False
            alive = False
            for controller in self.controllers.values():
                if controller.alive:
                    alive = True
                elif not controller.out:
                    self._leave(controller)
            if not alive:
                self.over = True
                if self._door is not None:
                    self._open_door(None)
                return True
        return self._await_deciders()

    def _stream(self, seed: int) -> np.random.Generator:
        rng = getattr(self, "_rng", None)
        if rng is None:
            rng = self._rng = np.random.Generator(np.random.PCG64(0))
        return seeding.restream(rng, seed, "game")

    def _await_deciders(self) -> bool:
        controllers = self.controllers
        deciding: Iterable[TickController] = (
            controllers.values()
            if self._all_decide
            else [controllers[player] for player in self.deciders()]
        )
        for controller in deciding:
            if controller.alive and not controller.due:
                controller.due = True
                self.num_awaited += 1
                gate = controller.gate
                if gate is not None:
                    controller.gate = None
                    gate.set()
        return self.num_awaited > 0

    def _leave(self, controller: TickController) -> None:
        """Let a player that is out have its last rewards, and see the end of its life for ever."""
        controller.out = True
        controller.due = False
        if controller.truncated and controller.final is None:
            seen = self.view(controller.player)
            controller.final = Observation(
                {k: np.array(v) for k, v in seen.inputs.items()},
                {k: np.array(v) for k, v in seen.legal.items()},
                {k: np.array(v) for k, v in seen.state.items()},
            )
        gate, controller.gate = controller.gate, None
        if gate is not None:
            gate.set()

    def _open_door(self, controller: TickController | None) -> None:
        door, self._door = self._door, None
        if door is not None:
            door.set(controller)

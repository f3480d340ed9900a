"""Games with a common tick, written without any asyncio: begin, view, tick.

:class:`TickGame` turns three plain methods into an asynchronous :class:`~lamarckian.mdp.core.MDP`:
players who must decide at this tick are awaited, the last one to act advances the game, and each player
is resumed only when its own next decision is due. Turns, different decision rates, early leavers and late
joiners are all the question "who decides now?".
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from lamarckian import seeding
from lamarckian.errors import GameError
from lamarckian.mdp.batching import Gate, direct
from lamarckian.mdp.core import MDP, Action, Controller, Observation, PlayerResult


class TickController(Controller):
    """A player of a :class:`TickGame`."""

    __slots__ = (
        "alive",
        "game",
        "gate",
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
        self.rewards = [0.0] * game.roles[role].num_rewards
        self.gate: Gate | None = None
        self.result = PlayerResult()

    def observe(self) -> Observation:
        return self.game.view(self.player)

    @direct
    async def ready(self) -> Sequence[float]:
        if not self.alive or self.player in self.game.awaited:
            return self.take_rewards()
        gate = self.gate = Gate()
        rewards: list[float] = await gate
        return rewards

    def act(self, action: Action) -> Gate:
        game = self.game
        player = self.player
        if player not in game.awaited:
            raise GameError(
                f"{type(game).__name__} tick {game.ticks}: player {player!r} acted when it was not "
                f"awaited (awaited: {sorted(game.awaited) or 'nobody'}); await act() before acting again"
            )
        gate = self.gate = Gate()
        game.awaited.discard(player)
        game.actions[player] = action
        if not game.awaited:
            game.advance()
        return gate

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
    :meth:`tick` (apply actions). Inside ``begin`` and ``tick`` call :meth:`reward`, :meth:`finish`,
    :meth:`finish_all` and :meth:`join`. Override :meth:`deciders` if not everybody decides at each tick.
    """

    direct_controllers = True
    controllers: dict[str, TickController]

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
        self.controllers[player].rewards[head] += amount

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
        if old is not None:
            self._settle(old)
        controller = TickController(self, role, player)
        self.controllers[player] = controller
        self._joined.append(controller)
        if self._door is not None:
            self._open_door(self._joined.popleft())

    # The MDP contract.

    @direct
    async def reset(self, seed: int, roles: Sequence[str] | None = None) -> list[Controller]:
        self.ticks = 0
        self.over = False
        self.actions: dict[str, Action] = {}
        self.awaited: set[str] = set()
        self.controllers = {}
        self._gone: set[str] = set()
        self._joined: deque[TickController] = deque()
        self._door: Gate | None = None
        wanted = list(self.roles) if roles is None else list(roles)
        for role, player in self.begin(seeding.stream(seed, "game"), wanted):
            self.controllers[player] = TickController(self, role, player)
        started: list[Controller] = list(self.controllers.values())
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
        return sorted(self.awaited)

    def offline(self, player: str) -> None:
        """Count ``player`` out for the rest of its life; the match goes on without its actions."""
        controller = self.controllers[player]
        if not controller.alive or player in self._gone:
            return
        controller.result.offline = True
        self._gone.add(player)
        self.finish(player, truncated=True)
        if player in self.awaited:
            self.awaited.discard(player)
            if not self.awaited:
                self.advance()

    def advance(self) -> None:
        """Run ticks until a living player must decide or the match is over."""
        while True:
            actions, self.actions = self.actions, {}
            self.tick(actions)
            self.ticks += 1
            alive = False
            for controller in self.controllers.values():
                if controller.alive:
                    alive = True
                elif controller.gate is not None:
                    self._settle(controller)
            if not alive and not self._joined:
                self.over = True
                if self._door is not None:
                    self._open_door(None)
                return
            if self._await_deciders():
                return

    def _await_deciders(self) -> bool:
        awaited = self.awaited
        controllers = self.controllers
        for player in self.deciders():
            controller = controllers[player]
            if controller.alive:
                awaited.add(player)
                gate = controller.gate
                if gate is not None:
                    controller.gate = None
                    gate.set(controller.take_rewards())
        return bool(awaited)

    def _settle(self, controller: TickController) -> None:
        """Hand a player that is out its last rewards."""
        gate, controller.gate = controller.gate, None
        if gate is not None:
            gate.set(controller.take_rewards())

    def _open_door(self, controller: TickController | None) -> None:
        door, self._door = self._door, None
        if door is not None:
            door.set(controller)

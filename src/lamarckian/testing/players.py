"""Toy games about players: who dies, joins late, waits for a turn, or stops answering."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence

import numpy as np

from lamarckian.mdp.core import (
    MDP,
    Action,
    Controller,
    Discrete,
    Input,
    Observation,
    PlayerResult,
    Role,
)
from lamarckian.mdp.tick import TickGame


class DieEarly(TickGame):
    """Three players: player 1 dies at tick 3, player 2 joins at tick 5, the match ends at tick 10.

    Role ``agent``, input ``state`` float32 ``[3]``: player number, ticks played, ticks of this
    life. Reward: the player's number plus 1, at each tick of its life. So player 0 makes 10
    decisions and returns 10, player 1 makes 3 and returns 6, player 2 makes 5 and returns 15. With
    ``revive`` player 1 comes back at tick 6 as a new life of 4 decisions that returns 8. With
    ``team`` the whole team of those alive at tick 4 earns 1 more then: player 0 returns 11. At the
    end all terminate.
    """

    DIES, JOINS, REVIVES, TEAM, ENDS = 3, 5, 6, 4, 10

    def __init__(self, *, revive: bool = False, team: bool = False) -> None:
        self.revive = revive
        self.team = team
        self.roles = {"agent": Role(inputs={"state": Input((3,))}, actions={"move": Discrete(2)})}
        self._born: dict[str, int] = {}
        self._tick = 0

    def begin(self, rng: np.random.Generator, roles: Sequence[str]) -> Iterable[tuple[str, str]]:
        self._tick = 0
        self._born = {"0": 0, "1": 0}
        return [("agent", "0"), ("agent", "1")]

    def view(self, player: str) -> Observation:
        seen = [int(player), self._tick, self._tick - self._born[player]]
        return Observation({"state": np.array(seen, np.float32)})

    def tick(self, actions: dict[str, Action]) -> None:
        self._tick += 1
        for player, controller in self.controllers.items():
            if controller.alive:
                team = float(self.team and self._tick == self.TEAM)
                self.reward(player, int(player) + 1 + team)
        if self._tick == self.DIES:
            self.finish("1")
        if self._tick == self.JOINS:
            self._enter("2")
        if self._tick == self.REVIVES and self.revive:
            self._enter("1")
        if self._tick == self.ENDS:
            self.finish_all()

    def _enter(self, player: str) -> None:
        self._born[player] = self._tick
        self.join("agent", player)


class Turns(TickGame):
    """Two players alternate; player 1 is paid 5 during player 2's move, and the game is over.

    Roles ``first`` and ``second``, input ``state`` float32 ``[1]``: moves made. With ``rounds`` 1 player 1
    holds exactly one transition with reward 5 and termination, player 2 one with reward 0. With more rounds
    each move of player 2 pays player 1 another 5.
    """

    def __init__(self, *, rounds: int = 1) -> None:
        self.rounds = rounds
        seat = Role(inputs={"state": Input((1,))}, actions={"move": Discrete(2)})
        self.roles = {"first": seat, "second": seat}
        self._moves = 0

    def begin(self, rng: np.random.Generator, roles: Sequence[str]) -> Iterable[tuple[str, str]]:
        self._moves = 0
        return [("first", "first"), ("second", "second")]

    def deciders(self) -> Iterable[str]:
        return ["second" if self._moves % 2 else "first"]

    def view(self, player: str) -> Observation:
        return Observation({"state": np.array([self._moves], np.float32)})

    def tick(self, actions: dict[str, Action]) -> None:
        self._moves += 1
        if self._moves % 2 == 0:
            self.reward("first", 5.0)
        if self._moves == 2 * self.rounds:
            self.finish_all()


class _DuelController(Controller):
    """A player of :class:`AsyncDuel`; it waits on a plain asyncio future."""

    def __init__(self, game: AsyncDuel, player: str) -> None:
        self.game = game
        self.role = self.player = player
        self.future: asyncio.Future[Sequence[float]] | None = None
        self.paid = 0.0

    def observe(self) -> Observation:
        return Observation({"state": np.array([self.game.ticks], np.float32)})

    def act(self, action: Action) -> Awaitable[Sequence[float]]:
        self.future = asyncio.get_running_loop().create_future()
        self.game.acted(self)
        return self.future

    def outcome(self) -> PlayerResult:
        return PlayerResult(score=self.paid, offline=self.player in self.game.gone)


class AsyncDuel(MDP):
    """Two players on a shared clock of plain asyncio futures; either may go offline.

    Roles ``red`` and ``blue``, input ``state`` float32 ``[1]``: ticks so far. Every tick waits for
    all who are still there and pays each 1; the match ends after ``length`` ticks (terminated). If
    a player stops at tick 5 and is declared offline, the other still makes all 10 decisions and
    returns 10.
    """

    def __init__(self, *, length: int = 10) -> None:
        self.length = length
        seat = Role(inputs={"state": Input((1,))}, actions={"move": Discrete(2)})
        self.roles = {"red": seat, "blue": seat}
        self.ticks = 0
        self.gone: set[str] = set()
        self._players: dict[str, _DuelController] = {}

    async def reset(self, seed: int, roles: Sequence[str] | None = None) -> list[Controller]:
        await asyncio.sleep(0)
        self.ticks = 0
        self.gone = set()
        self._players = {role: _DuelController(self, role) for role in roles or self.roles}
        return list(self._players.values())

    def overdue(self) -> list[str]:
        return [name for name, one in self._players.items() if one.alive and one.future is None]

    def offline(self, player: str) -> None:
        self.gone.add(player)
        controller = self._players[player]
        controller.alive = False
        controller.truncated = True
        if not self.overdue():
            self._tick()

    def acted(self, controller: _DuelController) -> None:
        """Told by a controller that its player has decided."""
        if not self.overdue():
            asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        self.ticks += 1
        for controller in self._players.values():
            if not controller.alive:
                continue
            controller.paid += 1.0
            if self.ticks >= self.length:
                controller.alive = False
                controller.terminated = True
            future, controller.future = controller.future, None
            if future is not None and not future.done():
                future.set_result((1.0,))

"""One match played to be watched, at a pace, by policies, bots or a person.

Policies decide by ``act`` alone, as in training and evaluation. The tick is on the clock: a person who
presses nothing is played by the idle or the last action, and nobody waits (games without a clock excepted,
see :class:`~lamarckian.viewer.keyboard.Controls`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lamarckian import seeding
from lamarckian.errors import GameError, LamarckianError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.batching import Scheduler, direct
from lamarckian.mdp.core import MDP, Arrays, Bot, Controller, Observation, Role
from lamarckian.mdp.policy import Policy, draw_noise
from lamarckian.mdp.tick import TickGame
from lamarckian.viewer.keyboard import Person

POLL_SECONDS = 0.02


@dataclass(slots=True)
class Side:
    """Who plays a role. With a ``person``, it has the first seat and ``player`` has the others."""

    name: str
    player: Policy | Bot
    person: Person | None = None


@dataclass(slots=True)
class PlayerRecord:
    """How one life of the match went. ``score`` and ``result`` are None if the game does not say."""

    role: str
    player: str
    played_by: str
    returns: list[float]
    length: int = 0
    score: float | None = None
    result: int | None = None
    statistics: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class MatchRecord:
    """A match that was shown. ``finished`` is False if it was cut or left before its end."""

    ticks: int = 0
    finished: bool = False
    players: list[PlayerRecord] = field(default_factory=list)


class Watch:
    """Receives frames and keeps the pace: ``seconds`` per tick, 0 as fast as it goes.

    ``leave`` is asked between ticks and ends the match early by returning True.
    """

    def __init__(
        self,
        *,
        seconds: float = 0.0,
        leave: Callable[[], bool] = lambda: False,
        max_ticks: int = 10_000,
    ) -> None:
        self.shows: list[Callable[[Mapping[str, Any]], None]] = []
        self.seconds = seconds
        self.leave = leave
        self.max_ticks = max_ticks
        self.ticks = 0
        self.due = time.monotonic()
        self.left = False

    def frame(self, frame: Mapping[str, Any]) -> None:
        """Show one tick, not before it is due; the next one is due ``seconds`` later."""
        self.wait()
        for show in self.shows:
            show(frame)
        # The pace makes up for one late tick at most; beyond that the clock moves on.
        self.due = max(self.due, time.monotonic() - self.seconds) + self.seconds

    def wait(self) -> None:
        """Sleep until the next tick is due, or somebody leaves."""
        while self.seconds and (remaining := self.due - time.monotonic()) > 0 and not self.over():
            time.sleep(min(remaining, POLL_SECONDS))

    def rest(self) -> None:
        """Stand still for a moment: the match is paused."""
        time.sleep(POLL_SECONDS)
        self.due = time.monotonic()

    def over(self) -> bool:
        """True once the match should not go on."""
        self.left = self.left or self.leave()
        return self.left or self.ticks >= self.max_ticks


class _Decider:
    """One side's decisions for ``num`` rows."""

    def __init__(self, side: Side, role: Role, num: int, rng: np.random.Generator, greedy: bool):
        self.side, self.role, self.num, self.rng, self.greedy = side, role, num, rng, greedy
        self.memory: Arrays = {}
        if isinstance(side.player, Policy):
            self.memory = {
                name: np.zeros((num, *array.shape), array.dtype)
                for name, array in side.player.memory.items()
            }

    def decide(self, seen: Observation) -> Arrays:
        player = self.side.player
        if not isinstance(player, Policy):
            return player(seen.inputs, seen.legal, self.rng)
        noise = None if self.greedy else draw_noise(player.role, self.num, self.rng)
        decisions = player.act(seen.inputs, seen.legal, seen.state, self.memory, noise)
        self.memory = dict(decisions.recurrent)
        return decisions.game_actions


def play_match(
    games: BatchGame | Sequence[MDP],
    sides: Mapping[str, Side],
    watch: Watch,
    *,
    seed: int,
    greedy: bool = True,
) -> MatchRecord:
    """Play one match and show every tick. ``sides`` has an entry for each role of the game.

    Raises GameError if the game does.
    """
    if isinstance(games, BatchGame):
        return _play_batch(games, sides, watch, seed, greedy)
    return _Match(games[0], sides, watch, seed, greedy).play()


def _play_batch(
    game: BatchGame, sides: Mapping[str, Side], watch: Watch, seed: int, greedy: bool
) -> MatchRecord:
    game.reset(np.full(game.num_games, seed, np.int64))
    rng = seeding.stream(seed, "replay")
    record = MatchRecord()
    deciders: dict[str, _Decider] = {}
    rows: dict[str, list[PlayerRecord]] = {}
    for name, side in sides.items():
        role = game.roles[name]
        deciders[name] = _Decider(side, role, game.num_games * role.seats, rng, greedy)
        rows[name] = [
            PlayerRecord(
                name,
                name if role.seats == 1 else f"{name}-{seat}",
                "you" if side.person is not None and seat == 0 else side.name,
                [0.0] * role.num_rewards,
            )
            for seat in range(role.seats)
        ]
        record.players += rows[name]
    out = {name: np.zeros(len(players), np.bool_) for name, players in rows.items()}
    while not watch.over():
        seen = {name: game.observe(name) for name in sides}
        watch.frame(_frame(game.frame(0), watch.ticks, {k: _first(v) for k, v in seen.items()}))
        actions = {name: dict(deciders[name].decide(seen[name])) for name in sides}
        for name, side in sides.items():
            if side.person is not None:
                chosen = _chosen(side.person, _first(seen[name]), watch)
                if chosen is None:
                    break
                for part, value in chosen.items():
                    actions[name][part] = np.array(actions[name][part])
                    actions[name][part][0] = value
        if watch.over():
            break
        alive = {name: game.alive(name) for name in sides}
        steps = game.step(actions)
        watch.ticks += 1
        for name, step in steps.items():
            _count(rows[name], step, alive[name], out[name])
        if all(ended.all() for ended in out.values()):
            record.finished = True
            break
    record.ticks = watch.ticks
    return record


def _chosen(person: Person, seen: Observation, watch: Watch) -> Arrays | None:
    """Return what the person does at this tick; None if it leaves. Waits for nothing but the tick,
    unless the game has no clock."""
    watch.wait()
    chosen = person.action(seen)
    while chosen is None and not watch.over():
        time.sleep(POLL_SECONDS)
        chosen = person.action(seen)
    return chosen


def _count(players: list[PlayerRecord], step: RowStep, alive: Any, out: Any) -> None:
    for row, player in enumerate(players):
        if out[row] or not alive[row]:
            out[row] = True
            continue
        player.length += 1
        player.returns = [a + float(b) for a, b in zip(player.returns, step.rewards[row])]
        if step.terminated[row] or step.truncated[row]:
            out[row] = True
            outcome = step.outcome(row)
            player.score, result = outcome.pop("score", None), outcome.pop("result", None)
            player.result = None if result is None else round(result)
            player.statistics = outcome


def _first(seen: Observation) -> Observation:
    """The first row of a batch, as one player sees it."""
    return Observation(
        {name: array[0] for name, array in seen.inputs.items()},
        {name: array[0] for name, array in seen.legal.items()},
        {name: array[0] for name, array in seen.state.items()},
    )


def _frame(
    frame: Mapping[str, Any] | None, tick: int, seen: Mapping[str, Observation]
) -> Mapping[str, Any]:
    """The game's own frame, or what the players see if it draws nothing. Large arrays are left out."""
    if frame is not None:
        return frame
    shown: dict[str, Any] = {"tick": tick}
    for player, observation in seen.items():
        shown[player] = {
            name: array.tolist() if array.size <= 256 else "x".join(map(str, array.shape))
            for name, array in observation.inputs.items()
        }
    return shown


class _Match:
    """One match of a game whose players are coroutines."""

    def __init__(
        self, game: MDP, sides: Mapping[str, Side], watch: Watch, seed: int, greedy: bool
    ) -> None:
        self.game = game
        self.sides = sides
        self.watch = watch
        self.seed = seed
        self.greedy = greedy
        self.rng = seeding.stream(seed, "players")
        self.record = MatchRecord()
        self.scheduler = Scheduler()
        self.seen: dict[str, Observation] = {}
        self.playing: dict[str, Controller] = {}
        self.taken: set[str] = set()
        self.admitting = True
        self.error: BaseException | None = None

    def play(self) -> MatchRecord:
        game, scheduler = self.game, self.scheduler
        if isinstance(game, TickGame):
            self._show_ticks(game)
        if any(side.person is not None for side in self.sides.values()):
            scheduler.patience = float("inf")  # at its own turn a person may think
        scheduler.watched = [self]
        by_hand = game.direct_controllers
        scheduler.start(self._begin(), self._ended, by_hand=by_hand)
        try:
            scheduler.run(self._is_over)
        finally:
            scheduler.close()
        if self.error is not None:
            if isinstance(self.error, LamarckianError):
                raise self.error
            raise GameError(
                f"{type(game).__name__} (seed {self.seed}, tick {self.watch.ticks}): "
                f"{type(self.error).__name__}: {self.error}"
            ) from self.error
        self.record.ticks = self.watch.ticks
        self.record.finished = not self.playing and not self.admitting
        return self.record

    def scan(self, now: float, idle: bool) -> bool:
        """Let the game go on without players it waits for in vain."""
        overdue = self.game.overdue() if idle else []
        for player in overdue:
            self.game.offline(player)
            self.playing.pop(player, None)
        return bool(overdue)

    def _is_over(self) -> bool:
        if self.error is not None or (not self.playing and not self.admitting):
            return True
        return self.watch.over()

    def _ended(self, error: BaseException | None) -> None:
        self.error = self.error or error

    def _show_ticks(self, game: TickGame) -> None:
        """Show every tick, also those at which nobody decides."""
        tick = game.tick

        def shown(actions: dict[str, Any]) -> None:
            tick(actions)
            if not self.watch.over():
                self.watch.ticks += 1
                self._show()

        game.tick = shown  # type: ignore[method-assign]

    def _show(self) -> None:
        self.watch.frame(_frame(self.game.frame(), self.watch.ticks, self.seen))

    @direct
    async def _begin(self) -> None:
        controllers = await self.game.reset(self.seed)
        if not controllers:
            raise GameError(f"{type(self.game).__name__}: reset() returned no controller")
        for controller in controllers:
            self._enter(controller)
        self._show()
        if type(self.game).joining is not MDP.joining:
            while (controller := await self.game.joining()) is not None:  # type: ignore[assignment]
                self._enter(controller)
        self.admitting = False

    def _enter(self, controller: Controller) -> None:
        side = self.sides[controller.role]
        role = self.game.roles[controller.role]
        person = None
        if side.person is not None and controller.role not in self.taken:
            person = side.person
            self.taken.add(controller.role)
        name = side.name if person is None else "you"
        life = PlayerRecord(controller.role, controller.player, name, [0.0] * role.num_rewards)
        self.record.players.append(life)
        self.playing[controller.player] = controller
        decider = _Decider(side, role, 1, self.rng, self.greedy)
        self.scheduler.start(
            self._drive(controller, decider, person, life),
            self._ended,
            by_hand=self.game.direct_controllers,
        )

    @direct
    async def _drive(
        self, controller: Controller, decider: _Decider, person: Person | None, life: PlayerRecord
    ) -> None:
        """Play one life: decide when the tick is due, never later."""
        clock = self.scheduler.clock
        _pay(life, await controller.ready())
        while controller.alive:
            if self.watch.over():
                return
            seen = controller.observe()
            self.seen[controller.player] = seen
            if person is None:
                batch = Observation(
                    {name: array[None] for name, array in seen.inputs.items()},
                    {name: array[None] for name, array in seen.legal.items()},
                    {name: array[None] for name, array in seen.state.items()},
                )
                action = {name: array[0] for name, array in decider.decide(batch).items()}
            if self.watch.seconds:
                await clock.sleep_until(self.watch.due)
            if person is not None:
                while (chosen := person.action(seen)) is None:
                    await clock.sleep(POLL_SECONDS)
                action = chosen
            rewards = await controller.act(action)
            life.length += 1
            _pay(life, rewards)
            if not isinstance(self.game, TickGame):
                self.watch.ticks += 1
                self._show()
        outcome = controller.outcome()
        life.score, life.result = outcome.score, outcome.result
        life.statistics = dict(outcome.statistics)
        self.playing.pop(controller.player, None)


def _pay(life: PlayerRecord, rewards: Sequence[float]) -> None:
    for head, amount in enumerate(rewards):
        life.returns[head] += float(amount)

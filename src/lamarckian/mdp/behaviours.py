"""Behaviours: how a player plays, as shares of its decisions; counted, and rewarded if asked to.

A role declares named :class:`~lamarckian.mdp.core.Behaviour` measures, e.g. Pong's ``activeness``: the share
of moving actions in all actions of a life, from ``lazy`` (0) to ``active`` (1). :func:`watch` wraps a game so
that every life reports its shares as statistics, in training, evaluation and journal alike, whoever
drives the player: a policy, a script, a person.

Either end of a behaviour may also be a reward term: a further reward head that pays each decision
what it adds to that end (``active`` the measure m, ``lazy`` 1 - m). The game's own heads stay as they
are; the learner weighs all of them (``algorithm.reward_weights``).

Shape letters: ``N`` rows or players, ``K`` reward heads, ``B`` terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError, GameError, nearest
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.batching import direct
from lamarckian.mdp.core import (
    MDP,
    Action,
    Array,
    Arrays,
    Controller,
    Observation,
    PlayerResult,
    Role,
)


@dataclass(frozen=True, slots=True)
class ActsIn:
    """Counts the decisions in which a discrete action part takes one of ``values``."""

    part: str
    values: tuple[int, ...]

    def __call__(self, inputs: Arrays, actions: Arrays) -> Array:
        chosen = actions[self.part]
        counted: Array = chosen == self.values[0]
        for value in self.values[1:]:
            counted = counted | (chosen == value)
        return counted


def acting(part: str, *values: int) -> ActsIn:
    """Return the measure that counts decisions in which ``part`` takes one of ``values``."""
    return ActsIn(part, values)


@dataclass(frozen=True, slots=True)
class Term:
    """One end of a behaviour: its value for a decision or a life is m or 1 - m."""

    end: str
    behaviour: str
    is_high: bool

    def of(self, share: Any) -> Any:
        """Return the value at this end for a measure or share ``share``, a number or an array."""
        return share if self.is_high else 1.0 - share


def find_term(role: Role, name: str) -> Term:
    """Return the end ``name`` of a behaviour of ``role``; a behaviour's own name is its high end.

    Raises ConfigError with the nearest name.
    """
    ends: dict[str, Term] = {}
    for behaviour, declared in role.behaviours.items():
        ends[behaviour] = Term(behaviour, behaviour, True)
        ends[declared.high] = Term(declared.high, behaviour, True)
        ends[declared.low] = Term(declared.low, behaviour, False)
    if name not in ends:
        known = ", ".join(f"{b.low} and {b.high}" for b in role.behaviours.values())
        raise ConfigError(
            f"no behaviour of this role is called {name!r}{nearest(name, ends)}; "
            f"it declares {known or 'none (Role(behaviours=...))'}"
        )
    return ends[name]


def with_terms(roles: Mapping[str, Role], terms: Sequence[str]) -> dict[str, Role]:
    """Return ``roles`` with a reward head more for each term; roles without behaviours stay.

    Raises ConfigError if a term is unknown or its name is taken, or if no role declares behaviours.
    """
    if not terms:
        return dict(roles)
    if not any(role.behaviours for role in roles.values()):
        raise ConfigError(
            f"reward_terms: no role of this game declares behaviours, so {', '.join(terms)} cannot be "
            "rewarded; declare them with Role(behaviours=...)"
        )
    extended = {}
    for name, role in roles.items():
        if role.behaviours:
            for term in terms:
                find_term(role, term)
                if term in role.rewards or list(terms).count(term) > 1:
                    raise ConfigError(f"reward_terms: there is a reward head {term!r} already")
            role = replace(role, rewards=(*role.rewards, *terms))
        extended[name] = role
    return extended


def watch(game: BatchGame | list[MDP], terms: Sequence[str] = ()) -> BatchGame | list[MDP]:
    """Return ``game`` (or matches) so that lives report their behaviours, and ``terms`` pay.

    A game without behaviours comes back as it is. Raises ConfigError as :func:`with_terms`.
    """
    first = game if isinstance(game, BatchGame) else game[0]
    if not terms and not any(role.behaviours for role in first.roles.values()):
        return game
    if isinstance(game, BatchGame):
        return WatchedGame(game, terms)
    return [WatchedMDP(match, terms) for match in game]


class _Watched:
    """The behaviours and terms of one role, and how decisions are measured."""

    def __init__(self, name: str, role: Role, terms: Sequence[str]) -> None:
        self.name = name
        self.measures = dict(role.behaviours)
        self.order = list(self.measures)
        chosen = [find_term(role, term) for term in terms] if role.behaviours else []
        self.columns = [self.order.index(term.behaviour) for term in chosen]
        self.signs = np.array([1.0 if term.is_high else -1.0 for term in chosen], np.float32)
        self.offsets = np.array([0.0 if term.is_high else 1.0 for term in chosen], np.float32)

    def measure(self, inputs: Arrays, actions: Arrays, num: int) -> NDArray[np.float32]:
        """Return what ``num`` decisions count, float32 ``[N, B]``, one column per behaviour."""
        out = np.empty((num, len(self.order)), np.float32)
        for column, (name, behaviour) in enumerate(self.measures.items()):
            value = np.asarray(behaviour.measure(inputs, actions))
            if value.shape != (num,):
                raise GameError(
                    f"behaviour {name!r} of role {self.name!r}: expected an array of shape ({num},), "
                    f"one number per decision, got {value.shape}"
                )
            out[:, column] = value
        return out

    def pay(self, measured: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what the terms pay for measured decisions, float32 ``[N, terms]``."""
        paid: NDArray[np.float32] = self.offsets + self.signs * measured[:, self.columns]
        return paid


class WatchedGame(BatchGame):
    """A batch game whose rows' behaviours are counted; everything else is passed on to ``game``.

    A statistic that the game itself reports under a behaviour's name stands as the game says.
    """

    def __init__(self, game: BatchGame, terms: Sequence[str] = ()) -> None:
        self.game = game
        self.roles = with_terms(game.roles, terms)
        self.num_games = game.num_games
        self.frames_per_decision = game.frames_per_decision
        self.exact_state = game.exact_state
        self.bots = game.bots  # type: ignore[misc]
        self.drawing = getattr(game, "drawing", None)
        self._watched = {
            name: _Watched(name, role, terms)
            for name, role in game.roles.items()
            if role.behaviours
        }
        rows = {name: game.num_games * game.roles[name].seats for name in self._watched}
        self._sums = {
            name: np.zeros((rows[name], len(watched.order)))
            for name, watched in self._watched.items()
        }
        self._counts = {name: np.zeros(rows[name], np.int64) for name in self._watched}
        self._seen: dict[str, Observation] = {}

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self.game.reset(seeds)
        self._seen.clear()
        for name in self._watched:
            self._sums[name][:] = 0
            self._counts[name][:] = 0

    def observe(self, role: str) -> Observation:
        self._seen[role] = self.game.observe(role)
        return self._seen[role]

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        measured: dict[str, NDArray[np.float32]] = {}
        for name, watched in self._watched.items():
            seen = self._seen.get(name) or self.game.observe(name)
            alive = self.game.alive(name)
            measured[name] = watched.measure(seen.inputs, actions[name], len(alive))
            self._sums[name] += measured[name] * alive[:, None]
            self._counts[name] += alive
            if watched.columns:
                measured[name] = watched.pay(measured[name]) * alive[:, None]
        steps = self.game.step(actions)
        self._seen.clear()
        for name, watched in self._watched.items():
            step = steps[name]
            if watched.columns:
                step.rewards = np.concatenate([step.rewards, measured[name]], axis=1)
            ended = step.terminated | step.truncated
            if ended.any():
                self._report(name, watched, step, ended)
        return steps

    def _report(
        self, name: str, watched: _Watched, step: RowStep, ended: NDArray[np.bool_]
    ) -> None:
        shares = self._sums[name] / np.maximum(self._counts[name], 1)[:, None]
        reported = dict(step.outcomes)
        for column, behaviour in enumerate(watched.order):
            reported.setdefault(behaviour, shares[:, column].astype(np.float32))
        step.outcomes = reported
        self._sums[name][ended] = 0
        self._counts[name][ended] = 0

    def alive(self, role: str) -> NDArray[np.bool_]:
        return self.game.alive(role)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        data, arrays = self.game.state()
        out = {f"game/{name}": array for name, array in arrays.items()}
        for name in self._watched:
            out[f"sums/{name}"] = self._sums[name].copy()
            out[f"counts/{name}"] = self._counts[name].copy()
        return data, out

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        self.game.load_state(data, {k[5:]: v for k, v in arrays.items() if k.startswith("game/")})
        self._seen.clear()
        for name in self._watched:
            self._sums[name][:] = arrays[f"sums/{name}"]
            self._counts[name][:] = arrays[f"counts/{name}"]

    def frame(self, game: int) -> dict[str, Any] | None:
        return self.game.frame(game)

    def close(self) -> None:
        self.game.close()


class WatchedMDP(MDP):
    """A match whose players' behaviours are counted; everything else is passed on to ``game``."""

    def __init__(self, game: MDP, terms: Sequence[str] = ()) -> None:
        self.game = game
        self.roles = with_terms(game.roles, terms)
        self.bots = game.bots  # type: ignore[misc]
        self.direct_controllers = game.direct_controllers  # type: ignore[misc]
        self.drawing = getattr(game, "drawing", None)
        self._watched = {name: _Watched(name, role, terms) for name, role in game.roles.items()}

    async def reset(self, seed: int, roles: Sequence[str] | None = None) -> list[Controller]:
        return [self._wrap(each) for each in await self.game.reset(seed, roles)]

    async def joining(self) -> Controller | None:
        joined = await self.game.joining()
        return None if joined is None else self._wrap(joined)

    def _wrap(self, controller: Controller) -> Controller:
        watched = self._watched[controller.role]
        return WatchedController(controller, watched) if watched.order else controller

    def overdue(self) -> list[str]:
        return self.game.overdue()

    def offline(self, player: str) -> None:
        self.game.offline(player)

    def close(self) -> None:
        self.game.close()

    def frame(self) -> dict[str, Any] | None:
        return self.game.frame()


class WatchedController(Controller):
    """A player's handle that measures what goes through it."""

    def __init__(self, inner: Controller, watched: _Watched) -> None:
        self.inner = inner
        self.role = inner.role
        self.player = inner.player
        self._watched = watched
        self._sums = np.zeros(len(watched.order))
        self._count = 0
        self._seen: Observation | None = None

    alive = property(lambda self: self.inner.alive)
    terminated = property(lambda self: self.inner.terminated)
    truncated = property(lambda self: self.inner.truncated)

    def observe(self) -> Observation:
        self._seen = self.inner.observe()
        return self._seen

    @direct
    async def ready(self) -> Sequence[float]:
        rewards = await self.inner.ready()
        return (*rewards, *([0.0] * len(self._watched.columns))) if rewards else rewards

    @direct
    async def act(self, action: Action) -> Sequence[float]:
        seen = self._seen or self.inner.observe()
        inputs = {name: np.asarray(array)[None] for name, array in seen.inputs.items()}
        chosen = {name: np.asarray(value)[None] for name, value in action.items()}
        measured = self._watched.measure(inputs, chosen, 1)
        self._sums += measured[0]
        self._count += 1
        self._seen = None
        rewards = await self.inner.act(action)
        if not self._watched.columns:
            return rewards
        return (*rewards, *self._watched.pay(measured)[0].tolist())

    def outcome(self) -> PlayerResult:
        outcome = self.inner.outcome()
        shares = dict(zip(self._watched.order, (self._sums / max(self._count, 1)).tolist()))
        outcome.statistics = {**shares, **outcome.statistics}
        return outcome

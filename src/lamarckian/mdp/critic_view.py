"""What a critic sees in training that players do not: everybody's view, its own, a noise of its own.

A policy is asked with its player's inputs alone; its critic may read the role's ``state``.
:class:`CriticView` says what that state shall be, whatever the game itself declares, and wraps the game so
that it is there:

``central``          the state the game declares; a game stepped as arrays that declares none gets
                     ``players``, the inputs of everybody one after the other, and ``seat``, one-hot.
``agent-specific``   the central state and the player's own inputs, as ``own_<input>``.
``own``              no state: the critic reads the player's inputs (IPPO).

With ``noise_size`` the state has ``value_noise`` besides, float32 ``[noise_size]``: each seat's own vector,
drawn once from N(0, ``noise_scale``^2) and, every ``shuffle_every`` matches, dealt anew among the seats (Hu
et al. 2021, arXiv 2106.14334). It is part of the observation, so decisions, bootstrap values and training
see the same.

In ``players`` the part of a player who is out is zero (death masking).

Shape letters: ``G`` matches, ``N`` rows of a role, ``F`` final rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.errors import UnsupportedSpace
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.batching import direct
from lamarckian.mdp.core import (
    MDP,
    Action,
    Array,
    Arrays,
    Controller,
    Input,
    Observation,
    PlayerResult,
    Role,
)

Source = Literal["central", "agent-specific", "own"]
NOISE = "value_noise"
PLAYERS = "players"
SEAT = "seat"


@dataclass(frozen=True, slots=True)
class CriticView:
    """What the critics of all roles see; equal in every process that is given the same ``seed``."""

    source: Source = "central"
    noise_size: int = 0
    noise_scale: float = 1.0
    shuffle_every: int = 0
    seed: int = 0

    def roles(self, roles: Mapping[str, Role], *, as_arrays: bool) -> dict[str, Role]:
        """Return ``roles`` with the state they have in this view; ``as_arrays`` for a batch game.

        Raises UnsupportedSpace if a central state is wanted and cannot be had.
        """
        return {name: self._role(name, roles, as_arrays) for name in roles}

    def wrap(self, game: BatchGame | list[MDP]) -> BatchGame | list[MDP]:
        """Return the game (or matches) with this view; as it is, if the view adds nothing."""
        if isinstance(game, BatchGame):
            wanted = self.roles(game.roles, as_arrays=True)
            return game if wanted == dict(game.roles) else ViewedGame(game, self, wanted)
        wanted = self.roles(game[0].roles, as_arrays=False)
        if wanted == dict(game[0].roles):
            return game
        return [ViewedMDP(match, self, wanted) for match in game]

    def _role(self, name: str, roles: Mapping[str, Role], as_arrays: bool) -> Role:
        role = roles[name]
        state = dict(role.state) if self.source != "own" else {}
        if not state and self.source != "own" and sum(each.seats for each in roles.values()) > 1:
            state = self._joined(name, roles, as_arrays)
        if self.source == "agent-specific" and state:
            state |= {
                f"own_{key}": replace(item, mask=f"own_{item.mask}") if item.mask else item
                for key, item in role.inputs.items()
            }
        if self.noise_size:
            state = {**(state or role.inputs), NOISE: Input((self.noise_size,))}
        return replace(role, state=state)

    def _joined(self, name: str, roles: Mapping[str, Role], as_arrays: bool) -> dict[str, Input]:
        if not as_arrays:
            raise UnsupportedSpace(
                f"role {name!r} declares no central state for the critic, and players of this game decide "
                "at times of their own; declare Role(state=...) or let the critic read what its player "
                "sees (algorithm ippo)"
            )
        for other, each in roles.items():
            for key, item in each.inputs.items():
                if item.kind != "vector":
                    raise UnsupportedSpace(
                        f"role {name!r} declares no central state for the critic, and input {key!r} of role "
                        f"{other!r} (kind {item.kind}) cannot be joined with others; declare "
                        "Role(state=...) or let the critic read what its player sees (algorithm ippo)"
                    )
        size = sum(each.seats * _width(each) for each in roles.values())
        return {PLAYERS: Input((size,)), SEAT: Input((roles[name].seats,))}

    def noise_of(self, name: str, role: Role) -> NDArray[np.float32]:
        """Return the vectors of a role's seats, float32 ``[seats, noise_size]``."""
        rng = seeding.stream(self.seed, "value noise", name)
        drawn = rng.standard_normal((role.seats, self.noise_size)) * self.noise_scale
        return drawn.astype(np.float32)

    def dealt(self, name: str, role: Role, matches: int) -> NDArray[np.int64]:
        """Return whose vector each seat has after ``matches`` whole matches, int64 ``[seats]``."""
        times = matches // self.shuffle_every if self.shuffle_every else 0
        if not times:
            return np.arange(role.seats)
        return seeding.stream(self.seed, "deal", name, times).permutation(role.seats)


def _width(role: Role) -> int:
    return sum(int(np.prod(item.shape)) for item in role.inputs.values())


class ViewedGame(BatchGame):
    """A batch game seen through a :class:`CriticView`; everything else is passed on to ``game``."""

    def __init__(self, game: BatchGame, view: CriticView, roles: Mapping[str, Role]) -> None:
        self.game = game
        self.view = view
        self.roles = roles
        self.num_games = game.num_games
        self.frames_per_decision = game.frames_per_decision
        self.exact_state = game.exact_state
        self.bots = game.bots  # type: ignore[misc]
        self.drawing = getattr(game, "drawing", None)
        self._joins = any(
            PLAYERS in r.state and PLAYERS not in game.roles[n].state for n, r in roles.items()
        )
        self._seats = {name: self._seat_rows(role) for name, role in roles.items()}
        self._vectors = (
            {n: view.noise_of(n, r) for n, r in roles.items()} if view.noise_size else {}
        )
        self._lives = {name: np.zeros(self._rows(name), np.int64) for name in self._vectors}
        self._noise: dict[str, NDArray[np.float32]] = {}
        self._seen: dict[str, Observation] = {}

    def _rows(self, name: str) -> int:
        return self.num_games * self.roles[name].seats

    def _seat_rows(self, role: Role) -> NDArray[np.float32]:
        return np.tile(np.eye(role.seats, dtype=np.float32), (self.num_games, 1))

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self.game.reset(seeds)
        for name, lives in self._lives.items():
            lives[:] = 0
            self._deal(name)
        self._seen.clear()

    def _deal(self, name: str) -> None:
        """Work out the rows' noise, ``[N, noise_size]``, from the whole matches each game has played."""
        role, vectors = self.roles[name], self._vectors[name]
        # Every seat lives once in a match: it is over when its last seat's life is.
        matches = self._lives[name].reshape(self.num_games, role.seats).min(axis=1)
        order = {
            int(count): self.view.dealt(name, role, int(count)) for count in np.unique(matches)
        }
        self._noise[name] = np.concatenate([vectors[order[int(count)]] for count in matches])

    def observe(self, role: str) -> Observation:
        if role not in self._seen:
            seen = {name: self.game.observe(name) for name in self.roles}
            whole = self._whole(seen, None) if self._joins else None
            self._seen = {
                name: self._viewed(name, each, whole, None) for name, each in seen.items()
            }
        return self._seen[role]

    def _whole(
        self, seen: Mapping[str, Observation], rows: Mapping[str, NDArray[np.int64]] | None
    ) -> NDArray[np.float32]:
        """Return everybody's inputs per match, float32 ``[G, sum]``: of the living, or of ``rows``."""
        parts = []
        for name, observation in seen.items():
            num = self._rows(name)
            flat = np.zeros((num, _width(self.roles[name])), np.float32)
            there = np.flatnonzero(self.game.alive(name)) if rows is None else rows[name]
            given = [array.reshape(len(array), -1) for array in observation.inputs.values()]
            if len(there):
                joined = np.concatenate(given, axis=1)
                flat[there] = joined[there] if rows is None else joined
            parts.append(flat.reshape(self.num_games, -1))
        return np.concatenate(parts, axis=1)

    def _viewed(
        self,
        name: str,
        seen: Observation,
        whole: NDArray[np.float32] | None,
        rows: NDArray[np.int64] | None,
    ) -> Observation:
        """Return what ``name`` sees with the state of this view; ``rows`` of its rows, or all."""
        declared = self.roles[name].state
        where = np.arange(self._rows(name)) if rows is None else rows
        state: Arrays = {}
        for key in declared:
            if key == NOISE:
                state[key] = self._noise[name][where]
            elif key in (PLAYERS, SEAT) and whole is not None and key not in seen.state:
                state[key] = (
                    whole[where // self.roles[name].seats]
                    if key == PLAYERS
                    else self._seats[name][where]
                )
            else:
                state[key] = _from(seen, key, self.view.source)
        return Observation(seen.inputs, seen.legal, state)

    def alive(self, role: str) -> NDArray[np.bool_]:
        return self.game.alive(role)

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        steps = self.game.step(actions)
        self._seen = {}
        finals = {name: step.final for name, step in steps.items() if step.final is not None}
        if finals:
            rows = {name: steps[name].final_rows for name in finals}
            whole = None
            if self._joins:
                nobody = np.zeros(0, np.int64)
                seen = {n: finals.get(n) or _nothing(r) for n, r in self.roles.items()}
                whole = self._whole(seen, {n: rows.get(n, nobody) for n in self.roles})
            for name, final in finals.items():
                steps[name].final = self._viewed(name, final, whole, rows[name])
        for name, lives in self._lives.items():
            ended = steps[name].terminated | steps[name].truncated
            if ended.any():
                lives += ended
                if self.view.shuffle_every:
                    self._deal(name)
        return steps

    def state(self) -> tuple[dict[str, Any], Arrays]:
        data, arrays = self.game.state()
        kept = {f"game/{name}": array for name, array in arrays.items()}
        return data, kept | {f"lives/{name}": lives.copy() for name, lives in self._lives.items()}

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        self.game.load_state(data, {k[5:]: v for k, v in arrays.items() if k.startswith("game/")})
        self._seen.clear()
        for name, lives in self._lives.items():
            lives[:] = arrays[f"lives/{name}"]
            self._deal(name)

    def frame(self, game: int) -> dict[str, Any] | None:
        return self.game.frame(game)

    def close(self) -> None:
        self.game.close()


def _from(seen: Observation, key: str, source: Source) -> Array:
    """Return a state array that the game itself gives: its state, or an input of the player's own."""
    if key in seen.state and source != "own":
        return seen.state[key]
    return seen.inputs[key.removeprefix("own_") if source == "agent-specific" else key]


def _nothing(role: Role) -> Observation:
    return Observation({k: np.zeros((0, *v.shape), v.dtype) for k, v in role.inputs.items()})


class ViewedMDP(MDP):
    """A match whose players are seen through a :class:`CriticView`; the rest is passed on to ``game``."""

    def __init__(self, game: MDP, view: CriticView, roles: Mapping[str, Role]) -> None:
        self.game = game
        self.view = view
        self.roles = dict(roles)
        self.bots = game.bots  # type: ignore[misc]
        self.direct_controllers = game.direct_controllers  # type: ignore[misc]
        self.drawing = getattr(game, "drawing", None)
        self._vectors = (
            {n: view.noise_of(n, r) for n, r in roles.items()} if view.noise_size else {}
        )
        self._matches = 0
        self._handed: dict[str, int] = {}

    async def reset(self, seed: int, roles: Sequence[str] | None = None) -> list[Controller]:
        controllers = await self.game.reset(seed, roles)
        self._handed = {}
        found: list[Controller] = [self._wrap(each) for each in controllers]
        self._matches += 1
        return found

    async def joining(self) -> Controller | None:
        joined = await self.game.joining()
        return None if joined is None else self._wrap(joined)

    def _wrap(self, controller: Controller) -> Controller:
        name = controller.role
        role = self.roles[name]
        seat = self._handed.get(name, 0) % role.seats
        self._handed[name] = seat + 1
        noise = None
        if self._vectors:
            noise = self._vectors[name][self.view.dealt(name, role, self._matches)[seat]]
        return ViewedController(controller, role, self.view.source, noise)

    def overdue(self) -> list[str]:
        return self.game.overdue()

    def offline(self, player: str) -> None:
        self.game.offline(player)

    def close(self) -> None:
        self.game.close()

    def frame(self) -> dict[str, Any] | None:
        return self.game.frame()


class ViewedController(Controller):
    """A player's handle whose observations have the state of the view."""

    def __init__(
        self, inner: Controller, role: Role, source: Source, noise: NDArray[np.float32] | None
    ) -> None:
        self.inner = inner
        self.role = inner.role
        self.player = inner.player
        self._declared = role.state
        self._source: Source = source
        self._noise = noise

    alive = property(lambda self: self.inner.alive)
    terminated = property(lambda self: self.inner.terminated)
    truncated = property(lambda self: self.inner.truncated)

    def observe(self) -> Observation:
        seen = self.inner.observe()
        state: Arrays = {}
        for key in self._declared:
            if key == NOISE and self._noise is not None:
                state[key] = self._noise
            else:
                state[key] = _from(seen, key, self._source)
        return Observation(seen.inputs, seen.legal, state)

    @direct
    async def ready(self) -> Sequence[float]:
        return await self.inner.ready()

    @direct
    async def act(self, action: Action) -> Sequence[float]:
        return await self.inner.act(action)

    def outcome(self) -> PlayerResult:
        return self.inner.outcome()

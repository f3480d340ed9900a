"""A plane of round bodies that push one another: the physics of the multi-agent particle games, as arrays.

The games built on it (``particle_games``) are those of MPE (Lowe et al., Multi-agent actor-critic for mixed
cooperative-competitive environments, 2017) in the form the package ``mpe2`` gives them; tests compare the two
tick by tick. Here ``G`` matches advance at once.

A tick: a player's order accelerates it; bodies that touch push each other apart (a soft contact); then every
place moves by the old speed, and the speed is damped and accelerated. Time step 0.1, damping 0.25, mass 1.

Shape letters: ``P`` players, ``E`` bodies (the players, then the landmarks), ``G`` matches, ``W`` words.
Arrays of the world have ``G`` last, so that a tick is long rows of arithmetic.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import (
    Array,
    Arrays,
    Continuous,
    Discrete,
    Input,
    Observation,
    Part,
    Role,
)
from lamarckian.mdp.games import snapshot
from lamarckian.mdp.games.row_streams import RowStreams

TIME_STEP = 0.1
KEPT = 0.75
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3
NO_CONTACT = 40 * CONTACT_MARGIN
"""A gap beyond which the soft contact is left out: the force there is below 1e-16."""
WIDTH = 480.0
SHOWN = 1.5
"""A viewer shows the plane from -1.5 to 1.5."""

# Order 0 stays; 1 to 4 go left, right, down, up.
_DIRECTIONS = np.array([[0.0, -1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, -1.0, 1.0]])


@dataclass(frozen=True, slots=True)
class Body:
    """A player, or a landmark (``role`` empty). ``words``: how many it can say; 0 is mute."""

    role: str = ""
    size: float = 0.05
    collides: bool = False
    moves: bool = True
    acceleration: float = 5.0
    max_speed: float | None = None
    words: int = 0


class ParticleGame(BatchGame):
    """What the games have in common. A game gives its bodies and says what they see and earn.

    ``see`` names, for each player, the rows of the table of numbers its observation is made of; the table is
    built once a tick and all observations are gathered from it (see :meth:`rows`).

    Action parts: ``move``, discrete 5 (stay, left, right, down, up) for players that move; ``say``, discrete
    ``words`` for players that speak. With ``continuous`` they are numbers in [0, 1]: five strengths of the
    same orders, and the words themselves.

    Critic's ``state``: ``observations``, float32, the observations of all players one after the other.

    Every match is cut off (truncated) after ``max_ticks``.
    """

    _SAVED: tuple[str, ...] = ("_place", "_speed", "_words", "_ticks", "_sums")

    def __init__(
        self,
        num_games: int,
        players: Sequence[Body],
        landmarks: Sequence[Body],
        *,
        num_words: int,
        num_extras: int,
        max_ticks: int,
        continuous: bool,
    ) -> None:
        for name, value in (("num_games", num_games), ("max_ticks", max_ticks)):
            if value < 1:
                raise ConfigError(f"{type(self).__name__} {name}: expected at least 1, got {value}")
        bodies = [*players, *landmarks]
        self.num_games, self.max_ticks, self.continuous = num_games, max_ticks, continuous
        self.num_players, self.num_bodies = len(players), len(bodies)
        self.players, self.num_words = tuple(players), num_words
        self.size = np.array([body.size for body in bodies])
        shape = (self.num_players, 2, num_games)
        self._place = np.zeros((self.num_bodies, 2, num_games))
        self._speed = np.zeros(shape)
        self._words = np.zeros((self.num_players, num_words, num_games))
        self._ticks = np.zeros(num_games, np.int64)
        self._sums = np.zeros((self.num_players, num_games))
        """A sum over the life of each player that a game may keep."""
        self.extras = np.zeros((num_extras, num_games))
        """Rows of the table that a game fills by itself (goals, colours)."""
        self.streams = RowStreams(np.zeros(num_games, np.int64))
        self._lay_table()
        self._lay_contacts(bodies)
        moving = np.array([body.moves for body in players])
        self._push = (moving * [body.acceleration for body in players])[:, None]
        limits = [np.inf if b.max_speed is None else b.max_speed for b in players]
        self._limits = np.array(limits)[:, None]
        self._limited = bool(np.isfinite(self._limits).any())
        self.columns = [np.array(self.see(player), np.int64) for player in range(len(players))]
        self.seats = {
            role: [n for n, body in enumerate(players) if body.role == role]
            for role in dict.fromkeys(body.role for body in players)
        }
        whole = sum(len(columns) for columns in self.columns)
        self.roles: Mapping[str, Role] = {
            role: self._role(players[seats[0]], len(self.columns[seats[0]]), whole, len(seats))
            for role, seats in self.seats.items()
        }
        self._all_columns = np.concatenate(self.columns)
        edges = np.cumsum([0, *map(len, self.columns)])
        self._parts = {
            role: slice(int(edges[seats[0]]), int(edges[seats[-1] + 1]))
            for role, seats in self.seats.items()
        }
        """Where the observations of a role stand among all; its players stand side by side."""
        self._seen: dict[str, Observation] = {}

    # -- what a game gives ----------------------------------------------------------------------

    def fill_extras(self) -> None:
        """Bring ``extras`` up to date before the table is built, where they change from tick to tick."""

    @abstractmethod
    def see(self, player: int) -> list[int]:
        """Return the rows of the table that ``player`` sees, in order."""

    @abstractmethod
    def begin(self, games: NDArray[np.int64]) -> None:
        """Start the matches ``games``: draw what the game draws besides the places of players."""

    @abstractmethod
    def earn(self) -> NDArray[np.float64]:
        """Return the rewards of the tick, ``[P, G]``."""

    @abstractmethod
    def outcomes(self) -> dict[str, Array]:
        """Return the statistics of lives that end now, name -> ``[P, G]``."""

    @abstractmethod
    def show(self, game: int) -> dict[str, Any]:
        """Return the fields of a frame besides ``tick``."""

    # -- the table ------------------------------------------------------------------------------

    def rows(self, what: str, *index: int) -> list[int]:
        """Return the table's rows of one thing.

        ``speed`` of a player; ``place`` of a body; ``offset`` from a player to a body; ``words`` of a
        player; ``extra`` number n.
        """
        start, shape = self._layout[what]
        size = int(np.prod(shape[len(index) :], initial=1))
        position = int(np.ravel_multi_index(index, shape[: len(index)])) if index else 0
        return list(range(start + position * size, start + (position + 1) * size))

    def _lay_table(self) -> None:
        players, bodies = self.num_players, self.num_bodies
        shapes: dict[str, tuple[int, ...]] = {
            "speed": (players, 2),
            "place": (bodies, 2),
            "offset": (players, bodies, 2),
            "words": (players, self.num_words),
            "extra": (len(self.extras),),
        }
        self._layout: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._slices: dict[str, slice] = {}
        start = 0
        for name, shape in shapes.items():
            self._layout[name] = (start, shape)
            end = start + int(np.prod(shape, initial=1))
            self._slices[name] = slice(start, end)
            start = end
        # The padding keeps rows off strides that are powers of two: those share few cache lines when
        # the table is turned round.
        self._table = np.zeros((start, self.num_games + 16), np.float32)[:, : self.num_games]
        self.offset = np.zeros((players, bodies, 2, self.num_games))
        self._squares = np.zeros_like(self.offset)
        self.distance = np.zeros((players, bodies, self.num_games))
        """From each player to each body, ``[P, E, G]``."""

    def _lay_contacts(self, bodies: Sequence[Body]) -> None:
        pairs = [
            (one, other)
            for one in range(self.num_players)
            for other in range(one + 1, len(bodies))
            if bodies[one].collides and bodies[other].collides
        ]
        self._one = np.array([one for one, _ in pairs], np.int64)
        self._other = np.array([other for _, other in pairs], np.int64)
        self._pairs = self._one * len(bodies) + self._other
        self._reach = (self.size[self._one] + self.size[self._other])[:, None]
        self._yields = np.array([bool(body.role) and body.moves for body in bodies])
        """Which bodies a contact pushes: players that move."""

    def _role(self, body: Body, size: int, whole: int, seats: int) -> Role:
        actions: dict[str, Part] = {}
        for name, num in (("move", 5 * body.moves), ("say", body.words)):
            if num and self.continuous:
                actions[name] = Continuous(num, (0.0,) * num, (1.0,) * num)
            elif num:
                actions[name] = Discrete(num)
        return Role(
            inputs={"observation": Input((size,))},
            actions=actions,
            state={"observations": Input((whole,))},
            seats=seats,
        )

    # -- the batch game -------------------------------------------------------------------------

    def reset(self, seeds: NDArray[np.int64]) -> None:
        if len(seeds) != self.num_games:
            raise ConfigError(
                f"{type(self).__name__} reset: expected {self.num_games} seeds, got {len(seeds)}"
            )
        self.streams = RowStreams(seeds)
        self._restart(np.arange(self.num_games))
        self._measure()
        self._look()

    def observe(self, role: str) -> Observation:
        return self._seen[role]

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        self._move(self._read(actions))
        self._ticks += 1
        self._measure()
        rewards = self.earn().astype(np.float32)
        over = self._ticks >= self.max_ticks
        ended = np.flatnonzero(over)
        steps = {}
        for role, seats in self.seats.items():
            rows = self.num_games * len(seats)
            steps[role] = RowStep(
                np.ascontiguousarray(rewards[seats].T).reshape(rows, 1),
                np.zeros(rows, np.bool_),
                np.repeat(over, len(seats)),
            )
        if len(ended):
            self._finish(steps, over)
            self._restart(ended)
            self._measure()
        self._look()
        return steps

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"game": type(self).__name__}, snapshot.take(self, (*self._SAVED, "extras"))

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, (*self._SAVED, "extras"), arrays)
        self._measure()
        self._look()

    def frame(self, game: int) -> dict[str, Any] | None:
        return {"tick": int(self._ticks[game]), **self.show(game)}

    def places(self, bodies: Sequence[int]) -> NDArray[np.float64]:
        """Where ``bodies`` are, ``[B, 2, G]``."""
        return self._place[list(bodies)]

    def set_places(
        self, bodies: Sequence[int], games: NDArray[np.int64], places: NDArray[np.float64]
    ) -> None:
        """Put ``bodies`` of the matches ``games`` at ``places`` ``[B, 2, len(games)]``."""
        chosen = np.asarray(bodies, np.int64)
        self._place[chosen[:, None], :, games] = places.transpose(0, 2, 1)

    def words_of(self, player: int, game: int) -> str:
        """Return what a viewer shows of what ``player`` said: a letter, or numbers."""
        words = self._words[player, :, game]
        if self.continuous:
            return " ".join(f"{word:.1f}" for word in words)
        return chr(ord("A") + int(words.argmax())) if words.any() else "-"

    def points(self, bodies: Sequence[int], game: int) -> list[list[float]]:
        """Where ``bodies`` are in a drawing of ``WIDTH`` by ``WIDTH``; y grows downwards there."""
        scale = WIDTH / (2 * SHOWN)
        places = self._place[bodies, :, game]
        return [
            [round(float(SHOWN + x) * scale, 1), round(float(SHOWN - y) * scale, 1)]
            for x, y in places
        ]

    # -- a tick ---------------------------------------------------------------------------------

    def _read(self, actions: Mapping[str, Arrays]) -> NDArray[np.float64]:
        """Note the words said; return the forces of the orders, ``[P, 2, G]``."""
        force = np.zeros((self.num_players, 2, self.num_games))
        for role, seats in self.seats.items():
            shape = (self.num_games, len(seats))
            given = {part: np.asarray(array) for part, array in actions[role].items()}
            if "move" in given and self.continuous:
                strength = given["move"].reshape(*shape, 5).T.astype(np.float64)
                force[seats] = np.stack(
                    [strength[2] - strength[1], strength[4] - strength[3]], axis=1
                )
            elif "move" in given:
                order = given["move"].reshape(shape).T
                for axis in (0, 1):
                    force[seats, axis] = _DIRECTIONS[axis][order]
            if "say" in given and self.continuous:
                said = given["say"].reshape(*shape, -1)
                self._words[seats] = said.transpose(1, 2, 0)
            elif "say" in given:
                word = given["say"].reshape(shape).T
                self._words[seats] = word[:, None] == np.arange(self.num_words)[:, None]
        force *= self._push[:, None]
        return force

    def _move(self, force: NDArray[np.float64]) -> None:
        if len(self._one):
            self._collide(force)
        self._place[: self.num_players] += self._speed * TIME_STEP
        self._speed *= KEPT
        force *= TIME_STEP
        self._speed += force
        if self._limited:
            pace = np.sqrt(self._speed[:, 0] ** 2 + self._speed[:, 1] ** 2)
            fast = pace > self._limits
            if fast.any():
                factor = np.where(fast, self._limits / np.maximum(pace, 1e-12), 1.0)
                self._speed *= factor[:, None]

    def _collide(self, force: NDArray[np.float64]) -> None:
        """Add the forces of bodies that touch, at the places where the tick began."""
        gap = self.distance.reshape(-1, self.num_games)[self._pairs]
        gap -= self._reach
        pair, game = np.nonzero(gap < NO_CONTACT)
        if not len(pair):
            return
        one, other = self._one[pair], self._other[pair]
        depth = np.logaddexp(0.0, gap[pair, game] / -CONTACT_MARGIN) * CONTACT_MARGIN
        apart = np.maximum(self.distance[one, other, game], 1e-12)
        strength = CONTACT_FORCE * depth / apart
        num = self.num_games
        flat = force.reshape(-1)
        pushed = (2 * one * num + game)[self._yields[one]]
        yields = self._yields[other]
        pushed_back = (2 * other * num + game)[yields]
        for axis in (0, 1):
            push = self.offset[one, other, axis, game] * strength
            np.subtract.at(flat, pushed + axis * num, push[self._yields[one]])
            np.add.at(flat, pushed_back + axis * num, push[yields])

    def _measure(self) -> None:
        """Bring offsets and distances up to date."""
        np.subtract(self._place, self._place[: self.num_players, None], out=self.offset)
        np.multiply(self.offset, self.offset, out=self._squares)
        np.add(self._squares[:, :, 0], self._squares[:, :, 1], out=self.distance)
        np.sqrt(self.distance, out=self.distance)

    def _look(self) -> None:
        """Work out what everybody sees."""
        num = self.num_games
        self.fill_extras()
        for name, array in (
            ("speed", self._speed),
            ("place", self._place),
            ("offset", self.offset),
            ("words", self._words),
            ("extra", self.extras),
        ):
            self._table[self._slices[name]] = array.reshape(-1, num)
        table = np.ascontiguousarray(self._table.T)
        whole = table.take(self._all_columns, axis=1, mode="clip")
        self._seen = {}
        for role, seats in self.seats.items():
            own = whole[:, self._parts[role]].reshape(num * len(seats), -1)
            self._seen[role] = Observation(
                {"observation": own},
                state={"observations": np.repeat(whole, len(seats), axis=0)},
            )

    def _finish(self, steps: dict[str, RowStep], over: NDArray[np.bool_]) -> None:
        self._look()
        values = self.outcomes()
        for role, step in steps.items():
            seats = self.seats[role]
            rows = np.flatnonzero(step.truncated)
            seen = self._seen[role]
            step.final_rows = rows
            step.final = Observation(
                {name: array[rows] for name, array in seen.inputs.items()},
                state={name: array[rows] for name, array in seen.state.items()},
            )
            step.outcomes = {
                name: np.ascontiguousarray(value[seats].T).reshape(-1).astype(np.float32)
                for name, value in values.items()
            }

    def _restart(self, games: NDArray[np.int64]) -> None:
        draws = self.streams.uniform(games, 2 * self.num_players).T
        self._place[: self.num_players, :, games] = 2.0 * draws.reshape(-1, 2, len(games)) - 1.0
        self._speed[..., games] = 0.0
        self._words[..., games] = 0.0
        self._sums[:, games] = 0.0
        self._ticks[games] = 0
        self.begin(games)


def scatter(game: ParticleGame, games: NDArray[np.int64], reach: float = 1.0) -> None:
    """Place the landmarks of ``games`` uniformly within ``reach`` of the middle."""
    count = game.num_bodies - game.num_players
    draws = game.streams.uniform(games, 2 * count).T.reshape(count, 2, len(games))
    game.set_places(range(game.num_players, game.num_bodies), games, reach * (2.0 * draws - 1.0))

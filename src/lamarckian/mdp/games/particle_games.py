"""Four more particle games: speaker and listener, reference, tag and adversary.

Each is the game of the same name of ``mpe2`` at its default options; see ``particles`` for the physics.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Array
from lamarckian.mdp.games.drawing import Drawing, circle, scene, text
from lamarckian.mdp.games.particles import SHOWN, WIDTH, Body, ParticleGame, scatter

_PIXELS = WIDTH / (2 * SHOWN)
_NUM_COLOURED = 3
_SPEAKER_COLOURS = np.array([[0.65, 0.15, 0.15], [0.15, 0.65, 0.15], [0.15, 0.15, 0.65]])
_REFERENCE_COLOURS = np.array([[0.75, 0.25, 0.25], [0.25, 0.75, 0.25], [0.25, 0.25, 0.75]])


class SimpleSpeakerListener(ParticleGame):
    """The speaker sees which of three landmarks is the goal and says a word; the listener walks.

    Role ``speaker``: sees the colour of the goal ``[3]``, says one of three words, does not move. Role
    ``listener``: sees its speed, the offsets to the landmarks and the word said at the tick before
    ``[11]``, and moves. Both earn minus the squared distance of the listener from the goal.

    Statistic of a life: ``distance``, of the listener from the goal at the end.
    """

    drawing: ClassVar[Drawing] = scene(
        WIDTH,
        WIDTH,
        circle("landmarks", 0.04 * _PIXELS, "#81a1c1"),
        circle("goal", 0.06 * _PIXELS, "#ebcb8b"),
        circle("speaker", 0.075 * _PIXELS, "#4c566a"),
        circle("listener", 0.075 * _PIXELS, "#88c0d0"),
        text("said", WIDTH / 2, 20, 16),
    )
    _SAVED = (*ParticleGame._SAVED, "_goal")

    def __init__(self, num_games: int, *, max_ticks: int = 25, continuous: bool = False) -> None:
        self._goal = np.zeros(num_games, np.int64)
        super().__init__(
            num_games,
            [Body("speaker", 0.075, moves=False, words=3), Body("listener", 0.075)],
            [Body(size=0.04)] * _NUM_COLOURED,
            num_words=3,
            num_extras=3,
            max_ticks=max_ticks,
            continuous=continuous,
        )

    def see(self, player: int) -> list[int]:
        if player == 0:
            return self.rows("extra")
        offsets = [row for body in (2, 3, 4) for row in self.rows("offset", 1, body)]
        return self.rows("speed", 1) + offsets + self.rows("words", 0)

    def begin(self, games: NDArray[np.int64]) -> None:
        self._goal[games] = self.streams.integers(games, _NUM_COLOURED, 1)[:, 0]
        self.extras[:, games] = _SPEAKER_COLOURS[self._goal[games]].T
        scatter(self, games)

    def _away(self) -> Array:
        away: Array = self.distance[1, 2 + self._goal, np.arange(self.num_games)]
        return away

    def earn(self) -> NDArray[np.float64]:
        away = self._away()
        return np.stack([-away * away] * 2)

    def outcomes(self) -> dict[str, Array]:
        return {"distance": np.stack([self._away()] * 2)}

    def show(self, game: int) -> dict[str, Any]:
        goal = 2 + int(self._goal[game])
        words = self.words_of(0, game)
        return {
            "landmarks": self.points((2, 3, 4), game),
            "goal": self.points((goal,), game),
            "speaker": self.points((0,), game),
            "listener": self.points((1,), game),
            "said": words,
        }


class SimpleReference(ParticleGame):
    """Two players who both speak and move; each knows the goal of the other.

    Role ``agent``: sees its speed, the offsets to three landmarks, the colour of the other's goal and the
    word the other said ``[21]``; it moves and says one of ten words. A player alone earns minus the
    distance of the *other* from the goal it knows; together they earn the mean of both. The reward is
    (1 - ``local_ratio``) of the second and ``local_ratio`` of the first.

    Statistic of a life: ``distance``, of the player itself from its goal at the end.
    """

    drawing: ClassVar[Drawing] = scene(
        WIDTH,
        WIDTH,
        circle("landmarks", 0.05 * _PIXELS, "#81a1c1"),
        circle("goals", 0.07 * _PIXELS, "#ebcb8b"),
        circle("players", 0.05 * _PIXELS, "#88c0d0"),
        text("said", WIDTH / 2, 20, 16),
    )
    _SAVED = (*ParticleGame._SAVED, "_goals")

    def __init__(
        self,
        num_games: int,
        *,
        local_ratio: float = 0.5,
        max_ticks: int = 25,
        continuous: bool = False,
    ) -> None:
        if not 0.0 <= local_ratio <= 1.0:
            raise ConfigError(f"SimpleReference local_ratio: expected 0 to 1, got {local_ratio}")
        self.local_ratio = local_ratio
        self._goals = np.zeros((2, num_games), np.int64)
        super().__init__(
            num_games,
            [Body("agent", words=10)] * 2,
            [Body()] * _NUM_COLOURED,
            num_words=10,
            num_extras=6,
            max_ticks=max_ticks,
            continuous=continuous,
        )

    def see(self, player: int) -> list[int]:
        offsets = [row for body in (2, 3, 4) for row in self.rows("offset", player, body)]
        colour = self.rows("extra")[3 * player : 3 * player + 3]
        return self.rows("speed", player) + offsets + colour + self.rows("words", 1 - player)

    def begin(self, games: NDArray[np.int64]) -> None:
        self._goals[:, games] = self.streams.integers(games, _NUM_COLOURED, 2).T
        colours = _REFERENCE_COLOURS[self._goals[:, games]]
        self.extras[:, games] = colours.transpose(0, 2, 1).reshape(6, len(games))
        scatter(self, games)

    def _away(self) -> Array:
        """Of each player from the goal that the other one knows, ``[P, G]``."""
        every = np.arange(self.num_games)
        return np.stack([self.distance[n, 2 + self._goals[1 - n], every] for n in (0, 1)])

    def earn(self) -> NDArray[np.float64]:
        known = -self._away()[::-1]
        both = known.sum(axis=0) / 2
        rewards: NDArray[np.float64] = (1 - self.local_ratio) * both + self.local_ratio * known
        return rewards

    def outcomes(self) -> dict[str, Array]:
        return {"distance": self._away()}

    def show(self, game: int) -> dict[str, Any]:
        goals = [2 + int(goal) for goal in self._goals[:, game]]
        return {
            "landmarks": self.points((2, 3, 4), game),
            "goals": self.points(goals, game),
            "players": self.points((0, 1), game),
            "said": f"{self.words_of(0, game)}   {self.words_of(1, game)}",
        }


class SimpleTag(ParticleGame):
    """Slow ``adversary`` players chase faster ``agent`` players among obstacles.

    Everybody sees own speed and place, the offsets to the obstacles and to the others, and the speeds of
    the agents other than itself. For every pair of an adversary and an agent that overlap, all adversaries
    earn 10 and that agent loses 10; an agent also loses up to 10 for each coordinate by which it leaves
    the middle (from 0.9 on).

    Statistic of a life: ``catches``, overlaps of an adversary and an agent in which the player had a part,
    summed over the ticks.
    """

    drawing: ClassVar[Drawing] = scene(
        WIDTH,
        WIDTH,
        circle("obstacles", 0.2 * _PIXELS, "#4c566a"),
        circle("adversaries", 0.075 * _PIXELS, "#bf616a"),
        circle("agents", 0.05 * _PIXELS, "#a3be8c"),
        text("score", WIDTH / 2, 20, 16),
    )

    def __init__(
        self,
        num_games: int,
        *,
        num_adversaries: int = 3,
        num_agents: int = 1,
        num_obstacles: int = 2,
        max_ticks: int = 25,
        continuous: bool = False,
    ) -> None:
        for name, value, least in (
            ("num_adversaries", num_adversaries, 1),
            ("num_agents", num_agents, 1),
            ("num_obstacles", num_obstacles, 0),
        ):
            if value < least:
                raise ConfigError(f"SimpleTag {name}: expected at least {least}, got {value}")
        self.num_adversaries = num_adversaries
        chaser = Body("adversary", 0.075, collides=True, acceleration=3.0, max_speed=1.0)
        prey = Body("agent", 0.05, collides=True, acceleration=4.0, max_speed=1.3)
        super().__init__(
            num_games,
            [chaser] * num_adversaries + [prey] * num_agents,
            [Body(size=0.2, collides=True)] * num_obstacles,
            num_words=0,
            num_extras=0,
            max_ticks=max_ticks,
            continuous=continuous,
        )

    def see(self, player: int) -> list[int]:
        seen = self.rows("speed", player) + self.rows("place", player)
        others = [n for n in range(self.num_players) if n != player]
        for body in (*range(self.num_players, self.num_bodies), *others):
            seen += self.rows("offset", player, body)
        prey = [n for n in others if n >= self.num_adversaries]
        return seen + [row for n in prey for row in self.rows("speed", n)]

    def begin(self, games: NDArray[np.int64]) -> None:
        scatter(self, games, 0.9)

    def earn(self) -> NDArray[np.float64]:
        chasers, players = self.num_adversaries, self.num_players
        caught = self.distance[:chasers, chasers:players] < 0.075 + 0.05
        rewards = np.empty((players, self.num_games))
        rewards[:chasers] = 10.0 * caught.sum(axis=(0, 1))
        out = np.abs(self.places(range(chasers, players)))
        far = np.minimum(np.exp(2.0 * np.minimum(out, 3.0) - 2.0), 10.0)
        fine = np.where(out < 0.9, 0.0, np.where(out < 1.0, (out - 0.9) * 10.0, far))
        rewards[chasers:] = -10.0 * caught.sum(axis=0) - fine.sum(axis=1)
        self._sums[:chasers] += caught.sum(axis=1)
        self._sums[chasers:] += caught.sum(axis=0)
        return rewards

    def outcomes(self) -> dict[str, Array]:
        return {"catches": self._sums}

    def show(self, game: int) -> dict[str, Any]:
        chasers, players = self.num_adversaries, self.num_players
        return {
            "obstacles": self.points(range(players, self.num_bodies), game),
            "adversaries": self.points(range(chasers), game),
            "agents": self.points(range(chasers, players), game),
            "score": f"catches {int(self._sums[chasers:, game].sum())}",
        }


class SimpleAdversary(ParticleGame):
    """``agent`` players know which landmark is the goal; one ``adversary`` must guess it from them.

    The adversary sees the offsets to the landmarks and to the agents, and earns minus its distance from
    the goal. An agent sees the offset to the goal besides, and all agents earn the adversary's distance
    minus that of the nearest agent. Nobody collides.

    Statistic of a life: ``distance``, of the player from the goal at the end.
    """

    drawing: ClassVar[Drawing] = scene(
        WIDTH,
        WIDTH,
        circle("landmarks", 0.08 * _PIXELS, "#81a1c1"),
        circle("goal", 0.1 * _PIXELS, "#ebcb8b"),
        circle("adversary", 0.15 * _PIXELS, "#bf616a"),
        circle("agents", 0.15 * _PIXELS, "#88c0d0"),
        text("score", WIDTH / 2, 20, 16),
    )
    _SAVED = (*ParticleGame._SAVED, "_goal")

    def __init__(
        self,
        num_games: int,
        *,
        num_agents: int = 2,
        max_ticks: int = 25,
        continuous: bool = False,
    ) -> None:
        if num_agents < 1:
            raise ConfigError(f"SimpleAdversary num_agents: expected at least 1, got {num_agents}")
        self._goal = np.zeros(num_games, np.int64)
        super().__init__(
            num_games,
            [Body("adversary", 0.15)] + [Body("agent", 0.15)] * num_agents,
            [Body(size=0.08)] * num_agents,
            num_words=0,
            num_extras=2 * (1 + num_agents),
            max_ticks=max_ticks,
            continuous=continuous,
        )

    def see(self, player: int) -> list[int]:
        # An extra pair per player: the offset to the goal, which only agents look at.
        seen = self.rows("extra")[2 * player : 2 * player + 2] if player else []
        others = [n for n in range(self.num_players) if n != player]
        for body in (*range(self.num_players, self.num_bodies), *others):
            seen = seen + self.rows("offset", player, body)
        return seen

    def begin(self, games: NDArray[np.int64]) -> None:
        landmarks = self.num_bodies - self.num_players
        self._goal[games] = self.streams.integers(games, landmarks, 1)[:, 0]
        scatter(self, games)

    def fill_extras(self) -> None:
        every = np.arange(self.num_games)
        goal = self.offset[:, self.num_players + self._goal, :, every]
        self.extras[:] = goal.transpose(1, 2, 0).reshape(len(self.extras), -1)

    def _away(self) -> Array:
        every = np.arange(self.num_games)
        away: Array = self.distance[:, self.num_players + self._goal, every]
        return away

    def earn(self) -> NDArray[np.float64]:
        away = self._away()
        rewards = np.empty_like(away)
        rewards[0] = -away[0]
        rewards[1:] = away[0] - away[1:].min(axis=0)
        return rewards

    def outcomes(self) -> dict[str, Array]:
        return {"distance": self._away()}

    def show(self, game: int) -> dict[str, Any]:
        players = self.num_players
        away = self._away()[:, game]
        return {
            "landmarks": self.points(range(players, self.num_bodies), game),
            "goal": self.points((players + int(self._goal[game]),), game),
            "adversary": self.points((0,), game),
            "agents": self.points(range(1, players), game),
            "score": f"agents {away[1:].min():.2f}, adversary {away[0]:.2f}",
        }

"""EnvPool: environments stepped by a native thread pool, as a batch.

EnvPool resets a row in the step after its end; that step's action is ignored, its reward is zero, and it is
nobody's decision: the row is not alive. The observation of the ending step is the true last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.errors import ConfigError, GameError, UnknownName, nearest
from lamarckian.mdp.adapters.action_spaces import ActionPlan
from lamarckian.mdp.adapters.frames import frame_of
from lamarckian.mdp.adapters.generations import require
from lamarckian.mdp.adapters.spaces import Layout, ObservationPlan, SpaceMismatch
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import Arrays, Observation, Role

ROLE = "player"


class EnvPoolGame(BatchGame):
    """``num_games`` rows of an EnvPool task.

    ``environment``  a task id such as ``Pong-v5``.
    ``num_threads``  EnvPool's threads; 0 for its own choice.
    ``env_options``  further arguments of ``envpool.make``.

    EnvPool takes its seed when it is made: the pool is made again at each :meth:`reset`, seeded from all
    seeds together. The state cannot be saved: a resumed run begins new episodes.

    Raises MissingDependency with the install command, UnknownName, ConfigError or GameError.
    """

    exact_state = False

    def __init__(
        self,
        num_games: int,
        environment: str,
        *,
        env_options: Mapping[str, Any] | None = None,
        num_threads: int = 0,
        layout: Layout = "auto",
        frames_per_decision: int = 1,
    ) -> None:
        self._envpool = require("envpool", "pip install envpool", f"envpool:{environment}")
        known = list(self._envpool.list_all_envs())
        if environment not in known:
            raise UnknownName(f"EnvPool has no task {environment!r}{nearest(environment, known)}")
        self.name = environment
        self.num_games = num_games
        self.frames_per_decision = frames_per_decision
        self._options = {"num_threads": num_threads, **dict(env_options or {})}
        self._pool: Any = self._make(0)
        self._observations = ObservationPlan(self._pool.observation_space, layout)
        self._actions = ActionPlan(self._pool.action_space)
        self.roles = {ROLE: Role(inputs=self._observations.inputs, actions=self._actions.parts)}

    def _make(self, seed: int) -> Any:
        try:
            return self._envpool.make(
                self.name,
                env_type="gymnasium",
                num_envs=self.num_games,
                seed=seed,
                **self._options,
            )
        except (TypeError, KeyError, ValueError, AssertionError) as error:
            raise ConfigError(
                f"envpool:{self.name} refused the options {self._options}: {error}"
            ) from error

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self.close()
        self._seed = seeding.derive(int(seeds[0]), *map(int, seeds))
        self._pool = self._make(self._seed)
        self._tick = 0
        self._waiting = np.zeros(self.num_games, np.bool_)
        self._take(self._pool.reset()[0])

    def observe(self, role: str) -> Observation:
        return Observation(self._inputs)

    def alive(self, role: str) -> NDArray[np.bool_]:
        return ~self._waiting

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        self._tick += 1
        try:
            seen, reward, ended, limited, _ = self._pool.step(self._actions.batch(actions[ROLE]))
        except SpaceMismatch as error:
            raise GameError(f"{self._where()}: {error}") from error
        except Exception as error:
            raise GameError(
                f"{self._where()}: step() raised {type(error).__name__}: {error}"
            ) from error
        living = ~self._waiting
        rewards = np.array(reward, np.float32)
        rewards[~living] = 0
        if not np.isfinite(rewards).all():
            raise GameError(f"{self._where()}: rewards hold NaN or infinity")
        terminated = np.array(ended, np.bool_) & living
        truncated = np.array(limited, np.bool_) & living & ~terminated
        out = RowStep(rewards[:, None], terminated, truncated)
        self._take(seen)
        self._waiting = terminated | truncated
        rows = np.flatnonzero(truncated)
        if len(rows):
            out.final_rows = rows
            out.final = Observation({name: array[rows] for name, array in self._inputs.items()})
        return {ROLE: out}

    def _take(self, seen: Any) -> None:
        try:
            self._inputs = self._observations.views(seen, self.num_games)
        except SpaceMismatch as error:
            raise GameError(f"{self._where()}: observation {error}") from error
        for name, array in self._inputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise GameError(f"{self._where()}: observation {name!r} holds NaN or infinity")

    def _where(self) -> str:
        return f"envpool:{self.name}, tick {self._tick}, seed {self._seed}"

    def frame(self, game: int) -> dict[str, Any] | None:
        return frame_of(self.roles[ROLE].inputs, self._inputs, game) | {"tick": self._tick}

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

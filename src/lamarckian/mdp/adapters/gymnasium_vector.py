"""Native Gymnasium vector environments: stepped as a batch, without a Python loop over rows.

The three autoreset modes differ in what the observation after an end is:

``NEXT_STEP``  the true last one; the environment spends one more step on its reset. Rows in that step are
               not alive: nobody decides and nothing of them becomes data.
``SAME_STEP``  already the new start; the true last one is in ``info["final_obs"]`` (Gymnasium 1.x) or
               ``info["final_observation"]`` (0.29).
``DISABLED``   the true last one; the rows that ended are then reset here, by ``reset_mask``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.errors import ConfigError, GameError, LamarckianError
from lamarckian.mdp.adapters.action_spaces import ActionPlan, MaskPlan
from lamarckian.mdp.adapters.frames import frame_of
from lamarckian.mdp.adapters.generations import label_of, making_failed, require
from lamarckian.mdp.adapters.spaces import MASK_KEY, Layout, ObservationPlan, SpaceMismatch
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import Arrays, Observation, Role

ROLE = "player"
_FINAL_KEYS = ("final_obs", "final_observation")


class GymnasiumVectorGame(BatchGame):
    """A ``gymnasium.vector.VectorEnv`` with ``num_games`` rows, by registered id or from a factory.

    ``environment``     an id for ``gymnasium.make_vec``, or a callable that returns a vector
                        environment; it is given ``num_envs`` if it takes that argument.
    ``vectorization``   ``native`` uses the environment's own vector version where it has one;
                        ``sync`` and ``async`` wrap scalar environments.
    ``env_options``     keyword arguments of the environment.
    ``on_bad_data``     ``fail``: NaN or infinity raises GameError. ``drop``: the numbers are passed on,
                        and the collector takes the whole life out of the learning data.

    Seeds: wrapped scalar environments are seeded one by one; a native one has a single random stream,
    which all seeds together determine. The state cannot be saved: a resumed run begins new episodes.

    Raises UnsupportedSpace, ConfigError, UnknownName, MissingDependency or GameError.
    """

    exact_state = False

    def __init__(
        self,
        num_games: int,
        environment: str | Callable[..., Any],
        *,
        env_options: Mapping[str, Any] | None = None,
        vectorization: Literal["native", "sync", "async"] = "native",
        layout: Layout = "auto",
        on_bad_data: Literal["fail", "drop"] = "fail",
        frames_per_decision: int = 1,
    ) -> None:
        if on_bad_data not in ("fail", "drop"):
            raise ConfigError(f"on_bad_data: expected fail or drop, got {on_bad_data!r}")
        self.num_games = num_games
        self.name = label_of(environment)
        self.frames_per_decision = frames_per_decision
        self._fail = on_bad_data == "fail"
        self._env = _open(environment, num_games, dict(env_options or {}), vectorization)
        if self._env.num_envs != num_games:
            raise GameError(
                f"{self.name}: expected a vector environment of {num_games} rows, "
                f"got {self._env.num_envs}"
            )
        self._mode = _mode_of(self._env)
        self._observations = ObservationPlan(self._env.single_observation_space, layout)
        self._actions = ActionPlan(self._env.single_action_space)
        masks = MaskPlan(self._actions)
        self._masks = masks if self._observations.mask_key else None
        self.roles = {
            ROLE: Role(
                inputs=self._observations.inputs,
                actions=self._actions.parts,
                masked=tuple(masks.sizes) if self._masks else (),
            )
        }
        self._waiting = np.zeros(num_games, np.bool_)
        self._tick = 0
        self._seeds: list[int] = []
        self._resets = 0
        self._closed = False

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self._seeds = [int(seed) for seed in seeds]
        self._waiting = np.zeros(self.num_games, np.bool_)
        self._tick = 0
        self._resets = 0
        try:
            result = self._env.reset(seed=self._seed_argument(self._seeds))
        except Exception as error:
            raise GameError(
                f"{self.name}, reset, seeds {self._seeds[:4]}: reset() raised "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise GameError(f"{self.name}: reset() must return (observations, infos)")
        self._take(result[0], "reset()")

    def observe(self, role: str) -> Observation:
        return Observation(self._inputs, self._legal)

    def alive(self, role: str) -> NDArray[np.bool_]:
        return ~self._waiting

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        self._tick += 1
        try:
            native = self._actions.batch(actions[ROLE])
            result = self._env.step(native)
        except SpaceMismatch as error:
            raise GameError(f"{self._where()}: {error}") from error
        except Exception as error:
            raise GameError(
                f"{self._where()}: step() raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(result, tuple) or len(result) != 5:
            raise GameError(
                f"{self._where()}: step() must return 5 values, got {type(result).__name__}"
                + (f" of {len(result)}" if isinstance(result, tuple) else "")
            )
        seen, reward, ended, limited, infos = result
        resting = self._waiting
        out = RowStep(
            rewards=self._flags(reward, "rewards", np.float32).reshape(-1, 1),
            terminated=self._flags(ended, "terminations", np.bool_),
            truncated=self._flags(limited, "truncations", np.bool_),
        )
        out.truncated &= ~out.terminated
        if resting.any():
            out.rewards[resting] = 0
            out.terminated &= ~resting
            out.truncated &= ~resting
        if self._fail and not np.isfinite(out.rewards).all():
            row = int(np.flatnonzero(~np.isfinite(out.rewards[:, 0]))[0])
            raise GameError(
                f"{self._where(row)}: reward: expected finite numbers, got {reward[row]!r}"
            )
        self._take(seen, "step()")
        over = out.terminated | out.truncated
        self._waiting = over if self._mode == "NEXT_STEP" else np.zeros_like(over)
        if over.any():
            rows = np.flatnonzero(out.truncated)
            if len(rows):
                out.final_rows = rows
                out.final = Observation(self._final(rows, infos))
            if self._mode == "DISABLED":
                self._reset_rows(over)
        return {ROLE: out}

    def frame(self, game: int) -> dict[str, Any] | None:
        return frame_of(self.roles[ROLE].inputs, self._inputs, game) | {"tick": self._tick}

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._env.close()

    def _where(self, row: int | None = None) -> str:
        seed = f", seed {self._seeds[row]}" if row is not None else f", seeds {self._seeds[:4]}"
        place = "" if row is None else f", environment {row}"
        return f"{self.name}{place}, tick {self._tick}{seed}"

    def _flags(self, value: Any, what: str, dtype: Any) -> NDArray[Any]:
        array = np.array(value, dtype)
        if array.shape != (self.num_games,):
            raise GameError(
                f"{self._where()}: {what}: expected shape ({self.num_games},), got {array.shape}"
            )
        return array

    def _take(self, seen: Any, what: str) -> None:
        try:
            self._inputs = self._observations.views(seen, self.num_games)
            self._legal = self._masks.batch(seen[MASK_KEY], self.num_games) if self._masks else {}
        except SpaceMismatch as error:
            raise GameError(f"{self._where()}: {what} observation {error}") from error
        if self._fail:
            self._check_finite(self._inputs, None)

    def _check_finite(self, arrays: Arrays, rows: NDArray[np.int64] | None) -> None:
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                flat = np.isfinite(array).reshape(len(array), -1).all(axis=1)
                row = int(np.flatnonzero(~flat)[0])
                raise GameError(
                    f"{self._where(row if rows is None else int(rows[row]))}: observation {name!r}: "
                    "expected finite numbers, got NaN or infinity"
                )

    def _final(self, rows: NDArray[np.int64], infos: Mapping[str, Any]) -> Arrays:
        if self._mode != "SAME_STEP":
            return {name: array[rows] for name, array in self._inputs.items()}
        key = next((key for key in _FINAL_KEYS if key in infos), None)
        if key is None:
            raise GameError(
                f"{self._where(int(rows[0]))}: truncated, but info holds no final observation "
                f"({' or '.join(_FINAL_KEYS)}); without it a truncated episode cannot be learned from"
            )
        finals = infos[key]
        arrays = self._observations.allocate(len(rows))
        write = self._observations.writer(arrays)
        try:
            for place, row in enumerate(rows):
                write(_row_of(finals, int(row)), place)
        except SpaceMismatch as error:
            raise GameError(f"{self._where(int(rows[0]))}: final observation {error}") from error
        if self._fail:
            self._check_finite(arrays, rows)
        return arrays

    def _reset_rows(self, over: NDArray[np.bool_]) -> None:
        self._resets += 1
        seeds = [seeding.derive(seed, "reset", self._resets) for seed in self._seeds]
        argument = self._seed_argument(seeds) if self._seeded_one_by_one() else None
        try:
            seen, _ = self._env.reset(seed=argument, options={"reset_mask": over.copy()})
        except Exception as error:
            raise GameError(
                f"{self._where()}: reset(options=reset_mask) raised {type(error).__name__}: {error}"
            ) from error
        self._take(seen, "reset()")

    def _seeded_one_by_one(self) -> bool:
        names = {cls.__name__ for cls in type(self._env.unwrapped).__mro__}
        return bool(names & {"SyncVectorEnv", "AsyncVectorEnv"})

    def _seed_argument(self, seeds: list[int]) -> Any:
        return seeds if self._seeded_one_by_one() else seeding.derive(seeds[0], *seeds)


def _row_of(finals: Any, row: int) -> Any:
    if isinstance(finals, Mapping):
        return {key: _row_of(value, row) for key, value in finals.items() if key[:1] != "_"}
    if isinstance(finals, tuple):
        return tuple(_row_of(value, row) for value in finals)
    return finals[row]


def _mode_of(env: Any) -> str:
    mode = env.metadata.get("autoreset_mode", "NEXT_STEP")
    name = str(getattr(mode, "name", mode)).replace("AutoresetMode.", "")
    if name not in ("NEXT_STEP", "SAME_STEP", "DISABLED"):
        raise GameError(
            f"{type(env).__name__}: metadata['autoreset_mode'] is {mode!r}; "
            "expected NEXT_STEP, SAME_STEP or DISABLED"
        )
    return name


def _open(environment: Any, num_envs: int, options: dict[str, Any], vectorization: str) -> Any:
    if not isinstance(environment, str):
        takes = inspect.signature(environment).parameters
        if "num_envs" in takes:
            options = {"num_envs": num_envs, **options}
        try:
            return environment(**options)
        except LamarckianError:
            raise
        except Exception as error:
            raise GameError(
                f"{label_of(environment)}: its constructor raised {type(error).__name__}: {error}"
            ) from error
    gymnasium = require("gymnasium", "pip install 'lamarckian[gymnasium]'", f"gymvec:{environment}")
    if vectorization not in ("native", "sync", "async"):
        raise ConfigError(f"vectorization: expected native, sync or async, got {vectorization!r}")
    mode = vectorization
    try:
        if vectorization == "native":
            spec = gymnasium.spec(environment)
            mode = "vector_entry_point" if spec.vector_entry_point is not None else "sync"
        return gymnasium.make_vec(
            environment, num_envs=num_envs, vectorization_mode=mode, **options
        )
    except Exception as error:
        raise making_failed(gymnasium, environment, options, error) from error

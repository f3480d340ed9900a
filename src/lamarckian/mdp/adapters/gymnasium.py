"""Gymnasium environments as a batch game: G scalar environments stepped in one plain loop.

Observations are copied into preallocated ``[G, ...]`` arrays the moment they arrive. An episode that
ends is reset within the same tick; a truncated one hands out its true last observation. Every episode has
a seed of its own, derived from the match's seed and the episode's number, so that a fault can be played
again and a running episode can be rebuilt at resume from its seed and its actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.errors import ConfigError, GameError, LamarckianError
from lamarckian.mdp.adapters.action_spaces import ActionPlan, MaskPlan
from lamarckian.mdp.adapters.frames import frame_of
from lamarckian.mdp.adapters.generations import (
    Api,
    Step,
    check_api,
    check_step,
    label_of,
    open_environment,
    reset_environment,
    step_function,
    wrong_step,
)
from lamarckian.mdp.adapters.replay import ReplayLog
from lamarckian.mdp.adapters.spaces import MASK_KEY, Layout, ObservationPlan, SpaceMismatch
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import Arrays, Observation, Role

ROLE = "player"
NUM_CHECKED = 10
"""Ticks whose results are checked in full; shape and dtype of observations are checked for ever."""

MaskSource = Literal["auto", "observation", "info", "none"]


class GymnasiumGame(BatchGame):
    """``num_games`` environments of one kind, made from a registered id or a factory.

    ``environment``   an id such as ``CartPole-v1``, or a callable that returns a new environment.
    ``env_options``   keyword arguments of ``gymnasium.make`` or of the callable.
    ``api``           the interface generation, see :mod:`~lamarckian.mdp.adapters.generations`.
    ``layout``        of three-axis arrays: ``auto`` takes uint8 boxes as images and infers the channel
                      axis; ``CHW`` and ``HWC`` declare it; ``flat`` takes them as vectors.
    ``action_mask``   where legal masks come from: ``observation["action_mask"]``, ``info["action_mask"]``,
                      ``none``, or ``auto``: whichever is there at a first probing reset.
    ``on_bad_data``   ``fail``: NaN or infinity raises GameError. ``drop``: the episode is cut off, as
                      truncated, at its last good observation and counted by the outcome ``bad_data``.
    ``replay``        keep the actions of running episodes so that :meth:`state` is exact. The environment
                      must be deterministic given seed and actions; this is verified when a state is
                      loaded, and an episode that does not come out the same is cut off with a warning.
                      False: nothing is kept, and a resumed run begins new episodes.
    ``statistics``    keys of ``info`` reported as outcomes of the episode that ended.

    Raises UnsupportedSpace, ConfigError, UnknownName, MissingDependency or GameError.
    """

    def __init__(
        self,
        num_games: int,
        environment: str | Callable[..., Any],
        *,
        env_options: Mapping[str, Any] | None = None,
        api: str = "gymnasium",
        layout: Layout = "auto",
        action_mask: MaskSource = "auto",
        on_bad_data: Literal["fail", "drop"] = "fail",
        replay: bool = True,
        statistics: Sequence[str] = (),
        frames_per_decision: int = 1,
    ) -> None:
        if num_games < 1:
            raise ConfigError(f"num_games: expected at least 1, got {num_games}")
        if on_bad_data not in ("fail", "drop"):
            raise ConfigError(f"on_bad_data: expected fail or drop, got {on_bad_data!r}")
        self.num_games = num_games
        self.name = label_of(environment)
        self.exact_state = replay
        self.frames_per_decision = frames_per_decision
        self._environment = environment
        self._options = dict(env_options or {})
        self._api: Api = check_api(api)
        self._drop = on_bad_data == "drop"
        self._statistics = tuple(statistics)
        self._envs = [open_environment(environment, self._options, self._api)]
        env = self._envs[0]
        self._observations = ObservationPlan(
            env.observation_space, layout, split_mask=action_mask in ("auto", "observation")
        )
        self._actions = ActionPlan(env.action_space)
        self._mask_plan = MaskPlan(self._actions)
        self._mask = self._find_mask(action_mask)
        reward_space = getattr(env, "reward_space", None)
        heads = 1 if reward_space is None else int(np.prod(reward_space.shape))
        self._heads = heads
        self.roles = {
            ROLE: Role(
                inputs=self._observations.inputs,
                actions=self._actions.parts,
                rewards=("reward",) if heads == 1 else tuple(f"reward_{i}" for i in range(heads)),
                masked=tuple(self._mask_plan.sizes) if self._mask != "none" else (),
            )
        }
        self._inputs = self._observations.allocate(num_games)
        self._legal = self._mask_plan.allocate(num_games) if self._mask != "none" else {}
        self._write = self._observations.writer(self._inputs)
        self._floats = [name for name, array in self._inputs.items() if array.dtype.kind == "f"]
        self._log = ReplayLog() if replay else None
        self._cut: list[int] = []
        self._tick = 0
        self._closed = False

    def _find_mask(self, source: MaskSource) -> MaskSource:
        if source not in ("auto", "observation", "info", "none"):
            raise ConfigError(f"action_mask: unknown source {source!r}")
        if self._observations.mask_key:
            source = "observation"
        elif source == "observation":
            raise ConfigError(
                f"action_mask: {self.name} has no observation key {MASK_KEY!r} beside another key"
            )
        elif source == "auto" and self._mask_plan.sizes:
            _, info = self._reset_one(0, 0, -1)
            source = "info" if MASK_KEY in info else "none"
        if source in ("info", "observation") and not self._mask_plan.sizes:
            raise ConfigError(f"action_mask: the actions of {self.name} are continuous")
        return "none" if source == "auto" else source

    def reset(self, seeds: NDArray[np.int64]) -> None:
        for index in range(len(self._envs), self.num_games):
            try:
                env = open_environment(self._environment, self._options, self._api)
            except LamarckianError as error:
                raise type(error)(f"environment {index}: {error}") from error
            if any(env is other for other in self._envs):
                raise GameError(
                    f"{self.name}: the factory returned the same environment twice; it must make a "
                    "new one at each call"
                )
            self._envs.append(env)
        self._steps: list[Step] = [step_function(env, self._api) for env in self._envs]
        self._seeds = [int(seed) for seed in seeds]
        self._episode = [-1] * self.num_games
        self._episode_seed = [0] * self.num_games
        self._began = [0] * self.num_games
        self._tick = 0
        self._cut = []
        if self._log is not None:
            self._log.clear()
        for index in range(self.num_games):
            self._begin_episode(index)

    def observe(self, role: str) -> Observation:
        return Observation(self._inputs, self._legal)

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        num = self.num_games
        rewards: list[Any] = [0.0] * num
        terminated = np.zeros(num, np.bool_)
        truncated = np.zeros(num, np.bool_)
        out = RowStep(np.zeros((num, self._heads), np.float32), terminated, truncated)
        finals: dict[int, Arrays] = {}
        before = {k: v.copy() for k, v in self._inputs.items()} if self._drop else {}
        try:
            native = self._actions.rows(actions[ROLE])
        except SpaceMismatch as error:
            raise GameError(f"{self.name}, tick {self._tick}: {error}") from error
        if self._log is not None:
            self._log.append(actions[ROLE])
        order: Sequence[int] = range(num)
        if self._cut:
            order = [i for i in order if i not in self._cut]
        steps, write, mask_from = self._steps, self._write, self._mask
        careful = self._tick < NUM_CHECKED
        self._tick += 1
        index = 0
        result = None
        try:
            for index in order:
                result = steps[index](native[index])
                if careful:
                    check_step(result, self._api)
                observation, reward, ended, limited, info = result
                write(observation, index)
                rewards[index] = reward
                if mask_from != "none":
                    self._read_mask(observation, info, index)
                if ended or limited:
                    terminated[index] = ended
                    if limited and not ended:
                        truncated[index] = True
                        finals[index] = self._copy_row(self._inputs, index)
                    self._note_outcome(out.outcomes, index, info)
                    self._begin_episode(index)
        except Exception as error:
            self._raise(index, error, result)
        for index in self._cut:
            truncated[index] = True
            finals[index] = self._copy_row(self._inputs, index)
            self._begin_episode(index)
        self._cut = []
        self._store_rewards(out, rewards)
        bad = self._non_finite(out, finals)
        if bad:
            self._handle_bad(bad, out, finals, before, rewards)
        if finals:
            rows = sorted(finals)
            out.final_rows = np.array(rows, np.int64)
            out.final = Observation(
                {name: np.stack([finals[i][name] for i in rows]) for name in self._inputs}
            )
        if self._log is not None:
            self._log.trim(min(self._began))
        return {ROLE: out}

    def frame(self, game: int) -> dict[str, Any] | None:
        return frame_of(self.roles[ROLE].inputs, self._inputs, game) | {
            "tick": self._tick - self._began[game]
        }

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for env in self._envs:
                env.close()

    def state(self) -> tuple[dict[str, Any], Arrays]:
        if self._log is None:
            raise ValueError(f"{self.name} keeps no state (option replay is off)")
        lengths, actions = self._log.running(self._began, self._tick)
        data = {
            "seeds": self._seeds,
            "episode": list(self._episode),
            "episode_seed": list(self._episode_seed),
            "lengths": [self._tick - began for began in self._began],
            "kept": lengths,
            "cut": list(self._cut),
        }
        arrays = {f"actions/{name}": array for name, array in actions.items()}
        arrays |= {f"inputs/{name}": array.copy() for name, array in self._inputs.items()}
        return data, arrays | {f"legal/{name}": array.copy() for name, array in self._legal.items()}

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        if self._log is None:
            raise ValueError(f"{self.name} restores no state (option replay is off)")
        self.reset(np.asarray(data["seeds"], np.int64))
        self._episode = list(data["episode"])
        self._tick = max(data["lengths"])
        self._began = [self._tick - length for length in data["lengths"]]
        actions = {k[8:]: v for k, v in arrays.items() if k.startswith("actions/")}
        self._log.restore(self._began, self._tick, data["kept"], actions)
        saved = {k[7:]: v for k, v in arrays.items() if k.startswith("inputs/")}
        self._cut = list(data["cut"])
        offset = 0
        for index, (kept, length) in enumerate(zip(data["kept"], data["lengths"], strict=True)):
            self._episode_seed[index] = int(data["episode_seed"][index])
            mine = {k: v[offset : offset + kept] for k, v in actions.items()}
            offset += kept
            same = kept == length and self._replay(index, mine, saved)
            if not same and index not in self._cut:
                self._cut.append(index)
        for name, array in self._inputs.items():
            array[:] = saved[name]
        for name, array in self._legal.items():
            array[:] = arrays[f"legal/{name}"]
        self._log.warn_if_cut(self.name, [i for i in self._cut if i not in data["cut"]])

    def _replay(self, index: int, actions: Arrays, saved: Arrays) -> bool:
        """Play one running episode again; True if it ends in the observation that was saved."""
        observation, _ = self._reset_one(index, self._episode_seed[index], self._episode[index])
        step = self._steps[index]
        try:
            for action in self._actions.rows(actions) if actions else ():
                observation, _, ended, limited, _ = step(action)
                if ended or limited:
                    return False
            self._write(observation, index)
        except Exception:
            return False
        return all(
            np.array_equal(array[index], saved[name][index], equal_nan=array.dtype.kind == "f")
            for name, array in self._inputs.items()
        )

    def inside(self) -> tuple[Any, ObservationPlan, ActionPlan, Api]:
        """Return the first environment and how it is read, for whoever examines it by hand."""
        return self._envs[0], self._observations, self._actions, self._api

    # One episode.

    def _reset_one(self, index: int, seed: int, episode: int) -> tuple[Any, dict[str, Any]]:
        try:
            return reset_environment(self._envs[index], seed, self._api)
        except Exception as error:
            verb = (
                "" if isinstance(error, GameError) else f"reset() raised {type(error).__name__}: "
            )
            raise GameError(
                f"{self.name}, environment {index}, episode {max(episode, 0)}, reset, "
                f"seed {seed}: {verb}{error}"
            ) from error

    def _begin_episode(self, index: int) -> None:
        episode = self._episode[index] = self._episode[index] + 1
        root = self._seeds[index]
        seed = seeding.derive(root, "episode", episode) if episode else root
        self._episode_seed[index] = seed
        self._began[index] = self._tick
        observation, info = self._reset_one(index, seed, episode)
        try:
            self._write(observation, index)
            if self._mask != "none":
                self._read_mask(observation, info, index)
        except SpaceMismatch as error:
            raise GameError(f"{self._where(index)}: reset() observation {error}") from error
        for name in self._floats:
            if not np.isfinite(self._inputs[name][index]).all():
                raise GameError(
                    f"{self._where(index)}: reset() observation {name!r} holds NaN or infinity"
                )

    def _read_mask(self, observation: Any, info: Mapping[str, Any], index: int) -> None:
        source = observation if self._mask == "observation" else info
        if MASK_KEY not in source:
            raise SpaceMismatch(f"{MASK_KEY!r}: missing from the {self._mask}")
        self._mask_plan.write(source[MASK_KEY], self._legal, index)

    def _copy_row(self, arrays: Arrays, index: int) -> Arrays:
        return {name: array[index].copy() for name, array in arrays.items()}

    def _note_outcome(self, outcomes: Arrays, index: int, info: Mapping[str, Any]) -> None:
        for key in self._statistics:
            if key in info:
                row = outcomes.setdefault(key, np.full(self.num_games, np.nan, np.float32))
                row[index] = float(info[key])

    # Faults.

    def _where(self, index: int) -> str:
        return (
            f"{self.name}, environment {index}, episode {self._episode[index]}, "
            f"tick {self._tick - self._began[index]}, seed {self._episode_seed[index]}"
        )

    def _raise(self, index: int, error: Exception, result: Any) -> NoReturn:
        where = self._where(index)
        if isinstance(error, SpaceMismatch):
            raise GameError(f"{where}: observation {error}") from error
        if isinstance(error, GameError):
            if str(error).startswith(self.name):
                raise error
            raise GameError(f"{where}: {error}") from error
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise GameError(f"{where}: {wrong_step(result, self._api)}") from error
        raise GameError(f"{where}: step() raised {type(error).__name__}: {error}") from error

    def _store_rewards(self, out: RowStep, rewards: list[Any]) -> None:
        try:
            array = np.array(rewards, np.float32)
            if array.size == out.rewards.size:
                out.rewards[:] = array.reshape(out.rewards.shape)
                return
        except (TypeError, ValueError):
            pass
        for index, reward in enumerate(rewards):
            try:
                out.rewards[index] = np.asarray(reward, np.float32).reshape(self._heads)
            except (TypeError, ValueError) as error:
                raise GameError(
                    f"{self._where(index)}: reward: expected {self._heads} number(s), "
                    f"got {reward!r:.60}"
                ) from error

    def _non_finite(self, out: RowStep, finals: dict[int, Arrays]) -> dict[int, str]:
        """Return row -> key of what is not a finite number at this tick."""
        bad: dict[int, str] = {}
        for name in self._floats:
            array = self._inputs[name]
            if not np.isfinite(array).all():
                finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
                bad |= dict.fromkeys(np.flatnonzero(~finite).tolist(), f"observation {name!r}")
            for index, final in finals.items():
                if not np.isfinite(final[name]).all():
                    bad[index] = f"final observation {name!r}"
        if not np.isfinite(out.rewards).all():
            rows = np.flatnonzero(~np.isfinite(out.rewards).all(axis=1))
            bad |= dict.fromkeys(rows.tolist(), "reward")
        return bad

    def _handle_bad(
        self,
        bad: dict[int, str],
        out: RowStep,
        finals: dict[int, Arrays],
        before: Arrays,
        rewards: list[Any],
    ) -> None:
        if not self._drop:
            index, key = min(bad.items())
            got = f"got {rewards[index]!r:.40}" if key == "reward" else "got NaN or infinity"
            raise GameError(
                f"{self._where(index)}: {key}: expected finite numbers, {got}; mend the environment, "
                "or cut such episodes off with on_bad_data=drop"
            )
        flags = out.outcomes.setdefault("bad_data", np.zeros(self.num_games, np.float32))
        for index in bad:
            already = bool(out.terminated[index] or out.truncated[index])
            out.rewards[index] = 0
            out.terminated[index] = False
            out.truncated[index] = True
            finals[index] = self._copy_row(before, index)
            flags[index] = 1
            if not already:
                self._begin_episode(index)

"""Collecting from games that are stepped as arrays: no coroutine per decision.

The rows of all training roles of a group stand side by side in preallocated ``[T, N, ...]`` buffers;
observations are copied there at receipt, and the policy reads them from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.collector import CollectorSettings, Seating
from lamarckian.mdp.core import (
    Array,
    Arrays,
    Bot,
    Observation,
    action_dtype,
    action_shape,
    mask_size,
)
from lamarckian.mdp.policy import Policy, draw_noise
from lamarckian.mdp.trajectory import EpisodeRecord, Trajectory


class _Group:
    """Buffers and running memory of one training policy."""

    def __init__(
        self, policy: Policy, roles: dict[str, slice], width: int, settings: CollectorSettings
    ) -> None:
        self.policy = policy
        self.roles = roles
        self.width = width
        shape = (settings.fragment_length, width)
        role = policy.role
        heads = role.num_rewards
        self.inputs = {k: np.zeros((*shape, *v.shape), v.dtype) for k, v in role.inputs.items()}
        self.state = {k: np.zeros((*shape, *v.shape), v.dtype) for k, v in role.state.items()}
        self.legal = {k: np.ones((*shape, mask_size(role.actions[k])), bool) for k in role.masked}
        self.actions = {
            k: np.zeros((*shape, *action_shape(v)), action_dtype(v))
            for k, v in role.actions.items()
        }
        self.policy_version = np.zeros(shape, np.int64)
        self.log_prob = np.zeros(shape, np.float32)
        self.values = np.zeros((*shape, heads), np.float32)
        self.rewards = np.zeros((*shape, heads), np.float32)
        self.terminated = np.zeros(shape, bool)
        self.truncated = np.zeros(shape, bool)
        self.starts = np.zeros(shape, bool)
        self.valid = np.zeros(shape, bool)
        self.memory = {k: np.zeros((width, *v.shape), v.dtype) for k, v in policy.memory.items()}
        chunk = settings.chunk_length
        chunks = -(-settings.fragment_length // chunk) if chunk and self.memory else 0
        self.chunk_length = chunk if chunks else 0
        self.recurrent = {
            k: np.zeros((chunks, width, *v.shape), v.dtype) for k, v in policy.memory.items()
        }
        self.fresh = np.ones(width, bool)
        self.returns = np.zeros((width, heads), np.float64)
        self.lengths = np.zeros(width, np.int64)


class _Opponents:
    """A role that is not trained: a bot, or a frozen policy with its own memory."""

    def __init__(self, player: Bot | Policy, width: int, *, greedy: bool = False) -> None:
        self.policy: Policy | None = player if isinstance(player, Policy) else None
        self.bot: Bot | None = None if isinstance(player, Policy) else player
        memory = self.policy.memory if self.policy is not None else {}
        self.memory = {k: np.zeros((width, *v.shape), v.dtype) for k, v in memory.items()}
        self.greedy = greedy

    def act(self, observation: Observation, rng: np.random.Generator) -> Arrays:
        if self.bot is not None:
            return self.bot(observation.inputs, observation.legal, rng)
        assert self.policy is not None
        num = len(next(iter(observation.inputs.values())))
        noise = None if self.greedy else draw_noise(self.policy.role, num, rng)
        decisions = self.policy.act(
            observation.inputs, observation.legal, observation.state, self.memory, noise
        )
        self.memory = {k: np.array(v) for k, v in decisions.recurrent.items()}
        return decisions.game_actions

    def forget(self, rows: NDArray[np.bool_]) -> None:
        """Zero the memory of rows that are out: whoever takes the seat next starts from nothing."""
        for array in self.memory.values():
            array[rows] = 0


class Streams(Protocol):
    """Where a collector draws from, for callers that need other streams than one per collector."""

    @property
    def rng(self) -> np.random.Generator:
        """The stream of actions."""
        ...

    def game_seeds(self, restart: int, num_games: int) -> NDArray[np.int64]:
        """Return the seeds of the matches at the given restart, int64 ``[G]``."""
        ...


class BatchCollector:
    """Steps a :class:`BatchGame` and fills rectangles (see :class:`~.collector.Collector`)."""

    def __init__(
        self,
        game: BatchGame,
        seating: Seating,
        settings: CollectorSettings,
        streams: Streams | None = None,
    ) -> None:
        self.game = game
        self.seating = seating
        self.settings = settings
        self.num_decisions = 0
        self.num_frames = 0
        self.seconds = {"game": 0.0, "policy": 0.0}
        self._streams = streams
        self._rng = streams.rng if streams else seeding.stream(settings.seed, "collector")
        self._episodes: list[EpisodeRecord] = []
        self._groups: dict[str, _Group] = {}
        for name, policy in seating.policies.items():
            slices, width = {}, 0
            for role in seating.roles_of(name):
                rows = game.num_games * game.roles[role].seats
                slices[role] = slice(width, width + rows)
                width += rows
            self._groups[name] = _Group(policy, slices, width, settings)
        self._opponents = {
            role: _Opponents(player, game.num_games * game.roles[role].seats)
            for role, (_, player) in seating.opponents.items()
        }
        self._restarts = 0
        self._started = False
        self._played = False

    def restart(self) -> None:
        if self._streams is not None:
            seeds = self._streams.game_seeds(self._restarts, self.game.num_games)
        else:
            rng = seeding.stream(self.settings.seed, "games", self._restarts)
            seeds = rng.integers(0, 2**31, self.game.num_games)
        self._restarts += 1
        self.game.reset(seeds)
        for group in self._groups.values():
            group.fresh[:] = True
            group.returns[:] = 0
            group.lengths[:] = 0
            for array in group.memory.values():
                array[:] = 0
        for opponents in self._opponents.values():
            for array in opponents.memory.values():
                array[:] = 0
        self._started = True
        self._played = False

    def collect(self, between: Callable[[], None] | None = None) -> dict[str, Trajectory]:
        if not self._started:
            self.restart()
        self._played = True
        length = self.settings.fragment_length
        finals: dict[str, list[tuple[int, NDArray[np.int64], Observation, Arrays]]] = {
            name: [] for name in self._groups
        }
        remembering = [role for role, opponents in self._opponents.items() if opponents.memory]
        clock = time.perf_counter
        game_seconds = policy_seconds = 0.0
        for t in range(length):
            if between is not None:
                between()
            mark = clock()
            actions: dict[str, Arrays] = {}
            for group in self._groups.values():
                self._observe(group, t)
            for role, opponents in self._opponents.items():
                actions[role] = opponents.act(self.game.observe(role), self._rng)
            game_seconds -= mark - (mark := clock())
            for group in self._groups.values():
                self._decide(group, t, actions)
            policy_seconds -= mark - (mark := clock())
            before = {role: self.game.alive(role).copy() for role in remembering}
            steps = self.game.step(actions)
            for name, group in self._groups.items():
                self._absorb(group, t, steps, finals[name])
            for role, alive in before.items():
                ended = steps[role].terminated | steps[role].truncated
                self._opponents[role].forget(ended | ~alive)
            game_seconds += clock() - mark
        mark = clock()
        result = {name: self._finish(group, finals[name]) for name, group in self._groups.items()}
        self.seconds["game"] += game_seconds
        self.seconds["policy"] += policy_seconds + clock() - mark
        return result

    def take_episodes(self) -> list[EpisodeRecord]:
        episodes, self._episodes = self._episodes, []
        return episodes

    def longest_running(self) -> int:
        return max(int(group.lengths.max(initial=0)) for group in self._groups.values())

    def metrics(self) -> dict[str, float]:
        return {}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what the next ``collect`` depends on (see :class:`~.collector.Collector`).

        A game that cannot save itself begins new matches here, in the run that saves as in the one that
        resumes, so that both go on alike.
        """
        if not self._started or (self._played and not self.game.exact_state):
            self.restart()
        data, arrays = self.game.state() if self.game.exact_state else ({}, {})
        out = {f"game/{k}": v for k, v in arrays.items()}
        for name, group in self._groups.items():
            for field in ("fresh", "returns", "lengths"):
                out[f"group/{name}/{field}"] = getattr(group, field).copy()
            for key, array in group.memory.items():
                out[f"group/{name}/memory/{key}"] = array.copy()
        for role, opponents in self._opponents.items():
            for key, array in opponents.memory.items():
                out[f"opponents/{role}/{key}"] = array.copy()
        return {
            "game": data,
            "rng": seeding.state_of(self._rng),
            "restarts": self._restarts,
            "num_decisions": self.num_decisions,
            "num_frames": self.num_frames,
        }, out

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        if self.game.exact_state:
            self.game.reset(np.zeros(self.game.num_games, np.int64))
            self.game.load_state(
                data["game"], {k[5:]: v for k, v in arrays.items() if k.startswith("game/")}
            )
        else:
            self._restarts = int(data["restarts"]) - 1
            self.restart()
        for name, group in self._groups.items():
            for field in ("fresh", "returns", "lengths"):
                getattr(group, field)[:] = arrays[f"group/{name}/{field}"]
            for key, array in group.memory.items():
                array[:] = arrays[f"group/{name}/memory/{key}"]
        for role, opponents in self._opponents.items():
            for key, array in opponents.memory.items():
                array[:] = arrays[f"opponents/{role}/{key}"]
        self._rng = seeding.restore(data["rng"])
        self._restarts = int(data["restarts"])
        self.num_decisions = int(data["num_decisions"])
        self.num_frames = int(data["num_frames"])
        self._started = True

    def close(self) -> None:
        self.game.close()

    def _observe(self, group: _Group, t: int) -> None:
        for role, rows in group.roles.items():
            seen = self.game.observe(role)
            for name, buffer in group.inputs.items():
                buffer[t, rows] = seen.inputs[name]
            for name, buffer in group.legal.items():
                buffer[t, rows] = seen.legal[name]
            for name, buffer in group.state.items():
                buffer[t, rows] = seen.state[name]
            group.valid[t, rows] = self.game.alive(role)

    def _decide(self, group: _Group, t: int, actions: dict[str, Arrays]) -> None:
        policy = group.policy
        if group.chunk_length and t % group.chunk_length == 0:
            for name, array in group.memory.items():
                group.recurrent[name][t // group.chunk_length] = array
        decisions = policy.act(
            {k: v[t] for k, v in group.inputs.items()},
            {k: v[t] for k, v in group.legal.items()},
            {k: v[t] for k, v in group.state.items()},
            group.memory,
            draw_noise(policy.role, group.width, self._rng),
        )
        for name, array in decisions.actions.items():
            group.actions[name][t] = array
        group.policy_version[t] = policy.version
        group.log_prob[t] = decisions.log_prob
        group.values[t] = decisions.values
        group.starts[t] = group.fresh & group.valid[t]
        for name, array in decisions.recurrent.items():
            group.memory[name][:] = array
        for role, rows in group.roles.items():
            actions[role] = {k: v[rows] for k, v in decisions.game_actions.items()}

    def _absorb(
        self,
        group: _Group,
        t: int,
        steps: dict[str, RowStep],
        finals: list[tuple[int, NDArray[np.int64], Observation, Arrays]],
    ) -> None:
        """Store what the tick did, close lives that ended, keep final observations."""
        valid = group.valid[t]
        for role, rows in group.roles.items():
            step = steps[role]
            group.rewards[t, rows] = step.rewards
            group.terminated[t, rows] = step.terminated
            group.truncated[t, rows] = step.truncated
            if len(step.final_rows):
                final = step.final
                assert final is not None
                where = step.final_rows + rows.start
                finals.append(
                    (
                        t,
                        where,
                        Observation(
                            {
                                k: np.array(final.inputs[k], v.dtype)
                                for k, v in group.inputs.items()
                            },
                            {
                                k: final.legal[k]
                                if k in final.legal
                                else np.ones((len(where), v.shape[2]), bool)
                                for k, v in group.legal.items()
                            },
                            {k: np.array(final.state[k], v.dtype) for k, v in group.state.items()},
                        ),
                        {k: v[where] for k, v in group.memory.items()},
                    )
                )
        rewards = group.rewards[t]
        if not valid.all():
            rewards[~valid] = 0
            group.terminated[t] &= valid
            group.truncated[t] &= valid
        group.returns += rewards
        group.lengths += valid
        decided = int(valid.sum())
        self.num_decisions += decided
        self.num_frames += decided * self.game.frames_per_decision
        ended = group.terminated[t] | group.truncated[t]
        group.fresh = ended | (group.fresh & ~valid)
        if ended.any():
            for role, rows in group.roles.items():
                self._close_lives(group, role, rows, np.flatnonzero(ended[rows]), steps[role])
            group.returns[ended] = 0
            group.lengths[ended] = 0
        for array in group.memory.values():
            array[group.fresh] = 0

    def _close_lives(
        self, group: _Group, role: str, rows: slice, local: NDArray[np.int64], step: RowStep
    ) -> None:
        opponent = self.seating.opponent_name(role)
        frames = self.game.frames_per_decision
        for row in local:
            column = rows.start + int(row)
            outcome = step.outcome(int(row))
            score = outcome.pop("score", None)
            result = outcome.pop("result", None)
            length = int(group.lengths[column])
            self._episodes.append(
                EpisodeRecord(
                    role=role,
                    returns=tuple(group.returns[column].tolist()),
                    length=length,
                    frames=length * frames,
                    score=score,
                    result=None if result is None else round(result),
                    statistics=outcome,
                    opponent=opponent,
                    policy_version=group.policy.version,
                )
            )

    def _finish(
        self,
        group: _Group,
        finals: list[tuple[int, NDArray[np.int64], Observation, Arrays]],
    ) -> Trajectory:
        """Value the cut ends: truncated lives, and lanes whose life goes on."""
        length = self.settings.fragment_length
        last = length - 1
        going_on = np.flatnonzero(
            group.valid[last] & ~group.terminated[last] & ~group.truncated[last]
        )
        seen = {role: self.game.observe(role) for role in group.roles}

        def open_ends(select: str, names: Arrays) -> Arrays:
            return {
                name: np.concatenate([getattr(seen[role], select)[name] for role in group.roles])[
                    going_on
                ].astype(names[name].dtype, copy=False)
                for name in names
            }

        def joined(tail: Arrays, parts: list[Arrays]) -> Arrays:
            return {
                name: np.concatenate(
                    [np.asarray(part[name], array.dtype) for part in parts] + [array]
                )
                for name, array in tail.items()
            }

        inputs = joined(open_ends("inputs", group.inputs), [f[2].inputs for f in finals])
        legal = joined(open_ends("legal", group.legal), [f[2].legal for f in finals])
        state = joined(open_ends("state", group.state), [f[2].state for f in finals])
        memory = joined({k: v[going_on] for k, v in group.memory.items()}, [f[3] for f in finals])
        index = np.concatenate(
            [t * group.width + where for t, where, _, _ in finals] + [last * group.width + going_on]
        ).astype(np.int64)
        heads = group.policy.role.num_rewards
        values: Array = (
            group.policy.values(inputs, state, memory)
            if len(index)
            else np.zeros((0, heads), np.float32)
        )
        shape = group.log_prob.shape
        return Trajectory(
            inputs=group.inputs,
            legal=group.legal,
            state=group.state,
            actions=group.actions,
            log_prob=group.log_prob,
            values=group.values,
            rewards=group.rewards,
            elapsed=np.ones(shape, np.int32),
            terminated=group.terminated,
            truncated=group.truncated,
            starts=group.starts,
            valid=group.valid,
            policy_version=group.policy_version,
            recurrent=group.recurrent,
            chunk_length=group.chunk_length,
            bootstrap_index=index,
            bootstrap_inputs=inputs,
            bootstrap_legal=legal,
            bootstrap_state=state,
            bootstrap_recurrent=memory,
            bootstrap_values=values,
        )

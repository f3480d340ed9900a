"""PettingZoo: parallel environments as rows of a batch game, AEC environments as coroutines.

Agents whose names differ only in a trailing number and whose spaces are equal share one role with several
seats (``player_0``, ``player_1`` -> role ``player``), unless ``group_agents`` is off.

Parallel: an agent that is out has ``alive`` False in its row; one that appears again, or late, starts a
new life in the same row. Rewards paid to an agent that is out are dropped.

AEC: the agent whose turn it is decides; rewards it earns while others move reach it when it must decide
again or is out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.errors import ConfigError, GameError, LamarckianError, UnknownName
from lamarckian.mdp.adapters.action_spaces import ActionPlan, MaskPlan
from lamarckian.mdp.adapters.frames import frame_of
from lamarckian.mdp.adapters.generations import label_of, require
from lamarckian.mdp.adapters.spaces import MASK_KEY, Layout, ObservationPlan, SpaceMismatch
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import MDP, Action, Arrays, Observation, Role, random_actions
from lamarckian.mdp.tick import TickGame

_INSTALL = "pip install 'lamarckian[pettingzoo]'"
_INSTALL_MPE = "pip install 'lamarckian[mpe]'"


def pettingzoo_game(
    num_games: int,
    environment: str | Callable[..., Any],
    *,
    env_options: Mapping[str, Any] | None = None,
    api: Literal["auto", "parallel", "aec"] = "auto",
    group_agents: bool = True,
    layout: Layout = "auto",
) -> BatchGame | MDP:
    """Build a PettingZoo game: a BatchGame for the parallel interface, one MDP match for AEC.

    ``environment`` is ``family/name_vN`` (``classic/connect_four_v3``, ``mpe/simple_spread_v3``), a
    module, or a class or factory. ``api`` ``auto`` prefers the parallel interface where it exists.

    Raises UnknownName, MissingDependency, UnsupportedSpace, ConfigError or GameError.
    """
    if api not in ("auto", "parallel", "aec"):
        raise ConfigError(f"api: expected auto, parallel or aec, got {api!r}")
    make = _factory(environment, api) if isinstance(environment, str) else environment
    label = label_of(environment)
    options = dict(env_options or {})

    def new() -> Any:
        try:
            return make(**options)
        except LamarckianError:
            raise
        except TypeError as error:
            raise ConfigError(f"{label}: it refused the options {options}: {error}") from error
        except Exception as error:
            raise GameError(f"{label}: making it raised {type(error).__name__}: {error}") from error

    env = new()
    if hasattr(env, "agent_iter"):
        return TurnsGame(env, label, group_agents=group_agents, layout=layout)
    return ParallelGame(num_games, new, env, label, group_agents=group_agents, layout=layout)


def _factory(name: str, api: str) -> Callable[..., Any]:
    require("pettingzoo", _INSTALL, f"pettingzoo:{name}")
    path = name.replace("/", ".")
    if path.startswith("mpe."):
        require("mpe2", _INSTALL_MPE, f"pettingzoo:{name}")
        path = "mpe2." + path[4:]
    elif not path.startswith(("pettingzoo.", "mpe2.")):
        path = f"pettingzoo.{path}"
    try:
        module = require(path, _INSTALL, f"pettingzoo:{name}")
    except LamarckianError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and path.startswith(str(cause.name)):
            raise UnknownName(
                f"PettingZoo has no game {name!r}: there is no module {cause.name}; "
                "expected family/name_vN, e.g. classic/connect_four_v3"
            ) from cause
        raise
    wanted = {"aec": ("env",), "parallel": ("parallel_env",)}.get(api, ("parallel_env", "env"))
    for attribute in wanted:
        if hasattr(module, attribute):
            factory: Callable[..., Any] = getattr(module, attribute)
            return factory
    raise ConfigError(f"pettingzoo:{name} has no {wanted[0]}(); choose another api than {api}")


class Seats:
    """Which agent is which role and seat, and how its data are read."""

    def __init__(self, env: Any, label: str, group_agents: bool, layout: Layout) -> None:
        agents = list(env.possible_agents)
        if not agents:
            raise GameError(f"{label}: possible_agents is empty; roles must be known beforehand")
        self.observations = {a: ObservationPlan(env.observation_space(a), layout) for a in agents}
        self.actions = {a: ActionPlan(env.action_space(a)) for a in agents}
        groups: dict[str, list[str]] = {}
        for agent in agents:
            base = re.sub(r"[_-]?\d+$", "", agent) if group_agents else agent
            first = groups.get(base, [agent])[0]
            groups.setdefault(base if self._equal(first, agent) else agent, []).append(agent)
        self.masks = {a: MaskPlan(self.actions[a]) for a in agents}
        self.groups = groups
        self.role_of = {a: role for role, members in groups.items() for a in members}
        self.seat_of = {a: i for members in groups.values() for i, a in enumerate(members)}
        self.roles = {
            role: Role(
                inputs=self.observations[members[0]].inputs,
                actions=self.actions[members[0]].parts,
                masked=tuple(self.masks[members[0]].sizes)
                if self.observations[members[0]].mask_key
                else (),
                seats=len(members),
            )
            for role, members in groups.items()
        }

    def _equal(self, one: str, other: str) -> bool:
        left, right = self.observations[one], self.observations[other]
        return (
            left.inputs == right.inputs
            and left.mask_key == right.mask_key
            and self.actions[one].parts == self.actions[other].parts
        )


class ParallelGame(BatchGame):
    """``num_games`` parallel environments; rows are agents, match-major (see the module)."""

    exact_state = False

    def __init__(
        self,
        num_games: int,
        new: Callable[[], Any],
        first: Any,
        label: str,
        *,
        group_agents: bool,
        layout: Layout,
    ) -> None:
        self.name = label
        self.num_games = num_games
        self.seats = Seats(first, label, group_agents, layout)
        self.roles = self.seats.roles
        self._new = new
        self._envs = [first]
        self._closed = False
        rows = {role: num_games * item.seats for role, item in self.roles.items()}
        plans = {r: self.seats.observations[m[0]] for r, m in self.seats.groups.items()}
        self._inputs = {role: plan.allocate(rows[role]) for role, plan in plans.items()}
        self._write = {role: plan.writer(self._inputs[role]) for role, plan in plans.items()}
        self._masks = {
            role: self.seats.masks[self.seats.groups[role][0]]
            for role, item in self.roles.items()
            if item.masked
        }
        self._legal = {
            role: self._masks[role].allocate(num) if role in self._masks else {}
            for role, num in rows.items()
        }
        self._alive = {role: np.zeros(num, np.bool_) for role, num in rows.items()}

    def reset(self, seeds: NDArray[np.int64]) -> None:
        while len(self._envs) < self.num_games:
            self._envs.append(self._new())
        self._seeds = [int(seed) for seed in seeds]
        self._episode = [-1] * self.num_games
        self._ticks = [0] * self.num_games
        for game in range(self.num_games):
            self._begin(game)

    def observe(self, role: str) -> Observation:
        return Observation(self._inputs[role], self._legal[role])

    def alive(self, role: str) -> NDArray[np.bool_]:
        return self._alive[role].copy()

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        out: dict[str, RowStep] = {}
        native: dict[str, Sequence[Any]] = {}
        for role, item in self.roles.items():
            rows = self.num_games * item.seats
            out[role] = RowStep(
                np.zeros((rows, 1), np.float32), np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
            )
            plan = self.seats.actions[self.seats.groups[role][0]]
            try:
                native[role] = plan.rows(actions[role])
            except SpaceMismatch as error:
                raise GameError(f"{self.name}, role {role}: {error}") from error
        finals: dict[str, dict[int, Arrays]] = {role: {} for role in self.roles}
        for game, env in enumerate(self._envs):
            self._step_one(game, env, native, out, finals)
        for role, found in finals.items():
            if found:
                order = sorted(found)
                out[role].final_rows = np.array(order, np.int64)
                out[role].final = Observation(
                    {n: np.stack([found[r][n] for r in order]) for n in self._inputs[role]}
                )
        return out

    def _row(self, game: int, agent: str) -> tuple[str, int]:
        role = self.seats.role_of[agent]
        return role, game * self.roles[role].seats + self.seats.seat_of[agent]

    def _step_one(
        self,
        game: int,
        env: Any,
        native: dict[str, Sequence[Any]],
        out: dict[str, RowStep],
        finals: dict[str, dict[int, Arrays]],
    ) -> None:
        acting = list(env.agents)
        places = {agent: self._row(game, agent) for agent in acting}
        self._ticks[game] += 1
        try:
            result = env.step({a: native[role][row] for a, (role, row) in places.items()})
        except Exception as error:
            raise GameError(
                f"{self._where(game)}: step() raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(result, tuple) or len(result) != 5:
            raise GameError(f"{self._where(game)}: step() must return 5 dicts, got {result!r:.60}")
        seen, rewards, terminations, truncations, infos = result
        left = set(env.agents)
        for agent, (role, row) in places.items():
            reward = float(rewards.get(agent, 0.0))
            if not np.isfinite(reward):
                raise GameError(
                    f"{self._where(game)}: reward of {agent}: expected a finite number, got {reward}"
                )
            out[role].rewards[row, 0] = reward
            ended = bool(terminations.get(agent, False))
            limited = bool(truncations.get(agent, False)) and not ended
            if agent not in left and not (ended or limited):
                raise GameError(
                    f"{self._where(game)}: agent {agent} left without being terminated or truncated"
                )
            if agent in seen:
                self._take(game, agent, seen[agent], infos.get(agent, {}))
            elif limited or not ended:
                raise GameError(f"{self._where(game)}: no observation of agent {agent}")
            out[role].terminated[row] = ended
            out[role].truncated[row] = limited
            self._alive[role][row] = not (ended or limited)
            if limited:
                finals[role][row] = {n: a[row].copy() for n, a in self._inputs[role].items()}
        for agent in left.difference(acting):
            self._join(game, agent, seen, infos)
        if not left:
            self._begin(game)

    def _join(self, game: int, agent: str, seen: Any, infos: Any) -> None:
        if agent not in self.seats.role_of:
            raise GameError(f"{self._where(game)}: agent {agent} is not one of possible_agents")
        if agent not in seen:
            raise GameError(f"{self._where(game)}: no observation of agent {agent}, who joined")
        self._take(game, agent, seen[agent], infos.get(agent, {}))
        role, row = self._row(game, agent)
        self._alive[role][row] = True

    def _begin(self, game: int) -> None:
        self._episode[game] += 1
        self._ticks[game] = 0
        episode = self._episode[game]
        root = self._seeds[game]
        seed = seeding.derive(root, "episode", episode) if episode else root
        env = self._envs[game]
        try:
            result = env.reset(seed=seed)
        except Exception as error:
            raise GameError(
                f"{self._where(game)}: reset(seed={seed}) raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise GameError(f"{self._where(game)}: reset() must return (observations, infos)")
        if not env.agents:
            raise GameError(f"{self._where(game)}: nobody plays after reset()")
        for agent in self.seats.role_of:
            role, row = self._row(game, agent)
            self._alive[role][row] = False
        for agent in env.agents:
            self._join(game, agent, *result)

    def _take(self, game: int, agent: str, seen: Any, info: Mapping[str, Any]) -> None:
        role, row = self._row(game, agent)
        try:
            self._write[role](seen, row)
            if role in self._masks:
                self._masks[role].write(seen[MASK_KEY], self._legal[role], row)
        except SpaceMismatch as error:
            raise GameError(f"{self._where(game)}: agent {agent}: observation {error}") from error
        for name, array in self._inputs[role].items():
            if array.dtype.kind == "f" and not np.isfinite(array[row]).all():
                raise GameError(
                    f"{self._where(game)}: agent {agent}: observation {name!r} holds NaN or infinity"
                )

    def _where(self, game: int) -> str:
        return (
            f"{self.name}, environment {game}, episode {self._episode[game]}, "
            f"tick {self._ticks[game]}, seed {self._seeds[game]}"
        )

    def frame(self, game: int) -> dict[str, Any] | None:
        role = next(iter(self.roles))
        row = game * self.roles[role].seats
        return frame_of(self.roles[role].inputs, self._inputs[role], row) | {
            "tick": self._ticks[game]
        }

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for env in self._envs:
                env.close()


class TurnsGame(TickGame):
    """One AEC environment as a match of coroutines (see the module)."""

    def __init__(self, env: Any, label: str, *, group_agents: bool, layout: Layout) -> None:
        self.name = label
        self.env = env
        self.seats = Seats(env, label, group_agents, layout)
        self.roles = self.seats.roles
        self._last: dict[str, Observation] = {}
        self._closed = False

    def begin(self, rng: np.random.Generator, roles: Sequence[str]) -> Iterable[tuple[str, str]]:
        self._rng = rng
        self._seed = int(rng.integers(2**31))
        self._last = {}
        try:
            self.env.reset(seed=self._seed)
        except Exception as error:
            raise GameError(
                f"{self.name}: reset(seed={self._seed}) raised {type(error).__name__}: {error}"
            ) from error
        if not self.env.agents:
            raise GameError(f"{self.name}: nobody plays after reset()")
        return [(self.seats.role_of[agent], agent) for agent in self.env.agents]

    def deciders(self) -> Iterable[str]:
        return [self.env.agent_selection] if self.env.agents else []

    def view(self, player: str) -> Observation:
        if player in self._last:
            return self._last[player]
        plan = self.seats.observations[player]
        arrays = plan.allocate(1)
        legal: Arrays = {}
        try:
            seen = self.env.observe(player)
            plan.writer(arrays)(seen, 0)
            if plan.mask_key:
                legal = self.seats.masks[player].allocate(1)
                # Between its turns an agent's mask is empty; then it says nothing.
                if player == self.env.agent_selection:
                    self.seats.masks[player].write(seen[MASK_KEY], legal, 0)
        except SpaceMismatch as error:
            raise GameError(f"{self._where(player)}: observation {error}") from error
        except Exception as error:
            raise GameError(
                f"{self._where(player)}: observe() raised {type(error).__name__}: {error}"
            ) from error
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise GameError(f"{self._where(player)}: {name!r} holds NaN or infinity")
        return Observation(
            {name: array[0] for name, array in arrays.items()},
            {name: array[0] for name, array in legal.items()},
        )

    def tick(self, actions: dict[str, Action]) -> None:
        agent = self.env.agent_selection
        plan = self.seats.actions[agent]
        action = actions.get(agent)
        if action is None:  # offline: somebody must move for it
            legal = {k: v[None] for k, v in self.view(agent).legal.items()}
            batch = random_actions(self.roles[self.seats.role_of[agent]], legal, 1, self._rng)
        else:
            batch = {name: np.asarray(value)[None] for name, value in action.items()}
        try:
            self.env.step(plan.rows(batch)[0])
        except SpaceMismatch as error:
            raise GameError(f"{self._where(agent)}: {error}") from error
        except Exception as error:
            raise GameError(
                f"{self._where(agent)}: step() raised {type(error).__name__}: {error}"
            ) from error
        env = self.env
        for player, amount in env.rewards.items():
            if not np.isfinite(amount):
                raise GameError(
                    f"{self._where(agent)}: reward of {player}: expected a finite number, got {amount}"
                )
            if amount and player in self.controllers and self.controllers[player].alive:
                self.reward(player, float(amount))
        for player in list(env.agents):
            if player not in self.controllers:
                self.join(self.seats.role_of[player], player)
            elif env.terminations[player] or env.truncations[player]:
                if player not in self._last:
                    self._last[player] = self.view(player)
                self.finish(player, truncated=not env.terminations[player])
            elif not self.controllers[player].alive and not self._is_offline(player):
                self._last.pop(player, None)
                self.join(self.seats.role_of[player], player)
        while env.agents and (
            env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        ):
            env.step(None)

    def _is_offline(self, player: str) -> bool:
        return self.controllers[player].result.offline

    def _where(self, player: str) -> str:
        return f"{self.name}, tick {self.ticks}, player {player}, seed {self._seed}"

    def frame(self) -> dict[str, Any] | None:
        if not self.env.agents:
            return None
        player = self.env.agent_selection
        inputs = {name: array[None] for name, array in self.view(player).inputs.items()}
        role = self.roles[self.seats.role_of[player]]
        return frame_of(role.inputs, inputs, 0) | {"tick": self.ticks, "player": player}

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.env.close()

"""SMAX: StarCraft-like battles of JaxMARL (Rutherford et al. 2023, arXiv 2311.10090), stepped as one batch.

All matches advance in one compiled call: decisions, the scripted enemy, rewards, legal actions and the new
start of matches that ended. A match that ends is begun anew only in ticks in which one ends, where JaxMARL's
own ``step`` prepares a new match for every one that goes on. Compiling takes some 20 s per map and number
of matches.

JAX runs on the processor, and on one thread where the process was given one (``OMP_NUM_THREADS=1``, as
actors are): its pool of threads would fight with those of the other actors.

Shape letters: ``G`` matches, ``U`` allied units, ``N = G U`` rows, ``E`` enemies.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import ConfigError, UnknownName, nearest
from lamarckian.mdp.adapters.generations import require
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import Array, Arrays, Discrete, Input, Observation, Role
from lamarckian.mdp.games.drawing import Drawing, circle, scene, text

ROLE = "ally"
WIDTH = 480.0
_INSTALL = "pip install 'lamarckian[smax]'"
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


class View(NamedTuple):
    """What the matches show now: ``seen`` [G, U, O], ``world`` [G, W], ``legal`` [G, U, A]."""

    seen: Any
    world: Any
    legal: Any


class Tick(NamedTuple):
    """One tick of all matches. ``after`` is the view before, ``view`` after ended matches began anew.

    ``rewards`` [G, U]; ``living`` bool [G, U + E] after the tick; ``over`` bool [G]; ``present`` bool [G, U]
    is who lives once ended matches began anew.
    """

    view: View
    after: View
    rewards: Any
    living: Any
    over: Any
    present: Any


class SMAX(BatchGame):
    """``num_games`` battles of a team that learns against JaxMARL's scripted enemy on the map ``name``.

    One role, ``ally``, with a seat per unit. Input ``observation`` float32 ``[O]``: the unit's own features
    and those of the units in sight. Action part ``action``, masked: 0 to 3 move, 4 stops, 5 + e attacks
    enemy e. Critic's ``state``: ``world`` float32 ``[W]``, everything about all units, and ``self``, one-hot
    of the seat.

    Reward: the share of the enemy's health that was taken, and 1 for victory; all units earn the same. A
    match terminates when a side is destroyed, and is truncated after ``max_ticks``.

    ``dead_watch``          a dead unit stays until the match ends, may only stop, and earns what its team
                            earns (as in JaxMARL, so that sacrifice can pay). Off: it terminates when it dies.
    ``enemy``               whom the scripted enemy attacks: the ``closest``, or a ``random`` unit in reach.
    ``enemy_shoots``        off: the enemy only walks.
    ``see_enemy_actions``   last actions of enemies in sight are observed.
    ``walls_cause_death``   a unit that touches the edge of the map dies.

    Outcomes: ``score`` 1 if the battle was won, else 0; ``result`` +1 won, 0 draw or time over, -1 lost.
    Statistics: ``survivors`` and ``enemies_left``, how many units were alive at the end.

    Raises MissingDependency, UnknownName for a map, ConfigError.
    """

    drawing: ClassVar[Drawing] = scene(
        WIDTH,
        WIDTH,
        circle("enemies", 8, "#bf616a"),
        circle("allies", 8, "#88c0d0"),
        text("score", WIDTH / 2, 20, 16),
    )

    def __init__(
        self,
        num_games: int,
        name: str,
        *,
        max_ticks: int = 100,
        dead_watch: bool = True,
        enemy: Literal["closest", "random"] = "closest",
        enemy_shoots: bool = True,
        see_enemy_actions: bool = True,
        walls_cause_death: bool = True,
    ) -> None:
        if max_ticks < 1:
            raise ConfigError(f"smax:{name} max_ticks: expected at least 1, got {max_ticks}")
        if enemy not in ("closest", "random"):
            raise ConfigError(f"smax:{name} enemy: expected closest or random, got {enemy!r}")
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        if os.environ.get("OMP_NUM_THREADS") == "1":
            os.environ.setdefault("XLA_FLAGS", _ONE_THREAD)
        self._jax = require("jax", _INSTALL, f"smax:{name}")
        with contextlib.redirect_stdout(sys.stderr):  # it greets whoever imports it
            maps = require("jaxmarl.environments.smax.smax_env", _INSTALL, f"smax:{name}")
            battles = require(
                "jaxmarl.environments.smax.heuristic_enemy_smax_env", _INSTALL, f"smax:{name}"
            )
        known = maps.MAP_NAME_TO_SCENARIO
        if name not in known:
            raise UnknownName(
                f"SMAX map {name!r} is not known{nearest(name, known)}; maps: {', '.join(known)}"
            )
        self._env = battles.HeuristicEnemySMAX(
            scenario=known[name],
            enemy_shoots=enemy_shoots,
            attack_mode=enemy,
            max_steps=max_ticks,
            see_enemy_actions=see_enemy_actions,
            walls_cause_death=walls_cause_death,
        )
        self.name = f"smax:{name}"
        self.num_games = num_games
        self.max_ticks = max_ticks
        self.dead_watch = dead_watch
        self.units = int(self._env.num_allies)
        self.enemies = int(self._env.num_enemies)
        self._scale = WIDTH / float(self._env.map_width)
        self.roles: Mapping[str, Role] = {
            ROLE: Role(
                inputs={"observation": Input((int(self._env.obs_size),))},
                actions={"action": Discrete(int(self._env.num_ally_actions))},
                state={
                    "world": Input((int(self._env.state_size),)),
                    "self": Input((self.units,)),
                },
                masked=("action",),
                seats=self.units,
            )
        }
        self._self = np.tile(np.eye(self.units, dtype=np.float32), (num_games, 1))
        self._present = np.ones((num_games, self.units), np.bool_)
        self._begin, self._advance = _compiled(self._jax, self._env)
        self._view: View | None = None

    def reset(self, seeds: NDArray[np.int64]) -> None:
        if len(seeds) != self.num_games:
            raise ConfigError(
                f"{self.name} reset: expected {self.num_games} seeds, got {len(seeds)}"
            )
        words = np.asarray(seeds, np.int64).astype(np.uint64)
        keys = np.stack([words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)], axis=1)
        self._keys, self._battles, view = self._begin(keys.astype(np.uint32))
        self._show(view)
        self._present = np.ones((self.num_games, self.units), np.bool_)

    def _show(self, view: View) -> None:
        """Keep the view as arrays of numpy (which share JAX's memory: nothing is copied)."""
        self._view = View(*(np.asarray(each) for each in view))

    def observe(self, role: str) -> Observation:
        assert self._view is not None
        return self._observation(self._view, np.arange(self.num_games * self.units))

    def _observation(self, view: View, rows: NDArray[np.int64]) -> Observation:
        every = len(rows) == self.num_games * self.units

        def pick(array: Array) -> Array:
            flat = array.reshape(-1, array.shape[-1])
            return flat if every else flat[rows]

        return Observation(
            {"observation": pick(view.seen)},
            {"action": pick(view.legal)},
            {"world": view.world[rows // self.units], "self": pick(self._self)},
        )

    def alive(self, role: str) -> NDArray[np.bool_]:
        return self._present.reshape(-1).copy()

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        chosen = np.asarray(actions[ROLE]["action"], np.int32).reshape(self.num_games, self.units)
        # A unit that is out can only stop, whatever stands in its row.
        chosen = np.where(self._present, chosen, self._env.num_movement_actions - 1)
        self._keys, self._battles, tick = self._advance(self._keys, self._battles, chosen)
        before = self._present
        self._show(tick.view)
        living, over = np.asarray(tick.living), np.asarray(tick.over)
        allies, enemies = living[:, : self.units], living[:, self.units :]
        survivors, left = allies.sum(axis=1), enemies.sum(axis=1)
        destroyed = (survivors == 0) | (left == 0)
        rewards = np.where(before, np.asarray(tick.rewards), np.float32(0.0))
        terminated = before & (over & destroyed)[:, None]
        truncated = before & (over & ~destroyed)[:, None]
        self._present = np.ones_like(before)
        if not self.dead_watch:
            died = before & ~allies
            terminated, truncated = terminated | died, truncated & ~died
            self._present = np.array(tick.present)
        out = RowStep(
            np.ascontiguousarray(rewards, np.float32).reshape(-1, 1),
            terminated.reshape(-1),
            truncated.reshape(-1),
        )
        if out.terminated.any() or out.truncated.any():
            self._end(out, tick, over, survivors, left)
        return {ROLE: out}

    def _end(
        self,
        out: RowStep,
        tick: Tick,
        over: NDArray[np.bool_],
        survivors: NDArray[np.int64],
        left: NDArray[np.int64],
    ) -> None:
        won, lost = (left == 0) & (survivors > 0), (survivors == 0) & (left > 0)
        facts = {
            "score": won,
            "result": won.astype(np.float32) - lost,
            "survivors": survivors,
            "enemies_left": left,
        }
        # Nothing is known yet of a unit's life that ends before its match does.
        out.outcomes = {
            name: np.repeat(np.where(over, value, np.nan).astype(np.float32), self.units)
            for name, value in facts.items()
        }
        rows = np.flatnonzero(out.truncated)
        if len(rows):
            out.final_rows = rows
            after = View(*(np.asarray(each) for each in tick.after))
            out.final = self._observation(after, rows)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        leaves = self._jax.tree.leaves((self._keys, self._battles))
        arrays = {f"battle/{number}": np.asarray(leaf) for number, leaf in enumerate(leaves)}
        assert self._view is not None
        views = {f"view/{name}": np.asarray(each) for name, each in self._view._asdict().items()}
        return {"leaves": len(leaves)}, {**arrays, **views, "present": self._present.copy()}

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.reset(np.zeros(self.num_games, np.int64))
        shape = self._jax.tree.structure((self._keys, self._battles))
        leaves = [arrays[f"battle/{number}"] for number in range(data["leaves"])]
        self._keys, self._battles = self._jax.tree.unflatten(shape, leaves)
        self._show(View(*(arrays[f"view/{name}"] for name in View._fields)))
        self._present = np.array(arrays["present"], np.bool_)

    def frame(self, game: int) -> dict[str, Any] | None:
        battle = self._battles.state
        places = np.asarray(battle.unit_positions[game]) * self._scale
        health = np.asarray(battle.unit_health[game])
        whole = np.asarray(self._env.unit_type_health)[np.asarray(battle.unit_types[game])]
        units = [
            [round(float(x), 1), round(WIDTH - float(y), 1), round(float(life), 3)]
            for (x, y), life in zip(places, np.clip(health / whole, 0.0, 1.0), strict=True)
        ]
        allies = [unit for unit in units[: self.units] if unit[2] > 0]
        enemies = [unit for unit in units[self.units :] if unit[2] > 0]
        return {
            "tick": int(battle.step[game]),
            "allies": allies,
            "enemies": enemies,
            "score": f"{len(allies)} : {len(enemies)}",
        }


def _compiled(jax: Any, env: Any) -> tuple[Any, Any]:
    """Return the compiled ``begin(keys)`` and ``advance(keys, battles, actions)`` of all matches."""
    numpy = jax.numpy
    agents = list(env.agents)
    units = len(agents)

    def look(seen: Any, battle: Any) -> View:
        legal = env.get_avail_actions(battle)
        return View(
            numpy.stack([seen[agent] for agent in agents]),
            seen["world_state"].astype(numpy.float32),
            numpy.stack([legal[agent] for agent in agents]).astype(bool),
        )

    def begin_one(key: Any) -> Any:
        key, start = jax.random.split(key)
        seen, battle = env.reset(start)
        return key, battle, look(seen, battle)

    def advance_one(key: Any, battle: Any, actions: Any) -> Any:
        key, draw = jax.random.split(key)
        chosen = {agent: actions[unit] for unit, agent in enumerate(agents)}
        seen, battle, rewards, dones, _ = env.step_env(draw, battle, chosen)
        earned = numpy.stack([rewards[agent] for agent in agents]).astype(numpy.float32)
        return key, battle, look(seen, battle), earned, dones["__all__"]

    def advance(keys: Any, battles: Any, actions: Any) -> Any:
        keys, battles, after, rewards, over = jax.vmap(advance_one)(keys, battles, actions)
        living = battles.state.unit_alive

        def renew(_: Any) -> Any:
            fresh = jax.vmap(begin_one)(keys)

            def choose(new: Any, old: Any) -> Any:
                return numpy.where(over.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

            return jax.tree.map(choose, fresh, (keys, battles, after))

        keys, battles, view = jax.lax.cond(
            over.any(), renew, lambda _: (keys, battles, after), None
        )
        present = battles.state.unit_alive[:, :units]
        return keys, battles, Tick(view, after, rewards, living, over, present)

    return jax.jit(jax.vmap(begin_one)), jax.jit(advance)

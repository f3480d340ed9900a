"""Atari games: images through ALE's native vector environment, RAM through its scalar interface.

``AtariGame`` hands out the native batch without copying it. Preprocessing happens in C++: frame skip with
maximum over the last two frames, grey scale, 84 x 84, a stack of four frames (channels first, oldest
first), random no-ops and FIRE at reset, sticky actions.

The reward head is clipped to [-1, 1] unless ``clip_rewards`` is off; the raw score is always counted and
is the outcome ``score``.

An episode that ends is reset, masked, in the tick that ended it: no step is spent on resets. ALE loads the
ROM again whenever it is given a seed (0.16 s); so seeds are given once, at the first reset, and later
episodes follow from ALE's own random state. ``seed_episodes`` gives each episode a seed of its own; then
running episodes are rebuilt exactly at resume, from seeds and actions.

Threads: ``num_threads`` 0 lets ALE use one thread per core. On two cores that others used too (32 rows of
Pong, ale-py 0.12, medians of 3), decisions per CPU second were 1660 with one thread, 1560 with two, 1450 with
four: never more threads than free cores. The cost of this module beside ALE's own step is below the noise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lamarckian import seeding
from lamarckian.errors import ConfigError, GameError, UnknownName, nearest
from lamarckian.mdp.adapters.frames import frame_of
from lamarckian.mdp.adapters.generations import require
from lamarckian.mdp.adapters.gymnasium import GymnasiumGame
from lamarckian.mdp.adapters.replay import ReplayLog
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.behaviours import acting
from lamarckian.mdp.core import Arrays, Behaviour, Discrete, Input, Observation, Role

ROLE = "player"
_INSTALL = "pip install 'lamarckian[atari]'"


def ale_game(
    num_games: int, game: str, *, obs: Literal["image", "ram"] = "image", **options: Any
) -> BatchGame:
    """Build an Atari game: ``obs`` ``image`` gives :class:`AtariGame`, ``ram`` 128 bytes of memory.

    ``game`` is a name such as ``Pong``, ``Pong-v5``, ``ALE/Pong-v5`` or ``ms_pacman``. Further options are
    those of :class:`AtariGame`, or of :class:`AtariRam`.
    """
    if obs == "image":
        return AtariGame(num_games, game, **options)
    if obs != "ram":
        raise ConfigError(f"obs: expected image or ram, got {obs!r}")
    # A life that began in the middle of a game is not rebuilt by its own seed and actions.
    replay = not options.get("episodic_life", False)
    ram = GymnasiumGame(
        num_games,
        AtariRam,
        env_options={"game": game, **options},
        action_mask="none",
        replay=replay,
        statistics=("score",),
        frames_per_decision=int(options.get("frame_skip", 4)),
    )
    ram.name = f"ale:{rom_name(game)}?obs=ram"
    environment = ram.inside()[0]
    ram.roles = {ROLE: replace(ram.roles[ROLE], behaviours=moving(environment.moves))}
    return ram


def moving(moves: Sequence[int]) -> dict[str, Behaviour]:
    """Return the behaviour of Atari players: the share of actions ``moves`` that push the stick."""
    if not moves:
        return {}
    return {"activeness": Behaviour(acting("action", *moves), "lazy", "active")}


def pushes(names: Sequence[str]) -> list[int]:
    """Return the numbers of the actions that push the stick anywhere."""
    ways = ("UP", "DOWN", "LEFT", "RIGHT")
    return [number for number, name in enumerate(names) if any(way in name for way in ways)]


def rom_name(game: str) -> str:
    """Return the ROM name of ``Pong``, ``ALE/MsPacman-v5`` or ``ms_pacman``.

    Raises UnknownName with the nearest match, or MissingDependency.
    """
    roms = require("ale_py.roms", _INSTALL, f"ale:{game}")
    base = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", game.rpartition("/")[2])
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", base).lower()
    known = list(roms.get_all_rom_ids())
    if name not in known:
        raise UnknownName(f"Atari game {game!r} is not known{nearest(name, known)}")
    return name


class AtariGame(BatchGame):
    """``num_games`` Atari games stepped by ALE's native vector environment; uint8 images ``[4, 84, 84]``.

    ``frame_skip``          frames per decision.
    ``sticky_actions``      probability that the last action is repeated instead (Machado et al. 2018).
    ``noop_max``            random no-ops at reset, at most.
    ``episodic_life``       losing a life terminates the episode for the learner; the game goes on and the
                            next episode starts where it is. Evaluate with it off.
    ``clip_rewards``        the reward head is the sign-preserving clip to [-1, 1].
    ``max_frames``          frames after which an episode is truncated.
    ``full_action_space``   all 18 actions.
    ``image_size``, ``stack``, ``grayscale``  the picture; RGB puts stacked frames into channels.
    ``num_threads``         threads of ALE; 0 for one per core.
    ``seed_episodes``       seed every episode, for an exact resume; costs 0.16 s per episode.

    Raises UnknownName, MissingDependency, ConfigError.
    """

    def __init__(
        self,
        num_games: int,
        game: str,
        *,
        frame_skip: int = 4,
        sticky_actions: float = 0.0,
        noop_max: int = 30,
        episodic_life: bool = False,
        clip_rewards: bool = True,
        max_frames: int = 108_000,
        full_action_space: bool = False,
        image_size: int = 84,
        stack: int = 4,
        num_threads: int = 0,
        seed_episodes: bool = False,
    ) -> None:
        rom = rom_name(game)
        if not 0.0 <= sticky_actions < 1.0:
            raise ConfigError(f"sticky_actions: expected within [0, 1), got {sticky_actions}")
        if min(frame_skip, image_size, stack, max_frames) < 1 or noop_max < 0 or num_threads < 0:
            raise ConfigError(
                "frame_skip, image_size, stack and max_frames must be at least 1; noop_max and "
                "num_threads at least 0"
            )
        module = require("ale_py.vector_env", _INSTALL, f"ale:{game}")
        self.name = f"ale:{rom}"
        self.num_games = num_games
        self.frames_per_decision = frame_skip
        self._env = module.AtariVectorEnv(
            rom,
            num_games,
            num_threads=num_threads,
            max_num_frames_per_episode=max_frames,
            repeat_action_probability=sticky_actions,
            full_action_space=full_action_space,
            img_height=image_size,
            img_width=image_size,
            stack_num=stack,
            frameskip=frame_skip,
            noop_max=noop_max,
            life_loss_info=episodic_life,
            reward_clipping=False,
        )
        self._clip = clip_rewards
        self.roles = {
            ROLE: Role(
                inputs={"observation": Input((stack, image_size, image_size), "uint8", "image")},
                actions={"action": Discrete(int(self._env.single_action_space.n))},
                behaviours=moving(pushes([each.name for each in self._env.ale.get_action_set()])),
            )
        }
        self.exact_state = seed_episodes
        self._log = ReplayLog() if seed_episodes else None
        self._closed = False

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self._roots = [int(seed) for seed in seeds]
        self._episode_seed = list(self._roots)
        self._episode = [0] * self.num_games
        self._began = [0] * self.num_games
        self._tick = 0
        self._raw = np.zeros(self.num_games, np.float64)
        if self._log is not None:
            self._log.clear()
        self._frames, _ = self._env.reset(seed=np.asarray(self._roots, np.int64))

    def observe(self, role: str) -> Observation:
        return Observation({"observation": self._frames})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        chosen = np.ascontiguousarray(actions[ROLE]["action"], np.int64)
        if self._log is not None:
            self._log.append(actions[ROLE])
        self._tick += 1
        self._frames, raw, ended, limited, info = self._env.step(chosen)
        rewards = raw.astype(np.float32)
        self._raw += rewards
        if self._clip:
            np.clip(rewards, -1.0, 1.0, out=rewards)
        out = RowStep(rewards[:, None], np.array(ended), limited & ~ended)
        if out.terminated.any() or out.truncated.any():
            self._end(out, info["lives"])
        if self._log is not None:
            self._log.trim(min(self._began))
        return {ROLE: out}

    def _end(self, out: RowStep, lives: NDArray[np.int32]) -> None:
        over = out.terminated | out.truncated
        out.outcomes["score"] = self._raw.astype(np.float32)
        self._raw[over] = 0.0
        rows = np.flatnonzero(out.truncated)
        if len(rows):
            out.final_rows = rows
            out.final = Observation({"observation": self._frames[rows]})
        # A lost life ends an episode of the learner only; the game itself goes on.
        anew = out.truncated | (out.terminated & (lives == 0))
        if anew.any():
            for row in np.flatnonzero(anew):
                self._episode[row] += 1
                self._episode_seed[row] = seeding.derive(
                    self._roots[row], "episode", self._episode[row]
                )
                self._began[row] = self._tick
            self._restart(anew)

    def _restart(self, rows: NDArray[np.bool_]) -> None:
        seeds = None if self._log is None else np.asarray(self._episode_seed, np.int64)[rows]
        self._frames, _ = self._env.reset(seed=seeds, options={"reset_mask": rows})

    def state(self) -> tuple[dict[str, Any], Arrays]:
        if self._log is None:
            raise ValueError(f"{self.name} keeps no state (option seed_episodes is off)")
        kept, actions = self._log.running(self._began, self._tick)
        data = {
            "roots": list(self._roots),
            "episode": list(self._episode),
            "episode_seed": list(self._episode_seed),
            "lengths": [self._tick - began for began in self._began],
            "kept": kept,
            "raw": self._raw.tolist(),
        }
        arrays = {"frames": np.array(self._frames), "actions": actions.get("action", np.zeros(0))}
        return data, arrays

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Play the running episodes again, all rows at once, up to where they were.

        Raises GameError if they do not come out the same (another version of ALE or of a ROM).
        """
        if self._log is None:
            raise ValueError(f"{self.name} restores no state (option seed_episodes is off)")
        if data["kept"] != data["lengths"]:
            raise GameError(f"{self.name}: an episode is too long to be rebuilt from its actions")
        self.reset(np.asarray(data["roots"], np.int64))
        self._episode = list(data["episode"])
        self._episode_seed = list(data["episode_seed"])
        lengths = np.asarray(data["lengths"], np.int64)
        self._tick = int(lengths.max())
        self._began = [self._tick - int(length) for length in lengths]
        self._log.restore(self._began, self._tick, data["kept"], {"action": arrays["actions"]})
        offsets = np.concatenate([[0], np.cumsum(lengths)])[:-1]
        for tick in range(self._tick + 1):
            starting = np.asarray(self._began) == tick
            if starting.any():
                self._restart(starting)
            if tick < self._tick:
                local = tick - np.asarray(self._began)
                chosen = np.zeros(self.num_games, np.int64)
                running = local >= 0
                chosen[running] = arrays["actions"][(offsets + local)[running]]
                self._frames = self._env.step(chosen)[0]
        if not np.array_equal(self._frames, arrays["frames"]):
            raise GameError(
                f"{self.name}: the running episodes did not come out the same when played again; "
                "is this another version of ale-py?"
            )
        self._raw = np.asarray(data["raw"], np.float64)

    def frame(self, game: int) -> dict[str, Any] | None:
        inputs = self.roles[ROLE].inputs
        tick = self._tick - self._began[game]
        return frame_of(inputs, {"observation": self._frames}, game) | {"tick": tick}

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._env.close()


class AtariRam:
    """One Atari game that shows its 128 bytes of memory; has Gymnasium's interface.

    ``frame_skip``, ``sticky_actions``, ``noop_max``, ``episodic_life``, ``clip_rewards``, ``max_frames`` and
    ``full_action_space`` as in :class:`AtariGame`. ``info["score"]`` is the raw reward of the episode.
    """

    def __init__(
        self,
        game: str,
        *,
        frame_skip: int = 4,
        sticky_actions: float = 0.0,
        noop_max: int = 30,
        episodic_life: bool = False,
        clip_rewards: bool = True,
        max_frames: int = 108_000,
        full_action_space: bool = False,
    ) -> None:
        ale_py = require("ale_py", _INSTALL, f"ale:{game}?obs=ram")
        spaces = require("gymnasium.spaces", _INSTALL, f"ale:{game}?obs=ram")
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale_py.ALEInterface()
        # Repeating is drawn here: ALE's own random stream could only be seeded by loading the ROM again.
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.setInt("max_num_frames_per_episode", max_frames)
        self._ale.loadROM(ale_py.roms.get_rom_path(rom_name(game)))
        self._actions = (
            self._ale.getLegalActionSet() if full_action_space else self._ale.getMinimalActionSet()
        )
        self.moves = pushes([action.name for action in self._actions])
        self._skip, self._noop_max, self._sticky = frame_skip, noop_max, sticky_actions
        self._episodic_life, self._clip = episodic_life, clip_rewards
        self.observation_space = spaces.Box(0, 255, (128,), np.uint8)
        self.action_space = spaces.Discrete(len(self._actions))
        self._score = 0.0
        self._over = True

    def reset(self, *, seed: int | None = None) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start a game, or go on with the present one after a lost life."""
        self._score = 0.0
        if seed is not None and (self._over or not self._episodic_life):
            self._ale.reset_game()
            self._rng = seeding.stream(seed, "atari")
            for _ in range(int(self._rng.integers(0, self._noop_max + 1))):
                self._ale.act(0)
            self._over = False
            self._last = self._actions[0]
        self._lives = self._ale.lives()
        return self._ale.getRAM(), {}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Repeat an action for the frames of one decision."""
        reward = 0
        native = self._actions[action]
        for _ in range(self._skip):
            if not self._sticky or self._rng.random() >= self._sticky:
                self._last = native
            reward += self._ale.act(self._last)
            if self._ale.game_over():
                break
        self._score += reward
        truncated = self._ale.game_truncated()
        self._over = self._ale.game_over()
        ended = self._over and not truncated
        if self._episodic_life and self._ale.lives() < self._lives:
            ended = True
        shaped = max(-1.0, min(1.0, float(reward))) if self._clip else float(reward)
        return self._ale.getRAM(), shaped, ended, truncated, {"score": self._score}

    def close(self) -> None:
        """Nothing is held that Python does not free."""

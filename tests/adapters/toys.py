"""Toy environments for the adapters, and one game in the four generations of the interface."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env):
    """Shows the step count; ends after ``length`` steps in the chosen way."""

    def __init__(self, length: int = 5, end: str = "truncated", dtype: str = "float32") -> None:
        self.observation_space = spaces.Box(-1e6, 1e6, (2,), np.dtype(dtype).type)
        self.action_space = spaces.Discrete(3)
        self.length = length
        self.end = end
        self.dtype = dtype

    def _see(self) -> np.ndarray:
        return np.array([self.count, self.noise], self.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        self.noise = float(self.np_random.integers(1000))
        return self._see(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        self.noise = float(self.np_random.integers(1000)) + int(action)
        over = self.count >= self.length
        return (
            self._see(),
            np.float64(self.count),
            over and self.end in ("terminated", "both"),
            over and self.end in ("truncated", "both"),
            {"progress": self.count},
        )


class Alias(Counter):
    """Returns the same array object from every step and reset, changed in place (ENV-01)."""

    def __init__(self, length: int = 20) -> None:
        super().__init__(length)
        self.buffer = np.zeros(2, np.float32)

    def _see(self) -> np.ndarray:
        self.buffer[:] = self.count
        return self.buffer


class WrongShape(gymnasium.Env):
    """Declares float32 (4,) and returns ``wrong`` at step 3 (ENV-03)."""

    def __init__(self, wrong: Any = None, at: int = 3) -> None:
        self.observation_space = spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.wrong = np.zeros((4, 1), np.float32) if wrong is None else wrong
        self.at = at

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        seen = self.wrong if self.count == self.at else np.zeros(4, np.float32)
        return seen, 0.0, False, False, {}


class Nested(gymnasium.Env):
    """The nested observation of ENV-04, and a hybrid action nested twice (ENV-07)."""

    def __init__(self, poison_at: int = 0) -> None:
        self.observation_space = spaces.Dict(
            img=spaces.Box(0, 255, (8, 8, 3), np.uint8),
            vec=spaces.Box(-9, 9, (5,), np.float32),
            nested=spaces.Dict(a=spaces.Discrete(4), b=spaces.MultiBinary(3)),
        )
        self.action_space = spaces.Dict(
            move=spaces.Box(-1, 1, (2,), np.float32),
            inner=spaces.Dict(
                key=spaces.Discrete(3, start=5),
                pair=spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
            ),
        )
        self.poison_at = poison_at
        self.seen: list[Any] = []
        self.shown: list[Any] = []

    def _sample(self) -> Any:
        shown = self.observation_space.sample()
        if self.poison_at and self.count == self.poison_at:
            shown["vec"][2] = np.nan
        self.shown.append({k: np.copy(v) if k != "nested" else dict(v) for k, v in shown.items()})
        return shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.observation_space.seed(seed)
        self.count = 0
        return self._sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.seen.append(action)
        self.count += 1
        return self._sample(), 1.0, False, self.count == 50, {}


class CountBox(gymnasium.Env):
    """Asserts that every action lies in the declared box, in the box's own dtype (ENV-08)."""

    def __init__(self, low: float = 300, high: float = 500, dtype: Any = np.float32) -> None:
        self.observation_space = spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = spaces.Box(low, high, (2, 2), dtype)
        self.actions: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        return np.zeros(1, np.float32), 0.0, False, False, {}


class MaskEnv(gymnasium.Env):
    """Discrete(6) with a random legal mask in info or beside the observation."""

    def __init__(self, where: str = "info") -> None:
        seen = spaces.Box(0, 1, (6,), np.float32)
        self.where = where
        self.observation_space = (
            seen
            if where == "info"
            else spaces.Dict(observation=seen, action_mask=spaces.Box(0, 1, (6,), np.int8))
        )
        self.action_space = spaces.Discrete(6)

    def _see(self) -> Any:
        self.mask = self.np_random.integers(0, 2, 6).astype(np.int8)
        self.mask[self.np_random.integers(6)] = 1
        seen = self.mask.astype(np.float32)
        if self.where == "info":
            return seen, {"action_mask": self.mask}
        return {"observation": seen, "action_mask": self.mask}, {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._see()

    def step(self, action: Any) -> Any:
        assert self.mask[action], "illegal action"
        self.count += 1
        seen, info = self._see()
        return seen, 0.0, self.count == 7, False, info


class Boom(Counter):
    """Raises in the chosen place."""

    def __init__(self, where: str = "step", at: int = 4) -> None:
        if where == "init":
            raise RuntimeError("boom in init")
        super().__init__()
        self.where = where
        self.at = at

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.where == "reset":
            raise RuntimeError("boom in reset")
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        if self.where == "step" and self.count + 1 == self.at:
            raise KeyError("boom in step")
        return super().step(action)


class Poison(Counter):
    """Emits NaN in the observation or the reward at one step."""

    def __init__(self, where: str, at: int = 3, length: int = 6) -> None:
        super().__init__(length)
        self.where = where
        self.at = at

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, info = super().step(action)
        if self.count == self.at and self.np_random.random() < 2:
            if self.where == "reward":
                reward = float("nan")
            else:
                seen[1] = np.inf
        return seen, reward, terminated, truncated, info


class Drifting(Counter):
    """Not deterministic: a counter that survives resets enters the observation."""

    total = 0

    def _see(self) -> np.ndarray:
        Drifting.total += 1
        return np.array([self.count, Drifting.total], np.float32)


class Old21:
    """The Counter game in the interface of gym 0.21: seed(), four values."""

    def __init__(self, length: int = 5) -> None:
        self.inner = Counter(length)
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space
        self._seed: int | None = None

    def seed(self, seed: int) -> None:
        self._seed = seed

    def reset(self) -> Any:
        return self.inner.reset(seed=self._seed)[0]

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, info = self.inner.step(action)
        return seen, reward, terminated or truncated, {**info, "TimeLimit.truncated": truncated}

    def close(self) -> None:
        return None


class Old26:
    """The Counter game as a class of gym 0.26: five values, not a Gymnasium Env."""

    def __init__(self, length: int = 5) -> None:
        self.inner = Counter(length)
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.inner.reset(seed=seed)

    def step(self, action: Any) -> Any:
        return self.inner.step(action)

    def close(self) -> None:
        return None

"""Imitations of third-party environments and their faults, in the Gymnasium style.

They are for the adapters and for whatever stands between an environment and a learner. ``index`` says which
worker an environment belongs to; left out, it is the order in which environments of that class were made in
this process, from 0 (:func:`restart_counting` begins again).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Seen = NDArray[np.float32]
Stepped = tuple[Seen, float, bool, bool, dict[str, Any]]
Where = Literal["init", "reset", "step", "close"]

_made: dict[str, Iterator[int]] = {}


def restart_counting() -> None:
    """Give the next environment of each class index 0 again."""
    _made.clear()


def _index(given: int | None, kind: str) -> int:
    return next(_made.setdefault(kind, itertools.count())) if given is None else given


class Const7(gymnasium.Env):  # type: ignore[misc]
    """Reward 1 a step; ends at step index 7 (8 steps), ``end``: terminated, truncated or both.

    Observation float32 ``[1]``: the step index. See :class:`lamarckian.testing.games.Const7` for the numbers;
    ``both`` must be treated as terminated.
    """

    observation_space: ClassVar[Any] = spaces.Box(0.0, 8.0, (1,), np.float32)
    action_space: ClassVar[Any] = spaces.Discrete(1)

    def __init__(self, end: Literal["terminated", "truncated", "both"] = "truncated") -> None:
        self.end = end
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Seen, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Stepped:
        self.count += 1
        over = self.count == 8
        seen = np.array([self.count], np.float32)
        return seen, 1.0, over and self.end != "truncated", over and self.end != "terminated", {}


class Alias(gymnasium.Env):  # type: ignore[misc]
    """Hands out one array object for ever, changed in place; it holds the step count.

    Ten steps, then truncation: the observations decided on are 0 ... 9, the final one is 10.
    """

    observation_space: ClassVar[Any] = spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space: ClassVar[Any] = spaces.Discrete(2)

    def __init__(self, length: int = 10) -> None:
        self.length = length
        self.buffer = np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Seen, dict[str, Any]]:
        super().reset(seed=seed)
        self.buffer[0] = 0
        return self.buffer, {}

    def step(self, action: Any) -> Stepped:
        self.buffer[0] += 1
        return self.buffer, 0.0, False, bool(self.buffer[0] >= self.length), {}


class Boom(gymnasium.Env):  # type: ignore[misc]
    """Worker ``k`` raises RuntimeError("boom in ...") in ``where``: init, reset, third step or close."""

    observation_space: ClassVar[Any] = spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space: ClassVar[Any] = spaces.Discrete(2)

    def __init__(self, k: int = 0, where: Where = "step", index: int | None = None) -> None:
        self.where = where
        self.guilty = _index(index, "Boom") == k
        self.count = 0
        self._at("init")

    def _at(self, place: Where) -> None:
        if self.guilty and self.where == place:
            raise RuntimeError(f"boom in {place}")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Seen, dict[str, Any]]:
        super().reset(seed=seed)
        self._at("reset")
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Stepped:
        self.count += 1
        if self.count == 3:
            self._at("step")
        return np.array([self.count], np.float32), 1.0, self.count >= 10, False, {}

    def close(self) -> None:
        self._at("close")


class Slow(gymnasium.Env):  # type: ignore[misc]
    """Worker ``k`` takes ``x`` times ``seconds`` for a step, the others ``seconds``; ten steps an episode.

    ``reset_seconds`` is what worker ``k`` needs for a reset (the others: nothing).
    """

    observation_space: ClassVar[Any] = spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space: ClassVar[Any] = spaces.Discrete(2)

    def __init__(
        self,
        k: int = 0,
        x: float = 100.0,
        seconds: float = 0.001,
        reset_seconds: float = 0.0,
        index: int | None = None,
    ) -> None:
        slow = _index(index, "Slow") == k
        self.seconds = seconds * x if slow else seconds
        self.reset_seconds = reset_seconds if slow else 0.0
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Seen, dict[str, Any]]:
        super().reset(seed=seed)
        if self.reset_seconds:
            time.sleep(self.reset_seconds)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Stepped:
        time.sleep(self.seconds)
        self.count += 1
        return np.array([self.count], np.float32), 1.0, self.count >= 10, False, {}


class Stuck(gymnasium.Env):  # type: ignore[misc]
    """Worker ``k`` never returns from its third step (until ``release`` is set); ten steps an episode."""

    observation_space: ClassVar[Any] = spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space: ClassVar[Any] = spaces.Discrete(2)
    release: ClassVar[bool] = False

    def __init__(self, k: int = 0, index: int | None = None) -> None:
        self.stuck = _index(index, "Stuck") == k
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Seen, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Stepped:
        self.count += 1
        while self.stuck and self.count == 3 and not Stuck.release:
            time.sleep(0.01)
        return np.array([self.count], np.float32), 1.0, self.count >= 10, False, {}


class CountBox(gymnasium.Env):  # type: ignore[misc]
    """Box action in ``[low, high]``: asserts that every action is inside and keeps it in ``actions``.

    Reward -((action - best) / (high - low))^2 with ``best`` three quarters of the way up; ten steps.
    """

    observation_space: ClassVar[Any] = spaces.Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, low: float = 300.0, high: float = 500.0) -> None:
        self.low = low
        self.high = high
        self.action_space = spaces.Box(low, high, (1,), np.float32)
        self.actions: list[float] = []
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Seen, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Stepped:
        amount = float(np.asarray(action).item())
        assert self.low <= amount <= self.high, (self.low, amount, self.high)
        self.actions.append(amount)
        self.count += 1
        best = self.low + 0.75 * (self.high - self.low)
        reward = -(((amount - best) / (self.high - self.low)) ** 2)
        return np.ones(1, np.float32), reward, False, self.count >= 10, {}

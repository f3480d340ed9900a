"""One small Gymnasium environment for each kind of space, for the support matrix."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SPACES: dict[str, Any] = {
    "discrete": spaces.Discrete(3),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "multi-binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1.0, 2.0, (2,), np.float32),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "one-sided": spaces.Box(0.0, np.inf, (2,), np.float32),
    "integers": spaces.Box(0, 5, (2,), np.int64),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,), np.float32))),
    "nested": spaces.Dict(
        {
            "go": spaces.Discrete(2),
            "arm": spaces.Dict({"hand": spaces.Dict({"grip": spaces.Box(0.0, 1.0, (1,))})}),
        }
    ),
    "nested-seen": spaces.Dict(
        {
            "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "vector": spaces.Box(-1.0, 1.0, (5,), np.float32),
            "more": spaces.Dict(
                {"a": spaces.Discrete(4), "deeper": spaces.Dict({"b": spaces.MultiBinary(3)})}
            ),
        }
    ),
    "image": spaces.Box(0, 255, (36, 36, 1), np.uint8),
    "text": spaces.Text(5),
    "sequence": spaces.Sequence(spaces.Discrete(2)),
}


class Spaces(gymnasium.Env):  # type: ignore[misc]
    """Pays 1 a step, shows samples of its space, ends after 8 steps."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, action: str = "discrete", seen: str = "box", masked: bool = False) -> None:
        self.action_space = SPACES[action]
        self.observation_space = SPACES[seen]
        self.masked = masked
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        if self.masked:
            assert action != self.steps % 3
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 8, False, self.info()

    def info(self) -> dict[str, Any]:
        """Every third action in turn is illegal."""
        if not self.masked:
            return {}
        return {"action_mask": np.arange(3) != self.steps % 3}

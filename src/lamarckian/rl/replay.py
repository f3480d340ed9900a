"""Replay: experience kept to be learned from many times, each observation stored once.

Trajectories are laid out as one long tape, lane by lane: every decision is a row, and the final
observation of a cut is a row of its own behind the decision it belongs to. What follows a row is the row
behind it, so nothing is stored twice, in the dtypes the role declares. The oldest rows are overwritten.

What an n-step target needs is worked out when a row is written: the discounted sum of up to ``n``
rewards, the row to bootstrap from, and the discount of its value (0 where the life ended). Nothing
reaches across a cut: a truncated life bootstraps from its true last observation, and a fragment's
last decisions from the fragment's end, with fewer than ``n`` rewards.

Shape letters: ``T`` decisions, ``N`` lanes, ``B`` rows of a batch, ``C`` capacity, ``K`` reward heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lamarckian import seeding
from lamarckian.errors import ConfigError
from lamarckian.mdp.core import (
    Array,
    Arrays,
    Continuous,
    Discrete,
    Part,
    Role,
    action_shape,
    mask_size,
)
from lamarckian.mdp.guard import lived_rows
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.planning import check_memory
from lamarckian.rl.sum_tree import SumTree

BLOCK_BYTES = 16 << 20
"""About as much lies in one part of a checkpoint; parts that have not changed are not written again."""


@dataclass(slots=True)
class Sample:
    """A batch drawn from a replay, as tensors on the learner's device.

    ``inputs``, ``legal``, ``next_inputs``, ``next_legal``  name -> ``[B, ...]``.
    ``actions``     part -> ``[B, ...]``, raw.
    ``returns``     float32 ``[B]``: discounted sum of the rewards up to the next observation.
    ``discounts``   float32 ``[B]``: weight of the next observation's value; 0 where the life ended.
    ``weights``     float32 ``[B]``: importance weights, largest 1; all 1 without priorities.
    ``slots``       int64 ``[B]``: where the rows lie.
    """

    inputs: dict[str, Tensor]
    legal: dict[str, Tensor]
    next_inputs: dict[str, Tensor]
    next_legal: dict[str, Tensor]
    actions: dict[str, Tensor]
    returns: Tensor
    discounts: Tensor
    weights: Tensor
    slots: NDArray[np.int64]


class Replay:
    """The last ``capacity`` rows of one policy's experience.

    ``num_steps``       rewards in a return (n).
    ``discount``        per act; ``reward_weights`` float32 ``[K]`` make one reward of the heads.
    ``priority_exponent``  alpha of prioritised replay (Schaul et al. 2016); 0 draws uniformly.

    Raises ConfigError if it cannot fit into the machine's memory.
    """

    def __init__(
        self,
        role: Role,
        capacity: int,
        *,
        num_steps: int,
        discount: float,
        reward_weights: NDArray[np.float32],
        priority_exponent: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.capacity = capacity
        self.num_steps = num_steps
        self.discount = discount
        self.priority_exponent = priority_exponent
        self.num_rows = 0
        """Rows written so far, overwritten ones included."""
        self.num_learnable = 0
        """Rows in use that may be drawn."""
        self._reward_weights = reward_weights.astype(np.float64)
        self._rng = seeding.stream(seed, "replay")
        self._largest = 1.0
        self._parts = dict(role.actions)
        shapes: dict[str, tuple[tuple[int, ...], str]] = {
            "return": ((), "float32"),
            "discount": ((), "float32"),
            # Rows to the next observation; 0: this row is not learned from.
            "ahead": ((), "int32"),
            **{f"input/{name}": (item.shape, item.dtype) for name, item in role.inputs.items()},
            **{f"legal/{name}": ((mask_size(role.actions[name]),), "bool") for name in role.masked},
            **{
                f"action/{name}": (action_shape(part), _dtype(part))
                for name, part in role.actions.items()
            },
        }
        row = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes.values())
        check_memory(
            row * capacity,
            what="algorithm.replay_size: the replay memory",
            remedy="lower replay_size",
            copies=1,
        )
        self._columns = {
            name: np.zeros((capacity, *shape), dtype) for name, (shape, dtype) in shapes.items()
        }
        self._tree = SumTree(capacity) if priority_exponent else None
        self._block = max(1, min(capacity, BLOCK_BYTES // row))

    def __len__(self) -> int:
        """Rows in use."""
        return min(self.num_rows, self.capacity)

    @property
    def fill(self) -> float:
        """Share of the capacity in use."""
        return len(self) / self.capacity

    def add(self, trajectory: Trajectory) -> None:
        """Write a trajectory; what a player skipped is stored, but never drawn.

        Raises ConfigError if it is longer than the whole memory.
        """
        lived = lived_rows(trajectory).T
        num_lanes, length = lived.shape
        tail = np.full(lived.size, -1, np.int64)
        time, lane = np.divmod(trajectory.bootstrap_index, num_lanes)
        tail[lane * length + time] = np.arange(len(time))
        tail = np.where(lived & ~trajectory.terminated.T, tail.reshape(lived.shape), -1)
        count = lived.astype(np.int64) + (tail >= 0)
        place = np.cumsum(count).reshape(count.shape) - count
        total = int(count.sum())
        if total > self.capacity:
            raise ConfigError(
                f"algorithm.replay_size: one batch makes {total} rows, more than the {self.capacity} "
                "of the replay memory; raise replay_size, or lower num_games or fragment_length"
            )
        lanes, times = np.nonzero(lived)
        at = place[lanes, times]
        ends = np.nonzero(tail >= 0)
        behind, source = place[ends] + 1, tail[ends]

        reward, factor = np.zeros(total), np.zeros(total)
        terminated, follows = np.zeros(total, bool), np.zeros(total, bool)
        valid = np.zeros(total, bool)
        reward[at] = trajectory.rewards[times, lanes] @ self._reward_weights
        factor[at] = self.discount ** trajectory.elapsed[times, lanes].astype(np.float64)
        terminated[at] = trajectory.terminated[times, lanes]
        valid[at] = trajectory.valid[times, lanes]
        goes_on = np.zeros(lived.shape, bool)
        starts, truncated = trajectory.starts.T, trajectory.truncated.T
        goes_on[:, :-1] = lived[:, 1:] & ~starts[:, 1:] & ~truncated[:, :-1]
        follows[at] = (tail >= 0)[lanes, times] | goes_on[lanes, times]
        returns, discounts, ahead = n_step(
            reward, factor, terminated, follows, num_steps=self.num_steps
        )
        ahead[~valid] = 0

        first = self.num_rows
        slots = (first + np.arange(total)) % self.capacity
        at, behind = slots[at], slots[behind]
        columns = self._columns
        self.num_learnable += int((ahead > 0).sum() - (columns["ahead"][slots] > 0).sum())
        columns["return"][slots] = returns
        columns["discount"][slots] = discounts
        columns["ahead"][slots] = ahead
        for group, arrays, tails in (
            ("input", trajectory.inputs, trajectory.bootstrap_inputs),
            ("legal", trajectory.legal, trajectory.bootstrap_legal),
        ):
            for name, array in arrays.items():
                columns[f"{group}/{name}"][at] = array[times, lanes]
                columns[f"{group}/{name}"][behind] = tails[name][source]
        for name, array in trajectory.actions.items():
            columns[f"action/{name}"][at] = array[times, lanes]
        if self._tree is not None:
            self._tree.set(slots, np.where(ahead > 0, self._largest, 0.0))
        self.num_rows += total

    def sample(self, size: int, exponent: float, device: torch.device) -> Sample | None:
        """Draw ``size`` rows with replacement; None while there is nothing to draw.

        ``exponent`` is beta: importance weights are ``(1 / (n p))^beta``, scaled by the largest.
        """
        slots = self._uniform(size) if self._tree is None else self._prioritised(size)
        if slots is None:
            return None
        columns = self._columns
        weights = np.ones(size, np.float32)
        if self._tree is not None:
            priorities = self._tree.leaves[slots]
            weights = ((priorities / priorities.min()) ** -exponent).astype(np.float32)
        following = (slots + columns["ahead"][slots]) % self.capacity

        def rows(group: str, at: NDArray[np.int64]) -> dict[str, Tensor]:
            return {
                name.removeprefix(group): torch.from_numpy(array[at]).to(device)
                for name, array in columns.items()
                if name.startswith(group)
            }

        def column(array: Array) -> Tensor:
            return torch.from_numpy(array).to(device)

        actions = rows("action/", slots)
        return Sample(
            rows("input/", slots),
            rows("legal/", slots),
            rows("input/", following),
            rows("legal/", following),
            {
                name: action if isinstance(self._parts[name], Continuous) else action.long()
                for name, action in actions.items()
            },
            column(columns["return"][slots]),
            column(columns["discount"][slots]),
            column(weights),
            slots,
        )

    def set_priorities(self, slots: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """Note how wrong the estimates of ``slots`` ``[B]`` were: absolute errors ``[B]``."""
        if self._tree is None:
            return
        priorities = (errors.astype(np.float64) + 1e-6) ** self.priority_exponent
        self._largest = max(self._largest, float(priorities.max()))
        self._tree.set(slots, priorities)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything, as (JSON data, arrays in blocks of rows); arrays are views.

        Save or copy them before the next :meth:`add`.
        """
        arrays: Arrays = {}
        for number, begin in enumerate(range(0, len(self), self._block)):
            rows = slice(begin, min(begin + self._block, len(self)))
            for name, array in self._columns.items():
                arrays[f"{number}//{name}"] = array[rows]
        if self._tree is not None:
            arrays["priorities//priorities"] = self._tree.leaves[: len(self)]
        data = {
            "num_rows": self.num_rows,
            "num_learnable": self.num_learnable,
            "largest": self._largest,
            "rng": seeding.state_of(self._rng),
        }
        return data, arrays

    def load_state(self, data: Mapping[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.num_rows = int(data["num_rows"])
        self.num_learnable = int(data["num_learnable"])
        self._largest = float(data["largest"])
        self._rng = seeding.restore(data["rng"])
        for number, begin in enumerate(range(0, len(self), self._block)):
            rows = slice(begin, min(begin + self._block, len(self)))
            for name, array in self._columns.items():
                array[rows] = arrays[f"{number}//{name}"]
        if self._tree is not None:
            leaves = np.zeros(self.capacity)
            leaves[: len(self)] = arrays["priorities//priorities"]
            self._tree.load(leaves)

    def _uniform(self, size: int) -> NDArray[np.int64] | None:
        if self.num_learnable == 0:
            return None
        ahead = self._columns["ahead"]
        slots = self._rng.integers(0, len(self), size)
        while not (ahead[slots] > 0).all():
            wrong = np.flatnonzero(ahead[slots] == 0)
            slots[wrong] = self._rng.integers(0, len(self), len(wrong))
        return slots

    def _prioritised(self, size: int) -> NDArray[np.int64] | None:
        assert self._tree is not None
        if self._tree.total == 0.0:
            return None
        # One draw from each of ``size`` equal strips of the total (Schaul et al. 2016, appendix B.2.1).
        levels = (np.arange(size) + self._rng.random(size)) / size
        return self._tree.find(levels * self._tree.total)


def n_step(
    rewards: NDArray[np.float64],
    factors: NDArray[np.float64],
    terminated: NDArray[np.bool_],
    follows: NDArray[np.bool_],
    *,
    num_steps: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]:
    """Return n-step ``(returns, discounts, ahead)``, each ``[L]``, of rows laid one behind the other.

    ``factors`` discount what follows a row; ``follows`` says that the next row is this life's next
    observation. ``ahead`` counts the rows to the observation to bootstrap from, 0 where there is neither
    one nor an end; ``discounts`` is 0 where the life ended.
    """
    usable = terminated | follows
    returns = rewards.copy()
    discounts = np.where(terminated, 0.0, factors)
    ahead = usable.astype(np.int32)
    growing = np.flatnonzero(follows & ~terminated)
    for _ in range(num_steps - 1):
        # ``follows`` has made sure that the row behind exists.
        following = growing + ahead[growing]
        growing, following = growing[usable[following]], following[usable[following]]
        returns[growing] += discounts[growing] * rewards[following]
        discounts[growing] *= np.where(terminated[following], 0.0, factors[following])
        ahead[growing] += 1
        growing = growing[~terminated[following]]
    return returns, discounts, ahead


def _dtype(part: Part) -> str:
    if isinstance(part, Continuous):
        return "float32"
    largest = part.num if isinstance(part, Discrete) else max(part.nums)
    return "uint8" if largest <= 256 else "int32"

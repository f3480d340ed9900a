"""Toy games with known numbers, stepped as arrays: values, masks, memory, every kind of space at once.

Players who come and go are in :mod:`lamarckian.testing.players`, imitations of third-party environments
in :mod:`lamarckian.testing.environments`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import (
    Arrays,
    Continuous,
    Discrete,
    Input,
    MultiDiscrete,
    Observation,
    Role,
)
from lamarckian.mdp.games import snapshot
from lamarckian.mdp.games.row_streams import RowStreams

EndKind = Literal["terminated", "truncated"]


def _end(
    num: int, ended: NDArray[np.bool_], rewards: NDArray[np.float32], kind: EndKind, seen: Arrays
) -> RowStep:
    """A step whose ``ended`` rows finish by ``kind``; ``seen`` is the observation before the reset."""
    nobody = np.zeros(num, np.bool_)
    if kind == "terminated":
        return RowStep(rewards, ended, nobody)
    rows = np.flatnonzero(ended)
    final = Observation({name: array[rows].copy() for name, array in seen.items()})
    return RowStep(rewards, nobody, ended, rows, final if len(rows) else None)


class Const7(BatchGame):
    """Reward 1 at every step; ends at step index 7, so after 8 steps, by ``end``.

    Input ``state`` float32 ``[1]``: the step index. One action. With discount 0.9 the value 10 is the fixed
    point: a critic that says 10 everywhere gives advantages 0 if truncated; terminated, lambda 0.95, the
    last advantage is 1 - 10 = -9 and the first -9 (0.9 * 0.95)^7 = -3.0061.
    """

    _SAVED = ("_step",)
    LENGTH = 8

    def __init__(self, num_games: int, *, end: EndKind = "terminated") -> None:
        self.num_games = num_games
        self.end: EndKind = end
        self.roles: Mapping[str, Role] = {
            "player": Role(inputs={"state": Input((1,))}, actions={"move": Discrete(1)})
        }
        self._step = np.zeros(num_games, np.int64)

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self._step[:] = 0

    def observe(self, role: str) -> Observation:
        return Observation({"state": self._step[:, None].astype(np.float32)})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        self._step += 1
        ended = self._step >= self.LENGTH
        rewards = np.ones((self.num_games, 1), np.float32)
        step = _end(self.num_games, ended, rewards, self.end, self.observe("player").inputs)
        self._step[ended] = 0
        return {"player": step}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, snapshot.take(self, self._SAVED)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, self._SAVED, arrays)


class TwoStep(BatchGame):
    """A, then B, then reward 1 and termination.

    Input ``state`` float32 ``[2]``: one-hot of A and B. Both actions do the same. With V(A) = 0, V(B) = 0.95,
    discount 0.9 and lambda 0 the value targets are 0.855 and 1.0.
    """

    _SAVED = ("_at_b",)

    def __init__(self, num_games: int) -> None:
        self.num_games = num_games
        self.roles: Mapping[str, Role] = {
            "player": Role(inputs={"state": Input((2,))}, actions={"move": Discrete(2)})
        }
        self._at_b = np.zeros(num_games, np.bool_)

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self._at_b[:] = False

    def observe(self, role: str) -> Observation:
        return Observation({"state": np.stack([~self._at_b, self._at_b], 1).astype(np.float32)})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        ended = self._at_b.copy()
        rewards = ended.astype(np.float32)[:, None]
        self._at_b = ~self._at_b
        return {"player": RowStep(rewards, ended, np.zeros(self.num_games, np.bool_))}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, snapshot.take(self, self._SAVED)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, self._SAVED, arrays)


class MaskEnv(BatchGame):
    """Six actions under a random legal mask; with probability ``p`` a row has no legal action.

    Input ``state`` float32 ``[6]``: the worth of each action, uniform in [0, 1). Reward: the worth of a legal
    action, -1 for an illegal one, 0 where nothing was legal. Ten steps, then termination. Statistic
    ``illegal``: how often an illegal action was played; ``num_illegal`` counts over all matches. At p = 0 a
    random legal action is worth 0.5 a step and the best legal one 0.7279: the mask is one of the 63
    non-empty sets with equal chance, the mean of max(u_1 ... u_k) is k / (k + 1), and
    sum_k C(6, k) k / (k + 1) / 63 = 0.7279.
    """

    _SAVED = ("_worth", "_legal", "_step", "_illegal")
    LENGTH = 10
    NUM = 6

    def __init__(self, num_games: int, *, p: float = 0.0) -> None:
        self.num_games = num_games
        self.p = p
        self.num_illegal = 0
        self.roles: Mapping[str, Role] = {
            "player": Role(
                inputs={"state": Input((self.NUM,))},
                actions={"move": Discrete(self.NUM)},
                masked=("move",),
            )
        }
        self._worth = np.zeros((num_games, self.NUM), np.float32)
        self._legal = np.ones((num_games, self.NUM), np.bool_)
        self._step = np.zeros(num_games, np.int64)
        self._illegal = np.zeros(num_games, np.int64)
        self.streams = RowStreams(np.zeros(num_games, np.int64))

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self.streams = RowStreams(seeds)
        self._step[:] = 0
        self._illegal[:] = 0
        self._draw()

    def observe(self, role: str) -> Observation:
        return Observation({"state": self._worth}, {"move": self._legal})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        num = self.num_games
        games = np.arange(num)
        move = np.asarray(actions["player"]["move"], np.int64)
        possible = self._legal.any(axis=1)
        wrong = possible & ~self._legal[games, move]
        rewards = np.where(wrong, -1.0, np.where(possible, self._worth[games, move], 0.0))
        self._illegal += wrong
        self.num_illegal += int(wrong.sum())
        self._step += 1
        ended = self._step >= self.LENGTH
        step = RowStep(rewards.astype(np.float32)[:, None], ended, np.zeros(num, np.bool_))
        if ended.any():
            step.outcomes = {"illegal": self._illegal.astype(np.float32)}
            self._step[ended] = 0
            self._illegal[ended] = 0
        self._draw()
        return {"player": step}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"num_illegal": self.num_illegal}, snapshot.take(self, self._SAVED)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        self.num_illegal = int(data["num_illegal"])
        snapshot.put(self, self._SAVED, arrays)

    def _draw(self) -> None:
        rows = np.arange(self.num_games)
        draws = self.streams.uniform(rows, self.NUM + 2)
        self._worth = draws[:, : self.NUM].astype(np.float32)
        subset = 1 + (draws[:, self.NUM] * (2**self.NUM - 1)).astype(np.int64)
        self._legal = (subset[:, None] >> np.arange(self.NUM)) % 2 == 1
        self._legal[draws[:, self.NUM + 1] < self.p] = False


class CountBox(BatchGame):
    """One number in ``[low, high]``; an action outside raises, and every action is kept in ``seen``.

    Input ``state`` float32 ``[1]``: always 1. Reward -((action - best) / (high - low))^2 with ``best`` three
    quarters of the way up; the optimum is 0. Ten steps, then truncation. The mean reward of a uniform
    action is -(1/12 + 1/16) = -0.1458.
    """

    LENGTH = 10
    _SAVED = ("_step",)

    def __init__(self, num_games: int, *, low: float = 300.0, high: float = 500.0) -> None:
        self.num_games = num_games
        self.low = low
        self.high = high
        self.seen: list[NDArray[np.float32]] = []
        self.roles: Mapping[str, Role] = {
            "player": Role(
                inputs={"state": Input((1,))}, actions={"amount": Continuous(1, (low,), (high,))}
            )
        }
        self._step = np.zeros(num_games, np.int64)

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self._step[:] = 0

    def observe(self, role: str) -> Observation:
        return Observation({"state": np.ones((self.num_games, 1), np.float32)})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        amount = np.array(actions["player"]["amount"], np.float32).reshape(self.num_games)
        self.seen.append(amount)
        if not ((amount >= self.low) & (amount <= self.high)).all():
            raise ValueError(f"CountBox: an action is outside [{self.low}, {self.high}]: {amount}")
        best = self.low + 0.75 * (self.high - self.low)
        rewards = -(((amount - best) / (self.high - self.low)) ** 2)
        self._step += 1
        ended = self._step >= self.LENGTH
        seen = self.observe("player").inputs
        step = _end(self.num_games, ended, rewards[:, None], "truncated", seen)
        self._step[ended] = 0
        return {"player": step}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, snapshot.take(self, self._SAVED)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, self._SAVED, arrays)


class Memory(BatchGame):
    """Remember a bit for ``delay`` steps.

    Input ``state`` float32 ``[2]``: the bit as +1 or -1 at the first step and 0 afterwards; 1 at the last
    step, when it is asked for. ``delay`` steps lie between showing and asking (0: the next step asks).
    Reward at the last step: +1 if action ``bit`` (0 for -1, 1 for +1) is right, else -1. Without memory the
    best return is 0, with memory 1.
    """

    _SAVED = ("_bit", "_step")

    def __init__(self, num_games: int, *, delay: int = 3) -> None:
        self.num_games = num_games
        self.delay = delay
        self.roles: Mapping[str, Role] = {
            "player": Role(inputs={"state": Input((2,))}, actions={"bit": Discrete(2)})
        }
        self._bit = np.zeros(num_games, np.int64)
        self._step = np.zeros(num_games, np.int64)
        self.streams = RowStreams(np.zeros(num_games, np.int64))

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self.streams = RowStreams(seeds)
        self._restart(np.arange(self.num_games))

    def observe(self, role: str) -> Observation:
        shown = np.where(self._step == 0, 2 * self._bit - 1, 0)
        asked = self._step == self.delay + 1
        return Observation({"state": np.stack([shown, asked], 1).astype(np.float32)})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        asked = self._step == self.delay + 1
        right = np.asarray(actions["player"]["bit"]) == self._bit
        rewards = np.where(asked, np.where(right, 1.0, -1.0), 0.0).astype(np.float32)
        self._step += 1
        if asked.any():
            self._restart(np.flatnonzero(asked))
        nobody = np.zeros(self.num_games, np.bool_)
        return {"player": RowStep(rewards[:, None], asked, nobody)}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, snapshot.take(self, self._SAVED)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, self._SAVED, arrays)

    def _restart(self, rows: NDArray[np.int64]) -> None:
        self._bit[rows] = self.streams.integers(rows, 2, 1)[:, 0]
        self._step[rows] = 0


class Everything(BatchGame):
    """Every kind of input, action and reward in one role, with an optimum that is known.

    Inputs: ``vector`` float32 ``[3]`` uniform in [-1, 1]; ``image`` uint8 ``[1, 8, 8]`` whose left or right
    half is bright; ``units`` entities ``[4, 2]`` of which 0 to 2 are real (``units_mask``), the padding holds
    noise; ``colour`` a category of 3. Critic's ``state``: ``vector`` again.

    Actions: ``pick`` discrete 3, best equal to ``colour``, one wrong choice masked; ``pair`` multi-discrete
    (2, 3), best (bright half: 0 left, 1 right; number of real units), one wrong choice of the second masked;
    ``aim`` continuous 2 in [-1, 1], best equal to the first two numbers of ``vector``.

    Reward heads: ``choices``, the share of the three choices that are right, and ``aim``, 1 minus the mean
    squared error. The optimum is (1, 1) a step. Uniform legal play: choices 1/2 each, so 0.5; aim
    1 - (1/3 + 1/3) = 1/3. Eight steps, then truncation.
    """

    LENGTH = 8
    _SAVED = ("_vector", "_colour", "_bright", "_units", "_num_units", "_banned", "_step")

    def __init__(self, num_games: int) -> None:
        self.num_games = num_games
        vector = Input((3,))
        self.roles: Mapping[str, Role] = {
            "player": Role(
                inputs={
                    "vector": vector,
                    "image": Input((1, 8, 8), "uint8", "image"),
                    "units": Input((4, 2), kind="entities", mask="units_mask"),
                    "units_mask": Input((4,), "bool", "mask"),
                    "colour": Input((), "int64", "category", num_categories=3),
                },
                actions={
                    "pick": Discrete(3),
                    "pair": MultiDiscrete((2, 3)),
                    "aim": Continuous(2, (-1.0, -1.0), (1.0, 1.0)),
                },
                rewards=("choices", "aim"),
                state={"vector": vector},
                masked=("pick", "pair"),
            )
        }
        self._vector = np.zeros((num_games, 3), np.float32)
        self._colour = np.zeros(num_games, np.int64)
        self._bright = np.zeros(num_games, np.int64)
        self._units = np.zeros((num_games, 4, 2), np.float32)
        self._num_units = np.zeros(num_games, np.int64)
        self._banned = np.zeros((num_games, 2), np.int64)
        self._step = np.zeros(num_games, np.int64)
        self.streams = RowStreams(np.zeros(num_games, np.int64))

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self.streams = RowStreams(seeds)
        self._step[:] = 0
        self._draw()

    def observe(self, role: str) -> Observation:
        image = np.zeros((self.num_games, 1, 8, 8), np.uint8)
        halves = image.reshape(self.num_games, 8, 2, 4)
        halves[np.arange(self.num_games), :, self._bright] = 255
        pick = np.ones((self.num_games, 3), np.bool_)
        pair = np.ones((self.num_games, 5), np.bool_)
        games = np.arange(self.num_games)
        pick[games, (self._colour + 1 + self._banned[:, 0]) % 3] = False
        pair[games, 2 + (self._num_units + 1 + self._banned[:, 1]) % 3] = False
        return Observation(
            {
                "vector": self._vector,
                "image": image,
                "units": self._units,
                "units_mask": np.arange(4) < self._num_units[:, None],
                "colour": self._colour,
            },
            {"pick": pick, "pair": pair},
            {"vector": self._vector},
        )

    def best(self) -> Arrays:
        """Return the best actions now, part -> ``[N, ...]``."""
        return {
            "pick": self._colour.copy(),
            "pair": np.stack([self._bright, self._num_units], 1),
            "aim": self._vector[:, :2].copy(),
        }

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        played, best = actions["player"], self.best()
        right = (played["pick"] == best["pick"]).astype(np.float32)
        right += (played["pair"] == best["pair"]).sum(axis=1)
        aim = 1.0 - ((played["aim"] - best["aim"]) ** 2).mean(axis=1)
        rewards = np.stack([right / 3, aim], 1).astype(np.float32)
        self._step += 1
        ended = self._step >= self.LENGTH
        self._step[ended] = 0
        self._draw()
        rows = np.flatnonzero(ended)
        step = RowStep(rewards, np.zeros(self.num_games, np.bool_), ended, rows)
        if len(rows):
            # Steps are independent of one another, so the next situation is also the final one.
            seen = self.observe("player")
            step.final = Observation(
                *(
                    {k: v[rows].copy() for k, v in g.items()}
                    for g in (seen.inputs, seen.legal, seen.state)
                )
            )
        return {"player": step}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, snapshot.take(self, self._SAVED)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, self._SAVED, arrays)

    def _draw(self) -> None:
        draws = self.streams.uniform(np.arange(self.num_games), 16)
        self._vector = (2.0 * draws[:, :3] - 1.0).astype(np.float32)
        self._units = draws[:, 3:11].reshape(-1, 4, 2).astype(np.float32)
        self._colour = (3 * draws[:, 11]).astype(np.int64)
        self._bright = (2 * draws[:, 12]).astype(np.int64)
        self._num_units = (3 * draws[:, 13]).astype(np.int64)
        self._banned = (2 * draws[:, 14:16]).astype(np.int64)


class Taste(BatchGame):
    """Two reward heads that contradict each other: what one learns is decided by their weights.

    Input ``bias``, a constant 1. Action ``pick``: 0 pays (1, 0) to the heads ``left`` and ``right``, 1 pays
    (0, 1). Eight steps, then termination; statistic ``right``: the share of 1 in the actions.
    """

    LENGTH = 8

    def __init__(self, num_games: int) -> None:
        self.num_games = num_games
        self.roles: Mapping[str, Role] = {
            "player": Role(
                inputs={"bias": Input((1,))},
                actions={"pick": Discrete(2)},
                rewards=("left", "right"),
            )
        }
        self._step = np.zeros(num_games, np.int64)
        self._right = np.zeros(num_games, np.int64)

    def reset(self, seeds: NDArray[np.int64]) -> None:
        self._step[:] = self._right[:] = 0

    def observe(self, role: str) -> Observation:
        return Observation({"bias": np.ones((self.num_games, 1), np.float32)})

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        picked = actions["player"]["pick"].astype(np.int64)
        self._right += picked
        self._step += 1
        ended = self._step >= self.LENGTH
        step = RowStep(np.eye(2, dtype=np.float32)[picked], ended, np.zeros_like(ended))
        step.outcomes = {"right": (self._right / self.LENGTH).astype(np.float32)}
        self._step[ended] = self._right[ended] = 0
        return {"player": step}

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, snapshot.take(self, ("_step", "_right"))

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        snapshot.put(self, ("_step", "_right"), arrays)

"""Games that go wrong, each in one way: for the tests of what the user is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian.mdp.batch_game import RowStep
from lamarckian.mdp.core import Arrays, Observation
from lamarckian.mdp.games.cartpole import CartPole

FAILS_AT = 40


class _Failing(CartPole):
    """CartPole until ``fail`` is called at the 40th tick."""

    ticks = 0

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        self.ticks += 1
        steps = super().step(actions)
        if self.ticks == FAILS_AT:
            self.fail(steps["player"])
        return steps

    def fail(self, step: RowStep) -> None:
        """Go wrong."""


class InInit(CartPole):
    def __init__(self, num_games: int) -> None:
        raise RuntimeError("no paint left")


class InReset(CartPole):
    def reset(self, seeds: NDArray[np.int64]) -> None:
        raise RuntimeError("cannot set up")


class InStep(_Failing):
    def fail(self, step: RowStep) -> None:
        raise RuntimeError("fell off the table")


class Exits(_Failing):
    def fail(self, step: RowStep) -> None:
        os._exit(7)


class Killed(_Failing):
    def fail(self, step: RowStep) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class NaNReward(_Failing):
    def fail(self, step: RowStep) -> None:
        step.rewards[3] = np.nan


class NaNSeen(_Failing):
    def fail(self, step: RowStep) -> None:
        self._state[1, 2] = np.nan


class WrongReward(_Failing):
    def fail(self, step: RowStep) -> None:
        step.rewards = step.rewards[:, 0]


class WrongShape(CartPole):
    """(N, 4, 1) instead of (N, 4) from the third tick on."""

    ticks = 0

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        self.ticks += 1
        return super().step(actions)

    def observe(self, role: str) -> Observation:
        state = super().observe(role).inputs["state"]
        return Observation({"state": state[:, :, None] if self.ticks >= 3 else state})


class WrongType(CartPole):
    def observe(self, role: str) -> Observation:
        return Observation({"state": super().observe(role).inputs["state"].astype(str)})


class WrongKey(CartPole):
    def observe(self, role: str) -> Observation:
        return Observation({"position": super().observe(role).inputs["state"]})


class Nothing(CartPole):
    def observe(self, role: str) -> Any:
        return None


class Doubles(CartPole):
    """float64 where float32 is declared: cast at the border, not refused (ENV-12)."""

    def observe(self, role: str) -> Observation:
        return Observation({"state": super().observe(role).inputs["state"].astype(np.float64)})


class Endless(CartPole):
    """No life ever ends."""

    def step(self, actions: Mapping[str, Arrays]) -> dict[str, RowStep]:
        num = self.num_games
        no = np.zeros(num, np.bool_)
        return {"player": RowStep(np.ones((num, 1), np.float32), no, no.copy())}


class FailsInEvaluation(CartPole):
    """Two matches, as an evaluation of two episodes has, cannot be played."""

    def reset(self, seeds: NDArray[np.int64]) -> None:
        if self.num_games == 2:
            raise RuntimeError("two are too few")
        super().reset(seeds)


class TellsThreads(CartPole):
    """Notes how many threads torch has in the process that plays, in the folder LAMARCKIAN_NOTES."""

    def reset(self, seeds: NDArray[np.int64]) -> None:
        import torch

        note = Path(os.environ["LAMARCKIAN_NOTES"]) / str(os.getpid())
        note.write_text(str(torch.get_num_threads()))
        super().reset(seeds)

"""Small evaluators for the tests, importable by worker processes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian.evaluator import Blob, Decision, Encoding, Objective, Outcome, Outcomes, Real


class Bowl:
    """Minimize the sum of squares of three numbers; ``log`` names a file that counts evaluations."""

    def __init__(self, log: str = "", delay: float = 0.0) -> None:
        self.log, self.delay = log, delay

    def describe(self) -> Encoding:
        return Encoding(
            parts={"x": Real(-1.0, 1.0, shape=3)}, objectives=(Objective("value", "minimize"),)
        )

    def initialize(self, rng: np.random.Generator) -> Decision:
        return self.describe().sample(rng)

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{rng.integers(2**62)}\n")
        if self.delay:
            time.sleep(self.delay)
        return Outcome(np.array([np.sum(np.asarray(decision["x"]) ** 2)]))


class Trained(Bowl):
    """A Lamarckian one: moves its weights towards the optimum at the rate of a gene, writes back.

    The best learning rate is planted: it falls from 0.5 to 0.05 once the weights are close.
    """

    def describe(self) -> Encoding:
        return Encoding(
            parts={
                "rate": Real(1e-3, 1.0, scale="log"),
                "weights": Blob({"w": ((4,), "float32")}, initial_scale=3.0),
            },
            objectives=(Objective("score", "maximize"),),
        )

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        super_log = self.log
        if super_log:
            with Path(super_log).open("a") as file:
                file.write(f"{rng.integers(2**62)}\n")
        if self.delay:
            time.sleep(self.delay)
        blob = decision["weights"]
        assert isinstance(blob, dict)
        weights = np.array(blob["w"], np.float64)
        rate = float(np.asarray(decision["rate"]))
        for _ in range(20):
            # Gradient noise: far away a large rate is best, close by a small one.
            weights -= rate * (weights + rng.standard_normal(4))
        score = -float(np.log10(np.sum(weights**2) + 1e-12))
        return Outcome(np.array([score]), decision={"weights": {"w": weights.astype(np.float32)}})


class Troubled(Bowl):
    """One in ``every`` evaluations goes wrong in the way ``how`` says."""

    def __init__(self, how: str = "raise", every: int = 4, log: str = "") -> None:
        super().__init__(log)
        self.how, self.every = how, every

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        outcome = super().evaluate(decision, rng)
        if int(rng.integers(self.every)) == 0:
            if self.how == "raise":
                raise ValueError("the game crashed")
            if self.how == "hang":
                time.sleep(600.0)
            if self.how == "die":
                os._exit(9)
            bad = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}[self.how]
            return Outcome(np.array([bad]))
        return outcome


class AlwaysRaises(Bowl):
    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        raise ValueError("the game is not installed")


class BadDescribe(Bowl):
    def describe(self) -> Encoding:
        return "nothing"  # type: ignore[return-value]


class BadInitialize(Bowl):
    def initialize(self, rng: np.random.Generator) -> Decision:
        return {"x": np.array([9.0, 9.0, 9.0])}


class NeedsOption(Bowl):
    def __init__(self, size: int) -> None:
        super().__init__()


class HalfBatch(Bowl):
    """Its batches raise, and a third of its rows alone."""

    def evaluate_batch(self, decisions: Any, rng: np.random.Generator) -> Outcomes:
        raise ZeroDivisionError("a row of zeros")

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        if float(np.asarray(decision["x"])[0]) > 0.3:
            raise ZeroDivisionError("a row of zeros")
        return super().evaluate(decision, rng)


class WrongBatch(Bowl):
    """Its batches have the wrong shape."""

    def evaluate_batch(self, decisions: Any, rng: np.random.Generator) -> Outcomes:
        return Outcomes(np.zeros(len(decisions["x"])))

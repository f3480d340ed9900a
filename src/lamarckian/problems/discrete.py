"""Problems beyond boxes of reals: bits, tours, teams, and a mixture of every kind but networks."""

from __future__ import annotations

import numpy as np

from lamarckian import seeding
from lamarckian.errors import ConfigError
from lamarckian.evaluator import (
    Categorical,
    Decision,
    Encoding,
    Floats,
    Integer,
    Objective,
    Outcome,
    Permutation,
    Real,
)


class ZDT5:
    """Bit strings with a deceptive distance function (Zitzler, Deb, Thiele 2000).

    One string of 30 bits and ten of 5, as integer part ``bits`` of shape 80. f1 = 1 + number of ones
    of the first string; g sums v = 2 + ones below five, 1 at five ones; f2 = g / f1. True front:
    f2 = 10 / f1 at f1 = 1 … 31. Reference point (31.1, 10.1).
    """

    def __init__(self) -> None:
        self._encoding = Encoding(
            parts={"bits": Integer(0, 1, shape=80)},
            objectives=(
                Objective("f1", reference=31.1),
                Objective("f2", reference=10.1),
            ),
        )

    def describe(self) -> Encoding:
        return self._encoding

    def initialize(self, rng: np.random.Generator) -> Decision:
        return self._encoding.sample(rng)

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        del rng
        bits = np.asarray(decision["bits"])
        f1 = 1.0 + bits[:30].sum()
        ones = bits[30:].reshape(10, 5).sum(1)
        g = float(np.where(ones < 5, 2 + ones, 1).sum())
        return Outcome(np.array([f1, g / f1]))

    def true_front(self, num_points: int = 31) -> Floats:
        """Return the 31 points of the true front (``num_points`` is at most 31)."""
        f1 = np.arange(1.0, 32.0)[:num_points]
        return np.stack([f1, 10.0 / f1], 1)


class Tour:
    """Shortest closed tour through points on a circle, numbered at random.

    The shortest tour visits them in their order on the circle; its length
    2 · n · sin(π / n) is ``optimum``.
    """

    def __init__(self, num_points: int = 20, seed: int = 0) -> None:
        if num_points < 4:
            raise ConfigError(f"tour: num_points must be at least 4, got {num_points}")
        order = seeding.stream(seed, "tour").permutation(num_points)
        angle = 2.0 * np.pi * order / num_points
        self.points: Floats = np.stack([np.cos(angle), np.sin(angle)], 1)
        self.optimum = 2.0 * num_points * float(np.sin(np.pi / num_points))
        self._encoding = Encoding(
            parts={"order": Permutation(num_points)}, objectives=(Objective("length"),)
        )

    def describe(self) -> Encoding:
        return self._encoding

    def initialize(self, rng: np.random.Generator) -> Decision:
        return self._encoding.sample(rng)

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        del rng
        visited = self.points[np.asarray(decision["order"])]
        steps = np.linalg.norm(visited - np.roll(visited, -1, 0), axis=1)
        return Outcome(np.array([steps.sum()]))


class Workshop:
    """A mixture of kinds: settings of a machine and a team of 3 of 8 workers, two objectives.

    Output (to maximize) peaks at known settings: speed 0.7, temperature 10^−2, 4 tools, material
    ``steel``, and the workers with the highest skill in falling order. Expense (to minimize) grows
    with speed, tools and skill. Constraint: the wage of the team stays within the budget.
    """

    skills = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    wage_budget = 20.0

    def __init__(self) -> None:
        self._encoding = Encoding(
            parts={
                "speed": Real(0.0, 1.0),
                "temperature": Real(1e-4, 1.0, scale="log"),
                "tools": Integer(1, 9),
                "material": Categorical(("wood", "steel", "glass")),
                "team": Permutation(8, 3),
            },
            objectives=(
                Objective("output", "maximize", reference=0.0),
                Objective("expense", "minimize", reference=20.0),
            ),
            constraints=("wages",),
        )

    def describe(self) -> Encoding:
        return self._encoding

    def initialize(self, rng: np.random.Generator) -> Decision:
        return self._encoding.sample(rng)

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        del rng
        speed, tools = float(np.asarray(decision["speed"])), int(np.asarray(decision["tools"]))
        heat = float(np.log10(np.asarray(decision["temperature"])))
        skill = self.skills[np.asarray(decision["team"])]
        fit = 1.0 - (speed - 0.7) ** 2 - 0.1 * (heat + 2.0) ** 2 - 0.05 * (tools - 4) ** 2
        bonus = 0.5 if int(np.asarray(decision["material"])) == 1 else 0.0
        output = max(0.0, fit + bonus) * float(skill @ np.array([3.0, 2.0, 1.0]))
        return self._encoding.outcome(
            objectives={"output": output, "expense": 5.0 * speed + tools + 0.2 * skill.sum()},
            constraints={"wages": float(skill.sum()) - self.wage_budget},
        )

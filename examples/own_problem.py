"""A problem of your own under several searches: place a transmitter, cheaply and well."""

import numpy as np

from lamarckian import ec
from lamarckian.evaluator import Decision, Encoding, Objective, Outcome, Real


class Transmitter:
    """Where to stand and how strong to send, so that four houses hear well at little power."""

    houses = np.array([[0.1, 0.2], [0.8, 0.3], [0.4, 0.9], [0.7, 0.7]])

    def describe(self) -> Encoding:
        return Encoding(
            parts={"place": Real(0.0, 1.0, shape=2), "power": Real(0.01, 10.0, scale="log")},
            objectives=(Objective("cost", "minimize"),),
        )

    def initialize(self, rng: np.random.Generator) -> Decision:
        return self.describe().sample(rng)

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        distance = np.linalg.norm(self.houses - decision["place"], axis=1)
        signal = decision["power"] / (0.05 + distance**2)
        return Outcome(np.array([decision["power"] + np.exp(-signal).sum()]))


if __name__ == "__main__":
    problem = Transmitter()
    for name in ("ga", "nsga2", "cma-es", "pbt"):
        search = ec.make(name, problem.describe(), seed=0, initialize=problem.initialize)
        best = ec.run(search, problem, evaluations=2000).best()
        assert best.outcome is not None
        print(f"{name:7s} cost {best.outcome.objectives[0]:.4f} at {best.decision}")

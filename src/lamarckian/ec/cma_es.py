"""CMA-ES: N. Hansen, "The CMA Evolution Strategy: A Tutorial", 2016 (arXiv 1604.00772).

Equation numbers below are the tutorial's. ``covariance="diagonal"`` is the separable form (R. Ros,
N. Hansen, "A simple modification in CMA-ES achieving linear time and space complexity", 2008),
for networks and other large decisions.

Real parts are searched in [0, 1] on their declared scale; what leaves the box is reflected into it
(the distribution lives in the unfolded space, so selection sees no penalty). Everything is float64;
the condition number of the covariance and the step size are bounded, see ``CMAESConfig``.

Outcomes may come late or from elsewhere: steps of individuals that were sampled from an older
distribution are shortened to the length a fresh one may have (N. Hansen, "Injecting external
solutions into CMA-ES", 2011).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np

from lamarckian import seeding
from lamarckian.ec.batch import Batch
from lamarckian.ec.core import EC, Initialize, State
from lamarckian.ec.vectors import Vectors
from lamarckian.evaluator import Array, Encoding, Floats

#: ``covariance="auto"`` is full up to this many variables.
_FULL_UP_TO = 400


class CMAESConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``population`` None means 4 + ⌊3 ln D⌋ (48), ``generation_size`` None means ``population``.

    ``sigma`` is the first step size: a share of the range of real parts, in weight units for blobs.
    ``max_condition`` bounds the condition number of the covariance, ``min_sigma`` and ``max_sigma``
    the step size along the longest axis.
    """

    population: Annotated[int, msgspec.Meta(ge=4)] | None = None
    generation_size: Annotated[int, msgspec.Meta(ge=2)] | None = None
    sigma: Annotated[float, msgspec.Meta(gt=0.0)] = 0.3
    covariance: Literal["auto", "full", "diagonal"] = "auto"
    active: bool = True
    max_condition: Annotated[float, msgspec.Meta(gt=1.0)] = 1e14
    min_sigma: Annotated[float, msgspec.Meta(gt=0.0)] = 1e-18
    max_sigma: Annotated[float, msgspec.Meta(gt=0.0)] = 2.0


class CMAES(EC):
    """Covariance matrix adaptation; real parts and blobs, one objective."""

    name: ClassVar[str] = "cma-es"
    config_type: ClassVar[type[msgspec.Struct]] = CMAESConfig
    config: CMAESConfig

    def __init__(
        self,
        encoding: Encoding,
        seed: int,
        config: CMAESConfig | None = None,
        initialize: Initialize | None = None,
    ) -> None:
        super().__init__(encoding, seed, config, initialize)
        self.vectors = Vectors(self.layout)
        size = self.vectors.size
        choice = self.config.covariance
        self.is_full = choice == "full" or (choice == "auto" and size <= _FULL_UP_TO)
        start = self.layout.gather(
            [encoding.check_decision(self._initialize(seeding.stream(seed, "initialize", "mean")))]
        )
        self.mean: Floats = self.vectors.pack(start)[0]
        self.sigma = self.config.sigma
        #: Covariance [D, D], or its diagonal [D].
        self.covariance: Floats = np.eye(size) if self.is_full else np.ones(size)
        self._path_sigma = np.zeros(size)
        self._path_covariance = np.zeros(size)
        self._axes: Floats = np.eye(size) if self.is_full else np.empty((0, 0))
        self._lengths: Floats = np.ones(size)
        self._axes_age = 0
        self._sampled: dict[int, Floats] = {}
        self._set_constants(size)

    def _default_population(self) -> int:
        return 4 + int(3 * math.log(max(Vectors(self.layout).size, 1)))

    def _set_constants(self, size: int) -> None:
        num = self.generation_size
        raw = np.log((num + 1) / 2) - np.log(np.arange(1, num + 1))  # (49)
        mu = num // 2
        positive = raw[:mu] / raw[:mu].sum()
        self._mu_eff = 1.0 / float((positive**2).sum())
        d, m = float(size), self._mu_eff
        self._c_sigma = (m + 2) / (d + m + 5)  # (55)
        self._damping = 1 + 2 * max(0.0, math.sqrt((m - 1) / (d + 1)) - 1) + self._c_sigma
        self._c_path = (4 + m / d) / (d + 4 + 2 * m / d)  # (56)
        self._c_one = 2 / ((d + 1.3) ** 2 + m)  # (57)
        self._c_mu = min(1 - self._c_one, 2 * (0.25 + m + 1 / m - 2) / ((d + 2) ** 2 + m))  # (58)
        if not self.is_full:
            faster = (d + 2) / 3
            self._c_one = min(0.5, self._c_one * faster)
            self._c_mu = min(1 - self._c_one, self._c_mu * faster)
        weights = np.zeros(num)
        weights[:mu] = positive
        negative = raw[mu:]
        if self.config.active and negative.size and (total := -negative[negative < 0].sum()) > 0:
            mu_eff_minus = total**2 / float((negative**2).sum())
            alpha = min(
                1 + self._c_one / self._c_mu,  # (50)
                1 + 2 * mu_eff_minus / (m + 2),  # (51)
                (1 - self._c_one - self._c_mu) / (d * self._c_mu),  # (52)
            )
            weights[mu:] = np.where(negative < 0, alpha * negative / total, 0.0)  # (53)
        self._weights: Floats = weights
        self._expected_norm = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))

    # Sampling.

    def _propose(self, num: int) -> Batch:
        self._refresh_axes()
        ids = self.new_ids(num)
        normal = np.stack(
            [
                seeding.stream(self.seed, "ec", self.name, identifier).standard_normal(
                    self.vectors.size
                )
                for identifier in ids.tolist()
            ]
        )
        steps = normal * self._lengths
        if self.is_full:
            steps = steps @ self._axes.T
        vectors = self.mean + self.sigma * steps  # (40)
        self._sampled.update(zip(ids.tolist(), vectors))
        folded = vectors.copy()
        folded[:, : self.vectors.num_real] = _reflect(folded[:, : self.vectors.num_real])
        genes = self.vectors.unpack(folded)
        return self.new_batch(ids, np.full((num, 2), -1, np.int64), ("sample",), genes)

    def _refresh_axes(self) -> None:
        """Decompose the covariance when it has changed enough, and bound its condition."""
        rate = (self._c_one + self._c_mu) * self.vectors.size * 10
        if self._axes_age == 0 or (self.is_full and self._axes_age < 1 / rate):
            return
        self._axes_age = 0
        if not self.is_full:
            floor = self.covariance.max() / self.config.max_condition
            self.covariance = np.maximum(self.covariance, floor)
            self._lengths = np.sqrt(self.covariance)
            return
        self.covariance = (self.covariance + self.covariance.T) / 2
        values, self._axes = np.linalg.eigh(self.covariance)
        lack = values[-1] / self.config.max_condition - values[0]
        if lack > 0:
            self.covariance[np.diag_indices_from(self.covariance)] += lack
            values += lack
        self._lengths = np.sqrt(values)

    # Learning.

    def _select(self, arrivals: Batch) -> None:
        everyone = self.with_usable(arrivals)
        order = np.lexsort((everyone.costs[:, 0], everyone.violation))
        vectors = self._vectors_of(arrivals)
        usable = np.flatnonzero(np.isfinite(arrivals.violation))
        if len(usable) >= 2:
            rank = np.lexsort((arrivals.costs[usable, 0], arrivals.violation[usable]))
            chosen = usable[rank]
            fresh = arrivals.generation[chosen] == self.generation
            self._update(vectors[chosen], fresh, arrivals.costs[chosen, 0])
        self.population = everyone.take(order[: self.population_size])

    def _vectors_of(self, arrivals: Batch) -> Floats:
        sampled = [self._sampled.pop(identifier, None) for identifier in arrivals.ids.tolist()]
        if any(vector is None for vector in sampled):
            packed = self.vectors.pack(arrivals.genes)
            return np.stack(
                [packed[row] if each is None else each for row, each in enumerate(sampled)]
            )
        return np.stack([each for each in sampled if each is not None])

    def _whiten(self, steps: Floats) -> Floats:
        """Return C^(−1/2) of steps [P, D] (up to the age of the decomposition)."""
        if not self.is_full:
            return steps / self._lengths
        return np.asarray(((steps @ self._axes) / self._lengths) @ self._axes.T)

    def _update(self, vectors: Floats, fresh: Array, costs: Floats) -> None:
        size = float(self.vectors.size)
        steps = (vectors - self.mean) / self.sigma
        whitened = self._whiten(steps)
        norms = np.sqrt((whitened**2).sum(1))
        longest = math.sqrt(size) + 2 * size / (size + 2)
        shrink = np.where(fresh, 1.0, np.minimum(1.0, longest / np.maximum(norms, 1e-300)))
        steps = steps * shrink[:, None]
        norms = norms * shrink
        weights = self._weights_for(len(steps))
        positive = np.maximum(weights, 0.0)
        step = positive @ steps  # (41)
        self.mean = self.mean + self.sigma * step  # (42)

        c_sigma, c_path = self._c_sigma, self._c_path
        self._path_sigma = (1 - c_sigma) * self._path_sigma + math.sqrt(
            c_sigma * (2 - c_sigma) * self._mu_eff
        ) * self._whiten(step[None])[0]  # (43)
        norm = float(np.linalg.norm(self._path_sigma))
        decay = 1 - (1 - c_sigma) ** (2 * (self.generation + 1))
        slow = norm / math.sqrt(decay) < (1.4 + 2 / (size + 1)) * self._expected_norm
        self._path_covariance = (1 - c_path) * self._path_covariance
        if slow:
            self._path_covariance += math.sqrt(c_path * (2 - c_path) * self._mu_eff) * step  # (45)
        # (46): a negative weight counts by squared length, so the covariance stays positive.
        scaled = np.where(weights >= 0, weights, weights * size / np.maximum(norms**2, 1e-12))
        lost = 0.0 if slow else c_path * (2 - c_path)
        keep = 1 + self._c_one * lost - self._c_one - self._c_mu * float(weights.sum())
        if self.is_full:
            rank_one: Floats = np.outer(self._path_covariance, self._path_covariance)
            rank_mu: Floats = (steps.T * scaled) @ steps
        else:
            rank_one = self._path_covariance**2
            rank_mu = scaled @ steps**2
        self.covariance = keep * self.covariance + self._c_one * rank_one + self._c_mu * rank_mu
        self._axes_age += 1
        change = (c_sigma / self._damping) * (norm / self._expected_norm - 1)  # (44)
        # Flat costs carry no information: widen instead of drifting (Hansen, B.3).
        if costs[0] == costs[min(len(costs) - 1, math.ceil(0.7 * self.generation_size) - 1)]:
            change += 0.2 + c_sigma / self._damping
        self.sigma *= math.exp(min(1.0, change))
        longest_axis = float(self._lengths.max())
        low, high = self.config.min_sigma / longest_axis, self.config.max_sigma / longest_axis
        self.sigma = min(max(self.sigma, low), high)

    def _weights_for(self, num: int) -> Floats:
        """Return the weights of ``num`` usable outcomes: the missing ones were in the middle."""
        if num == len(self._weights):
            return self._weights
        half = (num + 1) // 2
        weights = np.concatenate(
            [self._weights[:half], self._weights[len(self._weights) - num + half :]]
        )
        weights = np.where(
            np.arange(num) < half, np.maximum(weights, 0.0), np.minimum(weights, 0.0)
        )
        total = weights[:half].sum()
        return np.asarray(np.where(weights > 0, weights / total, weights))

    # State.

    def _own_state(self) -> State:
        arrays = {
            "mean": self.mean,
            "covariance": self.covariance,
            "path_sigma": self._path_sigma,
            "path_covariance": self._path_covariance,
            "axes": self._axes,
            "lengths": self._lengths,
            "sampled_ids": np.array(list(self._sampled), np.int64),
            "sampled": np.array(list(self._sampled.values())).reshape(-1, self.vectors.size),
        }
        return {"sigma": self.sigma, "axes_age": self._axes_age}, arrays

    def _load_own_state(self, meta: dict[str, Any], arrays: dict[str, Array]) -> None:
        self.sigma, self._axes_age = meta["sigma"], meta["axes_age"]
        self.mean, self.covariance = arrays["mean"].copy(), arrays["covariance"].copy()
        self._path_sigma = arrays["path_sigma"].copy()
        self._path_covariance = arrays["path_covariance"].copy()
        self._axes, self._lengths = arrays["axes"].copy(), arrays["lengths"].copy()
        self._sampled = dict(zip(arrays["sampled_ids"].tolist(), arrays["sampled"]))


def _reflect(values: Floats) -> Floats:
    """Fold the real line into [0, 1] by mirrors at 0 and 1."""
    folded: Floats = 1.0 - np.abs(np.mod(values, 2.0) - 1.0)
    return folded

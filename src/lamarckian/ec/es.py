"""Evolution strategy of T. Salimans, J. Ho, X. Chen, S. Sidor, I. Sutskever, "Evolution strategies as
a scalable alternative to reinforcement learning", 2017 (arXiv 1703.03864).

Mirrored noise, centred ranks, weight decay, Adam. Individuals 2k and 2k + 1 are the mean plus and
minus the same noise, which is drawn again from its stream when outcomes arrive instead of being
kept. Parts written back by outcomes are not used: the search moves its own mean.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from lamarckian import seeding
from lamarckian.ec.batch import Batch
from lamarckian.ec.core import EC, Initialize, State
from lamarckian.ec.vectors import Vectors
from lamarckian.evaluator import Array, Encoding, Floats

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


class ESConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sigma`` and ``learning_rate``: share of the range of real parts, weight units for blobs."""

    population: Annotated[int, msgspec.Meta(ge=2)] = 64
    generation_size: Annotated[int, msgspec.Meta(ge=2)] | None = None
    sigma: Annotated[float, msgspec.Meta(gt=0.0)] = 0.05
    learning_rate: Annotated[float, msgspec.Meta(gt=0.0)] = 0.02
    weight_decay: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0


class ES(EC):
    """OpenAI-style evolution strategy; real parts and blobs, one objective."""

    name: ClassVar[str] = "es"
    config_type: ClassVar[type[msgspec.Struct]] = ESConfig
    config: ESConfig

    def __init__(
        self,
        encoding: Encoding,
        seed: int,
        config: ESConfig | None = None,
        initialize: Initialize | None = None,
    ) -> None:
        super().__init__(encoding, seed, config, initialize)
        self.vectors = Vectors(self.layout)
        start = self.layout.gather(
            [encoding.check_decision(self._initialize(seeding.stream(seed, "initialize", "mean")))]
        )
        self.mean: Floats = self.vectors.pack(start)[0]
        self._moment_1 = np.zeros(self.vectors.size)
        self._moment_2 = np.zeros(self.vectors.size)
        self._num_updates = 0

    def _noise(self, identifier: int) -> Floats:
        """Return the signed unit noise of an individual, float64 [D]."""
        stream = seeding.stream(self.seed, "ec", self.name, identifier // 2)
        noise = stream.standard_normal(self.vectors.size)
        return noise if identifier % 2 == 0 else -noise

    def _propose(self, num: int) -> Batch:
        ids = self.new_ids(num)
        vectors = np.stack(
            [self.mean + self.config.sigma * self._noise(each) for each in ids.tolist()]
        )
        genes = self.vectors.unpack(vectors)
        return self.new_batch(ids, np.full((num, 2), -1, np.int64), ("noise",), genes)

    def _select(self, arrivals: Batch) -> None:
        everyone = self.with_usable(arrivals)
        order = np.lexsort((everyone.costs[:, 0], everyone.violation))
        self.population = everyone.take(order[: self.population_size])
        rows = self._complete_pairs(arrivals)
        if len(rows) < 2:
            return
        shaped = _centred_ranks(arrivals.violation[rows], arrivals.costs[rows, 0])
        gradient = np.zeros(self.vectors.size)
        for weight, identifier in zip(shaped.tolist(), arrivals.ids[rows].tolist()):
            gradient += weight * self._noise(identifier)
        # Descent on cost.
        gradient /= len(rows) * self.config.sigma
        self._step(gradient + self.config.weight_decay * self.mean)

    def _complete_pairs(self, arrivals: Batch) -> Array:
        """Return the usable rows; of a pair of which one half failed, neither half counts."""
        usable = np.isfinite(arrivals.violation)
        failed_pairs = set((arrivals.ids[~usable] // 2).tolist())
        origins = arrivals.origins
        return np.array(
            [
                row
                for row, identifier in enumerate(arrivals.ids.tolist())
                if origins[row] == ("noise",) and identifier // 2 not in failed_pairs
            ],
            np.int64,
        )

    def _step(self, gradient: Floats) -> None:
        """One update of Adam (D. Kingma, J. Ba 2015) on the mean; reals stay within bounds."""
        self._num_updates += 1
        self._moment_1 = _BETA_1 * self._moment_1 + (1 - _BETA_1) * gradient
        self._moment_2 = _BETA_2 * self._moment_2 + (1 - _BETA_2) * gradient**2
        first = self._moment_1 / (1 - _BETA_1**self._num_updates)
        second = self._moment_2 / (1 - _BETA_2**self._num_updates)
        mean = self.mean - self.config.learning_rate * first / (np.sqrt(second) + _EPSILON)
        mean[: self.vectors.num_real] = np.clip(mean[: self.vectors.num_real], 0.0, 1.0)
        self.mean = mean

    def _own_state(self) -> State:
        return {"num_updates": self._num_updates}, {
            "mean": self.mean,
            "moment_1": self._moment_1,
            "moment_2": self._moment_2,
        }

    def _load_own_state(self, meta: dict[str, Any], arrays: dict[str, Array]) -> None:
        self._num_updates = meta["num_updates"]
        self.mean = arrays["mean"].copy()
        self._moment_1, self._moment_2 = arrays["moment_1"].copy(), arrays["moment_2"].copy()


def _centred_ranks(violation: Floats, costs: Floats) -> Floats:
    """Return ranks scaled to [−0.5, 0.5], worst 0.5; equal outcomes share their mean rank."""
    num = len(costs)
    order = np.lexsort((costs, violation))
    new = np.ones(num, np.bool_)
    new[1:] = (np.diff(costs[order]) != 0) | (np.diff(violation[order]) != 0)
    group = np.cumsum(new) - 1
    mean_rank = np.bincount(group, weights=np.arange(num)) / np.bincount(group)
    ranks = np.empty(num)
    ranks[order] = mean_rank[group]
    return ranks / (num - 1) - 0.5

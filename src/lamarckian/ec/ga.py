"""Genetic algorithm for one objective: tournament selection, elitist replacement.

J. H. Holland, "Adaptation in Natural and Artificial Systems", 1975; real operators after K. Deb.
Parents and arrivals together are ordered by (violation, cost) and the best ``population`` survive:
(μ + λ) replacement. With ``num_elites`` set, only that many parents compete with the arrivals.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from lamarckian.ec.batch import Batch
from lamarckian.ec.breeding import Breeder
from lamarckian.ec.core import EC, Initialize
from lamarckian.ec.variation import VariationConfig
from lamarckian.evaluator import Encoding


class GAConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``generation_size`` is the number of arrivals per selection; None means ``population``.

    ``num_elites`` is how many parents may survive a selection; None means all.
    """

    population: Annotated[int, msgspec.Meta(ge=2)] = 100
    generation_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    tournament_size: Annotated[int, msgspec.Meta(ge=1)] = 2
    num_elites: Annotated[int, msgspec.Meta(ge=0)] | None = None
    variation: VariationConfig = VariationConfig()


class GA(EC):
    """Genetic algorithm; any kind of part, one objective."""

    name: ClassVar[str] = "ga"
    config_type: ClassVar[type[msgspec.Struct]] = GAConfig
    config: GAConfig

    def __init__(
        self,
        encoding: Encoding,
        seed: int,
        config: GAConfig | None = None,
        initialize: Initialize | None = None,
    ) -> None:
        super().__init__(encoding, seed, config, initialize)
        self.breeder = Breeder(self, self.config.variation, self.config.tournament_size)

    def _propose(self, num: int) -> Batch:
        return self.breeder.propose(num)

    def _select(self, arrivals: Batch) -> None:
        elites = self.config.num_elites
        full = len(self.population) >= self.population_size
        if elites is not None and full:
            # With few arrivals, enough parents stay to keep the population full.
            keep = max(elites, self.population_size - len(arrivals))
            self.population = self.population.take(np.arange(min(keep, len(self.population))))
        everyone = self.with_usable(arrivals)
        order = np.lexsort((everyone.costs[:, 0], everyone.violation))
        self.population = everyone.take(order[: self.population_size])

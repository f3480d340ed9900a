"""NSGA-II: K. Deb, A. Pratap, S. Agarwal, T. Meyarivan, "A fast and elitist multiobjective genetic
algorithm: NSGA-II", IEEE Transactions on Evolutionary Computation 6(2), 2002.

Binary tournament by (front, crowding); each child by crossover and mutation of its own pair;
parents and arrivals together are filled front by front, the last front by crowding. Constraints by
constraint domination.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from lamarckian.ec import pareto
from lamarckian.ec.batch import Batch
from lamarckian.ec.breeding import Breeder
from lamarckian.ec.core import EC, Initialize
from lamarckian.ec.variation import VariationConfig
from lamarckian.evaluator import Encoding


class NSGA2Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``generation_size`` is the number of arrivals per selection; None means ``population``."""

    population: Annotated[int, msgspec.Meta(ge=2)] = 100
    generation_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    variation: VariationConfig = VariationConfig()


class NSGA2(EC):
    """Non-dominated sorting genetic algorithm II; any kind of part, any number of objectives."""

    name: ClassVar[str] = "nsga2"
    config_type: ClassVar[type[msgspec.Struct]] = NSGA2Config
    config: NSGA2Config

    def __init__(
        self,
        encoding: Encoding,
        seed: int,
        config: NSGA2Config | None = None,
        initialize: Initialize | None = None,
    ) -> None:
        super().__init__(encoding, seed, config, initialize)
        self.breeder = Breeder(self, self.config.variation)

    def _propose(self, num: int) -> Batch:
        return self.breeder.propose(num)

    def _select(self, arrivals: Batch) -> None:
        everyone = self.with_usable(arrivals)
        if len(everyone):
            rows = pareto.survivors(everyone.costs, everyone.violation, self.population_size)
            self.population = everyone.take(rows)

"""NSGA-II: K. Deb, A. Pratap, S. Agarwal, T. Meyarivan, "A fast and elitist multiobjective genetic
algorithm: NSGA-II", IEEE Transactions on Evolutionary Computation 6(2), 2002.

Binary tournament by (front, crowding); each child by crossover and mutation of its own pair;
parents and arrivals together are filled front by front, the last front by crowding. Constraints by
constraint domination.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from lamarckian.ec import pareto
from lamarckian.ec.core import EC, Initialize
from lamarckian.ec.draws import Draws
from lamarckian.ec.population import Batch, Integers
from lamarckian.ec.variation import Variation, VariationConfig
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
        self.variation = Variation(self.layout, self.config.variation, seed, self.name)
        self._num_words = 4 + self.variation.crossover_words + self.variation.mutation_words

    def _propose(self, num: int) -> Batch:
        num_initial = max(0, min(num, self.population_size - self._next_id))
        if len(self.population) < 2:
            return self._initial(num)
        batches = [self._initial(num_initial)] if num_initial else []
        if num > num_initial:
            batches.append(self._unique(self._new_ids(num - num_initial), self._breed))
        return Batch.concatenate(batches)

    def _breed(self, ids: Integers, attempt: int) -> Batch:
        population = self.population
        draws = Draws(self._key, ids, self._num_words, attempt)
        rows = self._mating(draws)
        genes = self.variation.crossover(
            population.genes.take(rows[:, 0]), population.genes.take(rows[:, 1]), draws
        )
        genes = self.variation.mutate(genes, draws, ids, attempt)
        origins = [self.variation.operators] * len(ids)
        return self._new_batch(ids, population.ids[rows], origins, genes)

    def _mating(self, draws: Draws) -> Integers:
        """Return parent rows [P, 2], the fitter one first.

        The population is kept in the order of (front, crowding), so the winner of a tournament is
        the entrant with the lower row.
        """
        entrants = draws.below(len(self.population), 4)
        rows = np.minimum(entrants[:, :2], entrants[:, 2:])
        rows.sort(1)
        return rows

    def _select(self, arrivals: Batch) -> None:
        everyone = self._with_usable(arrivals)
        ranks = pareto.constrained_sort(everyone.costs, everyone.violation)
        distance = pareto.crowding(everyone.costs, ranks)
        order = np.lexsort((-distance, ranks))
        self.population = everyone.take(order[: self.population_size])

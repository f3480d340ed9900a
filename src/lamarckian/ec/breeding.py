"""Mating by binary tournament and breeding of children: shared by GA and NSGA-II.

The population is kept in order of fitness, so the winner of a tournament is the entrant with the
lower row, whatever fitness means to the search.
"""

from __future__ import annotations

import numpy as np

from lamarckian.ec.core import EC
from lamarckian.ec.draws import Draws, DrawSource
from lamarckian.ec.population import Batch, Integers
from lamarckian.ec.variation import Variation, VariationConfig


class Breeder:
    """Makes the proposals of ``search``, whose population is ordered from best to worst."""

    def __init__(self, search: EC, config: VariationConfig, tournament_size: int = 2) -> None:
        self.search = search
        self.variation = Variation(search.layout, config, search.seed, search.name)
        self.tournament_size = tournament_size
        num_words = 2 * tournament_size + self.variation.num_words
        self._source = DrawSource(search.seed, search.name, num_words)

    def propose(self, num: int) -> Batch:
        """Return first individuals while the first population is not asked out, then children."""
        search = self.search
        num_initial = max(0, min(num, search.population_size - search.num_proposed))
        if len(search.population) < 2:
            num_initial = num
        batches = [search.propose_initial(num_initial)] if num_initial else []
        if num > num_initial:
            batches.append(search.propose_unique(num - num_initial, self.breed))
        return Batch.concatenate(batches)

    def breed(self, ids: Integers, attempt: int) -> Batch:
        """Return one child per id, each of its own pair."""
        population = self.search.population
        draws = self._source.draws(ids, attempt)
        rows = self._mating(draws)
        first = population.genes.take(rows[:, 0])
        genes = self.variation.crossover(first, population.genes.take(rows[:, 1]), draws)
        genes = self.variation.mutate(genes, draws, ids, attempt, first)
        origins = [self.variation.operators] * len(ids)
        return self.search.new_batch(ids, population.ids[rows], origins, genes)

    def _mating(self, draws: Draws) -> Integers:
        """Return parent rows [P, 2], the fitter one first."""
        size = self.tournament_size
        entrants = draws.below(len(self.search.population), 2 * size)
        rows = np.minimum(entrants[:, :2], entrants[:, 2:4]) if size > 1 else entrants
        for entrant in range(4, 2 * size, 2):
            np.minimum(rows, entrants[:, entrant : entrant + 2], out=rows)
        # Nobody mates with itself: the next in rank steps in.
        rows[:, 1] += rows[:, 0] == rows[:, 1]
        rows[:, 1] %= len(self.search.population)
        rows.sort(1)
        return rows

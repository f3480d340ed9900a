"""Mating by binary tournament and breeding of children: shared by GA and NSGA-II.

The population is kept in order of fitness, so the winner of a tournament is the entrant with the
lower row, whatever fitness means to the search.
"""

from __future__ import annotations

import itertools

import numpy as np

from lamarckian.ec.batch import ID, Batch
from lamarckian.ec.core import EC
from lamarckian.ec.draws import Bits, DrawSource, to_uniform
from lamarckian.ec.plans import Plan
from lamarckian.ec.population import Integers
from lamarckian.ec.variation import Variation, VariationConfig
from lamarckian.evaluator import Floats


class Breeder:
    """Makes the proposals of ``search``, whose population is ordered from best to worst."""

    def __init__(self, search: EC, config: VariationConfig, tournament_size: int = 2) -> None:
        self.search = search
        self.variation = Variation(search.layout, config, search.seed, search.name)
        self.tournament_size = tournament_size
        num_words = 2 * tournament_size + self.variation.num_words
        self._source = DrawSource(search.seed, search.name, num_words)
        self._block = -1
        self._planned: tuple[Floats, Plan] | None = None

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
        """Return one child per id, each of its own pair of the population as it is now."""
        if attempt == 0 and int(ids[-1]) - int(ids[0]) == len(ids) - 1:
            size = self._source.block_size
            first, last = int(ids[0]), int(ids[-1]) + 1
            cuts = [first, *range((first // size + 1) * size, last, size), last]
            batches = []
            for start, stop in itertools.pairwise(cuts):
                entrants, plan = self._plan_of(start // size)
                begin = start % size
                rows = slice(begin, begin + stop - start)
                part = ids[start - first : stop - first]
                batches.append(self._children(part, 0, entrants[rows], plan, rows))
            return Batch.concatenate(batches)
        entrants, plan = self._plan(self._source.words(ids, attempt))
        return self._children(ids, attempt, entrants, plan, slice(0, len(ids)))

    def _plan_of(self, block: int) -> tuple[Floats, Plan]:
        if self._planned is None or self._block != block:
            self._planned = self._plan(self._source.block(block))
            self._block = block
        return self._planned

    def _plan(self, words: Bits) -> tuple[Floats, Plan]:
        num = 2 * self.tournament_size
        return to_uniform(words[:, :num]), self.variation.plan(words[:, num:])

    def _children(
        self, ids: Integers, attempt: int, entrants: Floats, plan: Plan, rows: slice
    ) -> Batch:
        population = self.search.population
        pairs = self._mating(entrants)
        first, second = pairs[:, 0], pairs[:, 1]
        genes = self.variation.vary(
            population.genes.take(first),
            population.genes.take(second),
            plan,
            rows,
            ids,
            attempt,
        )
        parents = population.tags[:, ID].take(pairs)
        return self.search.new_batch(ids, parents, self.variation.operators, genes)

    def _mating(self, entrants: Floats) -> Integers:
        """Return the population rows of the parents of each child, [P, 2], the fitter one first."""
        num = len(self.search.population)
        rows = (entrants * num).astype(np.int64)
        pairs = rows[:, :2]
        for entrant in range(2, 2 * self.tournament_size, 2):
            pairs = np.minimum(pairs, rows[:, entrant : entrant + 2])
        # Nobody mates with itself: the next in rank steps in.
        pairs[:, 1] += pairs[:, 0] == pairs[:, 1]
        pairs[:, 1] %= num
        pairs.sort(1)
        return pairs

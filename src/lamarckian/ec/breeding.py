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


class Breeder:
    """Makes the proposals of ``search``, whose population is ordered from best to worst."""

    def __init__(self, search: EC, config: VariationConfig, tournament_size: int = 2) -> None:
        self.search = search
        self.variation = Variation(search.layout, config, search.seed, search.name)
        self.tournament_size = tournament_size
        num_words = 2 * tournament_size + self.variation.num_words
        self._source = DrawSource(search.seed, search.name, num_words)
        self._planned: tuple[int, Plan] | None = None
        self._paired: tuple[int, Integers] | None = None

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
                plan, pairs = self._plan_of(start // size)
                begin = start % size
                rows = slice(begin, begin + stop - start)
                part = ids[start - first : stop - first]
                batches.append(self._children(part, 0, pairs[rows], plan, rows))
            return Batch.concatenate(batches)
        words = self._source.words(ids, attempt)
        plan, pairs = self._plan(words), self._mating(words, len(self.search.population))
        return self._children(ids, attempt, pairs, plan, slice(0, len(ids)))

    def _plan_of(self, block: int) -> tuple[Plan, Integers]:
        """Return the plan of a block and its pairs of the population as large as it is now."""
        words = self._source.block(block)
        if self._planned is None or self._planned[0] != block:
            self._planned = (block, self._plan(words))
            self._paired = None
        num = len(self.search.population)
        if self._paired is None or self._paired[0] != num:
            self._paired = (num, self._mating(words, num))
        return self._planned[1], self._paired[1]

    def _plan(self, words: Bits) -> Plan:
        return self.variation.plan(words[:, 2 * self.tournament_size :])

    def _children(
        self, ids: Integers, attempt: int, pairs: Integers, plan: Plan, rows: slice
    ) -> Batch:
        population = self.search.population
        genes = self.variation.vary(
            population.genes.take(pairs[:, 0]),
            population.genes.take(pairs[:, 1]),
            plan,
            rows,
            ids,
            attempt,
        )
        parents = population.tags[:, ID].take(pairs)
        return self.search.new_batch(ids, parents, self.variation.operators, genes)

    def _mating(self, words: Bits, num: int) -> Integers:
        """Return rows [P, 2] of a population of ``num``: the parents, the fitter one first."""
        rows = (to_uniform(words[:, : 2 * self.tournament_size]) * num).astype(np.int64)
        pairs = rows[:, :2]
        for entrant in range(2, 2 * self.tournament_size, 2):
            pairs = np.minimum(pairs, rows[:, entrant : entrant + 2])
        # Nobody mates with itself: the next in rank steps in.
        pairs[:, 1] += pairs[:, 0] == pairs[:, 1]
        pairs[:, 1] %= num
        pairs.sort(1)
        return pairs

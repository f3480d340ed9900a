"""What random words decide about a block of children, worked out once for the whole block.

Which genes cross and mutate, how far and in which direction depends on the words alone, not on the
parents. So it is computed for some hundreds of children at a time, and a generation, or a single
child, takes its rows: the part of variation that is paid per call is the arithmetic on the genes
that change.
"""

from __future__ import annotations

import numpy as np

from lamarckian.ec import operators, pareto
from lamarckian.ec.draws import Bits, to_uniform
from lamarckian.ec.population import Integers, Layout
from lamarckian.evaluator import Floats

_COIN_1, _COIN_2 = np.uint64(1), np.uint64(2)
_HALF, _LOWER = np.uint64(32), np.uint64(0xFFFFFFFF)
_UNIT = 2.0**-32


class Plan:
    """The plans of B children: ``words`` [B, W], ``crossed`` bool [B, 1], ``real`` genes."""

    __slots__ = ("crossed", "real", "words")

    def __init__(
        self, words: Bits, layout: Layout, crossover_probability: float, rate: float, change: bool
    ) -> None:
        self.words = words
        self.crossed = to_uniform(words[:, :1]) < crossover_probability
        self.real = RealPlan(
            words[:, : 1 + len(layout.real_low)], layout, self.crossed, rate, change
        )


class RealPlan:
    """Crossover (SBX, each gene with probability ½) and polynomial mutation of real genes.

    A gene has one word: the upper half is the uniform number of the crossover, the lower half that
    of the mutation, with the coins in its last bits. With ``change``, a child that would stay a copy
    of its parent mutates in one gene: cheaper than noticing the copy later and breeding again.
    """

    def __init__(
        self, words: Bits, layout: Layout, crossed: operators.Mask, rate: float, change: bool
    ) -> None:
        self.layout = layout
        num_children, columns = len(words), words.shape[1] - 1
        self._columns = columns
        spare, flat = words[:, 0], words[:, 1:].reshape(-1)
        begins = np.arange(num_children + 1) * columns
        applied = (flat & _COIN_1).astype(np.bool_).reshape(num_children, columns)
        applied &= crossed
        self._where = np.flatnonzero(applied)
        chosen = flat.take(self._where)
        self._uniform = np.asarray((chosen >> _HALF) * _UNIT, np.float64)
        self._side = np.asarray((chosen & _COIN_2) - 1.0, np.float64)
        self._starts = self._where.searchsorted(begins).tolist()

        threshold = rate * 2.0**32
        lower = flat & _LOWER
        mutated = (lower < np.uint64(threshold)).reshape(num_children, columns)
        if change and rate > 0.0 and columns:
            copies = np.flatnonzero(~(applied.any(1) | mutated.any(1)))
            # Crossing used the upper bits of the spare word, and said no.
            place = copies * columns + ((spare[copies] & _LOWER) * _UNIT * columns).astype(np.int64)
            mutated.reshape(-1)[place] = True
            lower[place] = (lower[place] * rate).astype(np.uint64)
        self._mutated = np.flatnonzero(mutated)
        side = lower.take(self._mutated) * (2.0 / max(threshold, 1.0)) - 1.0
        self._mutation = np.asarray(side, np.float64)
        self._mutation_starts = self._mutated.searchsorted(begins).tolist()
        self._low = self._bounds(layout.scaled_low, self._where)
        self._high = self._bounds(layout.scaled_high, self._where)
        self._mutation_low = self._bounds(layout.scaled_low, self._mutated)
        self._mutation_high = self._bounds(layout.scaled_high, self._mutated)

    def _bounds(self, bounds: Floats, where: Integers) -> operators.Bounds:
        """Return the bounds of the genes at ``where``, or one number if all columns share it."""
        if len(bounds) and (bounds == bounds[0]).all():
            return np.float64(bounds[0])
        per_gene: Floats = bounds.take(where % self._columns)
        return per_gene

    def apply(
        self,
        first: Floats,
        second: Floats,
        rows: slice,
        crossover_eta: float,
        mutation_eta: float,
    ) -> Floats:
        """Return the children [P, Dr] by ``rows`` of the plan; ``first`` may be overwritten."""
        layout = self.layout
        if layout.has_log:
            scaled = layout.to_scale(first)
            child = scaled.copy()
            self._change(child, layout.to_scale(second), rows, crossover_eta, mutation_eta)
            # exp(log(x)) is not x: genes that were not touched keep their exact value.
            return np.where(child == scaled, first, layout.from_scale(child))
        self._change(first, second, rows, crossover_eta, mutation_eta)
        return first

    def _change(
        self,
        child: Floats,
        second: Floats,
        rows: slice,
        crossover_eta: float,
        mutation_eta: float,
    ) -> None:
        flat, offset = child.reshape(-1), rows.start * self._columns
        part = slice(self._starts[rows.start], self._starts[rows.stop])
        loops = pareto.compiled()
        if loops is not None:
            low, high = self.layout.scaled_low, self.layout.scaled_high
            where, uniform, side = self._where[part], self._uniform[part], self._side[part]
            loops.cross(child, second, where, offset, low, high, uniform, side, crossover_eta)
            part = slice(self._mutation_starts[rows.start], self._mutation_starts[rows.stop])
            where, side = self._mutated[part], self._mutation[part]
            loops.mutate(child, where, offset, low, high, side, mutation_eta)
            return
        where = self._where[part] - offset
        flat[where] = operators.sbx_genes(
            flat[where],
            second.reshape(-1)[where],
            _part(self._low, part),
            _part(self._high, part),
            self._uniform[part],
            self._side[part],
            crossover_eta,
        )
        part = slice(self._mutation_starts[rows.start], self._mutation_starts[rows.stop])
        where = self._mutated[part] - offset
        flat[where] = operators.polynomial_genes(
            flat[where],
            _part(self._mutation_low, part),
            _part(self._mutation_high, part),
            self._mutation[part],
            mutation_eta,
        )


def _part(bounds: operators.Bounds, part: slice) -> operators.Bounds:
    return bounds[part] if isinstance(bounds, np.ndarray) else bounds

"""MAP-Elites: J.-B. Mouret, J. Clune, "Illuminating search spaces by mapping elites", 2015
(arXiv 1504.04909).

The space of behaviour descriptors is a grid; each cell keeps the best individual that fell into it.
Children vary elites drawn uniformly from the filled cells. Differences from the paper: two parents
are crossed as in the GA (set ``variation.crossover_probability`` to 0 for mutation only), and values
outside the declared range fall into the outermost cells.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from lamarckian.ec.batch import Batch
from lamarckian.ec.breeding import Breeder
from lamarckian.ec.core import EC, Initialize
from lamarckian.ec.population import Integers
from lamarckian.ec.variation import VariationConfig
from lamarckian.evaluator import Encoding


class MAPElitesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``population`` is the number of first individuals, drawn before breeding begins.

    ``generation_size`` is the number of arrivals per update of the archive; None means
    ``population``.
    """

    population: Annotated[int, msgspec.Meta(ge=2)] = 100
    generation_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    variation: VariationConfig = VariationConfig()


class MAPElites(EC):
    """Archive of elites over behaviour; ``population`` is the archive, one individual per cell."""

    name: ClassVar[str] = "map-elites"
    config_type: ClassVar[type[msgspec.Struct]] = MAPElitesConfig
    config: MAPElitesConfig

    def __init__(
        self,
        encoding: Encoding,
        seed: int,
        config: MAPElitesConfig | None = None,
        initialize: Initialize | None = None,
    ) -> None:
        super().__init__(encoding, seed, config, initialize)
        # Tournaments of one: every filled cell is an equally likely parent.
        self.breeder = Breeder(self, self.config.variation, tournament_size=1)
        self._bins = np.array([each.bins for each in encoding.descriptors])
        self._low = np.array([each.low for each in encoding.descriptors])
        self._high = np.array([each.high for each in encoding.descriptors])

    def cells(self, batch: Batch) -> Integers:
        """Return the flat index of the cell of each individual, int64 [P]."""
        share = (batch.descriptors - self._low) / (self._high - self._low)
        index = np.clip((share * self._bins).astype(np.int64), 0, self._bins - 1)
        return np.asarray(np.ravel_multi_index(tuple(index.T), tuple(self._bins)), np.int64)

    @property
    def coverage(self) -> float:
        """Share of the cells that are filled, 0 to 1."""
        return len(self.population) / float(np.prod(self._bins))

    def _propose(self, num: int) -> Batch:
        return self.breeder.propose(num)

    def _select(self, arrivals: Batch) -> None:
        everyone = self.with_usable(arrivals)
        if not len(everyone):
            return
        cells = self.cells(everyone)
        # Within a cell the best comes first; on a tie the one that was there before.
        order = np.lexsort((everyone.costs[:, 0], everyone.violation, cells))
        first = np.ones(len(order), np.bool_)
        first[1:] = cells[order[1:]] != cells[order[:-1]]
        self.population = everyone.take(order[first])

"""Mating, crossover and mutation of whole decisions: which operator acts on which part.

``Variation`` is shared by the searches that breed (GA, NSGA-II, MAP-Elites). Each child has two
parents of its own and draws from its own stream, so children can be made alone or many at once.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import numpy as np

from lamarckian import seeding
from lamarckian.ec import operators
from lamarckian.ec.draws import Bits, Draws, to_uniform
from lamarckian.ec.operators import Mask
from lamarckian.ec.plans import Plan
from lamarckian.ec.population import Genes, Integers, Layout
from lamarckian.errors import ConfigError
from lamarckian.evaluator import BlobValue

Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]

_COIN_1 = np.uint64(1)


class VariationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How parents become a child.

    ``mutation_rate`` is per column of real, integer and categorical parts; None means 1 over their
    number. ``blob_deviation`` is the standard deviation of the noise on network weights.
    """

    crossover_probability: Probability = 0.9
    crossover_eta: Positive = 15.0
    mutation_eta: Positive = 20.0
    mutation_rate: Probability | None = None
    integer_mutation: Literal["step", "bitwise"] = "step"
    discrete_crossover: Literal["uniform", "single-point"] = "uniform"
    permutation_crossover: Literal["order", "cycle"] = "order"
    permutation_mutation_probability: Probability = 0.5
    blob_crossover: Literal["layers", "fitter"] = "layers"
    blob_deviation: NotNegative = 0.02


class Variation:
    """Operators for one layout. Raises ConfigError if an operator cannot act on a part."""

    def __init__(self, layout: Layout, config: VariationConfig, seed: int, name: str) -> None:
        self.layout = layout
        self.config = config
        self._seed = seed
        self._name = name
        self._num_real = len(layout.real_low)
        self._num_integer = len(layout.integer_low)
        self._num_categorical = len(layout.num_choices)
        columns = self._num_real + self._num_integer + self._num_categorical
        rate = config.mutation_rate
        self.mutation_rate = 1.0 / max(columns, 1) if rate is None else rate
        if config.permutation_crossover == "cycle":
            for part_name, part in layout.permutations.items():
                if part.num_chosen != part.num_items:
                    raise ConfigError(
                        f"permutation_crossover='cycle' needs parents with the same items; part "
                        f"'{part_name}' chooses {part.num_chosen} of {part.num_items}: use 'order'"
                    )
        others = (
            self._num_integer
            + self._num_categorical
            + 2 * len(layout.permutations)
            + sum(len(part.shapes) for part in layout.blobs.values())
            + 2 * self._num_integer
            + 2 * self._num_categorical
            + 3 * len(layout.permutations)
        )
        #: Random words per child: whether it is crossed, the real genes, everything else.
        self.num_words = 1 + self._num_real + others
        self._all_real = self._num_real == columns and not layout.permutations and not layout.blobs
        self.operators = tuple(self._operator_names())

    def _operator_names(self) -> list[str]:
        names = []
        if self._num_real:
            names += ["sbx", "polynomial"]
        if self._num_integer:
            names += [self.config.discrete_crossover, self.config.integer_mutation]
        if self._num_categorical:
            names += [self.config.discrete_crossover, "reset"]
        if self.layout.permutations:
            names += [self.config.permutation_crossover, "swap"]
        if self.layout.blobs:
            names += [self.config.blob_crossover, "gaussian"]
        return list(dict.fromkeys(names))

    def plan(self, words: Bits) -> Plan:
        """Return what the words [B, num_words] of B children decide, whoever their parents are."""
        return Plan(
            words,
            self.layout,
            self.config.crossover_probability,
            self.mutation_rate,
            self._all_real,
        )

    def vary(
        self,
        first: Genes,
        second: Genes,
        plan: Plan,
        rows: slice,
        ids: Integers,
        attempt: int = 0,
    ) -> Genes:
        """Return one child per pair, by ``rows`` of the plan; ``first`` may be overwritten.

        ``blob_crossover="fitter"`` takes blobs of ``first``.
        """
        real = first.real
        if self._num_real:
            real = plan.real.apply(
                first.real, second.real, rows, self.config.crossover_eta, self.config.mutation_eta
            )
        if self._all_real:
            return Genes(real, first.integer, first.categorical, {}, {})
        crossed = plan.crossed[rows]
        draws = Draws(plan.words[rows, 1 + self._num_real :])
        genes = self._crossover(first, second, draws, crossed)
        genes.real = real
        return self._mutate(genes, draws, ids, attempt)

    def _crossover(self, first: Genes, second: Genes, draws: Draws, crossed: Mask) -> Genes:
        config, layout = self.config, self.layout
        integer, categorical = first.integer, first.categorical
        if self._num_integer:
            integer = self._cross_discrete(integer, second.integer, draws, crossed)
        if self._num_categorical:
            categorical = self._cross_discrete(categorical, second.categorical, draws, crossed)
        permutations = {}
        for name, part in layout.permutations.items():
            cuts = np.sort(draws.below(part.num_chosen + 1, 2), 1)
            mine, theirs = first.permutations[name], second.permutations[name]
            child_items = (
                operators.order_crossover(mine, theirs, part.num_items, cuts[:, 0], cuts[:, 1])
                if config.permutation_crossover == "order"
                else operators.cycle_crossover(mine, theirs)
            )
            permutations[name] = np.where(crossed, child_items, mine)
        blobs: dict[str, list[BlobValue]] = {}
        for name, blob_part in layout.blobs.items():
            coins = draws.uniform(len(blob_part.shapes)) < 0.5
            if config.blob_crossover == "fitter":
                blobs[name] = list(first.blobs[name])
                continue
            layers = list(dict.fromkeys(operators.layer_of(key) for key in blob_part.shapes))
            blobs[name] = [
                operators.layer_crossover(
                    mine_blob,
                    theirs_blob,
                    {
                        layer: bool(coins[row, index]) and bool(crossed[row, 0])
                        for index, layer in enumerate(layers)
                    },
                )
                for row, (mine_blob, theirs_blob) in enumerate(
                    zip(first.blobs[name], second.blobs[name], strict=True)
                )
            ]
        return Genes(first.real, integer, categorical, permutations, blobs)

    def _mutate(self, genes: Genes, draws: Draws, ids: Integers, attempt: int) -> Genes:
        config, layout, rate = self.config, self.layout, self.mutation_rate
        integer, categorical = genes.integer, genes.categorical
        if self._num_integer:
            words = draws.bits(self._num_integer)
            uniform = draws.uniform(self._num_integer)
            mutated = to_uniform(words) < rate
            low, high = layout.integer_low, layout.integer_high
            if config.integer_mutation == "step":
                upwards = (words & _COIN_1).astype(np.bool_)
                integer = operators.integer_step(integer, low, high, uniform, upwards, mutated)
            else:
                # One bit of the range, chosen at random.
                num_bits = np.ceil(np.log2(high - low + 1.0))
                flips = np.left_shift(1, (uniform * num_bits).astype(np.int64))
                integer = operators.bitwise(integer, low, high, np.where(mutated, flips, 0))
        if self._num_categorical:
            mutated = draws.uniform(self._num_categorical) < rate
            uniform = draws.uniform(self._num_categorical)
            categorical = operators.categorical_reset(
                categorical, layout.num_choices, uniform, mutated
            )
        permutations = {}
        for name, part in layout.permutations.items():
            mutated = draws.uniform(1)[:, 0] < config.permutation_mutation_probability
            position = draws.below(part.num_chosen, 1)[:, 0]
            # Any slot but the own one.
            other = (position + 1 + draws.below(part.num_items - 1, 1)[:, 0]) % part.num_items
            permutations[name] = operators.swap(
                genes.permutations[name], part.num_items, position, other, mutated
            )
        blobs = genes.blobs
        if config.blob_deviation and blobs:
            blobs = {}
            for name, values in genes.blobs.items():
                blobs[name] = [
                    operators.gaussian_blob(
                        blob,
                        config.blob_deviation,
                        seeding.stream(self._seed, "ec", self._name, name, identifier, attempt),
                    )
                    for identifier, blob in zip(ids.tolist(), values, strict=True)
                ]
        return Genes(genes.real, integer, categorical, permutations, blobs)

    def _cross_discrete(
        self, first: Integers, second: Integers, draws: Draws, crossed: Mask
    ) -> Integers:
        uniform = draws.uniform(first.shape[1])
        if self.config.discrete_crossover == "uniform":
            return operators.uniform_crossover(first, second, (uniform < 0.5) & crossed)
        cut = (uniform[:, 0] * (first.shape[1] + 1)).astype(np.int64)
        return np.where(crossed, operators.single_point(first, second, cut), first)

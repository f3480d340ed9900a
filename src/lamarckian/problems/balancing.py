"""Game balancing: search for lineups whose teams are far apart, then ask which entries make them so.

A decision is a lineup: ``NUM_TEAMS`` teams of three hero-led units in which no hero and no piece of
equipment appears twice. Every team fights the same baseline teams. With the strength of a team the mean
over its battles of (share of own troops left - share of the enemy's), and its resources the mean cost of its
living troops:

``damage_gap``       f1, strength of the strongest team - that of the weakest
``resource_ratio``   f2, resources of the strongest over those of the weakest (at least 5 % of their cost)
``weakest``          f3, strength of the weakest team

All are maximised: a lineup far up in all of them is one that looks fair to a player and is not. Beyond
:data:`IMBALANCED` in ``resource_ratio`` it counts as imbalanced.

:func:`census` asks which entries are to blame. Lineups are drawn at random; under the null model that entries
are alike, an entry of a lineup is in its strongest team with probability 1 / ``NUM_TEAMS``. How often it is
in truth is compared with that (hypergeometric, since soldiers and skills appear more than once), with
Holm's correction over all entries. Lineups of one search descend from each other and would count one
finding many times; those of the census do not.

Shape letters: ``L`` lineups, ``U`` units of a lineup.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian import seeding
from lamarckian.errors import ConfigError, EvaluatorError
from lamarckian.evaluator import (
    Array,
    BlobValue,
    Categorical,
    Decision,
    Encoding,
    Floats,
    Objective,
    Outcome,
    Outcomes,
    Permutation,
)
from lamarckian.problems.battles import GROUPS, BattleData, Battlefield, load_data, scaled

NUM_TEAMS = 5
TEAM_SIZE = 3
NUM_UNITS = NUM_TEAMS * TEAM_SIZE
IMBALANCED = 2.0
LEAST_RESOURCES = 0.05

#: A simulator of the user's: (teams int ``[P, U, 4]``, opponents int ``[B, U, 4]``, seed) -> float
#: ``[P, B, 4]``, shares of troops left of both and what the living troops of both cost.
Simulator = Callable[[Array, Array, int], Floats]


@dataclass(frozen=True, slots=True)
class Measured:
    """What lineups came to: ``strength`` and ``resources`` of their teams, ``[L, NUM_TEAMS]``."""

    strength: Floats
    resources: Floats

    @property
    def objectives(self) -> Floats:
        """``[L, 3]``: damage gap, resource ratio, weakest."""
        rows = np.arange(len(self.strength))
        best, worst = self.strength.argmax(axis=1), self.strength.argmin(axis=1)
        gap = self.strength[rows, best] - self.strength[rows, worst]
        ratio = self.resources[rows, best] / self.resources[rows, worst]
        return np.stack([gap, ratio, self.strength[rows, worst]], axis=1)


class Balancing:
    """The balancing of one set of battle data; an evaluator that prices lineups.

    ``data``          YAML file or folder with battle data; None for those of the package.
    ``changes``       entries made stronger or weaker, ``{"hero:Name": 0.8}``.
    ``baselines``     teams that every team fights.
    ``seed``          of the baseline teams and of luck.
    ``simulator``     ``module:function`` that fights instead, see :data:`Simulator`.

    Raises ConfigError, UnknownName.
    """

    def __init__(
        self,
        data: str | None = None,
        changes: Mapping[str, float] | None = None,
        baselines: int = 48,
        seed: int = 0,
        simulator: str = "",
    ) -> None:
        if baselines < 1:
            raise ConfigError(f"balancing baselines: expected at least 1, got {baselines}")
        self.data: BattleData = scaled(load_data(data), dict(changes or {}))
        for group in ("hero", "equipment"):
            num = len(self.data.names(group))
            if num < NUM_UNITS:
                raise ConfigError(
                    f"balancing: a lineup needs {NUM_UNITS} different entries of kind {group}, the "
                    f"data have {num}"
                )
        self.field = Battlefield(self.data, seed)
        self.seed = seed
        self._simulator = _load(simulator) if simulator else None
        self.baselines = self._draw_baselines(baselines)
        self._opponents = self.field.teams(self.baselines)
        self._encoding = Encoding(
            parts={
                "hero": Permutation(len(self.data.heroes), NUM_UNITS),
                "soldier": Categorical(self.data.names("soldier"), shape=NUM_UNITS),
                "skill": Categorical(self.data.names("skill"), shape=NUM_UNITS),
                "equipment": Permutation(len(self.data.equipment), NUM_UNITS),
            },
            objectives=(
                Objective("damage_gap", "maximize", 0.0),
                Objective("resource_ratio", "maximize", 1.0),
                Objective("weakest", "maximize", -1.0),
            ),
        )

    def describe(self) -> Encoding:
        return self._encoding

    def initialize(self, rng: np.random.Generator) -> Decision:
        return self._encoding.sample(rng)

    def evaluate(self, decision: Decision, rng: np.random.Generator) -> Outcome:
        del rng
        units = np.stack([np.asarray(decision[group]) for group in GROUPS], axis=-1)
        return Outcome(self.measure(units[None]).objectives[0])

    def evaluate_batch(
        self, decisions: Mapping[str, Array | BlobValue], rng: np.random.Generator
    ) -> Outcomes:
        del rng
        units = np.stack([np.asarray(decisions[group]) for group in GROUPS], axis=-1)
        return Outcomes(self.measure(units).objectives)

    def draw(self, rng: np.random.Generator, num: int = 1) -> Array:
        """Draw lineups at random, int ``[num, NUM_TEAMS, TEAM_SIZE, 4]``."""
        units = np.zeros((num, NUM_UNITS, 4), np.int64)
        for at, group in enumerate(GROUPS):
            size = len(self.data.names(group))
            if group in ("hero", "equipment"):
                units[..., at] = rng.random((num, size)).argpartition(NUM_UNITS - 1, axis=1)[
                    :, :NUM_UNITS
                ]
                units[..., at] = rng.permuted(units[..., at], axis=1)
            else:
                units[..., at] = rng.integers(0, size, (num, NUM_UNITS))
        return units.reshape(num, NUM_TEAMS, TEAM_SIZE, 4)

    def _draw_baselines(self, num: int) -> Array:
        """Draw the teams that everybody fights, int ``[num, TEAM_SIZE, 4]``.

        Soldiers and skills are dealt evenly: more archers than cavalry among the opponents would make
        infantry look weak.
        """
        rng = seeding.stream(self.seed, "baselines")
        teams = self.draw(rng, -(-num // NUM_TEAMS)).reshape(-1, TEAM_SIZE, 4)[:num]
        for at, group in enumerate(GROUPS):
            if group in ("soldier", "skill"):
                even = np.arange(num * TEAM_SIZE) % len(self.data.names(group))
                teams[..., at] = rng.permutation(even).reshape(num, TEAM_SIZE)
        return teams

    def measure(self, units: Array) -> Measured:
        """Fight the battles of lineups ``units`` int ``[L, NUM_UNITS, 4]`` or ``[L, teams, size, 4]``."""
        teams = np.asarray(units, np.int64).reshape(-1, TEAM_SIZE, 4)
        numbers = self.field.teams(teams)
        if self._simulator is None:
            fought = self.field.fight(numbers, self._opponents)
        else:
            fought = np.asarray(self._simulator(teams, self.baselines, self.seed), np.float64)
            expected = (len(teams), len(self.baselines), 4)
            if fought.shape != expected:
                raise EvaluatorError(
                    f"the simulator returned an array of shape {fought.shape}, expected {expected}: shares "
                    "of troops left of both sides, and what the living troops of both cost"
                )
        strength = (fought[..., 0] - fought[..., 1]).mean(axis=1)
        least = LEAST_RESOURCES * numbers.cost.sum(axis=1)
        resources = np.maximum(fought[..., 2].mean(axis=1), least)
        return Measured(strength.reshape(-1, NUM_TEAMS), resources.reshape(-1, NUM_TEAMS))


def _load(path: str) -> Simulator:
    module, _, name = path.partition(":")
    try:
        found: Simulator = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"simulator {path!r}: expected module:function ({error})") from None
    if not callable(found):
        raise ConfigError(f"simulator {path!r}: expected a function, got {type(found).__name__}")
    return found


@dataclass(frozen=True, slots=True)
class Finding:
    """How often an entry was in the strongest team, among ``count`` appearances.

    ``lift`` is observed over expected; ``p_value`` is one-sided (more often than by chance), corrected
    after Holm over all entries of the census.
    """

    kind: str
    name: str
    count: int
    in_strongest: int
    expected: float
    lift: float
    z: float
    p_value: float

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.name}"


def census(
    balancing: Balancing, num_lineups: int = 4000, seed: int = 0, *, imbalanced_only: bool = True
) -> list[Finding]:
    """Compare how often entries are in the strongest team with the null model; the most exposed first.

    ``imbalanced_only`` looks at lineups with a resource ratio beyond :data:`IMBALANCED`. Raises ConfigError
    if fewer than 30 are left.
    """
    units = balancing.draw(seeding.stream(seed, "census"), num_lineups)
    measured = balancing.measure(units)
    kept = np.ones(num_lineups, np.bool_)
    if imbalanced_only:
        kept = measured.objectives[:, 1] > IMBALANCED
    if kept.sum() < 30:
        raise ConfigError(
            f"census: {int(kept.sum())} of {num_lineups} random lineups are imbalanced; draw more lineups"
        )
    return exposed(balancing.data, units[kept], measured.strength[kept])


def exposed(data: BattleData, units: Array, strength: Floats) -> list[Finding]:
    """Return findings for lineups ``[L, teams, size, 4]`` whose teams have ``strength`` ``[L, teams]``."""
    num = len(units)
    strongest = units[np.arange(num), strength.argmax(axis=1)]
    share = TEAM_SIZE / NUM_UNITS
    found: list[tuple[str, str, int, int, float, float]] = []
    for at, kind in enumerate(GROUPS):
        for index, name in enumerate(data.names(kind)):
            each = (units[..., at] == index).sum(axis=(1, 2))
            inside = int((strongest[..., at] == index).sum())
            expected = float(each.sum()) * share
            part = each / NUM_UNITS
            rest = (NUM_UNITS - TEAM_SIZE) / (NUM_UNITS - 1)
            variance = float((TEAM_SIZE * part * (1.0 - part) * rest).sum())
            z = (inside - expected) / math.sqrt(variance) if variance else 0.0
            found.append((kind, name, int(each.sum()), inside, expected, z))
    found.sort(key=lambda row: -row[-1])
    findings, worst = [], 0.0
    for rank, (kind, name, count, inside, expected, z) in enumerate(found):
        p_value = 0.5 * math.erfc(z / math.sqrt(2.0)) * (len(found) - rank)
        worst = min(1.0, max(worst, p_value))
        lift = inside / expected if expected else 0.0
        findings.append(Finding(kind, name, count, inside, expected, lift, z, worst))
    return findings


def shares_in(units: Array, strength: Floats, data: BattleData) -> dict[str, float]:
    """Return for each entry the share of lineups whose strongest team has it, ``kind:name`` -> share."""
    strongest = units[np.arange(len(units)), strength.argmax(axis=1)]
    shares: dict[str, Any] = {}
    for at, kind in enumerate(GROUPS):
        for index, name in enumerate(data.names(kind)):
            shares[f"{kind}:{name}"] = float((strongest[..., at] == index).any(axis=1).mean())
    return shares

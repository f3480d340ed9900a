"""Battles of hero-led units: the stand-in for a commercial strategy game whose balance is searched.

A unit is a hero, the soldiers it leads, a skill and a piece of equipment; a team is three units in order,
the first in front. Two teams fight tick by tick until one is gone or time is over:

- A living unit gathers its speed at every tick and strikes when it has gathered 1.
- A strike is attack * (1 + troops left) / 2 * (1 + luck), where luck is uniform within +-``luck`` and drawn
  from the seed, tick and unit alone, so equal battles are equal wherever they are fought.
- It falls on the first living enemy, times what the soldiers are worth against each other, divided by
  1 + defence. All strikes of a tick land at once.
- ``fury`` strikes harder the more troops it has lost, ``shield`` takes less in the first ticks, ``heal``
  gives a share of its strike to the ally with the smallest share of troops, ``volley`` strikes all enemies.

Numbers come from a YAML file (:func:`load_data`), so that a studio puts in its own. Where numba is
installed (extra ``fast``) battles are compiled (``battles_compiled.py``); both give the same bits.

Shape letters: ``P`` teams, ``B`` opposing teams, ``U`` units of a team.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lamarckian import config
from lamarckian.errors import ConfigError, UnknownName, nearest
from lamarckian.evaluator import Array, Floats

Integers = NDArray[np.int64]
SKILLS = ("fury", "shield", "heal", "volley")
FURY, SHIELD, HEAL, VOLLEY = range(4)
GROUPS = ("hero", "soldier", "skill", "equipment")
STANDARD = Path(__file__).with_name("battle_data.yaml")


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hero (plain numbers) or a piece of equipment (shares added to the hero's)."""

    name: str
    attack: float = 0.0
    defence: float = 0.0
    speed: float = 0.0
    troops: float = 0.0
    cost: float = 0.0


class Soldier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of soldiers: what it multiplies its hero's numbers by, and which kind it beats."""

    name: str
    beats: str
    attack: float = 1.0
    defence: float = 1.0
    speed: float = 1.0
    cost: float = 0.0


class Skill(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of ``fury``, ``shield``, ``heal`` and ``volley``, and how strong it is."""

    name: str
    strength: float
    cost: float = 0.0


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of the battle itself; ``advantage`` is the factor of soldiers against those they beat."""

    max_ticks: int = 40
    shield_ticks: int = 8
    advantage: float = 1.25
    luck: float = 0.15


class BattleData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a studio may put in: heroes, soldiers, skills, equipment, rules."""

    heroes: tuple[Entry, ...]
    soldiers: tuple[Soldier, ...]
    skills: tuple[Skill, ...]
    equipment: tuple[Entry, ...]
    rules: Rules = Rules()

    def names(self, group: str) -> tuple[str, ...]:
        """Return the names of a group: ``hero``, ``soldier``, ``skill`` or ``equipment``."""
        return tuple(each.name for each in self._group(group))

    def _group(self, group: str) -> tuple[Any, ...]:
        fields = {"hero": "heroes", "soldier": "soldiers", "skill": "skills"}
        found: tuple[Any, ...] = getattr(self, fields.get(group, "equipment"))
        return found


def load_data(path: str | Path | None = None) -> BattleData:
    """Read battle data; None for those of the package. Raises ConfigError naming what is wrong."""
    file = STANDARD if path is None else Path(path).expanduser()
    if file.is_dir():
        file = file / "battle_data.yaml"
    data = config.load_yaml(file, BattleData)
    for group in GROUPS:
        names = data.names(group)
        doubled = {name for name in names if names.count(name) > 1}
        if len(names) < 2 or doubled:
            raise ConfigError(
                f"battle data {file}: expected two or more different names of each kind, got "
                f"{', '.join(sorted(doubled)) + ' twice' if doubled else len(names)} as {group}"
            )
    for soldier in data.soldiers:
        if soldier.beats not in data.names("soldier"):
            raise ConfigError(
                f"battle data {file}: soldier {soldier.name!r} beats {soldier.beats!r}, which is none"
                + nearest(soldier.beats, data.names("soldier"))
            )
    for skill in data.skills:
        if skill.name not in SKILLS:
            raise ConfigError(
                f"battle data {file}: unknown skill {skill.name!r}{nearest(skill.name, SKILLS)}; "
                f"known: {', '.join(SKILLS)}"
            )
    return data


def scaled(data: BattleData, factors: dict[str, float]) -> BattleData:
    """Return ``data`` with entries made stronger or weaker: ``{"hero:Name": 0.8, ...}``.

    A hero's attack and troops, equipment's bonuses and a skill's strength are multiplied; soldiers' attack.
    Raises UnknownName for an entry that is not there, ConfigError for a factor that is not positive.
    """
    fields: dict[str, list[Any]] = {
        "hero": list(data.heroes),
        "soldier": list(data.soldiers),
        "skill": list(data.skills),
        "equipment": list(data.equipment),
    }
    for key, factor in factors.items():
        group, _, name = key.partition(":")
        if group not in GROUPS or name not in data.names(group):
            known = [f"{each}:{other}" for each in GROUPS for other in data.names(each)]
            raise UnknownName(
                f"nothing is called {key!r}{nearest(key, known)}; expected KIND:NAME with a kind of "
                f"{', '.join(GROUPS)}"
            )
        if not 0.0 < factor < 100.0:
            raise ConfigError(f"{key}: expected a factor between 0 and 100, got {factor}")
        at = data.names(group).index(name)
        entry = fields[group][at]
        touched = {
            "hero": ("attack", "troops"),
            "soldier": ("attack",),
            "skill": ("strength",),
            "equipment": ("attack", "defence", "speed", "troops"),
        }[group]
        changed = {field: getattr(entry, field) * factor for field in touched}
        fields[group][at] = msgspec.structs.replace(entry, **changed)
    return BattleData(
        heroes=tuple(fields["hero"]),
        soldiers=tuple(fields["soldier"]),
        skills=tuple(fields["skill"]),
        equipment=tuple(fields["equipment"]),
        rules=data.rules,
    )


@dataclass(frozen=True, slots=True)
class Teams:
    """Teams as numbers: ``stats`` float64 ``[P, U, 4]`` (attack, defence, speed, troops), ``cost``
    ``[P, U]``, ``soldier`` and ``skill`` int64 ``[P, U]``."""

    stats: Floats
    cost: Floats
    soldier: Integers
    skill: Integers

    def __len__(self) -> int:
        return len(self.stats)


class Battlefield:
    """Fights battles of the units that ``data`` describe."""

    def __init__(self, data: BattleData, seed: int = 0) -> None:
        self.data = data
        self.seed = seed
        fields = ("attack", "defence", "speed", "troops")
        self._heroes = np.array([[getattr(e, f) for f in fields] for e in data.heroes])
        self._equipment = np.array([[getattr(e, f) for f in fields] for e in data.equipment])
        self._soldiers = np.array([[e.attack, e.defence, e.speed, 1.0] for e in data.soldiers])
        self._costs = [np.array([e.cost for e in data._group(group)]) for group in GROUPS]
        soldiers = data.names("soldier")
        self._worth = np.ones((len(soldiers), len(soldiers)))
        for at, soldier in enumerate(data.soldiers):
            other = soldiers.index(soldier.beats)
            self._worth[at, other] = data.rules.advantage
            self._worth[other, at] = 1.0 / data.rules.advantage
        self._strength = np.zeros(len(SKILLS))
        self._kinds = np.array([SKILLS.index(skill.name) for skill in data.skills])
        for kind, skill in zip(self._kinds, data.skills, strict=True):
            self._strength[kind] = skill.strength
        self.is_compiled = importlib.util.find_spec("numba") is not None

    def teams(self, units: Array) -> Teams:
        """Return teams of ``units`` int ``[P, U, 4]``: numbers of hero, soldier, skill, equipment."""
        hero, soldier, skill, equipment = (np.asarray(units[..., at], np.int64) for at in range(4))
        stats = self._heroes[hero] * (1.0 + self._equipment[equipment]) * self._soldiers[soldier]
        costs = self._costs
        cost = costs[0][hero] + costs[1][soldier] + costs[2][skill] + costs[3][equipment]
        return Teams(stats, cost, soldier, self._kinds[skill])

    def fight(self, first: Teams, second: Teams) -> Floats:
        """Let every team of ``first`` fight every one of ``second``.

        Returns float64 ``[P, B, 4]``: the share of troops left of the first and of the second team, and what
        their living troops cost. Luck depends on the second team's number only, so that a team's result
        is the same whoever else is measured.
        """
        rules = self.data.rules
        numbers = (
            *(first.stats, first.cost, first.soldier, first.skill),
            *(second.stats, second.cost, second.soldier, second.skill),
            *(
                self._worth,
                self._strength,
                rules.max_ticks,
                rules.shield_ticks,
                rules.luck,
                self.seed,
            ),
        )
        if self.is_compiled:
            from lamarckian.problems import battles_compiled

            return battles_compiled.fight(*numbers)
        return _fight(*numbers)


def luck_of(seed: int, battles: Array, tick: int, unit: int) -> Floats:
    """Return uniform numbers in [0, 1) of ``battles`` int ``[...]`` by hashing (SplitMix64's last steps)."""
    with np.errstate(over="ignore"):
        word = np.asarray(battles, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        word = word + np.uint64(seed) * np.uint64(0xD1B54A32D192ED03)
        word = word + np.uint64(tick * 64 + unit + 1) * np.uint64(0x2545F4914F6CDD1D)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word = word ^ (word >> np.uint64(31))
    return (word >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _fight(
    stats: Floats,
    cost: Floats,
    soldier: Integers,
    skill: Integers,
    other_stats: Floats,
    other_cost: Floats,
    other_soldier: Integers,
    other_skill: Integers,
    worth: Floats,
    strength: Floats,
    max_ticks: int,
    shield_ticks: int,
    luck: float,
    seed: int,
) -> Floats:
    """The battles of ``Battlefield.fight`` in NumPy: all of them side by side, unit by unit."""
    num, against = len(stats), len(other_stats)
    units = stats.shape[1]
    shape = (num, against, units)

    def both(one: Array, other: Array) -> Array:
        return np.concatenate(
            [
                np.broadcast_to(one[:, None], (*shape, *one.shape[2:])),
                np.broadcast_to(other[None], (*shape, *other.shape[2:])),
            ],
            axis=2,
        )

    numbers = both(stats, other_stats)
    attack, defence, speed, whole = (np.ascontiguousarray(numbers[..., at]) for at in range(4))
    soldiers, skills, costs = (
        both(soldier, other_soldier),
        both(skill, other_skill),
        both(cost, other_cost),
    )
    troops, charge = whole.copy(), np.zeros_like(whole)
    battle = np.broadcast_to(np.arange(against), (num, against))
    running = np.ones((num, against), np.bool_)
    for tick in range(max_ticks):
        loss, gain = np.zeros_like(troops), np.zeros_like(troops)
        soft = 1.0 / (1.0 + defence)
        if tick < shield_ticks:
            soft = np.where(skills == SHIELD, soft * (1.0 - strength[SHIELD]), soft)
        living = troops > 0.0
        share = troops / whole
        for unit in range(2 * units):
            charge[..., unit] += np.where(living[..., unit] & running, speed[..., unit], 0.0)
            strikes = living[..., unit] & running & (charge[..., unit] >= 1.0)
            charge[..., unit] -= strikes
            side = unit // units
            hit = attack[..., unit] * (1.0 + share[..., unit]) * 0.5
            kind = skills[..., unit]
            hit = np.where(
                kind == FURY, hit * (1.0 + strength[FURY] * (1.0 - share[..., unit])), hit
            )
            hit = hit * (1.0 + luck * (2.0 * luck_of(seed, battle, tick, unit) - 1.0))
            foes = range(units * (1 - side), units * (2 - side))
            waiting = strikes & (kind != VOLLEY)
            for foe in foes:
                there = living[..., foe]
                lands = hit * worth[soldiers[..., unit], soldiers[..., foe]] * soft[..., foe]
                all_at_once = strikes & (kind == VOLLEY) & there
                loss[..., foe] += np.where(all_at_once, strength[VOLLEY] * lands, 0.0)
                first = waiting & there
                loss[..., foe] += np.where(first, lands, 0.0)
                waiting = waiting & ~first
            heals = strikes & (kind == HEAL)
            if heals.any():
                ally = slice(units * side, units * (side + 1))
                needs = np.where(living[..., ally], share[..., ally], np.inf)
                weakest = needs.argmin(axis=2)
                for seat in range(units):
                    helped = heals & (weakest == seat)
                    gain[..., units * side + seat] += np.where(helped, strength[HEAL] * hit, 0.0)
        after = np.minimum(whole, troops - loss + gain)
        troops = np.where(running[..., None] & living, np.maximum(after, 0.0), troops)
        left = troops > 0.0
        running = running & left[..., :units].any(axis=2) & left[..., units:].any(axis=2)
        if not running.any():
            break
    out = np.zeros((num, against, 4))
    for side in (0, 1):
        kept, total, worthy = (
            np.zeros((num, against)),
            np.zeros((num, against)),
            np.zeros((num, against)),
        )
        for unit in range(units * side, units * (side + 1)):
            kept = kept + troops[..., unit]
            total = total + whole[..., unit]
            worthy = worthy + costs[..., unit] * (troops[..., unit] / whole[..., unit])
        out[..., side] = kept / total
        out[..., 2 + side] = worthy
    return out

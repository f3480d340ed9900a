"""The battles of ``battles.py`` compiled by numba: one by one, the same operations in the same order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from lamarckian.evaluator import Floats

Integers = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])

FURY, SHIELD, HEAL, VOLLEY = range(4)


def _compile(function: Function) -> Function:
    """Compile on first use and keep the machine code beside the byte code, if that can be written."""
    try:
        made = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        made = numba.njit(error_model="numpy")(function)
    return cast(Function, made)


@_compile
def _luck(seed: Any, battle: Any, tick: Any, unit: Any) -> Any:
    word = np.uint64(battle) * np.uint64(0x9E3779B97F4A7C15)
    word = word + np.uint64(seed) * np.uint64(0xD1B54A32D192ED03)
    word = word + np.uint64(tick * 64 + unit + 1) * np.uint64(0x2545F4914F6CDD1D)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word = word ^ (word >> np.uint64(31))
    return np.float64(word >> np.uint64(11)) * 2.0**-53


@_compile
def fight(
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
    """See ``Battlefield.fight``; returns float64 ``[P, B, 4]``."""
    num, against, units = len(stats), len(other_stats), stats.shape[1]
    both = 2 * units
    out = np.zeros((num, against, 4))
    attack, speed = np.empty(both), np.empty(both)
    whole, troops, charge, share = np.empty(both), np.empty(both), np.empty(both), np.empty(both)
    soft, shielded = np.empty(both), np.empty(both)
    loss, gain, price = np.empty(both), np.empty(both), np.empty(both)
    living = np.empty(both, np.bool_)
    kind, corps = np.empty(both, np.int64), np.empty(both, np.int64)
    for row in range(num):
        for battle in range(against):
            for unit in range(both):
                if unit < units:
                    own = stats[row, unit]
                    kind[unit], corps[unit] = skill[row, unit], soldier[row, unit]
                    price[unit] = cost[row, unit]
                else:
                    own = other_stats[battle, unit - units]
                    kind[unit], corps[unit] = (
                        other_skill[battle, unit - units],
                        other_soldier[battle, unit - units],
                    )
                    price[unit] = other_cost[battle, unit - units]
                attack[unit], speed[unit], whole[unit] = own[0], own[2], own[3]
                soft[unit] = 1.0 / (1.0 + own[1])
                shielded[unit] = (
                    soft[unit] * (1.0 - strength[SHIELD]) if kind[unit] == SHIELD else soft[unit]
                )
                troops[unit] = whole[unit]
                charge[unit] = 0.0
            for tick in range(max_ticks):
                for unit in range(both):
                    loss[unit] = gain[unit] = 0.0
                    living[unit] = troops[unit] > 0.0
                    share[unit] = troops[unit] / whole[unit]
                for unit in range(both):
                    if not living[unit]:
                        continue
                    charge[unit] += speed[unit]
                    if charge[unit] < 1.0:
                        continue
                    charge[unit] -= 1.0
                    side = unit // units
                    hit = attack[unit] * (1.0 + share[unit]) * 0.5
                    if kind[unit] == FURY:
                        hit = hit * (1.0 + strength[FURY] * (1.0 - share[unit]))
                    hit = hit * (1.0 + luck * (2.0 * _luck(seed, battle, tick, unit) - 1.0))
                    for foe in range(units * (1 - side), units * (2 - side)):
                        if not living[foe]:
                            continue
                        cover = shielded[foe] if tick < shield_ticks else soft[foe]
                        lands = hit * worth[corps[unit], corps[foe]] * cover
                        if kind[unit] == VOLLEY:
                            loss[foe] += strength[VOLLEY] * lands
                        else:
                            loss[foe] += lands
                            break
                    if kind[unit] == HEAL:
                        weakest, least = units * side, np.inf
                        for ally in range(units * side, units * (side + 1)):
                            if living[ally] and share[ally] < least:
                                weakest, least = ally, share[ally]
                        gain[weakest] += strength[HEAL] * hit
                mine = theirs = False
                for unit in range(both):
                    if living[unit]:
                        troops[unit] = max(
                            min(whole[unit], troops[unit] - loss[unit] + gain[unit]), 0.0
                        )
                    if troops[unit] > 0.0:
                        if unit < units:
                            mine = True
                        else:
                            theirs = True
                if not (mine and theirs):
                    break
            for side in range(2):
                kept = total = worthy = 0.0
                for unit in range(units * side, units * (side + 1)):
                    kept += troops[unit]
                    total += whole[unit]
                    worthy += price[unit] * (troops[unit] / whole[unit])
                out[row, battle, side] = kept / total
                out[row, battle, 2 + side] = worthy
    return out

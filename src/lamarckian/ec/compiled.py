"""The inner loops of selection and variation, compiled by numba.

Imported only where numba is installed (extra ``fast``); ``pareto.py`` and ``plans.py`` hold the same steps
in NumPy and decide which of the two runs. Ranks and survivors are the same in both, up to the order of
exactly equal costs; genes may differ in their last digit, because the power functions do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from lamarckian.evaluator import Floats

Integers = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])


def _compile(function: Function) -> Function:
    """Compile on first use and keep the machine code beside the byte code, if that can be written."""
    try:
        made = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        made = numba.njit(error_model="numpy")(function)
    return cast(Function, made)


@_compile
def _argsort(keys: Floats) -> Integers:
    """Return the rows of ``keys`` [n] in rising order, equal ones as they stand; bottom-up merging.

    NumPy's own takes several seconds to compile.
    """
    size = len(keys)
    order, other = np.empty(size, np.int64), np.empty(size, np.int64)
    for at in range(size):
        order[at] = at
    width = 1
    while width < size:
        for start in range(0, size, 2 * width):
            left, middle = start, min(start + width, size)
            right, end = middle, min(start + 2 * width, size)
            for at in range(start, end):
                if left < middle and (right >= end or keys[order[left]] <= keys[order[right]]):
                    other[at] = order[left]
                    left += 1
                else:
                    other[at] = order[right]
                    right += 1
        order, other = other, order
        width *= 2
    return order


@_compile
def _order(costs: Floats) -> Integers:
    """Return the rows of ``costs`` [P, K] in lexicographic order."""
    order = _argsort(costs[:, 0].copy())
    rows, num = costs.shape
    # Where the first cost ties, insertion by the others; ties are short or already in order.
    for place in range(1, rows):
        mine = order[place]
        at = place
        while at > 0 and costs[order[at - 1], 0] == costs[mine, 0]:
            before = order[at - 1]
            smaller = False
            for column in range(1, num):
                if costs[mine, column] != costs[before, column]:
                    smaller = costs[mine, column] < costs[before, column]
                    break
            if not smaller:
                break
            order[at] = before
            at -= 1
        order[at] = mine
    return order


@_compile
def sort(costs: Floats) -> Integers:
    """Return the front of each row of ``costs`` [P, K], all finite; efficient non-dominated sort.

    In lexicographic order a row is dominated only by earlier ones. It enters the first front none of
    whose members dominates it (Zhang et al. 2015, sequential search); for two objectives only a front's
    last member can.
    """
    rows, num = costs.shape
    order = _order(costs)
    ranks = np.empty(rows, np.int64)
    newest = np.full(rows + 1, -1)  # last member of each front
    before = np.empty(rows, np.int64)  # the member that entered the same front earlier
    for place in range(rows):
        mine = order[place]
        front = 0
        while True:
            other = newest[front]
            dominated = False
            while other >= 0:
                no_worse, better = True, False
                for column in range(num):
                    if costs[other, column] > costs[mine, column]:
                        no_worse = False
                        break
                    if costs[other, column] < costs[mine, column]:
                        better = True
                if no_worse and better:
                    dominated = True
                    break
                if num == 2 and not no_worse:
                    break
                other = before[other]
            if not dominated:
                break
            front += 1
        ranks[mine] = front
        before[mine] = newest[front]
        newest[front] = mine
    return ranks


@_compile
def _crowd(costs: Floats, members: Integers, distance: Floats) -> None:
    """Write the crowding distance of ``members``, one front, into ``distance`` [P]."""
    size, num = len(members), costs.shape[1]
    for member in members:
        distance[member] = 0.0
    column_costs = np.empty(size)
    for column in range(num):
        for at in range(size):
            column_costs[at] = costs[members[at], column]
        order = _argsort(column_costs)
        span = column_costs[order[size - 1]] - column_costs[order[0]]
        for at in range(1, size - 1):
            if span > 0.0:
                gap = column_costs[order[at + 1]] - column_costs[order[at - 1]]
                distance[members[order[at]]] += gap / span
        distance[members[order[0]]] = np.inf
        distance[members[order[size - 1]]] = np.inf


@_compile
def _members(ranks: Integers, front: int) -> Integers:
    """Return the rows of ``ranks`` [P] that are of ``front``."""
    members = np.empty(len(ranks), np.int64)
    count = 0
    for row in range(len(ranks)):
        if ranks[row] == front:
            members[count] = row
            count += 1
    return members[:count]


@_compile
def survivors(costs: Floats, size: int, rounds: int) -> Integers:
    """Return the rows of the best ``size`` of ``costs`` [P, K], best first; see ``pareto.survivors``."""
    rows, num = costs.shape
    ranks = sort(costs)
    distance = np.zeros(rows)
    chosen = np.empty(rows, np.int64)
    taken, front = 0, 0
    while True:
        members = _members(ranks, front)
        _crowd(costs, members, distance)
        if taken + len(members) >= size or taken + len(members) == rows:
            break
        chosen[taken : taken + len(members)] = members
        taken += len(members)
        front += 1
    # A finite distance is at most the number of objectives.
    most = num + 1.0
    excess = taken + len(members) - size
    for remaining in range(rounds, 1, -1):
        if excess < remaining:
            break
        drop = excess // remaining
        key = np.empty(len(members))
        for at in range(len(members)):
            key[at] = -min(distance[members[at]], most)
        kept = np.zeros(len(members), np.bool_)
        for at in _argsort(key)[: len(members) - drop]:
            kept[at] = True
        count = 0
        for at in range(len(members)):
            if kept[at]:
                members[count] = members[at]
                count += 1
        members = members[:count]
        excess -= drop
        _crowd(costs, members, distance)
    chosen[taken : taken + len(members)] = members
    taken += len(members)
    key = np.empty(taken)
    for at in range(taken):
        row = chosen[at]
        key[at] = ranks[row] * (most + 1.0) - min(distance[row], most)
    best = np.empty(min(size, taken), np.int64)
    order = _argsort(key)
    for at in range(len(best)):
        best[at] = chosen[order[at]]
    return best


@_compile
def _raised(base: float, exponent: float) -> float:
    """``base ** exponent``; powers of two go by squaring, as in ``operators.py``."""
    if exponent in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        while exponent > 1.0:
            base *= base
            exponent /= 2.0
        return base
    power: float = base**exponent
    return power


@_compile
def _root(base: float, exponent: float) -> float:
    """``base ** (1 / exponent)``; powers of two go by square roots."""
    if exponent in (2.0, 4.0, 8.0, 16.0, 32.0):
        while exponent > 1.0:
            base = np.sqrt(base)
            exponent /= 2.0
        return base
    root: float = base ** (1.0 / exponent)
    return root


@_compile
def cross(
    child: Floats,
    second: Floats,
    where: Integers,
    offset: int,
    low: Floats,
    high: Floats,
    uniform: Floats,
    side: Floats,
    eta: float,
) -> None:
    """Simulated binary crossover of the genes ``where`` − ``offset``; see ``operators.sbx_genes``.

    ``child`` and ``second`` are [P, D], bounds [D], the others one number per gene. Changes ``child``.
    """
    columns = child.shape[1]
    for at in range(len(where)):
        row, column = divmod(where[at] - offset, columns)
        mine, theirs = child[row, column], second[row, column]
        gap, total = (mine - theirs) * side[at], mine + theirs
        room = 2.0 * (low[column] if gap < 0.0 else high[column]) - total
        alpha = min(gap * gap / (room * room + 1e-300), 1.0)
        alpha = (2.0 - _raised(alpha, (eta + 1.0) / 2.0)) * uniform[at]
        spread = _root(alpha if alpha <= 1.0 else 1.0 / (2.0 - alpha), eta + 1.0)
        moved = (spread * gap + total) * 0.5
        child[row, column] = min(max(moved, low[column]), high[column])


@_compile
def mutate(
    child: Floats,
    where: Integers,
    offset: int,
    low: Floats,
    high: Floats,
    side: Floats,
    eta: float,
) -> None:
    """Polynomial mutation of the genes ``where`` − ``offset``; see ``operators.polynomial_genes``."""
    columns = child.shape[1]
    for at in range(len(where)):
        row, column = divmod(where[at] - offset, columns)
        gene, width = child[row, column], high[column] - low[column]
        share = abs(gene - (low[column] if side[at] < 0.0 else high[column])) / width
        once = abs(side[at])
        size = (1.0 - share) ** (eta + 1.0) * once + 1.0 - once
        size = 1.0 - size ** (1.0 / (eta + 1.0))
        moved = gene + width * (size if side[at] >= 0.0 else -size)
        child[row, column] = min(max(moved, low[column]), high[column])


@_compile
def mix(bits: NDArray[np.uint64], weights: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hash of each row of ``bits`` [P, D]; see ``population.Layout.hashes``."""
    rows, columns = bits.shape
    hashes = np.zeros(rows, np.uint64)
    for row in range(rows):
        for column in range(columns):
            word = bits[row, column]
            hashes[row] += ((word >> np.uint64(32)) ^ word) * weights[column]
    return hashes

"""Crossover and mutation as pure functions over a population.

Every function takes parents as arrays with one row per child and all its randomness as arrays, and
returns new arrays. ``P`` children, ``D`` columns. What the declared bounds, choices or items were,
they are after every operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian.evaluator import BlobValue, Floats

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Genes closer than this (on their scale) are left alone by SBX.
_SAME = 1e-14


def _root(base: Floats, exponent: float) -> Floats:
    """``base ** (1 / exponent)`` for base > 0; powers of two by square roots, 5 × faster."""
    if exponent in (2.0, 4.0, 8.0, 16.0, 32.0):
        root = np.sqrt(base)
        while exponent > 2.0:
            np.sqrt(root, out=root)
            exponent /= 2.0
        return root
    return np.asarray(base ** (1.0 / exponent))


def _raised(base: Floats, exponent: float) -> Floats:
    """``base ** exponent``; powers of two go by squaring."""
    if exponent in (2.0, 4.0, 8.0, 16.0, 32.0):
        square = base * base
        while exponent > 2.0:
            np.multiply(square, square, out=square)
            exponent /= 2.0
        return square
    return np.asarray(base**exponent)


def sbx(
    first: Floats,
    second: Floats,
    low: Floats,
    high: Floats,
    uniform: Floats,
    applied: Mask,
    near_first: Mask,
    eta: float,
) -> Floats:
    """Simulated binary crossover within bounds (Deb and Agrawal 1995; bounds: Deb 1999).

    All of ``[P, D]``, bounds ``[D]``. A pair of genes has two children; the result is the one that
    lies near the first parent's gene where ``near_first``, else the other. Genes that are not
    ``applied``, or equal in both parents, stay as in ``first``. Without bounds both children
    together keep the mean of the parents, and the spread factor β = |c2 − c1| / |p2 − p1| has
    density (eta + 1)/2 · β^eta below 1 and (eta + 1)/2 · β^−(eta + 2) above.
    """
    child = first.copy()
    flat = child.reshape(-1)
    gap = first - second
    where = np.flatnonzero(applied & (np.abs(gap) > _SAME))
    gap = gap.reshape(-1)[where]
    total = flat[where]
    total += second.reshape(-1)[where]
    np.negative(gap, out=gap, where=~near_first.reshape(-1)[where])
    column = where % first.shape[1]
    least, largest = low[column], high[column]
    # From the middle, the child lies on the side where gap points: towards this bound.
    room = np.where(gap < 0.0, least, largest)
    room += room
    room -= total
    # gap / room is 1 / (widest spread that stays within the bound); alpha corrects the density.
    alpha = _raised(gap / room, eta + 1.0)
    np.subtract(2.0, alpha, out=alpha)
    alpha *= uniform.reshape(-1)[where]
    base = 1.0 / (2.0 - alpha)
    np.copyto(base, alpha, where=alpha <= 1.0)
    spread = _root(base, eta + 1.0)
    spread *= gap
    spread += total
    spread *= 0.5
    np.maximum(spread, least, out=spread)
    np.minimum(spread, largest, out=spread)
    flat[where] = spread
    return child


def polynomial_mutation(
    genes: Floats, low: Floats, high: Floats, uniform: Floats, rate: float, eta: float
) -> Floats:
    """Polynomial mutation within bounds (Deb and Goyal 1996) of ``genes`` [P, D].

    A gene mutates where ``uniform`` < rate; uniform / rate is then the uniform number that the
    formula needs, so one draw per gene does for both.
    """
    child = genes.copy()
    flat = child.reshape(-1)
    where = np.flatnonzero(uniform < rate)
    if not where.size:
        return child
    column = where % genes.shape[1]
    x, least, largest = flat[where], low[column], high[column]
    width = largest - least
    # −1 at u = 0, +1 at u = 1; the sign is the direction of the move.
    side = uniform.reshape(-1)[where] * (2.0 / rate)
    side -= 1.0
    # Distance to the bound on that side, as a share of the width.
    share = 1.0 - np.where(side < 0.0, x - least, largest - x) / width
    twice = 1.0 - np.abs(side)
    size = 1.0 - (twice + (1.0 - twice) * share ** (eta + 1.0)) ** (1.0 / (eta + 1.0))
    values = x + np.copysign(size, side) * width
    flat[where] = np.minimum(np.maximum(values, least), largest)
    return child


def uniform_crossover(first: Integers, second: Integers, from_second: Mask) -> Integers:
    """Take each gene from either parent."""
    return np.where(from_second, second, first)


def single_point(first: NDArray[Any], second: NDArray[Any], cut: Integers) -> NDArray[Any]:
    """Take columns before ``cut`` [P] from the first parent and the others from the second."""
    return np.where(np.arange(first.shape[1]) < cut[:, None], first, second)


def integer_step(
    genes: Integers, low: Integers, high: Integers, uniform: Floats, upwards: Mask, mutated: Mask
) -> Integers:
    """Move mutated genes by a whole step of at least 1, geometric with mean about a tenth of range.

    ``uniform`` [P, D] in [0, 1) sets the size. A step that would leave the bounds goes the other
    way, and is cut at the bound there. A mutated gene always changes (rounding SBX or polynomial
    mutation to integers almost never does).
    """
    mean = np.maximum(1.0, (high - low) / 10.0)
    # Geometric on 1, 2, ... with that mean; mean 1 gives always 1.
    stay = np.log1p(-1.0 / np.maximum(mean, 1.0 + 1e-9))
    size = 1 + np.floor(np.log1p(-uniform) / stay).astype(np.int64)
    target = genes + np.where(upwards, size, -size)
    mirrored = genes - np.where(upwards, size, -size)
    target = np.where((target < low) | (target > high), mirrored, target)
    target = np.clip(target, low, high)
    # Only a gene on a bound can have come back to itself: the step was longer than the range.
    target = np.where(target == genes, np.where(genes == low, high, low), target)
    return np.where(mutated, target, genes)


def bitwise(genes: Integers, low: Integers, high: Integers, flips: Integers) -> Integers:
    """Flip the bits of ``genes − low`` that are set in ``flips``; wrap round into the bounds."""
    return low + ((genes - low) ^ flips) % (high - low + 1)


def categorical_reset(
    genes: Integers, num_choices: Integers, uniform: Floats, mutated: Mask
) -> Integers:
    """Replace mutated genes by another choice, each of the others equally likely."""
    shift = 1 + (uniform * (num_choices - 1)).astype(np.int64)
    return np.where(mutated, (genes + shift) % num_choices, genes)


def order_crossover(
    first: Integers, second: Integers, num_items: int, start: Integers, end: Integers
) -> Integers:
    """Order crossover (Davis 1985), also for k of n items without repetition.

    Positions ``[start, end)`` come from the first parent; the others are filled from the second
    parent's items in its order, beginning after ``end`` and skipping what is already there.
    """
    rows, k = first.shape
    turn = (np.arange(k) + end[:, None]) % k
    first_turned = np.take_along_axis(first, turn, 1)
    second_turned = np.take_along_axis(second, turn, 1)
    need = k - (end - start)
    kept = np.arange(k) >= need[:, None]
    used = np.zeros((rows, num_items), np.bool_)
    row = np.arange(rows)[:, None]
    used[np.broadcast_to(row, kept.shape)[kept], first_turned[kept]] = True
    free = ~used[row, second_turned]
    free &= np.cumsum(free, 1) <= need[:, None]
    child_turned = first_turned.copy()
    child_turned[~kept] = second_turned[free]
    child = np.empty_like(child_turned)
    np.put_along_axis(child, turn, child_turned, 1)
    return child


def cycle_crossover(first: Integers, second: Integers) -> Integers:
    """Cycle crossover (Oliver, Smith, Holland 1987) for parents that hold the same items.

    Every position keeps the item one of the parents has there; cycles alternate between them,
    beginning with the first parent.
    """
    rows, k = first.shape
    row = np.arange(rows)[:, None]
    place = np.argsort(first, 1)
    # Position to which the cycle goes on: where the first parent holds the second parent's item.
    rank_of_second = np.argsort(np.argsort(second, 1), 1)
    jump = np.take_along_axis(place, rank_of_second, 1)
    label = np.broadcast_to(np.arange(k), (rows, k)).copy()
    length = 1
    while length < k:
        label = np.minimum(label, label[row, jump])
        jump = jump[row, jump]
        length *= 2
    begins = label == np.arange(k)
    number = np.take_along_axis(np.cumsum(begins, 1) - 1, label, 1)
    return np.where(number % 2 == 0, first, second)


def swap(
    items: Integers, num_items: int, position: Integers, other: Integers, mutated: Mask
) -> Integers:
    """Swap the item at ``position`` [P] with slot ``other`` [P] of all ``num_items`` slots.

    Slots of ``range(k)`` are the chosen ones, the rest are the items left out (in rising order), so
    that k of n may exchange an item for one outside.
    """
    rows, k = items.shape
    child = items.copy()
    row = np.arange(rows)
    if num_items == k:
        slots = child
    else:
        left_out = np.ones((rows, num_items), np.bool_)
        left_out[row[:, None], items] = False
        outside = np.nonzero(left_out)[1].reshape(rows, num_items - k)
        slots = np.concatenate([child, outside], 1)
    mine, theirs = slots[row, position], slots[row, other]
    slots[row, position] = np.where(mutated, theirs, mine)
    slots[row, other] = np.where(mutated, mine, theirs)
    return slots[:, :k]


def layer_crossover(
    first: Mapping[str, NDArray[Any]],
    second: Mapping[str, NDArray[Any]],
    from_second: Mapping[str, bool],
) -> BlobValue:
    """Take whole layers from either parent (a layer is what stands before the last dot).

    Arrays are shared with the parents, not copied.
    """
    return {name: (second if from_second[layer_of(name)] else first)[name] for name in first}


def layer_of(name: str) -> str:
    return name.rpartition(".")[0] or name


def gaussian_blob(
    blob: Mapping[str, NDArray[Any]], deviation: float, rng: np.random.Generator
) -> BlobValue:
    """Add normal noise of the given standard deviation to every weight; dtypes stay."""
    return {
        name: (array + deviation * rng.standard_normal(array.shape)).astype(array.dtype)
        for name, array in blob.items()
    }

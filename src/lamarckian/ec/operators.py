"""Crossover and mutation as pure functions over a population.

Every function takes parents as arrays with one row per child and all its randomness as arrays, and
returns new arrays. ``P`` children, ``D`` columns. What the declared bounds, choices or items were,
they are after every operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lamarckian.evaluator import BlobValue, Floats

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: One bound per gene, or one for all.
Bounds: TypeAlias = Floats | np.float64

_TINY = 1e-300


def _root(base: Floats, exponent: float) -> Floats:
    """``base ** (1 / exponent)``, in place; powers of two by square roots, 5 × faster."""
    if exponent in (2.0, 4.0, 8.0, 16.0, 32.0):
        while exponent > 1.0:
            np.sqrt(base, out=base)
            exponent /= 2.0
        return base
    return np.power(base, 1.0 / exponent, out=base)


def _raised(base: Floats, exponent: float) -> Floats:
    """``base ** exponent``, in place; powers of two go by squaring."""
    if exponent in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        while exponent > 1.0:
            np.multiply(base, base, out=base)
            exponent /= 2.0
        return base
    return np.power(base, exponent, out=base)


def sbx_genes(
    first: Floats,
    second: Floats,
    low: Bounds,
    high: Bounds,
    uniform: Floats,
    side: Floats,
    eta: float,
) -> Floats:
    """Simulated binary crossover within bounds (Deb and Agrawal 1995; bounds: Deb 1999).

    All of ``[n]``, bounds ``[n]`` or one number. A pair of genes has two children; the result is
    the one near the first parent's gene where ``side`` is 1, the other where it is −1. Without
    bounds both children together keep the mean of the parents, and the spread factor
    β = |c2 − c1| / |p2 − p1| has density (eta + 1)/2 · β^eta below 1 and
    (eta + 1)/2 · β^−(eta + 2) above. Equal genes give their value.
    """
    gap = first - second
    gap *= side
    total = first + second
    # From the middle, the child lies on the side where gap points: towards this bound.
    room = np.where(gap < 0.0, low + low, high + high)
    room -= total
    room *= room
    # Where both parents are on the bound, gap is 0 as well.
    room += _TINY
    # gap / room is 1 / (widest spread that stays within the bound); alpha corrects the density.
    alpha = gap * gap
    alpha /= room
    np.minimum(alpha, 1.0, out=alpha)
    alpha = _raised(alpha, (eta + 1.0) / 2.0)
    np.subtract(2.0, alpha, out=alpha)
    alpha *= uniform
    above = 2.0 - alpha
    np.divide(1.0, above, out=above)
    spread = _root(np.where(alpha <= 1.0, alpha, above), eta + 1.0)
    spread *= gap
    spread += total
    spread *= 0.5
    np.maximum(spread, low, out=spread)
    np.minimum(spread, high, out=spread)
    return spread


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
    """Apply :func:`sbx_genes` to the genes of ``[P, D]`` that are ``applied``; bounds are ``[D]``.

    The others stay as in ``first``.
    """
    child = first.copy()
    where = np.flatnonzero(applied)
    column = where % first.shape[1]
    child.reshape(-1)[where] = sbx_genes(
        first.reshape(-1)[where],
        second.reshape(-1)[where],
        low[column],
        high[column],
        uniform.reshape(-1)[where],
        np.where(near_first.reshape(-1)[where], 1.0, -1.0),
        eta,
    )
    return child


def polynomial_genes(genes: Floats, low: Bounds, high: Bounds, side: Floats, eta: float) -> Floats:
    """Polynomial mutation within bounds (Deb and Goyal 1996) of ``genes`` [n].

    ``side`` = 2u − 1 in [−1, 1) for a uniform number u: its sign is the direction of the move.
    Bounds are ``[n]`` or one number.
    """
    width = high - low
    # Distance to the bound on that side, as a share of the width.
    share = genes - np.where(side < 0.0, low, high)
    np.abs(share, out=share)
    share /= width
    np.subtract(1.0, share, out=share)
    once = np.abs(side)
    size = share ** (eta + 1.0)
    size *= once
    size += 1.0
    size -= once
    np.power(size, 1.0 / (eta + 1.0), out=size)
    np.subtract(1.0, size, out=size)
    np.copysign(size, side, out=size)
    size *= width
    size += genes
    np.maximum(size, low, out=size)
    np.minimum(size, high, out=size)
    return size


def polynomial_mutation(
    genes: Floats, low: Floats, high: Floats, uniform: Floats, rate: float, eta: float
) -> Floats:
    """Apply :func:`polynomial_genes` to ``genes`` [P, D] where ``uniform`` < rate; bounds are [D].

    uniform / rate is then the uniform number that the formula needs: one draw does for both.
    """
    child = genes.copy()
    where = np.flatnonzero(uniform < rate)
    if where.size:
        column = where % genes.shape[1]
        side = uniform.reshape(-1)[where] * (2.0 / rate) - 1.0
        flat = child.reshape(-1)
        flat[where] = polynomial_genes(flat[where], low[column], high[column], side, eta)
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

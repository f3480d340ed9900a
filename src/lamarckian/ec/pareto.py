"""Non-dominated sorting, crowding and constraint domination.

Costs are float64 ``[P, K]``, to be minimized. Rows that are not usable (a non-finite cost) get the
last rank and influence nobody. Sorting uses moocore's compiled routines where the package is
installed and pure NumPy otherwise; both give the same ranks (a test compares them with the naive
definition). Up to a thousand rows, and where numba is installed, sorting and survival run as one compiled
loop (``compiled.py``).
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from lamarckian.evaluator import Floats

Ranks = NDArray[np.int64]

try:
    import moocore
except ImportError:
    HAS_MOOCORE = False
else:
    HAS_MOOCORE = True

#: Up to this many rows the fallback compares all pairs at once (n² bytes).
_ALL_PAIRS = 1500

#: Up to this many rows the compiled sort, quadratic at worst, is the fastest one.
_FEW = 1000

#: Rounds in which the last front is thinned, see :func:`survivors`: for two objectives, for more.
_ROUNDS, _MORE_ROUNDS = 2, 4


@functools.cache
def compiled() -> ModuleType | None:
    """Return the compiled inner loops, or None without numba; loaded on first use (0.3 s)."""
    try:
        from lamarckian.ec import compiled as loops
    except ImportError:
        return None
    return loops


def dominance(costs: Floats) -> NDArray[np.bool_]:
    """Return ``[P, P]``: whether row i dominates row j (no worse anywhere, better somewhere)."""
    no_worse = costs[:, None, 0] <= costs[None, :, 0]
    for column in range(1, costs.shape[1]):
        no_worse &= costs[:, None, column] <= costs[None, :, column]
    # i dominates j exactly if i <= j everywhere and not j <= i everywhere.
    return no_worse & ~no_worse.T


def sort(costs: Floats, use_moocore: bool = True) -> Ranks:
    """Return the front of each row, 0 for the non-dominated ones (Deb et al. 2002).

    Rows with a non-finite cost all get one rank behind every other.
    """
    usable = np.isfinite(costs).all(1)
    if usable.all():
        return _sort_finite(costs, use_moocore)
    ranks = np.empty(len(costs), np.int64)
    inner = _sort_finite(costs[usable], use_moocore)
    ranks[usable] = inner
    ranks[~usable] = int(inner.max()) + 1 if inner.size else 0
    return ranks


def _sort_finite(costs: Floats, use_moocore: bool) -> Ranks:
    rows, num = costs.shape
    if rows == 0:
        return np.empty(0, np.int64)
    if num == 1:
        return np.unique(costs[:, 0], return_inverse=True)[1].astype(np.int64)
    if HAS_MOOCORE and use_moocore:
        return np.asarray(moocore.pareto_rank(costs), np.int64)
    if num == 2:
        return _sort_two(costs)
    return _sort_all_pairs(costs) if rows <= _ALL_PAIRS else _sort_sequential(costs)


def _sort_two(costs: Floats) -> Ranks:
    """O(P log P) for two objectives: fronts by binary search over the last point of each front."""
    order = np.lexsort((costs[:, 1], costs[:, 0]))
    lowest: list[float] = []
    ranks: list[int] = []
    previous = (np.nan, np.nan)
    for first, second in costs[order].tolist():
        if (first, second) != previous:
            # In this order a point is dominated by a front exactly if the front's lowest second
            # cost so far is not above its own; those values rise from front to front.
            rank = bisect_right(lowest, second)
            if rank == len(lowest):
                lowest.append(second)
            else:
                lowest[rank] = second
            previous = (first, second)
        ranks.append(rank)
    result = np.empty(len(costs), np.int64)
    result[order] = ranks
    return result


def _sort_all_pairs(costs: Floats) -> Ranks:
    dominates = dominance(costs)
    num_above = dominates.sum(0, dtype=np.int64)
    ranks = np.empty(len(costs), np.int64)
    front, rank = np.flatnonzero(num_above == 0), 0
    while front.size:
        ranks[front] = rank
        num_above[front] = -1
        num_above -= dominates[front].sum(0, dtype=np.int64)
        front, rank = np.flatnonzero(num_above == 0), rank + 1
    return ranks


def _sort_sequential(costs: Floats) -> Ranks:
    """Sequential search over fronts (Zhang et al. 2015, ENS-BS): memory O(P) for large P."""
    order = np.lexsort(costs.T[::-1])
    ordered = costs[order]
    members: list[Floats] = []
    sizes: list[int] = []
    ranks = np.empty(len(costs), np.int64)
    for position, point in enumerate(ordered):
        low, high = 0, len(members)
        while low < high:
            middle = (low + high) // 2
            block = members[middle][: sizes[middle]]
            weak = (block <= point).all(1)
            if weak.any() and (block[weak] < point).any():
                low = middle + 1
            else:
                high = middle
        if low == len(members):
            members.append(np.empty((16, costs.shape[1])))
            sizes.append(0)
        if sizes[low] == len(members[low]):
            members[low] = np.concatenate([members[low], np.empty_like(members[low])])
        members[low][sizes[low]] = point
        sizes[low] += 1
        ranks[order[position]] = low
    return ranks


def non_dominated(costs: Floats) -> NDArray[np.int64]:
    """Return the rows no other row dominates; equal rows are all kept, non-finite ones never."""
    usable: Ranks = np.flatnonzero(np.isfinite(costs).all(1))
    if HAS_MOOCORE and costs.shape[1] > 1 and usable.size:
        keep = moocore.is_nondominated(costs[usable], keep_weakly=True)
    else:
        keep = _sort_finite(costs[usable], use_moocore=False) == 0
    return usable.compress(keep)


def constrained_sort(costs: Floats, violation: Floats) -> Ranks:
    """Rank under constraint domination (Deb et al. 2002).

    Feasible rows (violation 0) are sorted by Pareto domination; behind them come the infeasible
    ones by rising violation; rows that are not usable (violation +inf) come last. Costs of feasible
    rows are finite.
    """
    feasible = violation == 0.0
    if feasible.all():
        return _sort_finite(costs, use_moocore=True)
    ranks = np.empty(len(costs), np.int64)
    inner = _sort_finite(costs[feasible], use_moocore=True)
    ranks[feasible] = inner
    start = int(inner.max()) + 1 if inner.size else 0
    ranks[~feasible] = start + np.unique(violation[~feasible], return_inverse=True)[1]
    return ranks


def crowding(costs: Floats, ranks: Ranks) -> Floats:
    """Return the crowding distance of each row within its front; ends of a front are infinite.

    Each objective is normalised by its range within the front (Deb et al. 2002).
    """
    if not len(costs):
        return np.zeros(0)
    columns = np.ascontiguousarray(costs.T)
    sizes = np.bincount(ranks)
    return _crowding(columns, _orders(columns, ranks), sizes[sizes > 0])


def _orders(columns: Floats, ranks: Ranks) -> Ranks:
    """Return the order of the rows by (rank, cost) for each of ``columns`` [K, P], int64 [K, P]."""
    orders = columns.argsort(1)
    if ranks.any():
        # Ranks of up to 16 bits are sorted by radix, in linear time.
        keys = ranks.astype(np.int16) if len(ranks) < 2**15 else ranks
        again = keys.take(orders).argsort(1, kind="stable")
        again += _offsets(columns)
        orders = orders.take(again)
    return orders


def _offsets(columns: Floats) -> Ranks:
    return np.arange(0, columns.size, columns.shape[1])[:, None]


def _crowding(columns: Floats, orders: Ranks, sizes: Ranks) -> Floats:
    """Return distances [P] from orders [K or 1, n] of n of the P rows; the others get 0."""
    ends = sizes.cumsum()
    starts = ends - sizes
    ends -= 1
    where = orders + _offsets(columns)
    ordered = columns.take(where)
    span = ordered.take(ends, 1)
    span -= ordered.take(starts, 1)
    np.abs(span, out=span)
    # A front without extent: its inner rows have no distance.
    span[span == 0.0] = np.inf
    gaps = np.empty_like(ordered)
    inner = gaps[:, 1:-1]
    np.subtract(ordered[:, 2:], ordered[:, :-2], out=inner)
    inner /= span.repeat(sizes, 1)[:, 1:-1] if len(sizes) > 1 else span
    np.abs(inner, out=inner)
    gaps[:, starts] = np.inf
    gaps[:, ends] = np.inf
    distance = np.zeros(columns.size)
    distance[where] = gaps
    return np.asarray(distance.reshape(columns.shape).sum(0))


def survivors(costs: Floats, violation: Floats, size: int) -> Ranks:
    """Return the rows of the best ``size``, best first: by front, within a front by crowding.

    The front that does not fit whole is thinned in rounds, with crowding worked out anew in
    between: neighbours that are crowded because of each other are then not both lost.
    """
    rounds = _ROUNDS if costs.shape[1] == 2 else _MORE_ROUNDS
    loops = compiled()
    if loops is not None and 0 < len(costs) <= _FEW and not violation.any():
        fast: Ranks = loops.survivors(costs, size, rounds)
        return fast
    ranks = constrained_sort(costs, violation)
    sizes = np.bincount(ranks)
    rows = None
    if len(ranks) > size:
        last = int(sizes.cumsum().searchsorted(size))
        if last + 1 < len(sizes):
            sizes = sizes[: last + 1]
            rows = np.flatnonzero(ranks <= last)
            ranks, costs = ranks.take(rows), costs.take(rows, 0)
    columns = np.ascontiguousarray(costs.T)
    # Along a front of two objectives one rises where the other falls: one order does for both.
    one_order = len(columns) == 2 and not violation.any()
    orders = _orders(columns[:1] if one_order else columns, ranks)
    # A finite distance is at most the number of objectives.
    most = len(columns) + 1.0
    rising = ranks * (most + 1.0)
    left = len(ranks)
    for remaining in range(rounds, 1, -1):
        if left - size < remaining:
            break
        key = rising - np.minimum(_crowding(columns, orders, sizes), most)
        keep = left - (left - size) // remaining
        kept = np.zeros(len(ranks), np.bool_)
        kept[key.argsort()[:keep]] = True
        orders = orders[kept.take(orders)].reshape(len(orders), -1)
        sizes[-1] -= left - keep
        rising[~kept] = np.inf
        left = keep
    key = rising - np.minimum(_crowding(columns, orders, sizes), most)
    best: Ranks = key.argsort(kind="stable")[:size]
    return best if rows is None else rows.take(best)

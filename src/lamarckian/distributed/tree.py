"""Who hands weights on to whom: trees over hosts as pure data.

Hosts are numbered in the order of a list; the learner is -1. In every tree a host's parent has a
smaller number than the host, so following parents ends at the learner, and so does following the
fallbacks: no two hosts can ever follow each other.

==========  ===================================================  ======================
topology    shape                                                layers, learner included
==========  ===================================================  ======================
``flat``    the learner serves everybody                         2
``sqrt``    the paper's: about the root of n relays, rest behind  3 at most
``binary``  every host serves two; the default                   1 + log2(n + 2), rounded up
``chain``   every host serves the next                           n + 1
==========  ===================================================  ======================
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from lamarckian.errors import UnknownName, nearest

Topology = Literal["flat", "sqrt", "binary", "chain"]
TOPOLOGIES: tuple[str, ...] = get_args(Topology)
LEARNER = -1

M = TypeVar("M")
H = TypeVar("H", bound=Hashable)


@dataclass(slots=True, frozen=True)
class Tree:
    """``parents[i]`` is the host that serves host ``i``, or -1 for the learner."""

    parents: tuple[int, ...]

    @property
    def num_hosts(self) -> int:
        return len(self.parents)

    def children(self) -> dict[int, list[int]]:
        """Return who serves whom: learner or host -> the hosts it serves, in order."""
        found: dict[int, list[int]] = {}
        for host, parent in enumerate(self.parents):
            found.setdefault(parent, []).append(host)
        return found

    def depths(self) -> list[int]:
        """Return for each host the number of transfers between it and the learner."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == LEARNER else depths[parent] + 1)
        return depths

    @property
    def num_layers(self) -> int:
        """Layers of the tree; the learner alone is one."""
        return 1 + max(self.depths(), default=0)

    @property
    def fan_out(self) -> int:
        """The largest number of hosts one host, or the learner, serves."""
        return max(map(len, self.children().values()), default=0)

    def fallbacks(self, host: int) -> list[int]:
        """Return whom ``host`` asks, in order, when its parent is dead.

        An older sibling (spread so that none gets more than two), the grandparent, the learner.
        """
        parent = self.parents[host]
        if parent == LEARNER:
            return [LEARNER]
        siblings = [other for other in range(host) if self.parents[other] == parent]
        order = [siblings[(len(siblings) - 1) // 2]] if siblings else []
        order += [self.parents[parent], LEARNER]
        return list(dict.fromkeys(order))


def build(num_hosts: int, topology: str = "binary") -> Tree:
    """Return the tree over ``num_hosts`` hosts. Raises UnknownName for another topology."""
    hosts = range(num_hosts)
    if topology == "flat":
        return Tree((LEARNER,) * num_hosts)
    if topology == "chain":
        return Tree(tuple(host - 1 for host in hosts))
    if topology == "binary":
        return Tree(tuple((host - 2) // 2 for host in hosts))
    if topology == "sqrt":
        relays = math.isqrt(max(0, num_hosts - 1)) + 1  # the root of n, rounded up
        return Tree(tuple(LEARNER if host < relays else host % relays for host in hosts))
    known = ", ".join(TOPOLOGIES)
    raise UnknownName(
        f"topology {topology!r}: expected one of {known}{nearest(topology, TOPOLOGIES)}"
    )


def group_by_host(members: Iterable[tuple[M, H]]) -> dict[H, list[M]]:
    """Return host -> its members, both in order of arrival: a host fetches once for all of them."""
    groups: dict[H, list[M]] = {}
    for member, host in members:
        groups.setdefault(host, []).append(member)
    return groups


def without(hosts: Sequence[M], gone: Iterable[M]) -> list[M]:
    """Return ``hosts`` without those that are gone.

    The last hosts, which serve nobody, move into the holes: everybody else keeps its place, so a
    death changes the parents of the dead host's children and of the host that moved, and no others
    in a binary tree.
    """
    dead = set(gone)
    order = list(hosts)
    place = 0
    while place < len(order):
        if order[place] not in dead:
            place += 1
            continue
        while order and order[-1] in dead:
            order.pop()
        if place < len(order):
            order[place] = order.pop()
            place += 1
    return order

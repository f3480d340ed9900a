"""Broadcast trees as pure data: every host once, bounded depth and out-degree, no cycles."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamarckian.distributed import tree
from lamarckian.errors import UnknownName

SIZES = st.integers(1, 10_000)


@pytest.mark.parametrize("topology", tree.TOPOLOGIES)
@given(num_hosts=SIZES)
@settings(max_examples=60, deadline=None)
@example(num_hosts=1)
@example(num_hosts=10_000)
def test_every_host_hangs_on_the_learner(topology: str, num_hosts: int) -> None:
    found = tree.build(num_hosts, topology)
    assert found.num_hosts == num_hosts
    # A parent's number is smaller than its child's: going up ends at the learner.
    assert all(tree.LEARNER <= parent < host for host, parent in enumerate(found.parents))
    served = [host for hosts in found.children().values() for host in hosts]
    assert sorted(served) == list(range(num_hosts))


@given(num_hosts=SIZES)
@settings(max_examples=100, deadline=None)
@example(num_hosts=10_000)
def test_shapes_are_bounded(num_hosts: int) -> None:
    flat = tree.build(num_hosts, "flat")
    assert (flat.num_layers, flat.fan_out) == (2, num_hosts)
    chain = tree.build(num_hosts, "chain")
    assert (chain.num_layers, chain.fan_out) == (num_hosts + 1, 1)
    binary = tree.build(num_hosts, "binary")
    # Layers 1..d of a full tree hold 2 + 4 + ... + 2^d = 2^(d+1) - 2 hosts.
    assert binary.num_layers == 1 + math.ceil(math.log2(num_hosts + 2)) - 1
    assert binary.fan_out <= 2
    root = tree.build(num_hosts, "sqrt")
    assert root.num_layers <= 3
    assert root.fan_out <= math.ceil(math.sqrt(num_hosts))


def test_pitfalls_perf_04_out_degree_of_four_thousand_nodes() -> None:
    found = tree.build(4_000, "sqrt")
    assert found.fan_out == 64  # the root of 4000 is 63.2
    assert len(found.children()[tree.LEARNER]) == 64


@pytest.mark.parametrize("topology", tree.TOPOLOGIES)
@pytest.mark.parametrize("num_hosts", [1, 2, 3, 7, 36, 101])
def test_fallbacks_lead_to_the_learner_and_never_in_circles(topology: str, num_hosts: int) -> None:
    found = tree.build(num_hosts, topology)
    load: dict[tuple[int, int], int] = {}
    for host in range(num_hosts):
        chain = found.fallbacks(host)
        assert chain[-1] == tree.LEARNER
        assert all(other < host for other in chain)
        parent = found.parents[host]
        if parent != tree.LEARNER:
            assert parent not in chain  # it is the dead one
            load[parent, chain[0]] = load.get((parent, chain[0]), 0) + 1
    # After one death no host serves more than two of the orphans.
    assert max((n for (_, new), n in load.items() if new != tree.LEARNER), default=0) <= 2


def test_small_trees_by_hand() -> None:
    assert tree.build(7, "binary").parents == (-1, -1, 0, 0, 1, 1, 2)
    assert tree.build(9, "sqrt").parents == (-1, -1, -1, 0, 1, 2, 0, 1, 2)
    assert tree.build(3, "chain").parents == (-1, 0, 1)
    assert tree.build(2, "flat").parents == (-1, -1)
    assert tree.build(0, "binary").num_layers == 1
    # Host 6 of the binary tree hangs on 2; its only fallbacks are 0 (above 2) and the learner.
    assert tree.build(7, "binary").fallbacks(6) == [0, -1]
    # Host 3 has the older sibling 2.
    assert tree.build(7, "binary").fallbacks(3) == [2, -1]


@given(st.integers(1, 60), st.data())
@settings(max_examples=200, deadline=None)
def test_the_dead_leave_and_few_move(num_hosts: int, data: st.DataObject) -> None:
    hosts = list(range(num_hosts))
    dead = data.draw(st.sets(st.sampled_from(hosts)))
    order = tree.without(hosts, dead)
    assert sorted(order) == sorted(set(hosts) - dead)
    moved = sum(order[place] != place for place in range(len(order)))
    assert moved <= len(dead)


def test_one_fetch_per_host() -> None:
    groups = tree.group_by_host([("a0", "x"), ("a1", "y"), ("a2", "x")])
    assert groups == {"x": ["a0", "a2"], "y": ["a1"]}


def test_unknown_topology_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'binary'"):
        tree.build(3, "binnary")

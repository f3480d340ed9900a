"""The parts of the broadcast without a network: copies in chunks, serving, the list of hosts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lamarckian.distributed import wire
from lamarckian.distributed.copies import Copy
from lamarckian.distributed.roster import Roster
from lamarckian.distributed.serving import Server
from lamarckian.distributed.ticket import TransportOptions

RUN = b"r" * 16
LIMIT = 1 << 30


def whole(version: int, arrays: dict[str, Any], chunk_bytes: int = 16, half: bool = False) -> Copy:
    return Copy.of(version, arrays, chunk_bytes, half=half, limit=LIMIT)


def rebuilt(copy: Copy) -> Copy:
    other = Copy(copy.begin, LIMIT)
    for index in range(copy.num_chunks):
        other.put(index, bytes(copy.chunk(index)))
    assert other.is_whole
    return other


DTYPES = st.sampled_from(["?", "u1", "<i8", "<f2", "<f4", "<f8"])
ANY_ARRAY = DTYPES.flatmap(lambda code: hnp.arrays(code, hnp.array_shapes(min_dims=0, min_side=0)))


@settings(max_examples=150, deadline=None)
@given(arrays=st.lists(ANY_ARRAY, max_size=4), chunk_bytes=st.integers(1, 200))
def test_chunks_make_the_arrays_again(arrays: list[Any], chunk_bytes: int) -> None:
    named = {f"a{number}": array for number, array in enumerate(arrays)}
    found = rebuilt(whole(7, named, chunk_bytes)).arrays()
    assert found.keys() == named.keys()
    for name, array in named.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_half_precision_halves_single_floats_only() -> None:
    arrays = {
        "w": np.array([1.0, 1 / 3, 1e6], np.float32),
        "d": np.array([1 / 3]),
        "n": np.array([3], np.int64),
    }
    copy = whole(0, arrays, half=True)
    assert copy.total == 64 + 64 + 8  # 6 bytes of halves, then 8, each on its own 64 bytes, then 8
    found = rebuilt(copy).arrays()
    assert found["w"].dtype == np.float32
    # 1/3 has 11 significant bits as a half: 0.33325; above 65504 there is only infinity.
    np.testing.assert_array_equal(found["w"], np.array([1.0, 0.333251953125, np.inf], np.float32))
    assert found["d"][0] == 1 / 3
    assert found["n"][0] == 3


@pytest.mark.parametrize(("index", "size"), [(1, 16), (0, 15), (0, 17), (0, 0)])
def test_only_the_next_chunk_of_the_right_size_is_taken(index: int, size: int) -> None:
    copy = Copy(whole(0, {"a": np.zeros(40, np.uint8)}).begin, LIMIT)
    assert copy.num_chunks == 3
    with pytest.raises(wire.WireError, match="expected chunk 0 of 3 with 16"):
        copy.put(index, b"x" * size)
    for number, length in enumerate((16, 16, 8)):
        copy.put(number, b"x" * length)
    with pytest.raises(wire.WireError):
        copy.put(3, b"")


def test_weights_above_the_limit_are_refused_before_memory_is_taken() -> None:
    spec = wire.ArraySpec("w", "<f8", (1 << 39,))
    begin = wire.Begin(version=0, arrays=(spec,), chunk_bytes=1 << 16, half=False)
    with pytest.raises(wire.WireError, match="at most"):
        Copy(begin, LIMIT)


class Wires:
    """Stands for a ROUTER: remembers what was sent to whom."""

    def __init__(self) -> None:
        self.codec = wire.Codec(RUN, wire.ToChild)
        self.sent: dict[bytes, list[Any]] = {}

    def send_multipart(self, frames: list[Any]) -> None:
        record, _ = self.codec.read(frames[1:])
        if not isinstance(record, wire.Beat):
            self.sent.setdefault(frames[0], []).append(record)

    def take(self, route: bytes) -> list[str]:
        """What went to a child since the last call: ``b7`` begins version 7, ``0`` is chunk 0."""
        words = []
        for record in self.sent.pop(route, []):
            begins = isinstance(record, wire.Begin)
            words.append(f"b{record.version}" if begins else str(record.index))
        return words


@pytest.fixture
def wires() -> Wires:
    return Wires()


def server(wires: Wires, window: int) -> Server:
    options = TransportOptions(chunk_bytes=1 << 10, window_bytes=window << 10)
    return Server(wires, wire.Codec(RUN, wire.FromChild), options)


def follow(
    server: Server, route: bytes, have: int = -1, partial: int = -1, chunks: int = 0
) -> None:
    record = wire.Follow(name=route.decode(), have=have, partial=partial, chunks=chunks)
    server.handle(route, record, 0.0, 0)


def ack(server: Server, route: bytes, version: int, chunks: int) -> None:
    server.handle(route, wire.Ack(version=version, chunks=chunks), 0.0, 0)
    server.push()


def weights(version: int, chunks: int = 4) -> Copy:
    return whole(version, {"w": np.zeros(chunks << 10, np.uint8)}, 1 << 10)


def test_window_bounds_what_is_under_way_and_acknowledgements_open_it(wires: Wires) -> None:
    serving = server(wires, window=2)
    follow(serving, b"a")
    serving.offer(weights(0))
    serving.push()
    assert wires.take(b"a") == ["b0", "0", "1"]
    serving.push()
    assert wires.take(b"a") == []
    ack(serving, b"a", 0, 1)
    assert wires.take(b"a") == ["2"]
    ack(serving, b"a", 5, 4)  # of a version that is not under way: no credit
    assert wires.take(b"a") == []
    ack(serving, b"a", 0, 99)  # more than was sent: as much as was sent
    assert wires.take(b"a") == ["3"]


def test_a_slow_child_gets_the_newest_next_and_never_what_came_between(wires: Wires) -> None:
    serving = server(wires, window=4)
    follow(serving, b"fast")
    follow(serving, b"slow")
    for version in range(3):
        serving.offer(weights(version))
        serving.push()
        ack(serving, b"fast", version, 2)
        ack(serving, b"fast", version, 4)
    assert wires.take(b"fast") == [w for v in range(3) for w in (f"b{v}", "0", "1", "2", "3")]
    assert wires.take(b"slow") == ["b0", "0", "1"]
    ack(serving, b"slow", 0, 2)
    assert wires.take(b"slow") == ["2", "3", "b2", "0", "1"]  # version 1 never travels


def test_chunks_are_handed_on_before_the_version_is_whole(wires: Wires) -> None:
    serving = server(wires, window=8)
    follow(serving, b"a")
    source = weights(3)
    arriving = Copy(source.begin, LIMIT)
    serving.offer(arriving)
    for index in range(4):
        arriving.put(index, source.chunk(index))
        serving.push()
        assert wires.take(b"a") == (["b3"] if index == 0 else []) + [str(index)]


def test_a_child_of_a_dead_parent_goes_on_where_it_stopped(wires: Wires) -> None:
    serving = server(wires, window=8)
    serving.offer(weights(3))
    follow(serving, b"a", have=2, partial=3, chunks=2)
    serving.push()
    assert wires.take(b"a") == ["b3", "2", "3"]
    # Half of a version that is not here is worth nothing: the newest begins.
    follow(serving, b"b", have=1, partial=2, chunks=2)
    serving.push()
    assert wires.take(b"b") == ["b3", "0", "1", "2", "3"]
    follow(serving, b"c", have=3)
    serving.push()
    assert wires.take(b"c") == []


def test_a_version_that_will_never_be_whole_is_left(wires: Wires) -> None:
    serving = server(wires, window=8)
    follow(serving, b"a")
    source = weights(3)
    arriving = Copy(source.begin, LIMIT)
    arriving.put(0, source.chunk(0))
    serving.offer(arriving)
    serving.push()
    assert wires.take(b"a") == ["b3", "0"]
    serving.offer(weights(4))
    serving.push()
    assert wires.take(b"a") == ["b4", "0", "1", "2", "3"]


def test_children_that_leave_or_fall_silent_are_served_no_more(wires: Wires) -> None:
    serving = server(wires, window=8)
    follow(serving, b"a")
    follow(serving, b"b")
    serving.handle(b"a", wire.Leave(), 0.0, 0)
    serving.handle(b"stranger", wire.Ack(version=0, chunks=1), 0.0, 0)
    assert serving.children == ["b"]
    serving.beat(100.0, 0)
    assert serving.children == []


def join(roster: Roster, name: str, now: float, port: int = 1) -> None:
    seat = wire.Seat(name, f"tcp://10.0.0.1:{port}", "key")
    record = wire.Join(seat=seat, epoch=roster.epoch, version=3, parent="")
    roster.heard(name.encode(), record, now)


def test_roster_keeps_places_and_counts_epochs() -> None:
    roster = Roster("binary", silent_after=1.0)
    for name in "abcd":
        join(roster, name, 0.0)
    assert [seat.name for seat in roster.next_table().seats] == ["a", "b", "c", "d"]
    assert (roster.epoch, roster.changed) == (1, False)
    for name in "acd":
        join(roster, name, 2.0)
    assert not roster.changed  # a sign of life changes nothing
    assert roster.drop_silent(2.5) == ["b"]
    assert [host.seat.name for host in roster.hosts] == ["a", "d", "c"]  # the last fills the hole
    assert roster.changed
    assert roster.next_table().epoch == 2
    join(roster, "b", 3.0)  # it is back
    assert [host.seat.name for host in roster.hosts] == ["a", "d", "c", "b"]
    roster.next_table()
    join(roster, "a", 3.0, port=2)  # restarted: reached elsewhere, same place
    assert roster.changed
    assert roster.table().seats[0].endpoint.endswith(":2")
    roster.remove(["nobody"])
    assert len(roster.hosts) == 4

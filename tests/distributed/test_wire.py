"""Messages between hosts: what is written is read, and nothing else is."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian.distributed import wire

RUN = bytes(range(16))
CODEC = wire.Codec(RUN, wire.FromActor)


def fragment(arrays: dict[str, Any], /, **changes: Any) -> list[Any]:
    record = wire.Fragment(
        worker=0, attempt=0, sequence=0, facts=b"", arrays=wire.array_specs(arrays)
    )
    record = msgspec.structs.replace(record, **changes)
    return [CODEC.header(record), *[wire.raw(array) for array in arrays.values()]]


ARRAYS = {
    "image": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "alive": np.array([True, False]),
    "half": np.array([1.5, -2.0], np.float16),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 5), np.float32),
    "strided": np.arange(10, dtype=np.float64)[::3],
}


def test_arrays_survive_the_wire() -> None:
    record, frames = CODEC.read(fragment(ARRAYS))
    found = wire.views(record.arrays, frames)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)
        assert not found[name].flags.writeable


def test_arrays_at_odd_addresses_are_aligned() -> None:
    memory = bytearray(1 + 8 * 4)
    frame = memoryview(memory)[1:]
    array = wire.views([wire.ArraySpec("a", "<f8", (4,))], [frame])["a"]
    assert array.flags.aligned


def spec(name: str = "a", dtype: str = "<f4", shape: tuple[int, ...] = (2,)) -> wire.ArraySpec:
    return wire.ArraySpec(name, dtype, shape)


A = {"a": np.zeros(2, np.float32)}


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ([], "no frames"),
        ([b""], "header of 0 bytes"),
        ([b"x" * 100], "magic"),
        ([b"LMKW" + b"\x09\x00" + b"x" * 100], "protocol 9"),
        (wire.Codec(b"y" * 16, wire.FromActor).header(wire.Hello(worker=0, attempt=0)), "run"),
        (fragment(A)[0] + b"more", "unreadable"),
        (fragment(A)[0][:-1], "unreadable"),
        (wire.Codec(RUN, wire.ToActor).header(wire.Stop()), "unreadable"),
        (fragment(A)[:1], "0 frames"),
        ([*fragment(A), b""], "2 frames"),
        ([fragment(A)[0], b"1234567"], "8 bytes, its frame has 7"),
        (fragment(A, arrays=(spec(dtype="|O"),)), "dtype"),
        (fragment(A, arrays=(spec(dtype=">f4"),)), "dtype"),
        (fragment(A, arrays=(spec(shape=(3,)),)), "12 bytes"),
        (fragment(A, arrays=(spec(shape=(-2,)),)), "unreadable"),
        (fragment(A, arrays=(spec(shape=(1 << 40, 1 << 40)),)), "at most"),
        (fragment({**A, "b": A["a"]}, arrays=(spec(), spec())), "twice"),
        (fragment(A, worker=-1), "unreadable"),
        (fragment(A, sequence=1 << 63), "unreadable"),
        (fragment(A, facts=b"x" * (2 << 20)), "facts"),
        ([CODEC.header(wire.Hello(worker=0, attempt=0)), b"extra"], "Hello with 1 frames"),
    ],
)
def test_what_does_not_fit_is_refused(frames: Any, says: str) -> None:
    frames = [frames] if isinstance(frames, bytes) else frames
    with pytest.raises(wire.WireError, match=says):
        CODEC.read(frames)


def test_fragments_must_be_what_was_declared() -> None:
    declared = wire.Declared.of({**A, "table": np.zeros((4, 3), np.int32)}, free=["table"])
    codec = wire.Codec(RUN, wire.FromActor, declared)
    for length in (0, 1, 9):  # a free first side
        codec.read(fragment({**A, "table": np.zeros((length, 3), np.int32)}))
    for arrays, says in (
        (A, "'table' is missing"),
        ({**A, "table": np.zeros((4, 3), np.int32), "b": A["a"]}, "'b' is not declared"),
        ({**A, "table": np.zeros((4, 2), np.int32)}, "declared"),
        ({**A, "table": np.zeros(4, np.int32)}, "declared"),
        ({"a": np.zeros(3, np.float32), "table": np.zeros((4, 3), np.int32)}, "declared"),
        ({"a": np.zeros(2, np.int32), "table": np.zeros((4, 3), np.int32)}, "declared"),
    ):
        with pytest.raises(wire.WireError, match=says):
            codec.read(fragment(arrays))


def test_cap_on_size_counts_all_arrays() -> None:
    codec = wire.Codec(RUN, wire.FromActor, wire.Declared(max_bytes=15))
    codec.read(fragment(A))
    with pytest.raises(wire.WireError, match="16 bytes announced, at most 15"):
        codec.read(fragment({**A, "b": A["a"]}))


def test_objects_and_strings_cannot_be_sent() -> None:
    for array in (np.array([None]), np.array(["text"]), np.zeros(2, ">f4"), np.zeros(2, "M8[s]")):
        with pytest.raises(TypeError, match="cannot travel"):
            wire.array_specs({"a": array})


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=4))
def test_random_frames_never_get_through(frames: list[bytes]) -> None:
    with pytest.raises(wire.WireError):
        CODEC.read(frames)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_messages_are_refused_or_still_well_formed(data: st.DataObject) -> None:
    """One flipped byte: either the message is refused, or what it says is consistent."""
    frames = fragment(ARRAYS)
    header = bytearray(frames[0])
    place = data.draw(st.integers(0, len(header) - 1))
    header[place] ^= data.draw(st.integers(1, 255))
    frames[0] = bytes(header)
    try:
        record, rest = CODEC.read(frames)
    except wire.WireError:
        return
    for array, frame in zip(wire.views(record.arrays, rest).values(), rest, strict=True):
        assert array.nbytes == len(frame)

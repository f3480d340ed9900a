"""Named arrays in memory, the ring of slots, and the control channel: nothing is believed."""

from __future__ import annotations

import os
import socket
import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lamarckian.distributed import layout, messages, probe
from lamarckian.distributed.memory import SharedBlock
from lamarckian.distributed.ring import Slot, SlotReader, SlotWriter
from lamarckian.errors import WorkerError

DTYPES = ["?", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]
ARRAYS = st.dictionaries(
    st.text(max_size=12),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(
            dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
        )
    ),
    max_size=6,
)


def pack(arrays: dict[str, np.ndarray], header: dict[str, object]) -> tuple[bytearray, int]:
    text = layout.encode_header(header)
    planned = layout.plan(layout.specs_of(arrays))
    memory = bytearray(planned.end + len(text) + 7)
    return memory, layout.write(memoryview(memory), planned, arrays, text)


@settings(max_examples=30, deadline=None)
@given(ARRAYS)
def test_arrays_come_back_bit_for_bit(arrays: dict[str, np.ndarray]) -> None:
    memory, used = pack(arrays, {"score": float("inf"), "n": np.int64(3)})
    header, found = layout.read(memoryview(bytes(memory[:used])))
    assert header == {"score": float("inf"), "n": 3}
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert not found[name].flags.writeable
        assert found[name].ctypes.data % array.itemsize == 0 or array.size == 0


def test_non_contiguous_arrays_travel() -> None:
    array = np.arange(24.0).reshape(4, 6)[::2, ::-3]
    memory, used = pack({"a": array}, {})
    assert (layout.read(memoryview(memory)[:used])[1]["a"] == array).all()


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["x"]), np.zeros(2, ">f4")])
def test_other_dtypes_are_refused_by_name(array: np.ndarray) -> None:
    with pytest.raises(TypeError, match=r"'thing'.*cannot travel"):
        layout.plan(layout.specs_of({"thing": array}))


def test_a_header_of_objects_or_of_two_megabytes_is_refused() -> None:
    with pytest.raises(TypeError, match="plain data"):
        layout.encode_header({"x": object()})
    with pytest.raises(ValueError, match="send data as arrays"):
        layout.encode_header({"x": "a" * (2 << 20)})


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_messages_are_refused_or_stay_inside_their_memory(data: st.DataObject) -> None:
    arrays = {"a": np.arange(10, dtype=np.int32), "b": np.ones((2, 3))}
    memory, used = pack(arrays, {"k": 1})
    memory = memory[:used]
    for _ in range(data.draw(st.integers(1, 4))):
        memory[data.draw(st.integers(0, 120))] = data.draw(st.integers(0, 255))
    cut = memory[: data.draw(st.integers(0, used))] if data.draw(st.booleans()) else memory
    try:
        _, found = layout.read(memoryview(cut))
    except WorkerError:
        return
    start = np.frombuffer(cut, np.uint8).ctypes.data
    for array in found.values():
        assert start <= array.ctypes.data
        assert array.ctypes.data + array.nbytes <= start + len(cut)


def test_a_shape_whose_size_overflows_64_bits_is_refused() -> None:
    entries = [("a", "<f8", (1 << 40, 1 << 40), 0)]
    table = msgspec.msgpack.encode(entries)
    prefix = struct.pack("<8sIIQQ", b"LMKARRAY", 1, len(table), 4096, 0)
    with pytest.raises(WorkerError, match="does not fit"):
        layout.read(memoryview(bytearray((prefix + table).ljust(4096, b"\0"))))


def test_pitfalls_dst_11_memory_is_anonymous_and_says_what_it_is() -> None:
    found = probe()
    assert found.kind in ("memfd", "unlinked-file")
    assert "memfd" in found.note or "temporary" in found.note
    block = SharedBlock.create(1 << 20)
    other = SharedBlock.attach(os.dup(block.fileno()), 1 << 20)
    block.view[5] = 77
    assert other.view[5] == 77
    with pytest.raises(TypeError):
        other.view[5] = 1
    assert os.fstat(block.fileno()).st_nlink == 0
    with pytest.raises(WorkerError, match="announced"):
        SharedBlock.attach(os.dup(block.fileno()), 4096)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(block.fileno(), 10)
    block.close()
    other.close()


def test_the_fallback_memory_is_a_file_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamarckian.distributed.memory._HAS_MEMFD", False)
    assert probe().kind == "unlinked-file"
    block = SharedBlock.create(8192)
    other = SharedBlock.attach(os.dup(block.fileno()), 8192)
    block.view[8191] = 9
    assert other.view[8191] == 9
    assert os.fstat(block.fileno()).st_nlink == 0
    block.close()
    other.close()


def fill(writer: SlotWriter, reader: SlotReader, array: np.ndarray) -> tuple[Slot, int]:
    planned = layout.plan(layout.specs_of({"a": array}))
    if writer.fit(planned):
        assert writer.block is not None
        fd = os.dup(writer.block.fileno())
        reader.add(fd, writer.generation, writer.num_slots, writer.slot_bytes)
    slot, memory = writer.take()
    used = layout.write(memory, planned, {"a": array}, b"")
    reader.hold(slot, used)
    return slot, used


def test_a_growing_ring_keeps_unread_slots_and_counts_credits_over_generations() -> None:
    writer, reader = SlotWriter(2, 1 << 24), SlotReader()
    small, large = np.arange(10.0), np.arange(400_000.0)
    first = fill(writer, reader, small)
    _, kept = reader.open(*first)
    second = fill(writer, reader, large)
    assert second[0].generation == first[0].generation + 1
    assert not writer.has_credit
    assert (kept["a"] == small).all()
    assert (reader.open(*second)[1]["a"] == large).all()
    with pytest.raises(WorkerError, match="without credit"):
        writer.take()
    reader.release(first[0])
    writer.give_back(first[0])
    third = fill(writer, reader, large + 1)
    assert third[0].index != second[0].index
    with pytest.raises(WorkerError, match="not outstanding"):
        writer.give_back(first[0])
    with pytest.raises(WorkerError, match="filled again"):
        reader.hold(third[0], third[1])
    with pytest.raises(WorkerError, match="does not exist"):
        reader.hold(Slot(99, 0), 10)
    with pytest.raises(ValueError, match="max_fragment_bytes"):
        writer.fit(layout.plan({"a": ("<f8", (1 << 22,))}))
    writer.close()
    reader.close()


def test_the_control_channel_refuses_what_it_does_not_know() -> None:
    ours, theirs = socket.socketpair()
    link = messages.Link(ours, messages.ToParent)
    body = msgspec.msgpack.encode({"type": "Start", "x": 1})
    theirs.sendall(struct.pack("<IB", len(body), 0) + body)
    with pytest.raises(WorkerError, match="unreadable"):
        link.receive(1.0)
    link.close()
    theirs.close()
    ours, theirs = socket.socketpair()
    link = messages.Link(ours, messages.ToParent)
    theirs.sendall(struct.pack("<IB", 1 << 31, 0))
    with pytest.raises(WorkerError, match="announces"):
        link.receive(1.0)
    assert link.send(messages.Stop())
    theirs.close()
    assert not link.send(messages.Stop())
    link.close()


def test_control_messages_in_pieces_and_descriptors_arrive_in_order() -> None:
    ours, theirs = socket.socketpair()
    sender, receiver = (
        messages.Link(ours, messages.ToParent),
        messages.Link(theirs, messages.ToWorker),
    )
    blocks = [SharedBlock.create(4096 * (i + 1)) for i in range(5)]
    for block in blocks:
        sender.send(messages.Credit(generation=1, index=1))
        sender.send(messages.Weights(size=block.size), [block.fileno()])
    found = receiver.receive(1.0)
    assert [len(fds) for _, fds in found] == [0, 1] * 5
    for message, fds in found:
        if fds:
            SharedBlock.attach(fds[0], message.size).close()
    for block in blocks:
        block.close()
    sender.close()
    assert receiver.receive(1.0) == []
    assert receiver.closed
    receiver.close()


def test_what_was_sent_before_leaving_is_read_although_an_answer_failed() -> None:
    ours, theirs = socket.socketpair()
    sender, receiver = (
        messages.Link(ours, messages.ToWorker),
        messages.Link(theirs, messages.ToParent),
    )
    sender.send(messages.Filled(generation=1, index=0, used=5))
    sender.send(messages.Finished())
    sender.close()
    assert not receiver.send(messages.Credit(generation=1, index=0))
    assert [type(m).__name__ for m, _ in receiver.receive(everything=True)] == [
        "Filled",
        "Finished",
    ]
    assert receiver.closed
    receiver.close()

"""Named arrays in one piece of memory: ``prefix | table | data, 64-byte aligned | header``.

The table is MessagePack (name, dtype, shape, offset of each array); the header is small MessagePack
data (MessagePack and not JSON because NaN and infinity must survive). Nothing is ever pickled, and
a reader believes nothing: every number is checked against the length of the memory it was given.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import WorkerError

Array = NDArray[Any]
Arrays = dict[str, Array]
Spec = tuple[str, tuple[int, ...]]

PROTOCOL = 1
ALIGNMENT = 64
MAX_ARRAYS = 4096
MAX_NAME = 512
MAX_DIMENSIONS = 32
MAX_HEADER = 1 << 20

_MAGIC = b"LMKARRAY"
_PREFIX = struct.Struct("<8sIIQQ")  # magic, protocol, bytes of table, end of data, bytes of header

ITEM_SIZES = {
    np.dtype(code).newbyteorder("<").str: np.dtype(code).itemsize
    for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One array in a table: ``offset`` counts from the start of the memory."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(slots=True, frozen=True)
class Layout:
    """Where each array lies; ``end`` is the end of the data, where the header begins."""

    entries: tuple[Entry, ...]
    table: bytes
    data: int
    end: int

    @property
    def capacity(self) -> int:
        """Bytes a slot needs to hold this layout with the largest header allowed."""
        return self.end + MAX_HEADER


_encoder = msgspec.msgpack.Encoder()
_table_decoder = msgspec.msgpack.Decoder(tuple[Entry, ...])


def to_plain(value: object) -> Any:
    """Encoding hook: numpy scalars and arrays as plain numbers and lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.tolist()
    raise TypeError(f"a {type(value).__qualname__} cannot be sent as plain data")


_header_encoder = msgspec.msgpack.Encoder(enc_hook=to_plain)


def encode_header(header: Mapping[str, Any]) -> bytes:
    """Return ``header`` as bytes; raises TypeError for objects, ValueError above 1 MiB."""
    data = _header_encoder.encode(header)
    if len(data) > MAX_HEADER:
        raise ValueError(
            f"header: {len(data):,} bytes, at most {MAX_HEADER:,}; send data as arrays"
        )
    return data


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def specs_of(arrays: Mapping[str, Array]) -> dict[str, Spec]:
    """Return name -> (dtype string, shape); raises TypeError for what is no numpy array."""
    specs: dict[str, Spec] = {}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise TypeError(f"array {name!r}: expected a numpy array, got {type(array).__name__}")
        specs[name] = (array.dtype.str, array.shape)
    return specs


def plan(specs: Mapping[str, Spec]) -> Layout:
    """Lay out arrays of the given dtypes and shapes.

    Raises TypeError for a dtype that cannot travel (objects, strings, big-endian numbers) and
    ValueError for too many arrays, dimensions or a too long name.
    """
    return _planned(tuple(specs.items()))


@functools.lru_cache(maxsize=256)
def _planned(specs: tuple[tuple[str, Spec], ...]) -> Layout:
    if len(specs) > MAX_ARRAYS:
        raise ValueError(f"{len(specs)} arrays in one message, at most {MAX_ARRAYS}")
    sizes = []
    for name, (dtype, shape) in specs:
        if dtype not in ITEM_SIZES:
            raise TypeError(
                f"array {name!r}: dtype {dtype!r} cannot travel; use one of {', '.join(ITEM_SIZES)}"
            )
        if len(name) > MAX_NAME or len(shape) > MAX_DIMENSIONS:
            raise ValueError(f"array {name[:60]!r}: the name or the shape {shape} is too long")
        sizes.append(math.prod(shape) * ITEM_SIZES[dtype])
    # Offsets are relative to the data while the table is being made, because its own length depends
    # on how many digits they take; reading adds the start of the data.
    entries = []
    offset = 0
    for (name, (dtype, shape)), size in zip(specs, sizes, strict=True):
        entries.append(Entry(name, dtype, tuple(map(int, shape)), offset))
        offset = _align(offset + size)
    table = _encoder.encode(entries)
    data = _align(_PREFIX.size + len(table))
    absolute = tuple(Entry(e.name, e.dtype, e.shape, e.offset + data) for e in entries)
    return Layout(absolute, table, data, data + offset)


def views(memory: memoryview, layout: Layout) -> Arrays:
    """Return one array per entry that looks into ``memory`` (writable if the memory is)."""
    return {
        entry.name: np.ndarray(entry.shape, entry.dtype, buffer=memory, offset=entry.offset)
        for entry in layout.entries
    }


def finish(memory: memoryview, layout: Layout, header: bytes) -> int:
    """Write prefix, table and header around data already in place; return the bytes used."""
    used = layout.end + len(header)
    if used > len(memory):
        raise ValueError(f"message of {used:,} bytes in a slot of {len(memory):,}")
    _PREFIX.pack_into(memory, 0, _MAGIC, PROTOCOL, len(layout.table), layout.end, len(header))
    memory[_PREFIX.size : _PREFIX.size + len(layout.table)] = layout.table
    memory[layout.end : used] = header
    return used


def write(memory: memoryview, layout: Layout, arrays: Mapping[str, Array], header: bytes) -> int:
    """Copy ``arrays`` and ``header`` into ``memory``; return the bytes used."""
    for name, view in views(memory, layout).items():
        np.copyto(view, arrays[name], casting="no")
    return finish(memory, layout, header)


def read_layout(memory: memoryview) -> tuple[Layout, bytes]:
    """Check what lies in ``memory`` and return its layout and its header.

    Raises WorkerError naming the first thing that does not fit.
    """
    if len(memory) < _PREFIX.size:
        raise WorkerError(f"array message: {len(memory)} bytes are too few for a prefix")
    magic, protocol, table_bytes, end, header_bytes = _PREFIX.unpack_from(memory, 0)
    if magic != _MAGIC:
        raise WorkerError("array message: it does not begin with the expected magic bytes")
    if protocol != PROTOCOL:
        raise WorkerError(f"array message: protocol {protocol}, this version speaks {PROTOCOL}")
    data = _align(_PREFIX.size + table_bytes)
    if header_bytes > MAX_HEADER or not data <= end <= end + header_bytes <= len(memory):
        raise WorkerError(f"array message: its parts do not fit into {len(memory):,} bytes")
    table = bytes(memory[_PREFIX.size : _PREFIX.size + table_bytes])
    return _checked(table, data, end), bytes(memory[end : end + header_bytes])


@functools.lru_cache(maxsize=256)
def _checked(table: bytes, data: int, end: int) -> Layout:
    """Check a table; the answer depends on nothing else, and most fragments have the same one."""
    try:
        entries = _table_decoder.decode(table)
    except msgspec.MsgspecError as error:
        raise WorkerError(f"array message: unreadable table ({error})") from error
    if len(entries) > MAX_ARRAYS or len({entry.name for entry in entries}) != len(entries):
        raise WorkerError("array message: too many arrays, or the same name twice")
    position = 0
    absolute = []
    for name, dtype, shape, offset in (msgspec.structs.astuple(entry) for entry in entries):
        if dtype not in ITEM_SIZES:
            raise WorkerError(f"array message: {name[:60]!r} has dtype {dtype[:20]!r}")
        if len(shape) > MAX_DIMENSIONS or any(side < 0 for side in shape):
            raise WorkerError(f"array message: {name[:60]!r} has shape {shape}")
        size = math.prod(shape) * ITEM_SIZES[dtype]
        if offset != position or data + offset + size > end:
            raise WorkerError(
                f"array message: {name[:60]!r} of shape {shape} at byte {offset} does not fit"
            )
        position = _align(offset + size)
        absolute.append(Entry(name, dtype, shape, offset + data))
    if data + position != end:
        raise WorkerError("array message: the arrays do not fill the data they were given")
    return Layout(tuple(absolute), table, data, end)


def read(memory: memoryview) -> tuple[dict[str, Any], Arrays]:
    """Return ``(header, arrays)``; the arrays look into ``memory``. Raises WorkerError."""
    layout, header = read_layout(memory)
    try:
        plain = msgspec.msgpack.decode(header, type=dict[str, Any]) if header else {}
    except msgspec.MsgspecError as error:
        raise WorkerError(f"array message: unreadable header ({error})") from error
    return plain, views(memory, layout)

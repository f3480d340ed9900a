"""What travels between hosts: one typed header, then the raw bytes of each array.

A message is a list of frames. The first holds a prefix (magic, protocol, id of the run) and one of
the records below as MessagePack; each further frame holds one array, or one piece of weights.
Nothing is pickled, and a reader believes nothing: :class:`Codec` checks the prefix, the record and
its bounds, the number of frames, and that every frame is exactly as long as its declared shape and
dtype say, before anything else sees the message. What does not pass raises :class:`WireError`.
"""

from __future__ import annotations

import math
import secrets
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from lamarckian.distributed.layout import (
    ITEM_SIZES,
    MAX_ARRAYS,
    MAX_DIMENSIONS,
    MAX_HEADER,
    MAX_NAME,
    Array,
    Arrays,
    specs_of,
)
from lamarckian.errors import WorkerError

MAGIC = b"LMKW"
PROTOCOL = 1
RUN_BYTES = 16
MAX_RECORD = 4 << 20
MAX_HOSTS = 10_000
MAX_MESSAGE = 1 << 30

_PREFIX = struct.Struct(f"<4sHxx{RUN_BYTES}s")

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Version = Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=500)]
Side = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class WireError(WorkerError):
    """Bytes from another process were refused; the message names what did not fit."""


class ArraySpec(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One array of a message: its bytes are the frame at the same place."""

    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
    dtype: str
    shape: Annotated[tuple[Side, ...], msgspec.Meta(max_length=MAX_DIMENSIONS)]

    @property
    def nbytes(self) -> int:
        """Bytes of the array; the dtype must have been checked."""
        return math.prod(self.shape) * ITEM_SIZES[self.dtype]


Specs = Annotated[tuple[ArraySpec, ...], msgspec.Meta(max_length=MAX_ARRAYS)]


# Gather: an actor (DEALER) and a collector (ROUTER)


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hello"):
    """Actor -> collector: here I am; answered by :class:`Credit`."""

    worker: Count
    attempt: Count


class Fragment(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fragment"
):
    """Actor -> collector: arrays; ``sequence`` grows by one with each fragment of an attempt."""

    worker: Count
    attempt: Count
    sequence: Count
    facts: bytes
    arrays: Specs


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="probe"):
    """Actor -> collector: I sent the fragments below ``sequence``; what have you got?"""

    worker: Count
    attempt: Count
    sequence: Count


class Credit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="credit"):
    """Collector -> actor: so many fragments of this attempt are dealt with (read or lost)."""

    attempt: Count
    done: Count


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="stop"):
    """Collector -> actor, learner -> relay: finish and leave."""


# Broadcast: a child (DEALER) and its parent (ROUTER); the learner is the root


class Seat(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One host in a table: how its relay is called, reached and recognised."""

    name: Name
    endpoint: Text
    key: Annotated[str, msgspec.Meta(max_length=40)]


class Join(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="join"):
    """Relay -> learner, again and again: I live, others reach me there, this is what I have."""

    seat: Seat
    epoch: Count
    version: Version
    parent: Text


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="table"):
    """Learner -> relay: the hosts alive, in the order the tree is built from."""

    epoch: Count
    topology: Name
    seats: Annotated[tuple[Seat, ...], msgspec.Meta(max_length=MAX_HOSTS)]


class Follow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="follow"):
    """Child -> parent: send me what is newer than ``have``.

    ``partial`` is a version the child holds the first ``chunks`` of (-1: none).
    """

    name: Name
    have: Version
    partial: Version
    chunks: Count


class Begin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="begin"):
    """Parent -> child: a version begins; its arrays follow as one run of bytes in chunks.

    With ``half``, arrays of float32 travel as float16; ``arrays`` says what they are at either end.
    """

    version: Count
    arrays: Specs
    chunk_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_MESSAGE)]
    half: bool


class Chunk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="chunk"):
    """Parent -> child: piece ``index`` of a version, in the frame behind."""

    version: Count
    index: Count


class Ack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ack"):
    """Child -> parent: I have the chunks below ``chunks`` of this version."""

    version: Count
    chunks: Count


class Leave(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="leave"):
    """Child -> parent: I follow somebody else now."""


class Beat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="beat"):
    """Either way when there is nothing else: I live.

    ``age``: milliseconds since this side last heard, through its parents, from the learner.
    """

    version: Version
    age: Count


FromActor = Hello | Fragment | Probe
ToActor = Credit | Stop
FromChild = Join | Follow | Ack | Leave | Beat
ToChild = Table | Begin | Chunk | Beat | Stop
# Frames behind the header; the others have none.
_CHUNK_FRAMES = 1


def new_run_id() -> bytes:
    """Return a random id for a run."""
    return secrets.token_bytes(RUN_BYTES)


class ArrayRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one declared array must be; a side of None may have any length."""

    dtype: str
    shape: tuple[int | None, ...]


class Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What arrays a reader takes: these names, dtypes and shapes, and no more bytes than the cap.

    Without ``arrays`` any arrays of the dtypes that may travel are taken, up to ``max_bytes``.
    """

    arrays: dict[str, ArrayRule] | None = None
    max_bytes: int = MAX_MESSAGE

    @classmethod
    def of(
        cls, arrays: Mapping[str, Array], free: Sequence[str] = (), max_bytes: int = MAX_MESSAGE
    ) -> Declared:
        """Declare arrays like these; the first side of those named in ``free`` may vary."""
        rules = {}
        for name, (dtype, shape) in specs_of(arrays).items():
            sides: tuple[int | None, ...] = tuple(shape)
            if name in free and sides:
                sides = (None, *sides[1:])
            rules[name] = ArrayRule(dtype=dtype, shape=sides)
        return cls(arrays=rules, max_bytes=max_bytes)

    def check(self, specs: Sequence[ArraySpec]) -> None:
        """Raise WireError unless ``specs`` are what is declared."""
        names = {spec.name for spec in specs}
        if len(names) != len(specs):
            raise WireError("message: the same array name twice")
        for spec in specs:
            if spec.dtype not in ITEM_SIZES:
                raise WireError(f"array {spec.name[:60]!r}: dtype {spec.dtype[:20]!r} not allowed")
        total = sum(spec.nbytes for spec in specs)
        if total > self.max_bytes:
            raise WireError(f"message: {total:,} bytes announced, at most {self.max_bytes:,}")
        if self.arrays is None:
            return
        if names != self.arrays.keys():
            odd = sorted(names ^ self.arrays.keys())[0]
            state = "not declared" if odd in names else "missing"
            raise WireError(f"message: array {odd[:60]!r} is {state}")
        for spec in specs:
            rule = self.arrays[spec.name]
            fits = len(rule.shape) == len(spec.shape) and all(
                want is None or want == got for want, got in zip(rule.shape, spec.shape)
            )
            if spec.dtype != rule.dtype or not fits:
                raise WireError(
                    f"array {spec.name[:60]!r}: declared {rule.dtype} {rule.shape}, "
                    f"got {spec.dtype} {spec.shape}"
                )


def array_specs(arrays: Mapping[str, Array]) -> tuple[ArraySpec, ...]:
    """Return the specs of ``arrays`` in order; TypeError for a dtype that cannot travel."""
    found = []
    for name, (dtype, shape) in specs_of(arrays).items():
        if dtype not in ITEM_SIZES:
            raise TypeError(
                f"array {name!r}: dtype {dtype!r} cannot travel; use one of {', '.join(ITEM_SIZES)}"
            )
        found.append(ArraySpec(name, dtype, tuple(shape)))
    return tuple(found)


def raw(array: Array) -> Any:
    """Return the bytes of ``array`` in C order, without a copy where it is contiguous."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.size else b""


def views(specs: Sequence[ArraySpec], frames: Sequence[Any]) -> Arrays:
    """Return read-only arrays that look into checked ``frames`` (copied only if not aligned)."""
    arrays: Arrays = {}
    for spec, frame in zip(specs, frames, strict=True):
        array = np.frombuffer(frame, spec.dtype).reshape(spec.shape)
        if not array.flags.aligned:
            array = array.copy()
        array.flags.writeable = False
        arrays[spec.name] = array
    return arrays


def facts_of(data: bytes) -> dict[str, Any]:
    """Return the plain data beside the arrays; raises WireError if unreadable."""
    try:
        return msgspec.msgpack.decode(data, type=dict[str, Any]) if data else {}
    except msgspec.MsgspecError as error:
        raise WireError(f"message: unreadable facts ({error})") from error


class Codec:
    """Writes and reads the messages of one run; ``incoming`` is the union of records it takes."""

    def __init__(self, run: bytes, incoming: Any, declared: Declared | None = None) -> None:
        if len(run) != RUN_BYTES:
            raise ValueError(f"run id: expected {RUN_BYTES} bytes, got {len(run)}")
        self._prefix = _PREFIX.pack(MAGIC, PROTOCOL, run)
        self._declared = declared or Declared()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(incoming)

    def header(self, record: msgspec.Struct) -> bytes:
        """Return the first frame of a message that carries ``record``."""
        return self._prefix + self._encoder.encode(record)

    def read(self, frames: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Return ``(record, frames behind it)`` of a message; frames are bytes or memoryviews.

        Raises WireError naming the first thing that does not fit. The pieces of a chunk are as
        long as the version they belong to says, which the caller knows and checks.
        """
        if not frames:
            raise WireError("message: no frames")
        first = frames[0]
        size = len(first)
        if not _PREFIX.size < size <= MAX_RECORD:
            raise WireError(f"message: header of {size:,} bytes")
        if bytes(first[: _PREFIX.size]) != self._prefix:
            raise self._misfit(bytes(first[: _PREFIX.size]))
        try:
            record = self._decoder.decode(first[_PREFIX.size :])
        except msgspec.MsgspecError as error:
            raise WireError(f"message: unreadable header ({error})") from error
        rest = frames[1:]
        if type(record) is Fragment:
            self._check_fragment(record, rest)
        elif len(rest) != (_CHUNK_FRAMES if type(record) is Chunk else 0):
            raise WireError(f"message: {type(record).__name__} with {len(rest)} frames behind it")
        elif type(record) is Begin:
            self._declared.check(record.arrays)
        return record, rest

    def _check_fragment(self, record: Fragment, rest: Sequence[Any]) -> None:
        if len(record.facts) > MAX_HEADER:
            raise WireError(
                f"message: {len(record.facts):,} bytes of facts, at most {MAX_HEADER:,}"
            )
        if len(rest) != len(record.arrays):
            raise WireError(f"message: {len(record.arrays)} arrays announced, {len(rest)} frames")
        self._declared.check(record.arrays)
        for spec, frame in zip(record.arrays, rest):
            if len(frame) != spec.nbytes:
                raise WireError(
                    f"array {spec.name[:60]!r}: {spec.dtype} {spec.shape} is {spec.nbytes:,} bytes, "
                    f"its frame has {len(frame):,}"
                )

    def _misfit(self, prefix: bytes) -> WireError:
        magic, protocol, _ = _PREFIX.unpack(prefix)
        if magic != MAGIC:
            return WireError("message: it does not begin with the expected magic bytes")
        if protocol != PROTOCOL:
            return WireError(f"message: protocol {protocol}, this version speaks {PROTOCOL}")
        return WireError("message: it belongs to another run")

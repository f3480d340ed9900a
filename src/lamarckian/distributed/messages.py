"""The control channel between a parent and one worker: typed messages over a socket pair.

A frame is ``length (4 bytes) | number of descriptors (1 byte) | MessagePack``. Frames have a size
limit, messages are checked against their types, descriptors of shared memory travel beside them
(``SCM_RIGHTS``), and nothing is ever pickled. Bulk data never goes this way.
"""

from __future__ import annotations

import array
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from lamarckian.errors import WorkerError

MAX_FRAME = 16 << 20
_MAX_DESCRIPTORS = 4
_FRAME = struct.Struct("<IB")
_CHUNK = 1 << 16
_SPACE = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Parent -> worker, with the status block: what to run."""

    entry: str
    config: bytes
    worker: int
    attempt: int
    num_slots: int
    max_fragment_bytes: int
    send_timeout: float
    status_bytes: int


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Parent -> worker, with the weight slot."""

    size: int


class Credit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Parent -> worker: a slot was read and may be filled again."""

    generation: int
    index: int


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Parent -> worker, with a block that holds payload and arrays: one request."""

    task: int
    size: int


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Parent -> worker: finish and leave."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Worker -> parent: construction is over."""


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Worker -> parent, with the block: a new, larger ring."""

    generation: int
    num_slots: int
    slot_bytes: int


class Filled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Worker -> parent: a fragment lies in a slot."""

    generation: int
    index: int
    used: int


class Log(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Worker -> parent: a line for the user."""

    text: str


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Worker -> parent: the exception that ended the worker."""

    summary: str
    traceback: str
    exit_code: int


class Finished(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Worker -> parent: the entry came to its end."""


ToWorker = Start | Weights | Credit | Task | Stop
ToParent = Ready | Block | Filled | Log | Failure | Finished


def wait_ready(descriptor: int, timeout: float, *, for_writing: bool = False) -> bool:
    """Wait up to ``timeout`` seconds until a descriptor can be read (or written); poll, because
    ``select`` fails above descriptor 1023."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT if for_writing else select.POLLIN)
    return bool(poll.poll(max(0, round(timeout * 1000))))


class Link:
    """One end of a control channel; never blocks longer than it is told."""

    def __init__(self, sock: socket.socket, incoming: Any) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._decoder = msgspec.msgpack.Decoder(incoming)
        self._encoder = msgspec.msgpack.Encoder()
        self._pending = bytearray()
        self._descriptors: deque[int] = deque()
        self.closed = False

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors."""
        return self._socket.fileno()

    def send(
        self, message: msgspec.Struct, descriptors: Sequence[int] = (), timeout: float = 10.0
    ) -> bool:
        """Send one message; return False if the other side is gone.

        Raises WorkerError if it is there but takes nothing for ``timeout`` seconds, and ValueError
        for a message above the size limit.
        """
        body = self._encoder.encode(message)
        if len(body) > MAX_FRAME:
            kind = type(message).__name__
            raise ValueError(f"control message {kind}: {len(body):,} bytes, at most {MAX_FRAME:,}")
        data = memoryview(_FRAME.pack(len(body), len(descriptors)) + body)
        rights = array.array("i", descriptors)
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
        give_up = time.monotonic() + timeout
        while data:
            try:
                sent = self._socket.sendmsg([data], extra)
            except BlockingIOError:
                left = give_up - time.monotonic()
                if left <= 0:
                    raise WorkerError(
                        f"control channel: the other side took nothing for {timeout:g} s"
                    ) from None
                wait_ready(self._socket.fileno(), left, for_writing=True)
                continue
            except OSError:
                return (
                    False  # not ``closed``: what the other side sent before it left is still there
                )
            data = data[sent:]
            extra = []
        return True

    def receive(
        self, timeout: float = 0.0, *, everything: bool = False
    ) -> list[tuple[Any, list[int]]]:
        """Return the messages that are there, each with its descriptors (the caller owns them).

        Waits up to ``timeout`` seconds for the first; without ``everything`` it may leave some for
        the next call. Sets :attr:`closed` when the other side is gone.
        Raises WorkerError for a frame that is too large or not a message of the expected types.
        """
        if timeout > 0 and not self.closed:
            wait_ready(self._socket.fileno(), timeout)
        while not self.closed:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_CHUNK, _SPACE, _CLOEXEC)
            except BlockingIOError:
                break
            except OSError:
                self.closed = True
                break
            for level, kind, rights in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    found = array.array("i")
                    found.frombytes(rights[: len(rights) - len(rights) % found.itemsize])
                    self._descriptors.extend(found)
            if not data:
                self.closed = True
            self._pending += data
            if len(data) < _CHUNK and not ancillary and not everything:
                break  # most likely all; what is left wakes the reader again
        return self._decode() if self._pending else []

    def _decode(self) -> list[tuple[Any, list[int]]]:
        messages: list[tuple[Any, list[int]]] = []
        position = 0
        while len(self._pending) - position >= _FRAME.size:
            length, count = _FRAME.unpack_from(self._pending, position)
            if length > MAX_FRAME or count > _MAX_DESCRIPTORS:
                raise WorkerError(f"control channel: a frame announces {length:,} bytes")
            end = position + _FRAME.size + length
            if len(self._pending) < end:
                break
            try:
                message = self._decoder.decode(bytes(self._pending[position + _FRAME.size : end]))
            except msgspec.MsgspecError as error:
                raise WorkerError(f"control channel: unreadable message ({error})") from error
            if len(self._descriptors) < count:
                raise WorkerError("control channel: a descriptor got lost (too many open files?)")
            messages.append((message, [self._descriptors.popleft() for _ in range(count)]))
            position = end
        del self._pending[:position]
        return messages

    def close(self) -> None:
        """Close the socket and any descriptor nobody asked for."""
        self.closed = True
        self._socket.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())

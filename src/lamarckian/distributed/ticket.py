"""What a member of a run needs to take part: plain data that the driver hands to it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from lamarckian.distributed import tree, wire
from lamarckian.distributed.security import KeyPair
from lamarckian.errors import UnknownName, nearest

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class TransportOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How data travel between hosts. Times in seconds.

    ``topology``        of the broadcast: flat, sqrt, binary or chain.
    ``chunk_bytes``     weights travel in pieces of this size; relays hand on each as it comes.
    ``window_bytes``    sent by one relay and not yet acknowledged, over all it serves.
    ``half_precision``  float32 weights travel as float16 (half the bytes, three digits).
    ``beat_every``      members say that they live so often,
    ``silent_after``    and are bypassed after so long a silence.
    ``orphan_after``    a relay that hears nothing of the learner for so long ends itself.
    ``credit``          fragments an actor may have unread.
    """

    topology: tree.Topology = "binary"
    chunk_bytes: Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 28)] = 1 << 16
    window_bytes: Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 30)] = 1 << 20
    half_precision: bool = False
    beat_every: Seconds = 0.2
    silent_after: Seconds = 0.7
    orphan_after: Seconds = 30.0
    credit: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    max_fragment_bytes: Annotated[int, msgspec.Meta(ge=1, le=wire.MAX_MESSAGE)] = wire.MAX_MESSAGE
    max_weight_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 36)] = 1 << 33

    def __post_init__(self) -> None:
        if self.topology not in tree.TOPOLOGIES:
            known = ", ".join(tree.TOPOLOGIES)
            hint = nearest(self.topology, tree.TOPOLOGIES)
            raise UnknownName(f"topology {self.topology!r}: expected one of {known}{hint}")


class Ticket(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One member's admission to a run.

    It holds the member's secret key: hand it over a channel you trust (Ray's own, with its token;
    the descriptor of a child) and keep it off disk. Printing it shows no secret.
    """

    run: str
    member: str
    worker: int
    gather: str
    weights: str
    server_key: str
    keys: KeyPair | None
    options: TransportOptions

    @property
    def run_id(self) -> bytes:
        """The id of the run as it stands in every message."""
        return bytes.fromhex(self.run)

    @property
    def credit(self) -> int:
        """Fragments this member may have unread."""
        return self.options.credit

    @property
    def max_fragment_bytes(self) -> int:
        """The largest fragment the collector takes."""
        return self.options.max_fragment_bytes

    def pack(self) -> bytes:
        """Return the ticket as bytes (plain MessagePack)."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def unpack(cls, data: bytes) -> Ticket:
        """Return the ticket of :meth:`pack`; raises msgspec.ValidationError."""
        return msgspec.msgpack.decode(data, type=cls)

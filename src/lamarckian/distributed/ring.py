"""A ring of slots between one writer and one reader, in memory both can see.

The writer (an actor) owns the memory: it makes a :class:`SharedBlock` of ``num_slots`` equal slots,
tells the reader about it, and fills free slots. The reader (a learner) looks at a filled slot
without copying and gives it back; what was given back is the writer's credit. Nothing here sends or
waits: the messages ("slot 1 is full", "slot 1 is free") travel over the control socket. A system
call lies between the filling of a slot and its being read, and another between its release and its
refilling, so both sides always see finished memory and no word in the block needs to be atomic.

A message that does not fit makes the writer start a larger block (a new generation). Slots of the
old one stay valid for the reader until it releases them; credits count over all generations.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from typing import Any

from lamarckian.distributed import layout as arrays_layout
from lamarckian.distributed.layout import Arrays, Layout
from lamarckian.distributed.memory import SharedBlock
from lamarckian.errors import WorkerError

MAX_SLOTS = 64


def _round_up(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


@dataclass(slots=True, frozen=True)
class Slot:
    """A place in the ring: block generation and index in it."""

    generation: int
    index: int


class SlotWriter:
    """The writing end; ``block`` is announced to the reader when ``generation`` changes."""

    def __init__(self, num_slots: int, max_bytes: int) -> None:
        self.num_slots = num_slots
        self.max_bytes = max_bytes
        self.generation = 0
        self.slot_bytes = 0
        self.block: SharedBlock | None = None
        self._free: list[int] = []
        self._outstanding: set[Slot] = set()

    @property
    def has_credit(self) -> bool:
        """Whether a slot may be filled now."""
        return len(self._outstanding) < self.num_slots

    def fit(self, layout: Layout) -> bool:
        """Make sure a slot can hold ``layout``; return True if a new block has to be announced.

        Raises ValueError if it is larger than the limit.
        """
        if layout.end > self.max_bytes:
            raise ValueError(
                f"fragment of {layout.end:,} bytes, at most {self.max_bytes:,} (max_fragment_bytes)"
                "; send shorter fragments"
            )
        if layout.capacity <= self.slot_bytes:
            return False
        # A quarter more than needed: episode tables vary a little. Untouched pages cost nothing.
        self.slot_bytes = _round_up(layout.capacity + layout.end // 4)
        if self.block is not None:
            self.block.close()
        self.block = SharedBlock.create(self.slot_bytes * self.num_slots, "ring")
        self.generation += 1
        self._free = list(range(self.num_slots))[::-1]
        return True

    def take(self) -> tuple[Slot, memoryview]:
        """Return a free slot and its memory, after :attr:`has_credit` and :meth:`fit`."""
        if self.block is None or not self.has_credit:
            raise WorkerError("ring: a slot was taken without credit")
        slot = Slot(self.generation, self._free.pop())
        self._outstanding.add(slot)
        start = slot.index * self.slot_bytes
        return slot, self.block.view[start : start + self.slot_bytes]

    def give_back(self, slot: Slot) -> None:
        """Take the reader's credit for ``slot``; raises WorkerError if it was not outstanding."""
        if slot not in self._outstanding:
            raise WorkerError(f"ring: credit for {slot}, which is not outstanding")
        self._outstanding.discard(slot)
        if slot.generation == self.generation:
            self._free.append(slot.index)

    def close(self) -> None:
        """Drop the block."""
        if self.block is not None:
            self.block.close()
            self.block = None


@dataclass(slots=True)
class _ReadBlock:
    block: SharedBlock
    num_slots: int
    slot_bytes: int
    held: set[int] = field(default_factory=set)


class SlotReader:
    """The reading end: maps announced blocks read-only and checks everything it is told."""

    def __init__(self) -> None:
        self._blocks: dict[int, _ReadBlock] = {}
        self._newest = 0

    def add(self, fd: int, generation: int, num_slots: int, slot_bytes: int) -> None:
        """Map a block announced by the writer; owns ``fd``. Raises WorkerError."""
        block = SharedBlock.attach(fd, num_slots * slot_bytes)
        if generation != self._newest + 1 or not 0 < num_slots <= MAX_SLOTS:
            block.close()
            raise WorkerError(f"ring: block {generation} with {num_slots} slots is out of order")
        self._newest = generation
        self._blocks[generation] = _ReadBlock(block, num_slots, slot_bytes)
        self._drop_old()

    def hold(self, slot: Slot, used: int) -> None:
        """Note that the writer filled ``slot`` with ``used`` bytes. Raises WorkerError."""
        entry = self._blocks.get(slot.generation)
        if entry is None or not 0 <= slot.index < entry.num_slots or used > entry.slot_bytes:
            raise WorkerError(f"ring: {slot} with {used:,} bytes does not exist")
        if slot.index in entry.held:
            raise WorkerError(f"ring: {slot} was filled again before it was released")
        entry.held.add(slot.index)

    def open(self, slot: Slot, used: int) -> tuple[dict[str, Any], Arrays]:
        """Return ``(header, read-only arrays)``, valid until release. Raises WorkerError."""
        entry = self._blocks[slot.generation]
        start = slot.index * entry.slot_bytes
        return arrays_layout.read(entry.block.view[start : start + used])

    @property
    def num_held(self) -> int:
        """Slots filled by the writer and not released."""
        return sum(len(entry.held) for entry in self._blocks.values())

    def release(self, slot: Slot) -> None:
        """Forget a held slot; the caller sends the credit."""
        entry = self._blocks.get(slot.generation)
        if entry is not None:
            entry.held.discard(slot.index)
            self._drop_old()

    def _drop_old(self) -> None:
        for generation in [g for g, b in self._blocks.items() if g < self._newest and not b.held]:
            self._blocks.pop(generation).block.close()

    def close(self) -> None:
        """Drop all blocks; arrays still held by a user keep their memory until they go."""
        for entry in self._blocks.values():
            entry.block.close()
        self._blocks.clear()

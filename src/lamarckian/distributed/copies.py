"""One version of the weights as it travels: a run of bytes in chunks, whole or still arriving."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lamarckian.distributed import wire
from lamarckian.distributed.layout import ALIGNMENT, ITEM_SIZES, Array, Arrays

_SINGLE, _HALF = "<f4", "<f2"


def _travels_as(spec: wire.ArraySpec, half: bool) -> str:
    return _HALF if half and spec.dtype == _SINGLE else spec.dtype


@functools.lru_cache(maxsize=64)
def _places(specs: tuple[wire.ArraySpec, ...], half: bool) -> tuple[tuple[int, ...], int]:
    """Return where each array begins in the run of bytes, and the length of the run."""
    places, end = [], 0
    for spec in specs:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        places.append(start)
        end = start + math.prod(spec.shape) * ITEM_SIZES[_travels_as(spec, half)]
    return tuple(places), end


class Copy:
    """The bytes of one version and how many of its chunks are there, counted from the first.

    ``abandoned`` means that the rest will never come.
    """

    __slots__ = ("abandoned", "available", "begin", "memory", "num_chunks", "total")

    def __init__(self, begin: wire.Begin, limit: int) -> None:
        """Make room for a version; raises WireError above ``limit`` bytes."""
        _, self.total = _places(begin.arrays, begin.half)
        if self.total > limit:
            raise wire.WireError(f"weights: {self.total:,} bytes announced, at most {limit:,}")
        self.begin = begin
        self.num_chunks = max(1, -(-self.total // begin.chunk_bytes))
        self.available = 0
        self.abandoned = False
        self.memory: Any = np.empty(self.total, np.uint8).data if self.total else b""

    @classmethod
    def of(
        cls, version: int, arrays: Mapping[str, Array], chunk_bytes: int, *, half: bool, limit: int
    ) -> Copy:
        """Return the whole copy of ``arrays``; TypeError for a dtype that cannot travel."""
        specs = wire.array_specs(arrays)
        copy = cls(
            wire.Begin(version=version, arrays=specs, chunk_bytes=chunk_bytes, half=half), limit
        )
        for spec, view in zip(specs, copy._views(), strict=True):
            with np.errstate(over="ignore"):  # beyond 65504 a float16 is infinite
                np.copyto(view, arrays[spec.name], casting="same_kind")
        copy.available = copy.num_chunks
        return copy

    @property
    def version(self) -> int:
        return self.begin.version

    @property
    def is_whole(self) -> bool:
        """Whether all chunks are there."""
        return self.available == self.num_chunks

    def chunk(self, index: int) -> Any:
        """Return the bytes of one chunk."""
        size = self.begin.chunk_bytes
        return self.memory[index * size : (index + 1) * size]

    def put(self, index: int, data: Any) -> None:
        """Take the next chunk; raises WireError if it is another one or of another length."""
        place = self.chunk(index)
        if index != self.available or self.is_whole or len(data) != len(place):
            raise wire.WireError(
                f"weights: chunk {index} of {len(data):,} bytes, expected chunk {self.available} "
                f"of {self.num_chunks} with {len(place):,}"
            )
        if len(place):
            place[:] = data
        self.available += 1

    def arrays(self) -> Arrays:
        """Return the arrays of a whole copy: views, or float32 made of what travelled as half."""
        found: Arrays = {}
        for spec, view in zip(self.begin.arrays, self._views(), strict=True):
            found[spec.name] = view.astype(spec.dtype, copy=False)
        return found

    def _views(self) -> list[Array]:
        places, _ = _places(self.begin.arrays, self.begin.half)
        return [
            np.ndarray(
                spec.shape,
                _travels_as(spec, self.begin.half),
                buffer=self.memory if math.prod(spec.shape) else None,
                offset=start if math.prod(spec.shape) else 0,
            )
            for spec, start in zip(self.begin.arrays, places, strict=True)
        ]

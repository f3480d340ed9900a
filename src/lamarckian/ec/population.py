"""Decisions as structs of arrays: the form in which searches compute.

A :class:`Layout` maps an encoding to columns; :class:`Genes` holds the decisions of P individuals
column by column; a ``batch.Batch`` adds identity, ancestry and outcomes.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lamarckian.ec import pareto
from lamarckian.evaluator import (
    Array,
    Blob,
    BlobValue,
    Categorical,
    Decision,
    Encoding,
    Floats,
    Integer,
    Permutation,
    Real,
)

Integers: TypeAlias = NDArray[np.int64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)
_HALF = np.uint64(32)


def _take(matrix: NDArray[Any], rows: Integers) -> NDArray[Any]:
    # Matrices without columns are common, and cheaper made than taken from.
    return matrix.take(rows, 0) if matrix.shape[1] else np.empty((len(rows), 0), matrix.dtype)


def _concatenate(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if parts[0].shape[1]:
        return np.concatenate(parts)
    return np.empty((sum(map(len, parts)), 0), parts[0].dtype)


@dataclass(slots=True)
class Genes:
    """Decisions of P individuals: matrices ``[P, columns]`` and one list of blobs per blob part."""

    real: Floats
    integer: Integers
    categorical: Integers
    permutations: dict[str, Integers]
    blobs: dict[str, list[BlobValue]]

    def __len__(self) -> int:
        return len(self.real)

    def take(self, rows: Integers) -> Genes:
        return Genes(
            self.real.take(rows, 0),
            _take(self.integer, rows),
            _take(self.categorical, rows),
            {name: items.take(rows, 0) for name, items in self.permutations.items()},
            {name: [blobs[row] for row in rows] for name, blobs in self.blobs.items()},
        )

    def put(self, rows: Integers, other: Genes) -> None:
        """Overwrite ``rows`` with the individuals of ``other``, in order."""
        self.real[rows] = other.real
        self.integer[rows] = other.integer
        self.categorical[rows] = other.categorical
        for name, items in other.permutations.items():
            self.permutations[name][rows] = items
        for name, blobs in other.blobs.items():
            for row, blob in zip(rows, blobs, strict=True):
                self.blobs[name][row] = blob

    @staticmethod
    def concatenate(parts: Sequence[Genes]) -> Genes:
        first = parts[0]
        return Genes(
            np.concatenate([part.real for part in parts]),
            _concatenate([part.integer for part in parts]),
            _concatenate([part.categorical for part in parts]),
            {
                name: np.concatenate([part.permutations[name] for part in parts])
                for name in first.permutations
            },
            {name: [blob for part in parts for blob in part.blobs[name]] for name in first.blobs},
        )


class Layout:
    """Where each part of an encoding lies in :class:`Genes`, and the bounds of the columns."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.columns: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        self.permutations: dict[str, Permutation] = {}
        self.blobs: dict[str, Blob] = {}
        lows: dict[type, list[Floats]] = {Real: [], Integer: [], Categorical: []}
        highs: dict[type, list[Floats]] = {Real: [], Integer: [], Categorical: []}
        ends = {Real: 0, Integer: 0, Categorical: 0}
        logs: list[NDArray[np.bool_]] = []
        for name, part in encoding.parts.items():
            if isinstance(part, Permutation):
                self.permutations[name] = part
                continue
            if isinstance(part, Blob):
                self.blobs[name] = part
                continue
            kind, size = type(part), part.size
            shape = part.shape if isinstance(part.shape, tuple) else (part.shape,)
            self.columns[name] = (ends[kind], ends[kind] + size, shape)
            ends[kind] += size
            if isinstance(part, Real):
                low, high = part.bounds()
                logs.append(np.full(size, part.scale == "log"))
            elif isinstance(part, Integer):
                low, high = np.full(size, float(part.low)), np.full(size, float(part.high))
            else:
                low, high = np.zeros(size), np.full(size, float(len(part.choices) - 1))
            lows[kind].append(low)
            highs[kind].append(high)

        def join(arrays: list[Floats]) -> Floats:
            return np.concatenate(arrays) if arrays else np.empty(0)

        self.real_low, self.real_high = join(lows[Real]), join(highs[Real])
        self.integer_low = join(lows[Integer]).astype(np.int64)
        self.integer_high = join(highs[Integer]).astype(np.int64)
        self.num_choices = join(highs[Categorical]).astype(np.int64) + 1
        self.is_log = np.concatenate(logs) if logs else np.empty(0, np.bool_)
        self.has_log = bool(self.is_log.any())
        self.scaled_low = self.to_scale(self.real_low)
        self.scaled_high = self.to_scale(self.real_high)
        count = len(self.real_low) + len(self.integer_low) + len(self.num_choices)
        count += sum(part.num_chosen for part in self.permutations.values())
        with np.errstate(over="ignore"):
            spread = np.arange(1, count + 1, dtype=np.uint64) * _ODD
            # Odd, and without the regular steps that would let changes in two genes cancel.
            self._weights = ((spread ^ (spread >> _FOLD)) * _ODD) | np.uint64(1)
        #: Operator names by the code that batches carry, see :meth:`origin_code`.
        self.origins: list[tuple[str, ...]] = []

    def origin_code(self, operators: tuple[str, ...]) -> int:
        """Return the number under which ``operators`` stand in :attr:`origins`."""
        if operators not in self.origins:
            self.origins.append(operators)
        return self.origins.index(operators)

    def to_scale(self, real: Floats) -> Floats:
        """Return real columns ``[..., Dr]`` on the scale on which operators act."""
        if not self.has_log:
            return real
        scaled = real.copy()
        scaled[..., self.is_log] = np.log(real[..., self.is_log])
        return scaled

    def from_scale(self, scaled: Floats) -> Floats:
        """Undo :meth:`to_scale`, within the bounds."""
        if not self.has_log:
            return scaled
        real = scaled.copy()
        real[..., self.is_log] = np.exp(scaled[..., self.is_log])
        return np.clip(real, self.real_low, self.real_high)

    def gather(self, decisions: Sequence[Mapping[str, Any]]) -> Genes:
        """Put checked decisions into columns."""
        rows = len(decisions)
        genes = Genes(
            np.empty((rows, len(self.real_low))),
            np.empty((rows, len(self.integer_low)), np.int64),
            np.empty((rows, len(self.num_choices)), np.int64),
            {
                name: np.array([decision[name] for decision in decisions], np.int64).reshape(
                    rows, part.num_chosen
                )
                for name, part in self.permutations.items()
            },
            {name: [decision[name] for decision in decisions] for name in self.blobs},
        )
        for name, (start, end, _) in self.columns.items():
            matrix = self._matrix(genes, name)
            for row, decision in enumerate(decisions):
                matrix[row, start:end] = decision[name].reshape(-1)
        return genes

    def _matrix(self, genes: Genes, name: str) -> Array:
        part = self.encoding.parts[name]
        if isinstance(part, Real):
            return genes.real
        return genes.integer if isinstance(part, Integer) else genes.categorical

    def decisions(self, genes: Genes) -> list[Decision]:
        """Return one decision per individual: read-only views where the part is an array."""
        stacked: dict[str, Any] = {}
        for name in self.encoding.parts:
            if name in self.blobs:
                stacked[name] = genes.blobs[name]
                continue
            if name in self.permutations:
                view = genes.permutations[name].view()
            else:
                start, end, shape = self.columns[name]
                view = self._matrix(genes, name)[:, start:end].reshape(len(genes), *shape)
            view.flags.writeable = False
            # A single number is kept as an array of shape (), like any other part.
            stacked[name] = [view[row, ...] for row in range(len(genes))]
        if len(stacked) == 1:
            ((name, values),) = stacked.items()
            return [{name: value} for value in values]
        return [
            dict(zip(stacked, values, strict=True))
            for values in zip(*stacked.values(), strict=True)
        ]

    def stacked(self, genes: Genes) -> dict[str, Array | BlobValue]:
        """Return the stacked decision ``[P, *shape]`` that batch evaluators receive."""
        stacked: dict[str, Array | BlobValue] = {}
        for name in self.encoding.parts:
            if name in self.blobs:
                blobs = genes.blobs[name]
                stacked[name] = {
                    key: np.stack([blob[key] for blob in blobs]) for key in self.blobs[name].shapes
                }
                continue
            if name in self.permutations:
                view = genes.permutations[name].view()
            else:
                start, end, shape = self.columns[name]
                view = self._matrix(genes, name)[:, start:end].reshape(len(genes), *shape)
            view.flags.writeable = False
            stacked[name] = view
        return stacked

    def hashes(self, genes: Genes) -> Integers:
        """Return a 64-bit hash per individual, int64 [P], equal for equal decisions."""
        columns = []
        if genes.real.shape[1]:
            # Adding 0.0 turns -0.0 into 0.0, which compares equal and must hash equal.
            columns.append((genes.real + 0.0).view(np.uint64))
        if genes.integer.shape[1]:
            columns.append(genes.integer.view(np.uint64))
        if genes.categorical.shape[1]:
            columns.append(genes.categorical.view(np.uint64))
        columns.extend(items.view(np.uint64) for items in genes.permutations.values())
        if columns:
            bits = columns[0] if len(columns) == 1 else np.concatenate(columns, 1)
            # Round numbers have only zeros in their low bits: fold the high bits in first.
            loops = pareto.compiled()
            hashes = (
                ((bits >> _HALF) ^ bits) @ self._weights
                if loops is None
                else loops.mix(bits, self._weights)
            )
        else:
            hashes = np.zeros(len(genes), np.uint64)
        for blobs in genes.blobs.values():
            for row, blob in enumerate(blobs):
                code = 0
                for array in blob.values():
                    code = zlib.crc32(np.ascontiguousarray(array).tobytes(), code)
                hashes[row] ^= np.uint64(code) << np.uint64(16)
        return np.asarray(hashes).view(np.int64)

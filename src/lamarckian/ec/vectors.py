"""Decisions of real parts and blobs as flat vectors, for searches over a distribution.

Real columns are mapped to [0, 1] on their declared scale; blob weights are taken as they are.
"""

from __future__ import annotations

import math

import numpy as np

from lamarckian.ec.population import Genes, Layout
from lamarckian.evaluator import BlobValue, Floats


class Vectors:
    """Converts between :class:`Genes` and float64 vectors ``[P, D]``: reals first, then blobs."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.num_real = len(layout.real_low)
        self.size = self.num_real + sum(blob.size for blob in layout.blobs.values())

    def pack(self, genes: Genes) -> Floats:
        layout = self.layout
        width = layout.scaled_high - layout.scaled_low
        columns = [(layout.to_scale(genes.real) - layout.scaled_low) / width]
        for name, blob in layout.blobs.items():
            columns.append(
                np.array(
                    [
                        np.concatenate([value[key].ravel() for key in blob.shapes])
                        for value in genes.blobs[name]
                    ],
                    np.float64,
                ).reshape(len(genes), blob.size)
            )
        return np.concatenate(columns, 1)

    def unpack(self, vectors: Floats) -> Genes:
        """Reals are cut at their bounds; blobs get their declared types."""
        layout, rows = self.layout, len(vectors)
        width = layout.scaled_high - layout.scaled_low
        unit = np.clip(vectors[:, : self.num_real], 0.0, 1.0)
        real = layout.from_scale(layout.scaled_low + unit * width)
        # Rounding of low + 1 · width may pass the bound by one unit in the last place.
        real = np.clip(real, layout.real_low, layout.real_high)
        blobs: dict[str, list[BlobValue]] = {}
        position = self.num_real
        for name, blob in layout.blobs.items():
            values: list[BlobValue] = [{} for _ in range(rows)]
            for key, (shape, dtype) in blob.shapes.items():
                size = math.prod(shape)
                block = vectors[:, position : position + size].astype(dtype)
                for row in range(rows):
                    values[row][key] = block[row].reshape(shape)
                position += size
            blobs[name] = values
        empty = np.empty((rows, 0), np.int64)
        return Genes(real, empty, empty, {}, blobs)

"""A whole :class:`Batch` as ``(JSON data, named arrays)``, for the state of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lamarckian.ec.batch import FIRST_PARENT, GENERATION, HASH, ID, NUM_TAGS, ORIGIN, Batch
from lamarckian.ec.population import Genes, Layout
from lamarckian.ec.records import outcome_from_record, outcome_to_record
from lamarckian.evaluator import Array

_MATRICES = (
    "ids",
    "parents",
    "generation",
    "hashes",
    "costs",
    "violation",
    "constraints",
    "descriptors",
)
_COLUMNS = ("real", "integer", "categorical")


def batch_state(batch: Batch) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return origins and outcomes as JSON data, everything else as arrays."""
    arrays: dict[str, Array] = {name: getattr(batch, name) for name in _MATRICES}
    arrays.update({name: getattr(batch.genes, name) for name in _COLUMNS})
    arrays.update({f"permutation/{name}": a for name, a in batch.genes.permutations.items()})
    for name, blobs in batch.genes.blobs.items():
        for key in blobs[0] if blobs else ():
            arrays[f"blob/{name}/{key}"] = np.stack([blob[key] for blob in blobs])
    outcomes = [
        None if outcome is None else outcome_to_record(replace(outcome, decision=None))[0]
        for outcome in batch.outcomes or [None] * len(batch)
    ]
    return {"origins": [list(each) for each in batch.origins], "outcomes": outcomes}, arrays


def batch_from_state(meta: Mapping[str, Any], arrays: Mapping[str, Array], layout: Layout) -> Batch:
    """Undo :func:`batch_state`."""
    rows = len(arrays["ids"])
    genes = Genes(
        arrays["real"].copy(),
        arrays["integer"].copy(),
        arrays["categorical"].copy(),
        {name: arrays[f"permutation/{name}"].copy() for name in layout.permutations},
        {
            name: [
                {key: arrays[f"blob/{name}/{key}"][row] for key in part.shapes}
                for row in range(rows)
            ]
            for name, part in layout.blobs.items()
        },
    )
    tags = np.empty((rows, NUM_TAGS), np.int64)
    tags[:, ID], tags[:, FIRST_PARENT:GENERATION] = arrays["ids"], arrays["parents"]
    tags[:, GENERATION], tags[:, HASH] = arrays["generation"], arrays["hashes"]
    tags[:, ORIGIN] = [layout.origin_code(tuple(origin)) for origin in meta["origins"]]
    values = [arrays["violation"][:, None], arrays["constraints"], arrays["descriptors"]]
    return Batch(
        layout=layout,
        tags=tags,
        costs=arrays["costs"].copy(),
        values=np.concatenate(values, 1),
        genes=genes,
        outcomes=[
            None if outcome is None else outcome_from_record(outcome, {})
            for outcome in meta["outcomes"]
        ],
    )

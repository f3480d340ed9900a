"""What was asked and not yet told."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamarckian.ec.batch import HASH, Batch
from lamarckian.ec.individual import Individual


class InFlight:
    """Proposals by id, with the hashes of their decisions.

    Batches that come back as they were asked are kept and dropped whole; they are taken apart only
    if somebody asks for, or tells, a single individual of them.
    """

    def __init__(self) -> None:
        #: Hashes of the decisions that are out.
        self.hashes: set[int] = set()
        self._whole: dict[int, Batch] = {}
        self._rows: dict[int, tuple[Batch, int]] = {}
        self._alone: dict[int, tuple[Batch, tuple[Any, ...]]] = {}

    def add(self, batch: Batch) -> None:
        if not len(batch):
            return
        self.hashes.update(batch.tags[:, HASH].tolist())
        if len(batch) == 1:
            self._rows[int(batch.tags[0, 0])] = (batch, 0)
        else:
            self._whole[int(batch.tags[0, 0])] = batch

    def hand_out(self, batch: Batch, individual: Individual) -> None:
        """Remember that a batch of one was handed out as ``individual``."""
        self._alone[individual.id] = (batch, tuple(individual.decision.values()))

    def unchanged(self, individual: Individual) -> Batch | None:
        """Return the batch of one that ``individual`` was handed out from, if it still is the same.

        Arrays of decisions are read-only, so the same objects are the same decision.
        """
        batch, values = self._alone.get(individual.id, (None, ()))
        decision = individual.decision
        if (
            batch is None
            or len(decision) != len(values)
            or any(mine is not value for mine, value in zip(decision.values(), values))
        ):
            return None
        return batch

    def remove(self, batch: Batch) -> None:
        """Forget the individuals of ``batch``, whether or not they are out."""
        first = int(batch.tags[0, 0])
        if self._whole.get(first) is batch:
            del self._whole[first]
            self.hashes.difference_update(batch.tags[:, HASH].tolist())
            return
        rows = self._by_row()
        for identifier in batch.ids.tolist():
            found = rows.pop(identifier, None)
            self._alone.pop(identifier, None)
            if found is not None:
                # The hash of what was proposed: a written-back decision has another.
                self.hashes.discard(int(found[0].tags[found[1], HASH]))

    def __contains__(self, identifier: int) -> bool:
        return identifier in self._by_row()

    def batches(self) -> list[Batch]:
        """Return batches of one, by id."""
        return [batch.take(np.array([row])) for _, (batch, row) in sorted(self._by_row().items())]

    def _by_row(self) -> dict[int, tuple[Batch, int]]:
        for batch in self._whole.values():
            self._rows.update((each, (batch, row)) for row, each in enumerate(batch.ids.tolist()))
        self._whole.clear()
        return self._rows

"""P individuals as a few matrices: decisions, identity, ancestry and outcomes.

Individuals as users meet them are views made on demand (:func:`individuals_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lamarckian.ec.individual import Individual, Origin
from lamarckian.ec.population import Genes, Integers, Layout
from lamarckian.evaluator import Floats, Outcome

ID, FIRST_PARENT, SECOND_PARENT, GENERATION, HASH, ORIGIN, NUM_TAGS = range(7)


@dataclass(slots=True)
class Batch:
    """P individuals as arrays.

    ``tags`` int64 [P, 6]: id, two parents (−1 for none), generation, hash, origin code. ``costs``
    float64 [P, K]: objectives to minimize. ``values`` float64 [P, 1 + C + M]: violation (the sum of
    positive constraint values, +inf where the outcome failed or is not there yet), constraints,
    descriptors. ``outcomes``: as they were told; None where batch evaluators gave arrays only.

    Few and wide, because selection gathers all of them in every generation.
    """

    layout: Layout
    tags: Integers
    costs: Floats
    values: Floats
    genes: Genes
    outcomes: list[Outcome | None] | None = None

    def __len__(self) -> int:
        return len(self.tags)

    @property
    def ids(self) -> Integers:
        return self.tags[:, ID]

    @property
    def parents(self) -> Integers:
        return self.tags[:, FIRST_PARENT:GENERATION]

    @property
    def generation(self) -> Integers:
        return self.tags[:, GENERATION]

    @property
    def hashes(self) -> Integers:
        return self.tags[:, HASH]

    @property
    def origins(self) -> list[tuple[str, ...]]:
        """Names of the operators that made each individual."""
        names = self.layout.origins
        return [names[code] for code in self.tags[:, ORIGIN].tolist()]

    @property
    def violation(self) -> Floats:
        return self.values[:, 0]

    @property
    def constraints(self) -> Floats:
        return self.values[:, 1 : 1 + len(self.layout.encoding.constraints)]

    @property
    def descriptors(self) -> Floats:
        return self.values[:, 1 + len(self.layout.encoding.constraints) :]

    def take(self, rows: Integers) -> Batch:
        outcomes = self.outcomes
        return Batch(
            self.layout,
            self.tags.take(rows, 0),
            self.costs.take(rows, 0),
            self.values.take(rows, 0),
            self.genes.take(rows),
            None if outcomes is None else [outcomes[row] for row in rows.tolist()],
        )

    @staticmethod
    def concatenate(parts: Sequence[Batch]) -> Batch:
        """Return the individuals of ``parts`` (at least one, all of one search), in order."""
        if len(parts) == 1:
            return parts[0]
        outcomes: list[Outcome | None] | None = None
        if any(part.outcomes is not None for part in parts):
            outcomes = []
            for part in parts:
                outcomes += [None] * len(part) if part.outcomes is None else part.outcomes
        return Batch(
            parts[0].layout,
            np.concatenate([part.tags for part in parts]),
            np.concatenate([part.costs for part in parts]),
            np.concatenate([part.values for part in parts]),
            Genes.concatenate([part.genes for part in parts]),
            outcomes,
        )


def individuals_of(batch: Batch) -> list[Individual]:
    """Return one :class:`Individual` per row, with an outcome unless it failed or is awaited."""
    layout = batch.layout
    objectives = layout.encoding.costs(batch.costs)
    constraints, descriptors = batch.constraints, batch.descriptors
    outcomes = batch.outcomes or [None] * len(batch)
    found = []
    for row, (tags, decision, outcome, violation) in enumerate(
        zip(
            batch.tags.tolist(),
            layout.decisions(batch.genes),
            outcomes,
            batch.violation.tolist(),
            strict=True,
        )
    ):
        if outcome is None and violation < np.inf:
            outcome = Outcome(objectives[row], constraints[row], descriptors[row])
        parents = tuple(parent for parent in tags[FIRST_PARENT:GENERATION] if parent >= 0)
        origin = Origin(layout.origins[tags[ORIGIN]], tags[GENERATION])
        found.append(Individual(tags[ID], parents, origin, decision, outcome))
    return found


def repeated_rows(hashes: list[int], known: Sequence[set[int]]) -> list[int]:
    """Return the rows whose hash is in a set of ``known`` or stands in an earlier row."""
    if len(set(hashes)) == len(hashes) and all(each.isdisjoint(hashes) for each in known):
        return []
    seen: set[int] = set()
    rows = []
    for row, code in enumerate(hashes):
        if code in seen or any(code in each for each in known):
            rows.append(row)
        seen.add(code)
    return rows

"""Population based training: M. Jaderberg et al., "Population Based Training of Neural Networks",
2017 (arXiv 1711.09846).

A member is a slot whose individual goes on and on: after each outcome its next proposal is either
the same decision with the weights it wrote back (``continue``), or the decision of a better member
(``exploit``) with perturbed hyperparameters (``explore``). Weights pass by reference.

There is no barrier: a member's next proposal looks at the latest complete outcomes of the others and
waits for nobody. A donor always has a complete outcome. A member that is not replaced is proposed
again byte for byte as it was told. ``ask`` returns fewer than asked for when all members are out.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np

from lamarckian.ec import operators
from lamarckian.ec.batch import Batch
from lamarckian.ec.core import EC, Initialize, State
from lamarckian.ec.draws import Draws, DrawSource
from lamarckian.ec.population import Genes, Integers
from lamarckian.ec.snapshot import batch_from_state, batch_state
from lamarckian.ec.welch import welch
from lamarckian.evaluator import Array, Encoding, Floats


class PBTConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``exploit``: ``truncation`` (the worst ``fraction`` copies one of the best ``fraction``),
    ``tournament`` (copies a random other member if that is better) or ``welch`` (the same, if the
    last ``window`` outcomes differ at level ``significance``).

    ``explore``: each real gene is multiplied by one of ``factors``, or drawn anew with
    ``resample_probability``. ``ready_interval`` is the number of outcomes between two exploits.
    """

    population: Annotated[int, msgspec.Meta(ge=2)] = 8
    generation_size: Annotated[int, msgspec.Meta(ge=1)] = 1
    exploit: Literal["truncation", "tournament", "welch"] = "truncation"
    fraction: Annotated[float, msgspec.Meta(gt=0.0, le=0.5)] = 0.2
    window: Annotated[int, msgspec.Meta(ge=2)] = 10
    significance: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] = 0.05
    factors: tuple[float, float] = (0.8, 1.2)
    resample_probability: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.25
    ready_interval: Annotated[int, msgspec.Meta(ge=1)] = 1


class Member:
    """One slot: its latest complete individual and what is known of its course."""

    __slots__ = (
        "attempts",
        "costs",
        "failed_last",
        "latest",
        "since_exploit",
        "steps",
        "waiting_for",
    )

    def __init__(self) -> None:
        self.latest: Batch | None = None
        #: Costs of the course that led here, newest last; a copy takes the donor's with it.
        self.costs: list[float] = []
        self.attempts = 0
        self.steps = 0
        self.since_exploit = 0
        self.waiting_for: int | None = None
        self.failed_last = False


class PBT(EC):
    """Population based training; any kind of part, one objective."""

    name: ClassVar[str] = "pbt"
    config_type: ClassVar[type[msgspec.Struct]] = PBTConfig
    config: PBTConfig

    def __init__(
        self,
        encoding: Encoding,
        seed: int,
        config: PBTConfig | None = None,
        initialize: Initialize | None = None,
    ) -> None:
        super().__init__(encoding, seed, config, initialize)
        self.members = [Member() for _ in range(self.population_size)]
        #: Exploits done, and exploits wished for but without any complete donor.
        self.exploits = 0
        self.exploits_without_donor = 0
        layout = self.layout
        num_columns = len(layout.real_low) + len(layout.integer_low) + len(layout.num_choices)
        self._source = DrawSource(
            seed, self.name, 1 + 2 * num_columns + 3 * len(layout.permutations)
        )
        self._slot_of: dict[int, int] = {}

    # Asking: the next step of every member that is not out.

    def _propose(self, num: int) -> Batch:
        idle = [slot for slot, member in enumerate(self.members) if member.waiting_for is None]
        # Who has had the fewest evaluations comes first, so that asking one by one serves all alike.
        idle.sort(key=lambda slot: self.members[slot].attempts)
        batches: list[Batch] = []
        for slot in idle[:num]:
            member = self.members[slot]
            batch = self._next(member)
            member.attempts += 1
            member.waiting_for = int(batch.ids[0])
            self._slot_of[member.waiting_for] = slot
            batch.generation[:] = member.steps
            batches.append(batch)
        return Batch.concatenate(batches) if batches else self._nobody

    def _next(self, member: Member) -> Batch:
        draws = None
        donor = None
        if member.failed_last or self._is_ready(member):
            draws = self._source.draws(np.array([self.num_proposed]))
            donor = self._exploit(member, draws)
        if donor is not None and draws is not None and donor.latest is not None:
            own = int(member.latest.ids[0]) if member.latest is not None else -1
            parents = np.array([[int(donor.latest.ids[0]), own]])
            genes = self.explore(donor.latest.genes, draws)
            member.costs = list(donor.costs)
            member.since_exploit = 0
            self.exploits += 1
            return self.new_batch(self.new_ids(1), parents, ("exploit", "explore"), genes)
        if member.latest is None:
            return self.propose_initial(1)
        parents = np.array([[int(member.latest.ids[0]), -1]])
        genes = member.latest.genes
        return self.new_batch(self.new_ids(1), parents, ("continue",), genes)

    def _is_ready(self, member: Member) -> bool:
        return member.latest is not None and member.since_exploit >= self.config.ready_interval

    # Exploit.

    def _exploit(self, member: Member, draws: Draws) -> Member | None:
        """Return the member to copy, or None to go on; only complete members are looked at."""
        others = [
            other for other in self.members if other is not member and other.latest is not None
        ]
        pick = float(draws.uniform(1)[0, 0])
        if not others:
            self.exploits_without_donor += 1
            return None
        if member.latest is None or member.failed_last:
            others.sort(key=_fitness)
            return others[int(pick * self._num_truncated(len(others)))]
        if self.config.exploit == "truncation":
            complete = sorted([*others, member], key=_fitness)
            num = self._num_truncated(len(complete))
            worst = any(each is member for each in complete[len(complete) - num :])
            return complete[int(pick * num)] if worst and len(complete) > num else None
        rival = others[int(pick * len(others))]
        if not _fitness(rival) < _fitness(member):
            return None
        if self.config.exploit == "tournament":
            return rival
        window = self.config.window
        t, _, p = welch(rival.costs[-window:], member.costs[-window:])
        return rival if t < 0 and p < self.config.significance else None

    def _num_truncated(self, num: int) -> int:
        return max(1, int(self.config.fraction * num))

    # Explore.

    def explore(self, genes: Genes, draws: Draws) -> Genes:
        """Return perturbed hyperparameters (everything but blobs) of one individual.

        Real genes whose lower bound is not negative are multiplied, others move by the same share
        of half their range; both stay within bounds. Integers do the same and always change; a
        categorical or permutation part changes with ``resample_probability``.
        """
        layout, config = self.layout, self.config
        anew = config.resample_probability
        coin = draws.uniform(len(layout.real_low))
        value = draws.uniform(len(layout.real_low))
        real = self._perturbed(genes.real, layout.real_low, layout.real_high, value)
        drawn = layout.from_scale(
            layout.scaled_low + value * (layout.scaled_high - layout.scaled_low)
        )
        real = np.clip(np.where(coin < anew, drawn, real), layout.real_low, layout.real_high)
        coin = draws.uniform(len(layout.integer_low))
        value = draws.uniform(len(layout.integer_low))
        low, high = layout.integer_low, layout.integer_high
        integer = genes.integer
        if integer.shape[1]:
            moved = self._perturbed(
                integer.astype(np.float64),
                low.astype(np.float64),
                high.astype(np.float64),
                value,
            )
            step = np.where(moved < integer, np.floor(moved), np.ceil(moved)).astype(np.int64)
            step = np.where(step == integer, np.where(integer == high, high - 1, integer + 1), step)
            drawn_integer = low + (value * (high - low + 1)).astype(np.int64)
            integer = np.clip(np.where(coin < anew, drawn_integer, step), low, high)
        categorical = operators.categorical_reset(
            genes.categorical,
            layout.num_choices,
            draws.uniform(len(layout.num_choices)),
            draws.uniform(len(layout.num_choices)) < anew,
        )
        permutations: dict[str, Integers] = {}
        for name, part in layout.permutations.items():
            mutated = draws.uniform(1)[:, 0] < anew
            position = draws.below(part.num_chosen, 1)[:, 0]
            other = (position + 1 + draws.below(part.num_items - 1, 1)[:, 0]) % part.num_items
            permutations[name] = operators.swap(
                genes.permutations[name], part.num_items, position, other, mutated
            )
        return Genes(real, integer, categorical, permutations, dict(genes.blobs))

    def _perturbed(self, values: Floats, low: Floats, high: Floats, value: Floats) -> Floats:
        factor = np.where(value < 0.5, *self.config.factors)
        shifted = values + (factor - 1.0) * (high - low) / 2
        moved: Floats = np.clip(np.where(low >= 0, values * factor, shifted), low, high)
        return moved

    # Telling.

    def _select(self, arrivals: Batch) -> None:
        for row, identifier in enumerate(arrivals.ids.tolist()):
            slot = self._slot_of.pop(identifier, None)
            if slot is None:
                continue
            member = self.members[slot]
            member.waiting_for = None
            member.failed_last = not np.isfinite(arrivals.violation[row])
            if member.failed_last:
                continue
            member.latest = arrivals.take(np.array([row]))
            member.costs = [*member.costs, float(arrivals.costs[row, 0])][-self.config.window :]
            member.steps += 1
            member.since_exploit += 1
        complete = [member.latest for member in self.members if member.latest is not None]
        if complete:
            self.population = Batch.concatenate(complete)

    # State.

    def _own_state(self) -> State:
        meta: dict[str, Any] = {
            "exploits": self.exploits,
            "exploits_without_donor": self.exploits_without_donor,
            "slot_of": [list(pair) for pair in self._slot_of.items()],
            "members": [],
        }
        arrays: dict[str, Array] = {}
        for slot, member in enumerate(self.members):
            latest = None
            if member.latest is not None:
                latest, own = batch_state(member.latest)
                arrays.update({f"{slot}/{name}": array for name, array in own.items()})
            meta["members"].append(
                {
                    "latest": latest,
                    "costs": member.costs,
                    "steps": member.steps,
                    "attempts": member.attempts,
                    "since_exploit": member.since_exploit,
                    "waiting_for": member.waiting_for,
                    "failed_last": bool(member.failed_last),
                }
            )
        return meta, arrays

    def _load_own_state(self, meta: dict[str, Any], arrays: dict[str, Array]) -> None:
        self.exploits = meta["exploits"]
        self.exploits_without_donor = meta["exploits_without_donor"]
        self._slot_of = dict(meta["slot_of"])
        for slot, (member, saved) in enumerate(zip(self.members, meta["members"])):
            member.costs, member.steps = list(saved["costs"]), saved["steps"]
            member.attempts, member.since_exploit = saved["attempts"], saved["since_exploit"]
            member.waiting_for, member.failed_last = saved["waiting_for"], saved["failed_last"]
            member.latest = None
            if saved["latest"] is not None:
                own = {
                    path.removeprefix(f"{slot}/"): array
                    for path, array in arrays.items()
                    if path.startswith(f"{slot}/")
                }
                member.latest = batch_from_state(saved["latest"], own, self.layout)


def _fitness(member: Member) -> tuple[float, float]:
    assert member.latest is not None
    return float(member.latest.violation[0]), float(member.latest.costs[0, 0])

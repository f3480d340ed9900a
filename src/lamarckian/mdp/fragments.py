"""Where waves write experience: fixed-length fragments, one lane per seat.

A lane's decisions go into a column of ``T`` rows. A full column whose cut is known (the life ended, or
the next decision has been valued) is a *fragment*; fragments leave in the order they were completed, so
fast players contribute at their own rate and nobody waits for a slow one.

Arrays are time-major, as trajectories are: players in step with each other write neighbouring memory, and
where every lane stands is kept in integer arrays, so that a wave is written without a loop over players.

Shape letters: ``C`` columns, ``T`` rows of a column, ``N`` requests of one wave, ``K`` reward heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lamarckian.mdp.core import (
    Array,
    Arrays,
    Observation,
    Role,
    action_dtype,
    action_shape,
    mask_size,
)
from lamarckian.mdp.policy import Decisions, Policy
from lamarckian.mdp.trajectory import Trajectory


class Lane:
    """One seat's place in the store, and what its last decision has earned so far."""

    __slots__ = ("elapsed", "number", "paid")

    def __init__(self, number: int) -> None:
        self.number = number
        """Index into the store's arrays of lanes."""
        self.paid: Any = 0.0
        """Rewards since the last decision, discounted by the acts since: one number, or ``K`` of them if
        there are several heads. Holds nothing while ``elapsed`` is 0."""
        self.elapsed = 0
        """Acts since the last decision."""


@dataclass(slots=True)
class _Cut:
    """An observation from which a column bootstraps after row ``row``."""

    row: int
    inputs: Arrays
    legal: Arrays
    state: Arrays
    recurrent: Arrays
    value: Array | None = None


@dataclass
class FragmentStore:
    """Preallocated columns of experience for one policy.

    ``num_columns`` is where it starts; the store grows by half if more seats than expected hold a column.
    ``elapsed`` of a decision that nobody acted on (the player decided anew) is 0, and it is not valid.
    """

    role: Role
    length: int
    discounts: tuple[float, ...]
    num_columns: int
    memory: Arrays = field(default_factory=dict)
    chunk_length: int = 0

    inputs: Arrays = field(init=False)
    legal: Arrays = field(init=False)
    state: Arrays = field(init=False)
    actions: Arrays = field(init=False)
    recurrent: Arrays = field(init=False)
    scalars: Arrays = field(init=False)
    finished: list[int] = field(init=False, default_factory=list)
    _free: list[int] = field(init=False, default_factory=list)
    _cuts: dict[int, list[_Cut]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        role = self.role
        heads = role.num_rewards
        chunks = -(-self.length // self.chunk_length) if self.chunk_length else 0

        def columns(shape: tuple[int, ...], dtype: str, rows: int = self.length) -> Array:
            return np.zeros((rows, self.num_columns, *shape), dtype)

        self.inputs = {k: columns(v.shape, v.dtype) for k, v in role.inputs.items()}
        self.state = {k: columns(v.shape, v.dtype) for k, v in role.state.items()}
        self.legal = {k: columns((mask_size(role.actions[k]),), "bool") for k in role.masked}
        self.actions = {
            k: columns(action_shape(v), action_dtype(v)) for k, v in role.actions.items()
        }
        self.recurrent = {k: columns(v.shape, str(v.dtype), chunks) for k, v in self.memory.items()}
        self.scalars = {
            "log_prob": columns((), "float32"),
            "values": columns((heads,), "float32"),
            "rewards": columns((heads,), "float32"),
            "elapsed": columns((), "int32"),
            "terminated": columns((), "bool"),
            "truncated": columns((), "bool"),
            "starts": columns((), "bool"),
            "valid": columns((), "bool"),
            "policy_version": columns((), "int64"),
        }
        self._rows = np.empty(0, np.int64)
        """Per lane: row of the last decision in its column; -1 before the first."""
        self._columns = np.empty(0, np.int64)
        """Per lane: its column; -1 if it has none."""
        self._begun = np.empty(0, np.bool_)
        """Per lane: True once the present life has recorded a decision."""
        self._num_lanes = 0
        self._nothing: Any = 0.0 if heads == 1 else (0.0,) * heads
        self._free = list(range(self.num_columns - 1, -1, -1))
        self._flatten()

    def lane(self) -> Lane:
        """Make a lane; it serves one life after the other."""
        number = self._num_lanes
        self._num_lanes += 1
        if number == len(self._rows):
            more = number // 2 + 8
            self._rows = np.concatenate([self._rows, np.full(more, -1)])
            self._columns = np.concatenate([self._columns, np.full(more, -1)])
            self._begun = np.concatenate([self._begun, np.zeros(more, np.bool_)])
        return Lane(number)

    def record(
        self,
        lanes: Sequence[int],
        earned: tuple[Sequence[int], Sequence[Any]],
        skipped: list[int],
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        decisions: Decisions,
        version: int,
    ) -> None:
        """Write one wave: row ``n`` of every array belongs to the lane numbered ``lanes[n]``.

        Arrays have leading N. ``earned`` holds each lane's ``elapsed`` and ``paid``, which belong to its
        decision before; ``skipped`` lists the rows to be kept out of the learning data. A lane occurs once.
        """
        numbers = np.array(lanes)
        rows = self._rows[numbers]
        columns = self._columns[numbers]
        begun = self._begun[numbers]
        if begun.all():
            self._settle(rows * self.num_columns + columns, *earned)
        elif begun.any():
            was = np.flatnonzero(begun)
            elapsed, paid = ([column[n] for n in was.tolist()] for column in earned)
            self._settle(rows[was] * self.num_columns + columns[was], elapsed, paid)
        full = rows == self.length - 1
        if full.any():
            for n in np.flatnonzero(full).tolist():
                self._cut_open_end(
                    int(rows[n]),
                    int(columns[n]),
                    n,
                    Observation(inputs, legal, state),
                    recurrent,
                    decisions.values,
                )
            columns[full] = -1
        homeless = columns < 0
        if homeless.any():
            columns[homeless] = self._take_columns(int(homeless.sum()))
            rows[homeless] = -1
            self._columns[numbers] = columns
        rows += 1
        self._rows[numbers] = rows
        index = rows * self.num_columns + columns
        flat = self._flat
        for name, array in inputs.items():
            self._flat_inputs[name][index] = array
        for name, array in legal.items():
            self._flat_legal[name][index] = array
        for name, array in state.items():
            self._flat_state[name][index] = array
        for name, array in decisions.actions.items():
            self._flat_actions[name][index] = array
        flat["log_prob"][index] = decisions.log_prob
        flat["values"][index] = decisions.values
        flat["valid"][index] = True
        flat["policy_version"][index] = version
        if not begun.all():
            flat["starts"][index[~begun]] = True
            self._begun[numbers] = True
        if skipped:
            flat["valid"][index[skipped]] = False
        if recurrent:
            heads = np.flatnonzero(rows % self.chunk_length == 0)
            if len(heads):
                chunk = (rows[heads] // self.chunk_length, columns[heads])
                for name, array in recurrent.items():
                    self.recurrent[name][chunk] = array[heads]

    def _settle(self, before: Array, elapsed: Sequence[int], paid: Sequence[Any]) -> None:
        """Write what the decisions at the flat indices ``before`` have brought."""
        flat = self._flat
        flat["elapsed"][before] = elapsed
        if 0 in elapsed:  # nobody acted on some: nothing was paid, nothing is to be learned
            paid = [sums if acts else self._nothing for sums, acts in zip(paid, elapsed)]
            flat["valid"][before[np.equal(elapsed, 0)]] = False
        flat["rewards"][before] = np.array(paid).reshape(len(before), -1)

    def pay(self, lane: Lane, rewards: Sequence[float]) -> None:
        """Add the rewards of one act to the lane's last decision, discounted by the acts since.

        Before the first decision of a life there is none to add to: :meth:`record` drops them.
        """
        elapsed = lane.elapsed
        single = len(rewards) == 1
        if elapsed == 0:
            lane.paid = rewards[0] if single else tuple(rewards)
        elif single:
            lane.paid += rewards[0] * self.discounts[0] ** elapsed
        else:
            lane.paid = [
                total + reward * discount**elapsed
                for total, reward, discount in zip(lane.paid, rewards, self.discounts, strict=True)
            ]
        lane.elapsed = elapsed + 1

    def end(
        self, lane: Lane, *, terminated: bool, final: Observation | None, recurrent: Arrays
    ) -> None:
        """Close the lane's present life. ``final`` is the observation a truncated life bootstraps from."""
        number = lane.number
        elapsed, lane.elapsed = lane.elapsed, 0
        if not self._begun[number]:
            return
        row, column = int(self._rows[number]), int(self._columns[number])
        at = row * self.num_columns + column
        flat = self._flat
        flat["rewards"][at] = lane.paid if elapsed else self._nothing
        flat["elapsed"][at] = elapsed
        if elapsed == 0:
            flat["valid"][at] = False
        if terminated:
            flat["terminated"][at] = True
        elif final is not None:
            flat["truncated"][at] = True
            self._cuts.setdefault(column, []).append(
                _Cut(
                    row,
                    {k: np.array(final.inputs[k], v.dtype) for k, v in self.role.inputs.items()},
                    {
                        k: np.array(final.legal.get(k, np.ones(v.shape[2:])), bool)
                        for k, v in self.legal.items()
                    },
                    {k: np.array(final.state[k], v.dtype) for k, v in self.role.state.items()},
                    {k: np.array(v) for k, v in recurrent.items()},
                )
            )
        if row == self.length - 1:
            self.finished.append(column)
            self._rows[number] = self._columns[number] = -1
        self._begun[number] = False

    def drop(self, lane: Lane) -> None:
        """Give a lane's unfinished column back unread: its match failed."""
        column = int(self._columns[lane.number])
        if column >= 0:
            self._cuts.pop(column, None)
            self._clean([column])
            self._free.append(column)
        self._rows[lane.number] = self._columns[lane.number] = -1
        self._begun[lane.number] = False
        lane.elapsed = 0

    def clear(self) -> None:
        """Forget everything, finished fragments too. Lanes of before must not be used any more."""
        self.finished.clear()
        self._cuts.clear()
        self._rows = self._columns = np.empty(0, np.int64)
        self._begun = np.empty(0, np.bool_)
        self._num_lanes = 0
        self._clean(list(range(self.num_columns)))
        self._free = list(range(self.num_columns - 1, -1, -1))

    def take(self, num: int, policy: Policy) -> Trajectory:
        """Hand out the ``num`` oldest finished fragments as a trajectory ``[T, num, ...]``."""
        if len(self.finished) < num:
            raise ValueError(f"{num} fragments asked for, {len(self.finished)} are finished")
        taken, self.finished = self.finished[:num], self.finished[num:]
        cuts = [
            (cut, position)
            for position, column in enumerate(taken)
            for cut in self._cuts.pop(column, [])
        ]

        def gather(group: Arrays) -> Arrays:
            return {k: np.take(v, taken, axis=1) for k, v in group.items()}

        def stack(select: str, like: Arrays) -> Arrays:
            return {
                k: np.stack([getattr(cut, select)[k] for cut, _ in cuts])
                if cuts
                else np.zeros((0, *v.shape[2:]), v.dtype)
                for k, v in like.items()
            }

        bootstrap_inputs = stack("inputs", self.inputs)
        bootstrap_state = stack("state", self.state)
        bootstrap_recurrent = stack("recurrent", self.recurrent)
        values = np.zeros((len(cuts), self.role.num_rewards), np.float32)
        unknown = np.array([i for i, (cut, _) in enumerate(cuts) if cut.value is None], np.int64)
        for i, (cut, _) in enumerate(cuts):
            if cut.value is not None:
                values[i] = cut.value
        if len(unknown):
            values[unknown] = policy.values(
                {k: v[unknown] for k, v in bootstrap_inputs.items()},
                {k: v[unknown] for k, v in bootstrap_state.items()},
                {k: v[unknown] for k, v in bootstrap_recurrent.items()},
            )
        scalars = gather(self.scalars)
        self._clean(taken)
        self._free.extend(reversed(taken))
        return Trajectory(
            inputs=gather(self.inputs),
            legal=gather(self.legal),
            state=gather(self.state),
            actions=gather(self.actions),
            recurrent=gather(self.recurrent),
            **scalars,
            bootstrap_index=np.array([cut.row * num + n for cut, n in cuts], np.int64),
            bootstrap_inputs=bootstrap_inputs,
            bootstrap_legal=stack("legal", self.legal),
            bootstrap_state=bootstrap_state,
            bootstrap_recurrent=bootstrap_recurrent,
            bootstrap_values=values,
            chunk_length=self.chunk_length,
        )

    def _cut_open_end(
        self,
        row: int,
        column: int,
        n: int,
        seen: Observation,
        recurrent: Arrays,
        values: Array,
    ) -> None:
        """The next decision after a full column is request ``n``: the column bootstraps from it."""
        self._cuts.setdefault(column, []).append(
            _Cut(
                row,
                {k: v[n].copy() for k, v in seen.inputs.items()},
                {k: v[n].copy() for k, v in seen.legal.items()},
                {k: v[n].copy() for k, v in seen.state.items()},
                {k: v[n].copy() for k, v in recurrent.items()},
                values[n].copy(),
            )
        )
        self.finished.append(column)

    def _clean(self, columns: list[int]) -> None:
        """Marks that are only ever set, never cleared, while a column fills."""
        for name in ("terminated", "truncated", "starts", "valid"):
            self.scalars[name][:, columns] = False

    def _take_columns(self, num: int) -> list[int]:
        while len(self._free) < num:
            self._grow()
        return [self._free.pop() for _ in range(num)]

    def _grow(self) -> None:
        more = self.num_columns // 2 + 1
        for group in self._groups():
            for name, array in group.items():
                group[name] = np.concatenate(
                    [array, np.zeros((len(array), more, *array.shape[2:]), array.dtype)], axis=1
                )
        self._free[:0] = range(self.num_columns + more - 1, self.num_columns - 1, -1)
        self.num_columns += more
        self._flatten()

    def _groups(self) -> tuple[Arrays, ...]:
        return (
            self.inputs, self.state, self.legal, self.actions, self.recurrent, self.scalars
        )  # fmt: skip

    def _flatten(self) -> None:
        """Views with one row per decision: one index array writes a wave."""

        def flat(group: Arrays) -> Arrays:
            return {k: v.reshape(-1, *v.shape[2:]) for k, v in group.items()}

        self._flat = flat(self.scalars)
        self._flat_inputs = flat(self.inputs)
        self._flat_legal = flat(self.legal)
        self._flat_state = flat(self.state)
        self._flat_actions = flat(self.actions)

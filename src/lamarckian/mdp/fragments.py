"""Where waves write experience: fixed-length fragments, one lane per seat.

A lane's decisions go into a column of ``T`` rows. A full column whose cut is known (the life ended, or
the next decision has been valued) is a *fragment*; fragments leave in the order they were completed, so
fast players contribute at their own rate and nobody waits for a slow one.

Shape letters: ``C`` columns, ``T`` rows of a column, ``N`` requests of one wave, ``K`` reward heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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

    __slots__ = ("at", "elapsed", "fresh", "last", "paid")

    def __init__(self) -> None:
        self.at = -1
        """Flat index ``column * T + row`` of the last decision; -1 before the first of a column."""
        self.last = -1
        """Flat index of the column's last row."""
        self.fresh = True
        """True until the present life has recorded a decision."""
        self.paid: Sequence[float] = ()
        """The ``K`` rewards of the last decision, discounted by the acts since it."""
        self.elapsed = 0
        """Acts since the last decision."""


@dataclass(slots=True)
class _Cut:
    """An observation from which a column bootstraps after row ``row``."""

    row: int
    inputs: Arrays
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
            return np.zeros((self.num_columns, rows, *shape), dtype)

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
        self._nothing = (0.0,) * heads
        self._free = list(range(self.num_columns - 1, -1, -1))
        self._flatten()

    def record(
        self,
        lanes: list[Lane],
        skipped: list[int],
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        decisions: Decisions,
        version: int,
    ) -> None:
        """Write one wave: row ``n`` of every array belongs to ``lanes[n]``. Arrays have leading N.

        ``skipped`` lists the rows to be kept out of the learning data.
        """
        before: list[int] = []
        paid: list[Sequence[float]] = []
        elapsed: list[int] = []
        starts: list[int] = []
        places: list[int] = []
        unacted: list[int] = []
        nothing = self._nothing
        for n, lane in enumerate(lanes):
            at = lane.at
            if lane.fresh:
                lane.fresh = False
                starts.append(n)
            else:
                before.append(at)
                paid.append(lane.paid)
                elapsed.append(lane.elapsed)
                if lane.elapsed == 0:
                    unacted.append(at)
                if at == lane.last:
                    self._cut_open_end(lane, n, inputs, state, recurrent, decisions.values)
                    at = -1
            if at == lane.last:
                column = self._take_column()
                at = column * self.length
                lane.last = at + self.length - 1
            else:
                at += 1
            lane.at = at
            lane.paid = nothing
            lane.elapsed = 0
            places.append(at)
        flat = self._flat
        if before:
            past = np.array(before)
            flat["rewards"][past] = paid
            flat["elapsed"][past] = elapsed
            if unacted:
                flat["valid"][unacted] = False
        index = np.array(places)
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
        if starts:
            flat["starts"][index[starts]] = True
        if skipped:
            flat["valid"][index[skipped]] = False
        if recurrent:
            columns, rows = np.divmod(index, self.length)
            heads = np.flatnonzero(rows % self.chunk_length == 0)
            if len(heads):
                chunk = (columns[heads], rows[heads] // self.chunk_length)
                for name, array in recurrent.items():
                    self.recurrent[name][chunk] = array[heads]

    def pay(self, lane: Lane, rewards: Sequence[float]) -> None:
        """Add the rewards of one act to the lane's last decision, discounted by the acts since."""
        if lane.fresh:
            return
        elapsed = lane.elapsed
        if elapsed == 0:
            lane.paid = tuple(rewards)
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
        if lane.fresh:
            return
        at = lane.at
        flat = self._flat
        flat["rewards"][at] = lane.paid
        flat["elapsed"][at] = lane.elapsed
        if lane.elapsed == 0:
            flat["valid"][at] = False
        if terminated:
            flat["terminated"][at] = True
        elif final is not None:
            flat["truncated"][at] = True
            column, row = divmod(at, self.length)
            self._cuts.setdefault(column, []).append(
                _Cut(
                    row,
                    {k: np.array(final.inputs[k], v.dtype) for k, v in self.role.inputs.items()},
                    {k: np.array(final.state[k], v.dtype) for k, v in self.role.state.items()},
                    {k: np.array(v) for k, v in recurrent.items()},
                )
            )
        if at == lane.last:
            self._finish(lane)
        lane.fresh = True

    def drop(self, lane: Lane) -> None:
        """Give a lane's unfinished column back unread: its match failed."""
        if lane.at >= 0:
            column = lane.at // self.length
            self._cuts.pop(column, None)
            self._clean([column])
            self._free.append(column)
        lane.at, lane.last, lane.fresh = -1, -1, True

    def clear(self) -> None:
        """Forget everything, finished fragments too. Lanes of before must not be used any more."""
        self.finished.clear()
        self._cuts.clear()
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
            out = {k: np.empty((v.shape[1], num, *v.shape[2:]), v.dtype) for k, v in group.items()}
            for k, v in group.items():
                for n, column in enumerate(taken):
                    out[k][:, n] = v[column]
            return out

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
            bootstrap_state=bootstrap_state,
            bootstrap_recurrent=bootstrap_recurrent,
            bootstrap_values=values,
            chunk_length=self.chunk_length,
        )

    def _cut_open_end(
        self, lane: Lane, n: int, inputs: Arrays, state: Arrays, recurrent: Arrays, values: Array
    ) -> None:
        """The lane's next decision is known: its full column bootstraps from it."""
        column, row = divmod(lane.at, self.length)
        self._cuts.setdefault(column, []).append(
            _Cut(
                row,
                {k: v[n].copy() for k, v in inputs.items()},
                {k: v[n].copy() for k, v in state.items()},
                {k: v[n].copy() for k, v in recurrent.items()},
                values[n].copy(),
            )
        )
        self._finish(lane)

    def _finish(self, lane: Lane) -> None:
        self.finished.append(lane.at // self.length)
        lane.at = lane.last = -1

    def _clean(self, columns: list[int]) -> None:
        """Marks that are only ever set, never cleared, while a column fills."""
        for name in ("terminated", "truncated", "starts", "valid"):
            self.scalars[name][columns] = False

    def _take_column(self) -> int:
        if not self._free:
            self._grow()
        return self._free.pop()

    def _grow(self) -> None:
        more = self.num_columns // 2 + 1
        for group in self._groups():
            for name, array in group.items():
                group[name] = np.concatenate(
                    [array, np.zeros((more, *array.shape[1:]), array.dtype)]
                )
        self._free = list(range(self.num_columns + more - 1, self.num_columns - 1, -1))
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

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

from lamarckian.errors import GameError
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


@dataclass(slots=True)
class Lane:
    """One seat's place in the store. ``column`` is -1 until its first decision."""

    column: int = -1
    row: int = -1
    fresh: bool = True
    """True until the present life has recorded a decision."""
    waiting: bool = False
    """True while the column is full and waits for the value of the lane's next decision."""


@dataclass(slots=True)
class _Cut:
    """An observation from which column ``column`` bootstraps after row ``row``."""

    column: int
    row: int
    inputs: Arrays
    state: Arrays
    recurrent: Arrays
    value: Array | None = None


@dataclass(slots=True)
class FragmentStore:
    """Preallocated columns of experience for one policy.

    ``num_lanes`` bounds how many seats may hold a column at once; the store grows by doubling if a game
    seats more.
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
        shape = (self.num_columns, self.length)
        heads = self.role.num_rewards
        self.inputs = {
            k: np.zeros((*shape, *v.shape), v.dtype) for k, v in self.role.inputs.items()
        }
        self.state = {k: np.zeros((*shape, *v.shape), v.dtype) for k, v in self.role.state.items()}
        self.legal = {
            k: np.zeros((*shape, mask_size(self.role.actions[k])), np.bool_)
            for k in self.role.masked
        }
        self.actions = {
            k: np.zeros((*shape, *action_shape(v)), action_dtype(v))
            for k, v in self.role.actions.items()
        }
        chunks = -(-self.length // self.chunk_length) if self.chunk_length else 0
        self.recurrent = {
            k: np.zeros((self.num_columns, chunks, *v.shape), v.dtype)
            for k, v in self.memory.items()
        }
        self.scalars = {
            "log_prob": np.zeros(shape, np.float32),
            "values": np.zeros((*shape, heads), np.float32),
            "rewards": np.zeros((*shape, heads), np.float32),
            "elapsed": np.zeros(shape, np.int32),
            "terminated": np.zeros(shape, np.bool_),
            "truncated": np.zeros(shape, np.bool_),
            "starts": np.zeros(shape, np.bool_),
            "valid": np.zeros(shape, np.bool_),
            "policy_version": np.zeros(shape, np.int64),
        }
        self._free = list(range(self.num_columns - 1, -1, -1))

    def record(
        self,
        lanes: list[Lane],
        learn: list[bool],
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        decisions: Decisions,
        version: int,
    ) -> None:
        """Write one wave: row ``n`` of every array belongs to ``lanes[n]``. Arrays have leading N."""
        length = self.length
        for n, lane in enumerate(lanes):
            if lane.waiting:
                self._cut_open_end(lane, n, inputs, state, recurrent, decisions.values)
            if lane.column < 0 or lane.row == length - 1:
                lane.column = self._take_column()
                lane.row = 0
            else:
                lane.row += 1
        columns = np.array([lane.column for lane in lanes])
        rows = np.array([lane.row for lane in lanes])
        at = (columns, rows)
        for name, array in inputs.items():
            self.inputs[name][at] = array
        for name, array in legal.items():
            self.legal[name][at] = array
        for name, array in state.items():
            self.state[name][at] = array
        for name, array in decisions.actions.items():
            self.actions[name][at] = array
        scalars = self.scalars
        scalars["log_prob"][at] = decisions.log_prob
        scalars["values"][at] = decisions.values
        scalars["rewards"][at] = 0.0
        scalars["elapsed"][at] = 0
        scalars["terminated"][at] = False
        scalars["truncated"][at] = False
        scalars["starts"][at] = [lane.fresh for lane in lanes]
        scalars["valid"][at] = learn
        scalars["policy_version"][at] = version
        if recurrent:
            heads = np.flatnonzero(rows % self.chunk_length == 0)
            if len(heads):
                chunk = (columns[heads], rows[heads] // self.chunk_length)
                for name, array in recurrent.items():
                    self.recurrent[name][chunk] = array[heads]
        for lane in lanes:
            lane.fresh = False

    def pay(self, lane: Lane, rewards: Sequence[float]) -> None:
        """Add the rewards of one act to the lane's last decision, discounted by the acts since."""
        if lane.fresh:
            return
        at = (lane.column, lane.row)
        elapsed = int(self.scalars["elapsed"][at])
        target = self.scalars["rewards"][at]
        if elapsed == 0:
            target += rewards
        else:
            target += [
                reward * discount**elapsed
                for reward, discount in zip(rewards, self.discounts, strict=True)
            ]
        self.scalars["elapsed"][at] = elapsed + 1
        if lane.row == self.length - 1:
            lane.waiting = True

    def end(
        self, lane: Lane, *, terminated: bool, final: Observation | None, recurrent: Arrays
    ) -> None:
        """Close the lane's present life. ``final`` is the observation a truncated life bootstraps from."""
        if not lane.fresh:
            at = (lane.column, lane.row)
            self.scalars["elapsed"][at] = max(1, self.scalars["elapsed"][at])
            if terminated:
                self.scalars["terminated"][at] = True
            elif final is not None:
                self.scalars["truncated"][at] = True
                self._cuts.setdefault(lane.column, []).append(
                    _Cut(
                        lane.column,
                        lane.row,
                        {
                            k: np.array(final.inputs[k], v.dtype)
                            for k, v in self.role.inputs.items()
                        },
                        {k: np.array(final.state[k], v.dtype) for k, v in self.role.state.items()},
                        {k: np.array(v) for k, v in recurrent.items()},
                    )
                )
            if lane.row == self.length - 1:
                self._finish(lane)
        lane.waiting = False
        lane.fresh = True

    def drop(self, lane: Lane) -> None:
        """Give a lane's unfinished column back unread: its match failed."""
        if lane.column >= 0:
            self._cuts.pop(lane.column, None)
            self._free.append(lane.column)
        lane.column, lane.row, lane.fresh, lane.waiting = -1, -1, True, False

    def clear(self) -> None:
        """Forget everything, finished fragments too."""
        self.finished.clear()
        self._cuts.clear()
        self._free = list(range(self.num_columns - 1, -1, -1))

    def take(self, num: int, policy: Policy) -> Trajectory:
        """Hand out the ``num`` oldest finished fragments as a trajectory ``[T, num, ...]``."""
        if len(self.finished) < num:
            raise ValueError(f"{num} fragments asked for, {len(self.finished)} are finished")
        taken, self.finished = self.finished[:num], self.finished[num:]
        columns = np.array(taken)
        cuts = [
            (cut, position)
            for position, column in enumerate(taken)
            for cut in self._cuts.pop(column, [])
        ]

        def gather(group: Arrays) -> Arrays:
            return {k: np.ascontiguousarray(v[columns].swapaxes(0, 1)) for k, v in group.items()}

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
        self._free.extend(taken)
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
        self._cuts.setdefault(lane.column, []).append(
            _Cut(
                lane.column,
                lane.row,
                {k: v[n].copy() for k, v in inputs.items()},
                {k: v[n].copy() for k, v in state.items()},
                {k: v[n].copy() for k, v in recurrent.items()},
                values[n].copy(),
            )
        )
        self._finish(lane)
        lane.waiting = False

    def _finish(self, lane: Lane) -> None:
        self.finished.append(lane.column)
        lane.column, lane.row = -1, -1

    def _take_column(self) -> int:
        if not self._free:
            raise GameError(
                f"all {self.num_columns} fragment columns are in use: more players than the collector "
                "was sized for; raise its num_columns"
            )
        return self._free.pop()

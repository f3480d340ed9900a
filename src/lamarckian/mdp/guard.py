"""Nothing that is not a number reaches a learner: the check between collector and learner (NUM-01)."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from lamarckian.errors import GameError
from lamarckian.mdp.core import Array
from lamarckian.mdp.trajectory import Trajectory

OnBadData = Literal["fail", "drop"]


def guard(trajectory: Trajectory, *, game: str, on_bad_data: OnBadData = "fail") -> int:
    """Check rewards, observations and central state for NaN and infinity; return dropped decisions.

    ``fail`` raises GameError naming game, key, decision and lane. ``drop`` takes the whole life that met
    the bad number, as far as it lies in this trajectory, out of the learning data and zeroes its numbers.
    """
    bad = _bad(trajectory.rewards, 2)
    places = [("rewards", bad)]
    for group, arrays in (("inputs", trajectory.inputs), ("state", trajectory.state)):
        for name, array in arrays.items():
            if array.dtype.kind == "f":
                places.append((f"{group}/{name}", _bad(array, 2)))
    for group, arrays in (
        ("final inputs", trajectory.bootstrap_inputs),
        ("final state", trajectory.bootstrap_state),
    ):
        for name, array in arrays.items():
            if array.dtype.kind == "f":
                wrong = _bad(array, 1)
                if wrong.any():
                    tails = np.zeros(trajectory.log_prob.size, bool)
                    tails[trajectory.bootstrap_index[wrong]] = True
                    places.append((f"{group}/{name}", tails.reshape(bad.shape)))
    # Last: a critic that was shown bad numbers is not the cause.
    places.append(("values of the policy", _bad(trajectory.values, 2)))
    if not any(where.any() for _, where in places):
        return 0
    # Rewards and values of a skipped decision flow into its neighbours; seats nobody sits in do not count.
    lived = lived_rows(trajectory)
    _clear(trajectory, ~lived)
    places = [(name, where & lived) for name, where in places]
    if not any(where.any() for _, where in places):
        return 0
    if on_bad_data == "fail":
        name, where = next((n, w) for n, w in places if w.any())
        time, lane = (int(i) for i in np.argwhere(where)[0])
        raise GameError(
            f"{game}: {name} holds NaN or infinity at decision {time} of lane {lane} "
            f"(policy version {int(trajectory.policy_version[time, lane])}); mend the game, or let "
            "on_bad_data=drop leave such episodes out"
        )
    combined = np.logical_or.reduce([where for _, where in places])
    return _drop_lives(trajectory, combined)


def _bad(array: Array, batch_axes: int) -> Array:
    flat = array.reshape(*array.shape[:batch_axes], math.prod(array.shape[batch_axes:]))
    # One number per row first: a sum is finite if all its terms are, and costs no boolean array.
    with np.errstate(all="ignore"):
        suspicious = ~np.isfinite(flat.sum(axis=-1))
    if suspicious.any():
        suspicious &= ~np.isfinite(flat).all(axis=-1)
    wrong: Array = suspicious
    return wrong


def lived_rows(trajectory: Trajectory) -> Array:
    """Return the rows of a life, bool ``[T, N]``: learned from, skipped, or the last before an end."""
    events = trajectory.valid | trajectory.terminated | trajectory.truncated
    events.reshape(-1)[trajectory.bootstrap_index] = True
    lived = events.copy()
    for t in range(len(events) - 2, -1, -1):
        lived[t] |= lived[t + 1] & ~trajectory.starts[t + 1]
    # Nothing lies between the end of a life and the start of the next.
    ended = trajectory.terminated | trajectory.truncated
    between = np.zeros(events.shape[1], bool)
    for t in range(len(events)):
        between &= ~(trajectory.starts[t] | trajectory.valid[t])
        lived[t] &= ~between
        between |= ended[t]
    return lived


def _clear(trajectory: Trajectory, rows: Array) -> None:
    """Zero the numbers of ``rows`` bool ``[T, N]``."""
    for array in (trajectory.rewards, trajectory.values):
        array[rows] = 0
    for group in (trajectory.inputs, trajectory.state):
        for array in group.values():
            if array.dtype.kind == "f":
                array[rows] = 0


def _drop_lives(trajectory: Trajectory, bad: Array) -> int:
    dropped = 0
    length = bad.shape[0]
    ends = trajectory.terminated | trajectory.truncated
    for lane in np.flatnonzero(bad.any(axis=0)):
        first = 0
        for t in range(length):
            if ends[t, lane] or t == length - 1:
                span = slice(first, t + 1)
                if bad[span, lane].any():
                    dropped += int(trajectory.valid[span, lane].sum())
                    trajectory.valid[span, lane] = False
                    rows = np.zeros(bad.shape, bool)
                    rows[span, lane] = True
                    _clear(trajectory, rows)
                    # A cut that terminates: no bootstrap value, nothing of it enters a neighbour.
                    trajectory.terminated[t, lane] = True
                    trajectory.truncated[t, lane] = False
                    where = np.isin(
                        trajectory.bootstrap_index,
                        np.arange(first, t + 1) * bad.shape[1] + lane,
                    )
                    trajectory.bootstrap_values[where] = 0
                    for group in (trajectory.bootstrap_inputs, trajectory.bootstrap_state):
                        for array in group.values():
                            array[where] = 0
                first = t + 1
    return dropped

"""Trajectories with chosen numbers, for tests of learners."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamarckian.mdp.core import Arrays
from lamarckian.mdp.trajectory import Trajectory


def make_trajectory(
    *,
    rewards: Any,
    values: Any,
    terminated: Any,
    truncated: Any,
    elapsed: Any = None,
    valid: Any = None,
    bootstraps: dict[int, float] | None = None,
    inputs: Arrays | None = None,
    actions: Arrays | None = None,
    log_prob: Any = None,
    legal: Arrays | None = None,
    state: Arrays | None = None,
) -> Trajectory:
    """One lane if flags are a list, else ``[T, N]``; ``bootstraps`` maps flat ``t * N + n`` to values."""
    ended = np.atleast_1d(np.asarray(terminated, bool))
    if ended.ndim == 1:
        ended = ended[:, None]
    shape = ended.shape

    def heads(numbers: Any) -> Any:
        array = np.asarray(numbers, np.float32)
        return array.reshape(*shape, -1)

    boots = bootstraps or {}
    reward = heads(rewards)
    num_heads = reward.shape[-1]
    starts = np.zeros(shape, bool)
    starts[0] = True
    starts[1:] = (ended | np.asarray(truncated, bool).reshape(shape))[:-1]
    observations = inputs or {"x": np.zeros((*shape, 1), np.float32)}
    return Trajectory(
        inputs=observations,
        legal=legal or {},
        state=state or {},
        actions=actions or {"a": np.zeros(shape, np.int64)},
        log_prob=np.zeros(shape, np.float32)
        if log_prob is None
        else np.asarray(log_prob, np.float32).reshape(shape),
        values=heads(values),
        rewards=reward,
        elapsed=np.ones(shape, np.int32)
        if elapsed is None
        else np.asarray(elapsed, np.int32).reshape(shape),
        terminated=ended,
        truncated=np.asarray(truncated, bool).reshape(shape),
        starts=starts,
        valid=np.ones(shape, bool) if valid is None else np.asarray(valid, bool).reshape(shape),
        policy_version=np.zeros(shape, np.int64),
        bootstrap_index=np.array(list(boots), np.int64),
        bootstrap_inputs={
            name: np.zeros((len(boots), *array.shape[2:]), array.dtype)
            for name, array in observations.items()
        },
        bootstrap_state={
            name: np.zeros((len(boots), *array.shape[2:]), array.dtype)
            for name, array in (state or {}).items()
        },
        bootstrap_values=np.array(list(boots.values()), np.float32)
        .reshape(-1, 1)
        .repeat(num_heads, axis=1),
    )

"""Adapted games through the collector: only decisions become data, memory starts at zero."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import toys

from lamarckian.mdp.adapters.gymnasium import GymnasiumGame
from lamarckian.mdp.adapters.gymnasium_vector import GymnasiumVectorGame
from lamarckian.mdp.collector import CollectorSettings, Seating
from lamarckian.mdp.policy import Decisions
from lamarckian.mdp.vectorised import BatchCollector


class Counting:
    """A policy whose memory counts the observations it was shown since the memory was zero."""

    version = 0

    def __init__(self, role) -> None:
        self.role = role
        self.memory = {"count": np.zeros(1, np.float32)}

    def act(self, inputs, legal, state, recurrent, noise):
        count = recurrent["count"] + 1
        zeros = np.zeros(len(count), np.int64)
        return Decisions(
            {"action": zeros},
            {"action": zeros},
            np.zeros(len(count), np.float32),
            recurrent["count"].astype(np.float32),
            {"count": count},
        )

    def values(self, inputs, state, recurrent):
        return np.array(inputs["observation"][:, :1])


def collect(game, length):
    policy = Counting(game.roles["player"])
    seating = Seating({"player": policy}, {"player": "player"})
    settings = CollectorSettings(
        game.num_games, length, lambda role: (0.9,), 0, chunk_length=length
    )
    collector = BatchCollector(game, seating, settings)
    return collector, collector.collect()["player"]


@pytest.mark.parametrize("mode", [None, *AutoresetMode])
def test_pitfalls_ep_09_memory_starts_at_zero_in_every_life(mode) -> None:
    if mode is None:
        game = GymnasiumGame(2, toys.Counter)
    else:
        game = GymnasiumVectorGame(
            2, lambda num_envs: SyncVectorEnv([toys.Counter] * num_envs, autoreset_mode=mode)
        )
    collector, data = collect(game, 18)
    # The stored value is the memory before each decision; a life of Counter has five decisions.
    for lane in range(2):
        valid = data.valid[:, lane]
        counted = data.values[valid, lane, 0]
        shown = data.inputs["observation"][valid, lane, 0]
        np.testing.assert_array_equal(counted, shown)
        np.testing.assert_array_equal(shown[:15], [0, 1, 2, 3, 4] * 3)
        np.testing.assert_array_equal(data.rewards[valid, lane, 0], shown + 1)
    # EP-03: each truncated life bootstraps from what was truly seen last.
    where = np.flatnonzero(data.truncated.ravel())
    at = dict(zip(data.bootstrap_index.tolist(), data.bootstrap_values[:, 0], strict=True))
    assert {float(at[int(i)]) for i in where} == {5.0}
    assert all(record.returns == (15.0,) for record in collector.take_episodes())
    collector.close()

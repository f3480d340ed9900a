"""Bad numbers stop at the border; batch collectors continue, share and forget as they should."""

from __future__ import annotations

import numpy as np
import pytest
from mdp_toys import ROLE, CountBatch, settings

from lamarckian.errors import GameError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.collector import Seating
from lamarckian.mdp.core import Observation, Role
from lamarckian.mdp.guard import guard
from lamarckian.mdp.vectorised import BatchCollector
from lamarckian.testing.policies import UniformPolicy

PLAN = [(3, True), (2, False)]


def collector(num=3, length=6, counting=False, chunk=0):
    policy = UniformPolicy(ROLE, lambda i: i["x"], counting=counting)
    return BatchCollector(
        CountBatch(num, PLAN),
        Seating({"p": policy}, {"p": "p"}),
        settings(num, length, chunk=chunk),
    )


@pytest.mark.parametrize("where", ["rewards", "inputs", "final"])
def test_pitfalls_num_01_fail_names_the_place(where):
    trajectory = collector().collect()["p"]
    if where == "rewards":
        trajectory.rewards[4, 2] = np.nan
    elif where == "inputs":
        trajectory.inputs["x"][4, 2] = np.inf
    else:
        trajectory.bootstrap_inputs["x"][trajectory.bootstrap_index == 2 * 3 + 2] = np.nan
    time = 2 if where == "final" else 4
    with pytest.raises(GameError, match=f"Toy: .*{where}.*decision {time} of lane 2"):
        guard(trajectory, game="Toy")


def test_pitfalls_num_01_drop_takes_the_life_out():
    # Lives in each lane: rows 0-2 (truncated), 3-4 (terminated), 5 (open).
    trajectory = collector().collect()["p"]
    trajectory.rewards[1, 2] = np.nan
    assert guard(trajectory, game="Toy", on_bad_data="drop") == 3
    assert trajectory.valid[:, 2].tolist() == [False, False, False, True, True, True]
    assert trajectory.valid[:, :2].all()
    assert np.isfinite(trajectory.rewards).all()
    assert trajectory.terminated[2, 2]
    assert not trajectory.truncated[2, 2]
    assert guard(trajectory, game="Toy") == 0


def test_a_skipped_decision_with_a_bad_reward_is_bad_too():
    trajectory = collector().collect()["p"]
    trajectory.valid[1, 0] = False
    trajectory.rewards[1, 0] = np.nan
    with pytest.raises(GameError, match="decision 1 of lane 0"):
        guard(trajectory, game="Toy")


def test_batch_collector_continues_bit_for_bit():
    one, two = (collector(counting=True, chunk=4) for _ in range(2))
    one.collect()
    data, arrays = one.state()
    two.load_state(data, {k: v.copy() for k, v in arrays.items()})
    for _ in range(3):
        a, b = one.collect()["p"], two.collect()["p"]
        for (name, left), (_, right) in zip(
            a.to_arrays()[1].items(), b.to_arrays()[1].items(), strict=True
        ):
            np.testing.assert_array_equal(left, right, name)
    assert one.num_decisions == two.num_decisions


class Team(BatchGame):
    """One match of two seats a side; seat 1 of ``a`` is out after tick 2, the match ends at 4."""

    def __init__(self):
        role = Role(ROLE.inputs, ROLE.actions, seats=2)
        self.roles = {"a": role, "b": role}
        self.num_games = 1

    def reset(self, seeds):
        self.tick = 0

    def alive(self, role):
        return np.array([True, role == "b" or self.tick < 2])

    def observe(self, role):
        dead = np.nan if role == "a" and self.tick >= 2 else 1.0
        return Observation({"x": np.array([[1.0], [dead]], np.float32)})

    def step(self, actions):
        before = {role: self.alive(role) for role in self.roles}
        self.tick += 1
        steps = {}
        for role in self.roles:
            ended = np.array([False, role == "a" and self.tick == 2])
            if self.tick == 4:
                ended = before[role].copy()
            steps[role] = RowStep(np.ones((2, 1), np.float32), ended, np.zeros(2, bool))
        if self.tick == 4:
            self.tick = 0
        return steps


def test_self_play_dead_rows_and_memory():
    role = Team().roles["a"]
    policy = UniformPolicy(role, counting=True)
    seats = Seating({"a": policy}, {"a": "a", "b": "a"})
    collector = BatchCollector(Team(), seats, settings(1, 8, chunk=1))
    got = collector.collect()["a"]
    assert got.valid.shape == (8, 4)  # both roles side by side: a0 a1 b0 b1
    assert got.valid[:, 1].tolist() == [True, True, False, False] * 2
    assert got.valid[:, [0, 2, 3]].all()
    assert got.rewards[:, 1, 0].tolist() == [1, 1, 0, 0] * 2
    assert got.terminated[:, 1].tolist() == [False, True, False, False] * 2
    assert got.starts[:, 1].tolist() == [True, False, False, False] * 2
    assert got.recurrent["count"][:, 1, 0].tolist() == [0, 1, 0, 0] * 2
    assert got.recurrent["count"][:, 0, 0].tolist() == [0, 1, 2, 3] * 2
    assert guard(got, game="Team") == 0  # what a seat sees that is out concerns nobody
    assert np.isfinite(got.inputs["x"]).all()
    assert {e.length for e in collector.take_episodes()} == {2, 4}


def test_two_groups_and_a_frozen_opponent_with_memory():
    role = Team().roles["a"]
    seen = []

    class Frozen(UniformPolicy):
        def act(self, inputs, legal, state, recurrent, noise):
            seen.append(recurrent["count"][:, 0].tolist())
            return super().act(inputs, legal, state, recurrent, noise)

    frozen = Frozen(role, counting=True)
    policy = UniformPolicy(role)
    seats = Seating({"b": policy}, {"b": "b"}, {"a": ("old", frozen)})
    collector = BatchCollector(Team(), seats, settings(1, 8))
    assert set(collector.collect()) == {"b"}
    assert seen == [[0, 0], [1, 1], [2, 0], [3, 0]] * 2
    assert {e.opponent for e in collector.take_episodes()} == {"old"}
    both = Seating({"a": policy, "b": UniformPolicy(role)}, {"a": "a", "b": "b"})
    assert set(BatchCollector(Team(), both, settings(1, 4)).collect()) == {"a", "b"}

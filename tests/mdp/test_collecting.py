"""What collectors hand out, with expectations worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from mdp_toys import ROLE, Count, CountBatch, DieEarly, Lives, Turns, seating, settings

from lamarckian.errors import GameError
from lamarckian.mdp.batching import direct
from lamarckian.mdp.collector import CollectorSettings, Seating
from lamarckian.mdp.core import Discrete, Input, Observation, Role
from lamarckian.mdp.rollout import train
from lamarckian.mdp.tick import TickGame
from lamarckian.mdp.vectorised import BatchCollector
from lamarckian.mdp.wave_collector import WaveCollector
from lamarckian.testing.policies import UniformPolicy


def by_index(trajectory):
    """Bootstrap observation and value per flat decision index."""
    return {
        int(i): (float(x), float(v))
        for i, x, v in zip(
            trajectory.bootstrap_index,
            trajectory.bootstrap_inputs["x"][:, 0],
            trajectory.bootstrap_values[:, 0],
        )
    }


def collectors(plan, num_games=1, length=4, critic=0.0, counting=False, chunk=0):
    """Both views of the same game."""
    seats = seating("p", critic=critic, counting=counting)
    options = settings(num_games, length, chunk=chunk)
    return [
        WaveCollector(lambda: Lives(plan), seats, options),
        BatchCollector(CountBatch(num_games, plan), seats, options),
    ]


def double(inputs):
    return inputs["x"] * 2


@pytest.mark.parametrize("kind", [0, 1])
def test_truncation_inside_and_open_end(kind):
    # Lives of 3 (truncated), then 3 (terminated). Observations 0 1 2 | 3 4 5 | 6 ...; T = 4:
    # rows 0 1 2 then 3; row 2 is truncated and saw 3 last; row 3 is open and its next decision sees 4.
    collector = collectors([(3, True), (3, False)], critic=double)[kind]
    first = collector.collect()["p"]
    assert first.inputs["x"][:, 0, 0].tolist() == [0, 1, 2, 3]
    assert first.rewards[:, 0, 0].tolist() == [1, 2, 3, 4]
    assert first.starts[:, 0].tolist() == [True, False, False, True]
    assert first.truncated[:, 0].tolist() == [False, False, True, False]
    assert not first.terminated.any()
    assert first.valid.all()
    assert (first.elapsed == 1).all()
    # V(x) = 2x: V(3) = 6 after row 2, V(4) = 8 after row 3.
    assert by_index(first) == {2: (3, 6), 3: (4, 8)}
    # Rows 4 5 then the next life: 6 7, open again and truncated later.
    second = collector.collect()["p"]
    assert second.inputs["x"][:, 0, 0].tolist() == [4, 5, 6, 7]
    assert second.terminated[:, 0].tolist() == [False, True, False, False]
    assert second.starts[:, 0].tolist() == [False, False, True, False]
    assert by_index(second) == {3: (8, 16)}
    episodes = collector.take_episodes()
    assert [e.returns for e in episodes] == [(6.0,), (15.0,)]  # 1+2+3, 4+5+6
    collector.close()


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("truncated", [True, False])
def test_life_that_ends_with_the_last_row(kind, truncated):
    collector = collectors([(4, truncated)], critic=double)[kind]
    for first in (0, 4):
        got = collector.collect()["p"]
        assert got.inputs["x"][:, 0, 0].tolist() == [first, first + 1, first + 2, first + 3]
        assert got.starts[:, 0].tolist() == [True, False, False, False]
        assert got.terminated[3, 0] == (not truncated)
        assert got.truncated[3, 0] == truncated
        assert by_index(got) == ({3: (first + 4, 2 * first + 8)} if truncated else {})
    collector.close()


@pytest.mark.parametrize("kind", [0, 1])
def test_pitfalls_ep_09_memory_starts_at_zero_and_is_stored_per_chunk(kind):
    # The memory counts decisions since the start of a life. Lives of 3, chunks of 2, T = 6:
    # counts before each row are 0 1 2 0 1 2, so chunks begin at 0 (row 0), 2 (row 2), 1 (row 4).
    collector = collectors([(3, True)], length=6, counting=True, chunk=2)[kind]
    for _ in range(2):
        got = collector.collect()["p"]
        assert got.recurrent["count"][:, 0, 0].tolist() == [0, 2, 1]
        assert got.bootstrap_recurrent["count"][:, 0].tolist() == [3, 3]
    collector.close()


@pytest.mark.parametrize("kind", [0, 1])
def test_pitfalls_ep_01_and_ep_03_boundaries(kind):
    # Lives of 8 decisions; V = 10 everywhere but V(reset) = 0, discount 0.9; the last act earns 8. From
    # the true final observation the last delta is 8 + 0.9*10 - 10 = 7; terminated it is 8 - 10 = -2.
    def critic(inputs):
        return np.where(inputs["x"] % 8 == 0, np.where(inputs["x"] == 8, 10.0, 0.0), 10.0)

    for truncated, expected in ((True, 7.0), (False, -2.0)):
        collector = collectors([(8, truncated)], length=8, critic=critic)[kind]
        got = collector.collect()["p"]
        following = by_index(got).get(7, (0, 0.0))[1]
        delta = got.rewards[7, 0, 0] + 0.9 * following - got.values[7, 0, 0]
        assert delta == pytest.approx(expected)
        collector.close()


def test_pitfalls_ma_01_reward_paid_while_the_other_moves():
    collector = WaveCollector(Turns, seating("one", "two"), settings(1, 1))
    got = collector.collect()
    one, two = got["one"], got["two"]
    assert one.rewards[:, :, 0].T.tolist()[0] == [5.0]
    assert two.rewards[:, :, 0].T.tolist()[0] == [1.0]
    assert one.terminated.all()
    assert two.terminated.all()
    assert one.inputs["x"][0, 0, 0] == 0
    assert two.inputs["x"][0, 0, 0] == 1
    collector.close()


def test_pitfalls_ma_02_early_death_and_late_joiner():
    collector = WaveCollector(
        DieEarly, seating("agent", role=DieEarly.roles["agent"]), settings(1, 5)
    )
    while not (episodes := collector.take_episodes()):
        collector.collect()
    # Agent 1 lives 3 ticks at 11, agent 0 lives 10 at 1, agent 2 lives from 5 to 10 at 21.
    assert sorted((e.length, e.returns[0]) for e in episodes[:3]) == [(3, 33), (5, 105), (10, 10)]
    collector.close()


def test_pitfalls_ma_03_a_player_that_comes_back_begins_a_new_life():
    class Revive(DieEarly):
        revive = True

    role = DieEarly.roles["agent"]
    collector = WaveCollector(
        Revive, seating("agent", role=role, counting=True), settings(1, 4, chunk=1)
    )
    rows = []
    for _ in range(6):
        got = collector.collect()["agent"]
        for n in range(got.valid.shape[1]):
            rows += zip(got.starts[:, n], got.recurrent["count"][:, n, 0], got.terminated[:, n])
    episodes = collector.take_episodes()[:4]
    assert sorted((e.length, e.returns[0]) for e in episodes) == [
        (3, 33),
        (4, 44),
        (5, 105),
        (10, 10),
    ]
    assert all((count == 0) == start for start, count, _ in rows)  # memory is never inherited
    collector.close()


def test_pitfalls_ma_14_rewards_do_not_leak_into_the_next_life():
    class Team(TickGame):
        roles = {"a": Role(ROLE.inputs, ROLE.actions, seats=2)}

        def begin(self, rng, roles):
            return [("a", "0"), ("a", "1")]

        def view(self, player):
            return Observation({"x": np.array([self.ticks], np.float32)})

        def tick(self, actions):
            if self.ticks == 4:
                for player, controller in self.controllers.items():
                    if controller.alive:
                        self.reward(player, 1.0)
                self.finish_all()
                self.reward("0", 0.0)

    collector = WaveCollector(Team, seating("a", role=Team.roles["a"]), settings(1, 5))
    got = [collector.collect()["a"] for _ in range(2)]
    for trajectory in got:
        assert trajectory.rewards[:, :, 0].T.tolist() == [[0, 0, 0, 0, 1]] * 2
    assert {e.returns for e in collector.take_episodes()} == {(1.0,)}
    collector.close()


def test_different_decision_rates():
    class Rates(TickGame):
        """``slow`` decides every third tick; everybody earns 1 per tick."""

        roles = {"fast": ROLE, "slow": ROLE}

        def begin(self, rng, roles):
            return [("fast", "f"), ("slow", "s")]

        def deciders(self):
            return ["f", "s"] if self.ticks % 3 == 0 else ["f"]

        def view(self, player):
            return Observation({"x": np.array([self.ticks], np.float32)})

        def tick(self, actions):
            self.reward("f", 1.0)
            self.reward("s", 1.0)
            if self.ticks == 8:
                self.finish_all()

    collector = WaveCollector(Rates, seating("fast", "slow"), settings(1, 3))
    slow = fast = None
    while slow is None or fast is None:
        got = collector.collect()
        slow, fast = slow or got.get("slow"), fast or got.get("fast")
    assert slow.rewards[:, 0, 0].tolist() == [3, 3, 3]
    assert slow.inputs["x"][:, 0, 0].tolist() == [0, 3, 6]
    assert slow.terminated[:, 0].tolist() == [False, False, True]
    assert fast.rewards[:, 0, 0].tolist() == [1, 1, 1]
    collector.close()


@direct
async def every_third(controller, seat):
    """Decide by policy at acts 0, 3, 6 ...; the two acts between are scripted."""
    seat.begin(await controller.ready())
    step = 0
    while controller.alive:
        if step % 3 == 0:
            action = await seat.decide(controller.observe())
        else:
            action = {"a": 0}
        seat.reward(await controller.act(action))
        step += 1


def test_scripted_decisions_are_absent_and_discounted():
    # Lives of 7 acts paid 1..7, discount 0.9. Rows: acts 0, 3, 6.
    # r0 = 1 + .9*2 + .81*3 = 5.23, r1 = 4 + .9*5 + .81*6 = 13.36, r2 = 7; elapsed 3 3 1.
    collector = WaveCollector(
        lambda: Lives([(7, False)]), seating("p"), settings(1, 3), players={"p": every_third}
    )
    got = collector.collect()["p"]
    assert got.rewards[:, 0, 0] == pytest.approx([5.23, 13.36, 7.0])
    assert got.elapsed[:, 0].tolist() == [3, 3, 1]
    assert got.terminated[:, 0].tolist() == [False, False, True]
    # The same return as without skipping: sum of .9^k * (k+1), k = 0..6.
    value = 0.0
    for t in (2, 1, 0):
        value = got.rewards[t, 0, 0] + 0.9 ** got.elapsed[t, 0] * value
    assert value == pytest.approx(sum(0.9**k * (k + 1) for k in range(7)))
    assert collector.take_episodes()[0].returns == (28.0,)
    collector.close()


def test_scripted_opening_counts_in_the_return_only():
    @direct
    async def scripted_opening(controller, seat):
        for _ in range(2):
            seat.reward(await controller.act({"a": 1}))
        await train(controller, seat)

    collector = WaveCollector(
        lambda: Lives([(4, False)]), seating("p"), settings(1, 2), players={"p": scripted_opening}
    )
    got = collector.collect()["p"]
    assert got.rewards[:, 0, 0].tolist() == [3, 4]
    assert got.starts[:, 0].tolist() == [True, False]
    assert collector.take_episodes()[0].returns == (10.0,)
    collector.close()


def test_data_skipping_marks_rows_invalid():
    @direct
    async def skip_odd(controller, seat):
        await controller.ready()
        step = 0
        while controller.alive:
            action = await seat.decide(controller.observe(), learn=step % 2 == 0)
            seat.reward(await controller.act(action))
            step += 1

    collector = WaveCollector(
        lambda: Lives([(4, False)]), seating("p"), settings(1, 4), players={"p": skip_odd}
    )
    got = collector.collect()["p"]
    assert got.valid[:, 0].tolist() == [True, False, True, False]
    assert got.rewards[:, 0, 0].tolist() == [1, 2, 3, 4]
    assert got.num_decisions == 2
    collector.close()


def test_a_decision_nobody_acts_on_is_not_learned_from():
    @direct
    async def think_twice(controller, seat):
        while controller.alive:
            await seat.decide(controller.observe())
            seat.reward(await controller.act(await seat.decide(controller.observe())))

    collector = WaveCollector(
        lambda: Lives([(2, False)]), seating("p"), settings(1, 4), players={"p": think_twice}
    )
    got = collector.collect()["p"]
    assert got.valid[:, 0].tolist() == [False, True, False, True]
    assert got.elapsed[:, 0].tolist() == [0, 1, 0, 1]
    assert got.rewards[:, 0, 0].tolist() == [0, 1, 0, 2]
    collector.close()


plans = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=6)


@hypothesis_settings(max_examples=40, deadline=None)
@given(plan=plans, length=st.integers(1, 7), num_games=st.integers(1, 3))
def test_waves_and_batches_give_the_same_data(plan, length, num_games):
    wave, batch = collectors(plan, num_games, length, critic=double, counting=True, chunk=2)
    columns = {n: [] for n in range(num_games)}
    for _ in range(4):
        one, other = wave.collect()["p"], batch.collect()["p"]
        assert one.valid.shape == (length, num_games)
        for field in ("rewards", "values", "terminated", "truncated", "starts", "valid", "elapsed"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field), field)
        np.testing.assert_array_equal(one.inputs["x"], other.inputs["x"])
        np.testing.assert_array_equal(one.recurrent["count"], other.recurrent["count"])
        assert by_index(one) == by_index(other)
        for n in range(num_games):
            columns[n] += one.inputs["x"][:, n, 0].tolist()
    for seen in columns.values():  # every decision of the seat, in order, none lost or doubled
        assert seen == list(range(4 * length))
    assert wave.num_decisions >= batch.num_decisions == 4 * length * num_games
    wave.close()


def test_pitfalls_env_01_aliasing():
    class Alias(Count):
        def begin(self, rng, roles):
            self.array = np.zeros(1, np.float32)
            return super().begin(rng, roles)

        def view(self, player):
            self.array[0] = self.ticks
            return Observation({"x": self.array})

    collector = WaveCollector(lambda: Alias(10, "truncated"), seating("p"), settings(1, 10))
    got = collector.collect()["p"]
    assert got.inputs["x"][:, 0, 0].tolist() == list(range(10))
    assert got.bootstrap_inputs["x"].tolist() == [[10.0]]
    collector.close()


def test_store_grows_when_more_players_join_than_the_role_has_seats():
    class Crowd(TickGame):
        roles = {"p": ROLE}

        def begin(self, rng, roles):
            return [("p", str(n)) for n in range(40)]

        def view(self, player):
            return Observation({"x": np.array([100 * int(player) + self.ticks], np.float32)})

        def tick(self, actions):
            if self.ticks == 6:
                self.finish_all()

    collector = WaveCollector(Crowd, seating("p"), settings(1, 7))
    got = collector.collect()["p"]
    expected = {tuple(100 * n + t for t in range(7)) for n in range(40)}
    assert {tuple(c) for c in got.inputs["x"][:, :, 0].T.tolist()} <= expected
    collector.close()


def test_restart_drops_unfinished_experience_and_is_repeatable():
    def rows(collector):
        return [collector.collect()["p"] for _ in range(3)]

    role = Role({"x": Input((1,))}, {"a": Discrete(5)})

    class Wide(Count):
        roles = {"p": role}

    def make():
        return WaveCollector(lambda: Wide(5), seating("p", role=role), settings(3, 4))

    one = make()
    rows(one)
    data, arrays = one.state()
    after = rows(one)
    two = make()
    two.load_state(data, arrays)
    for a, b in zip(after, rows(two)):
        np.testing.assert_array_equal(a.actions["a"], b.actions["a"])
        np.testing.assert_array_equal(a.inputs["x"], b.inputs["x"])
    one.close()
    two.close()


def test_wrong_shape_names_key_shapes_player_and_seed():
    class Wrong(Count):
        def view(self, player):
            return Observation({"x": np.zeros((4, 1) if self.ticks == 3 else (1,), np.float32)})

    collector = WaveCollector(Wrong, seating("p"), settings(1, 100))
    with pytest.raises(
        GameError, match=r"Wrong \(seed \d+\), player 'p'.*decision 3.*'x'.*\(1,\).*\(4, 1\)"
    ):
        collector.collect()
    collector.close()


def test_opponents_are_labelled_alike_in_both_views():
    policy = UniformPolicy(ROLE)
    seats = Seating({"one": policy}, {"one": "one", "two": "one"})
    collector = WaveCollector(Turns, seats, settings(1, 1))
    collector.collect()
    collector.collect()
    assert (
        {e.opponent for e in collector.take_episodes()} == {"self"} == {seats.opponent_name("one")}
    )
    collector.close()


def test_a_question_nobody_waited_for_costs_no_reward():
    @direct
    async def hesitates(controller, seat):
        while controller.alive:
            seat.decide(controller.observe())
            seat.reward(await controller.act(await seat.decide(controller.observe())))

    collector = WaveCollector(
        lambda: Lives([(4, False)]), seating("p"), settings(1, 4), players={"p": hesitates}
    )
    for first in (0, 4):
        got = collector.collect()["p"]
        assert got.valid.all()
        assert got.inputs["x"][:, 0, 0].tolist() == [first, first + 1, first + 2, first + 3]
        assert got.rewards[:, 0, 0].tolist() == [first + 1, first + 2, first + 3, first + 4]
        assert (got.elapsed == 1).all()
    collector.close()


def test_several_heads_inputs_masks_and_central_state():
    # Acts are paid (n, 2n), n = 1..7; decisions at acts 0, 3, 6; discounts 0.9 and 0.5.
    # Head 0: 1 + .9*2 + .81*3 = 5.23, 4 + .9*5 + .81*6 = 13.36, 7.
    # Head 1: 2 + .5*4 + .25*6 = 5.5, 8 + .5*10 + .25*12 = 16, 14.
    role = Role(
        inputs={"x": Input((1,)), "y": Input((2,))},
        actions={"a": Discrete(2), "b": Discrete(3)},
        rewards=("one", "two"),
        state={"s": Input((1,))},
        masked=("b",),
    )

    class Rich(Lives):
        roles = {"p": role}

        def view(self, player):
            n = float(self.seen)
            return Observation(
                {"y": np.array([n, -n], np.float32), "x": np.array([n], np.float32)},
                {"b": np.array([False, True, False])},
                {"s": np.array([10 * n], np.float32)},
            )

        def tick(self, actions):
            if isinstance(actions["p"], dict) and "b" in actions["p"]:
                assert actions["p"]["b"] in (0, 1)
            super().tick(actions)
            self.reward("p", 2.0 * self.seen, 1)

    options = CollectorSettings(1, 3, lambda role: (0.9, 0.5), 3)
    collector = WaveCollector(
        lambda: Rich([(7, False)]), seating("p", role=role), options, players={"p": every_third}
    )
    got = collector.collect()["p"]
    assert got.rewards[:, 0, 0] == pytest.approx([5.23, 13.36, 7.0])
    assert got.rewards[:, 0, 1] == pytest.approx([5.5, 16.0, 14.0])
    assert got.inputs["y"][:, 0].tolist() == [[0, 0], [3, -3], [6, -6]]
    assert got.state["s"][:, 0, 0].tolist() == [0, 30, 60]
    assert got.legal["b"][:, 0].tolist() == [[False, True, False]] * 3
    assert got.actions["b"][:, 0].tolist() == [1, 1, 1]
    assert collector.take_episodes()[0].returns == (28.0, 56.0)
    collector.close()


def test_a_missing_input_is_named():
    class Lacks(Count):
        def view(self, player):
            return Observation({"z": np.zeros(1, np.float32)})

    collector = WaveCollector(Lacks, seating("p"), settings(1, 4))
    with pytest.raises(GameError, match="decision 0: observation has no input 'x'"):
        collector.collect()
    collector.close()

"""Evaluations count the lives they promise, and repeat exactly."""

from __future__ import annotations

import json

import numpy as np
import pytest
from mdp_toys import CountBatch, Lives, seating, settings

from lamarckian.errors import GameError
from lamarckian.mdp.batch_view import BatchAsMDP
from lamarckian.mdp.collector import Seating
from lamarckian.mdp.evaluation import evaluate, record_replay, summarise
from lamarckian.mdp.games.pong import Pong
from lamarckian.mdp.trajectory import EpisodeRecord
from lamarckian.mdp.vectorised import BatchCollector
from lamarckian.mdp.wave_collector import WaveCollector
from lamarckian.testing.policies import UniformPolicy

PLAN = [(2, False), (6, True)]


def games(batch, plan, num):
    return CountBatch(num, plan) if batch else [Lives(plan) for _ in range(num)]


def test_short_lives_are_not_favoured():
    # Each row lives 2, 6, 2, 6, ...: eight lives over four rows are the first two of each row,
    # mean length (2 + 6) / 2 = 4, returns 1+2 = 3 and 3+..+8 = 33.
    result = evaluate(games(True, PLAN, 4), seating("p"), num_episodes=8, seed=1)
    assert [e.length for e in result.episodes] == [2, 2, 2, 2, 6, 6, 6, 6]
    assert result.metrics()["return_mean"] == 18.0
    # Half-width: 1.96 * sqrt(8 * 15^2 / 7 / 8) = 1.96 * 15 / sqrt(7) = 11.112
    assert result.interval() == pytest.approx((18 - 11.112, 18 + 11.112), abs=1e-3)


def test_matches_played_by_coroutines_are_all_counted():
    result = evaluate(games(False, [(4, True)], 3), seating("p"), num_episodes=7, seed=1)
    assert [e.length for e in result.episodes] == [4] * 7
    assert result.num_decisions == 28


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("batch", [True, False])
def test_pitfalls_ck_11_same_seed_same_result(batch, greedy):
    roles = Pong(1).roles
    seats = Seating(
        {"left": UniformPolicy(roles["left"])},
        {"left": "left"},
        {"right": ("rule", Pong.bots["rule"])},
    )

    def once(seed):
        pong = [Pong(1, max_ticks=60) for _ in range(2)]
        game = Pong(4, max_ticks=60) if batch else [BatchAsMDP(one) for one in pong]
        return evaluate(game, seats, num_episodes=3, seed=seed, greedy=greedy)

    one, two = once(5), once(5)
    assert one == two
    assert len(one.episodes) == 3
    assert {e.opponent for e in one.episodes} == {"rule"}


@pytest.mark.parametrize("batch", [True, False])
def test_pitfalls_ep_08_a_game_that_never_ends_is_told(batch):
    with pytest.raises(GameError, match="after 50 decisions; give the game a time limit"):
        evaluate(
            games(batch, [(10**9, False)], 2),
            seating("p"),
            num_episodes=2,
            seed=0,
            max_decisions=50,
        )


def test_summary_by_hand():
    def life(result, score):
        return EpisodeRecord("p", (score * 2,), 3, 3, score=score, result=result)

    summary = summarise([life(1, 1.0), life(0, 0.5), life(-1, 0.0), life(1, 0.5)])
    assert summary["win_rate"] == 0.625  # (2 + 0.5) / 4
    assert summary["score"] == 0.5
    assert summary["return_mean"] == 1.0


@pytest.mark.parametrize("batch", [True, False])
def test_replay_is_json_and_compact(batch):
    roles = Pong(1).roles
    seats = Seating(
        {"left": UniformPolicy(roles["left"])},
        {"left": "left"},
        {"right": ("rule", Pong.bots["rule"])},
    )

    def record():
        game = Pong(1) if batch else [BatchAsMDP(Pong(1))]
        return record_replay(game, seats, seed=3, max_ticks=40)

    frames = record()
    assert len(frames) in (40, 41)
    assert len(json.dumps(frames)) < 40_000
    assert frames == record()


def test_batch_view_plays_the_same_match_as_the_batch():
    plan = [(5, True), (3, False)]
    seats = seating("p", critic=lambda inputs: inputs["x"])
    wave = WaveCollector(lambda: BatchAsMDP(CountBatch(1, plan)), seats, settings(1, 5))
    batch = BatchCollector(CountBatch(1, plan), seats, settings(1, 5))
    one, other = wave.collect()["p"], batch.collect()["p"]
    for name in ("rewards", "terminated", "truncated", "starts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.inputs["x"], other.inputs["x"])
    np.testing.assert_array_equal(one.bootstrap_inputs["x"], other.bootstrap_inputs["x"])
    wave.close()


def test_batch_view_of_pong_equals_the_batch():
    game = Pong(1, max_ticks=120)
    game.reset(np.array([7]))
    rule = Pong.bots["rule"]
    lives, view = [], BatchAsMDP(Pong(1, max_ticks=120))
    rng = np.random.default_rng(0)
    start = view.reset(7)
    with pytest.raises(StopIteration) as stop:
        start.send(None)
    players = {c.role: c for c in stop.value.value}
    for _ in range(130):
        seen = {role: game.observe(role) for role in game.roles}
        for role, controller in players.items():
            for name, array in controller.observe().inputs.items():
                np.testing.assert_array_equal(array, seen[role].inputs[name][0])
        actions = {r: rule(s.inputs, s.legal, rng) for r, s in seen.items()}
        steps = game.step(actions)
        paid = {}
        for role, controller in players.items():
            controller.act({part: array[0] for part, array in actions[role].items()})
        for role, controller in players.items():
            with pytest.raises(StopIteration) as stop:
                next(controller.__await__())
            paid[role] = stop.value.value
        assert paid == {role: steps[role].rewards[0].tolist() for role in players}
        lives.append(all(c.alive for c in players.values()))
        if not lives[-1]:
            assert steps["left"].terminated[0] or steps["left"].truncated[0]
            break

"""Games on a clock: nothing waits for anybody."""

from __future__ import annotations

import asyncio
import multiprocessing
import time

import numpy as np
import pytest
from mdp_toys import ROLE, DieEarly, Duel, seating, settings

from lamarckian.errors import ConfigError
from lamarckian.mdp.batching import Clock, Gate, Scheduler, direct
from lamarckian.mdp.collector import Seating
from lamarckian.mdp.games.duel import Duel as FencingDuel
from lamarckian.mdp.match import Cast, Match
from lamarckian.mdp.realtime import Lateness, RealTime
from lamarckian.mdp.rollout import PolicyWave, train
from lamarckian.mdp.wave_collector import WaveCollector
from lamarckian.testing.policies import UniformPolicy

TICK = 1 / 30


class Long(Duel):
    """300 ticks; remembers what each tick was played with."""

    length = 300
    bots = {"three": lambda inputs, legal, rng: {"a": np.array([3])}}

    def begin(self, rng, roles):
        self.played = []
        return super().begin(rng, roles)

    def tick(self, actions):
        self.played.append({k: v["a"] for k, v in actions.items()})
        super().tick(actions)


def play(game, players, seed=1, clock=None, patience=60.0):
    scheduler = Scheduler(clock=clock or Clock(simulated=True), patience=patience)
    wave = PolicyWave(UniformPolicy(ROLE), np.random.default_rng(0))
    scheduler.waves = [wave]
    results = []
    match = Match(
        game,
        {role: Cast(players.get(role, train), wave) for role in game.roles},
        scheduler,
        name="Long",
        ended=lambda match, result: results.append(result),
    )
    scheduler.watched = [match]
    match.play(seed)
    try:
        scheduler.run(lambda: bool(results))
    finally:
        scheduler.close()
    return results[0]


def thinking(seconds):
    @direct
    async def player(controller, seat):
        seat.begin(await controller.ready())
        while controller.alive:
            await controller.match.clock.sleep(seconds)
            seat.reward(await controller.act({"a": 1}))

    return player


def test_quick_players_are_never_late():
    game = RealTime(Long())
    result = play(game, {})
    assert result.error is None
    assert [e.length for e in result.episodes] == [300, 300]
    assert (game.lateness.ticks, game.lateness.late, game.lateness.decisions) == (300, 0, 600)
    assert game.lateness.max_ms == 0.0


def test_fifty_milliseconds_are_late_on_every_thirty_three():
    # Due at tick k, acts 50 ms later: tick k+1 has passed, the action counts at k+2. 300 ticks hold 150
    # decisions, each late, each 50 ms.
    game = RealTime(Long(), late="idle")
    result = play(game, {"blue": thinking(0.05)})
    blue = next(e for e in result.episodes if e.role == "blue")
    assert blue.length == 150
    assert blue.returns == (150.0,)  # idle ticks bring no action, and this game pays for actions
    assert game.lateness.late == 150
    assert game.lateness.late_share == 150 / 450
    assert game.lateness.max_ms == pytest.approx(50.0)
    assert game.lateness.ticks == 300


@pytest.mark.parametrize(("late", "substitute"), [("repeat", 1), ("scripted", 3), ("idle", None)])
def test_late_policies(late, substitute):
    inner = Long()
    play(RealTime(inner, late={"blue": late}), {"blue": thinking(0.05)})
    got = [tick.get("b") for tick in inner.played]
    assert got[1::2] == [1] * 150
    assert got[2::2] == [substitute] * 149


def test_the_tick_count_is_unaffected_by_a_five_second_stall():
    @direct
    async def stalls(controller, seat):
        await controller.match.clock.sleep(5.0)
        await train(controller, seat)

    game = RealTime(Long(), offline_after=2.0)
    result = play(game, {"blue": stalls})
    assert game.lateness.ticks == 300
    red, blue = sorted(result.episodes, key=lambda e: e.role, reverse=True)
    assert red.length == 300
    assert blue.length == 150  # came back after 5 s = 150 ticks
    assert not blue.offline
    assert game.lateness.offline == 1


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_silent_player_is_offline_and_the_match_ends(by_hand):
    async def silent(controller, seat):
        await (Gate() if by_hand else asyncio.Event().wait())

    if by_hand:
        game, clock, player = RealTime(Long(), offline_after=1.0), None, direct(silent)
    else:  # simulated time stands still while a task is busy elsewhere: the wall's clock, at 500 Hz
        game, clock, player = RealTime(Long(), hertz=500, offline_after=0.05), Clock(), silent
    result = play(game, {"blue": player}, clock=clock, patience=0.4)
    assert result.error is None
    assert game.lateness.ticks == 300
    assert game.lateness.offline >= 1
    red, blue = sorted(result.episodes, key=lambda e: e.role, reverse=True)
    assert (blue.length, blue.offline) == (0, True)
    assert not red.offline
    if by_hand:
        assert red.length == 300


def test_a_late_joiner_plays_from_the_next_tick_on():
    # Agent 1 lives 3 ticks at 11, agent 0 lives 10 at 1, agent 2 joins after tick 5 and lives 5 at 21.
    game = RealTime(DieEarly())
    result = play(game, {})
    assert result.error is None
    lives = sorted((e.length, e.returns[0], e.offline) for e in result.episodes)
    assert lives == [(3, 33, False), (5, 105, False), (10, 10, False)]
    assert (game.lateness.ticks, game.lateness.late, game.lateness.decisions) == (10, 0, 18)


def test_what_a_tick_raises_fails_the_match():
    class Breaks(Long):
        def tick(self, actions):
            if self.ticks == 5:
                raise ZeroDivisionError("tick five")
            super().tick(actions)

    result = play(RealTime(Breaks()), {})
    assert "ZeroDivisionError: tick five" in str(result.error)


def test_same_seed_same_match():
    one, two = Long(), Long()
    for game in (one, two):
        play(RealTime(game), {"blue": thinking(0.045)})
    assert one.played == two.played


def test_plain_asyncio_program():
    async def program():
        game = RealTime(Duel(), hertz=200)
        # The clock runs from the reset on; ticks that come late on a busy machine catch up with it.
        start = time.monotonic()
        red, blue = await game.reset(3)

        async def human(controller):
            paid = 0.0
            while controller.alive:
                await asyncio.sleep(0.001)
                paid += sum(await controller.act({"a": 1}))
            return paid

        paid = await asyncio.wait_for(asyncio.gather(human(red), human(blue)), 10.0)
        game.close()
        assert time.monotonic() - start >= 0.04
        assert game.lateness.ticks == 10
        assert max(paid) <= 10.0

    asyncio.run(program())


def test_training_a_real_time_duel_through_the_collector():
    role = FencingDuel().roles["red"]
    policy = UniformPolicy(role)
    seats = Seating({"red": policy}, {"red": "red", "blue": "red"})
    collector = WaveCollector(
        lambda: RealTime(FencingDuel(max_ticks=60)),
        seats,
        settings(4, 16),
        clock=Clock(simulated=True),
    )
    start = time.monotonic()
    for _ in range(6):
        got = collector.collect()["red"]
        assert got.valid.all()
        assert np.isfinite(got.rewards).all()
    assert time.monotonic() - start < 10.0
    assert collector.num_failed == 0
    assert collector.take_episodes()
    collector.close()


def test_lateness_adds_up():
    one, two = Lateness(), Lateness()
    for ms in (0.5, 3.0, 40.0):
        one.add(ms / 1000, ms > 33)
    two.add(6.0, True)
    one.merge(two)
    assert one.counts[0] == one.counts[2] == one.counts[6] == one.counts[-1] == 1
    assert one.percentile(0.5) == 5.0
    assert one.percentile(0.99) == 6000.0
    assert one.late_share == 0.5
    assert one.to_json()["max_ms"] == 6000.0


def test_wrong_settings_are_named():
    with pytest.raises(ConfigError, match="no role 'bleu'; did you mean 'blue'"):
        RealTime(Duel(), late={"bleu": "idle"})
    with pytest.raises(ConfigError, match="hertz"):
        RealTime(Duel(), hertz=0)
    with pytest.raises(ConfigError, match="no bot"):
        RealTime(Duel(), late="scripted")


def busy(seconds):
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        np.ones(1000).sum()


def lateness_beside_a_busy_learner():
    learner = multiprocessing.get_context("spawn").Process(target=busy, args=(2.0,))
    games = []

    def make():
        games.append(RealTime(Long()))
        return games[-1]

    collector = WaveCollector(make, seating("red", "blue"), settings(2, 16), clock=Clock())
    learner.start()
    start = time.monotonic()
    while time.monotonic() - start < 2.0:
        collector.collect()
    learner.join()
    collector.close()
    total = Lateness()
    for game in games:
        total.merge(game.lateness)
    assert total.decisions > 100
    return total.percentile(0.99)


def test_pitfalls_asy_05_a_busy_learner_does_not_delay_decisions():
    # Three tries: other programs of the machine may take a tick away, a learner that blocks takes all.
    assert any(lateness_beside_a_busy_learner() < 33.0 for _ in range(3))

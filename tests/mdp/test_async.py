"""Players that hang, raise, come late or use asyncio as they like."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from mdp_toys import ROLE, Count, Duel, Slow, seating, settings, view

from lamarckian.errors import GameError
from lamarckian.mdp.batching import Gate, Scheduler, direct
from lamarckian.mdp.core import MDP
from lamarckian.mdp.match import Cast, Match
from lamarckian.mdp.rollout import PolicyWave, train
from lamarckian.mdp.wave_collector import WaveCollector
from lamarckian.testing.policies import UniformPolicy


def play(mdp, players, *, patience=60.0, learns=(), num=1):
    """Play one match of each of ``mdp`` (a list) and return (results by index, scheduler)."""
    games = mdp if isinstance(mdp, list) else [mdp]
    scheduler = Scheduler(patience=patience)
    wave = PolicyWave(UniformPolicy(ROLE), np.random.default_rng(0))
    scheduler.waves = [wave]
    results = {}
    matches = []
    for n, game in enumerate(games):
        cast = {role: Cast(players.get(role, train), wave) for role in game.roles}
        name = f"{type(game).__name__}{n}"
        matches.append(
            Match(
                game, cast, scheduler, name=name, ended=lambda m, r, n=n: results.setdefault(n, r)
            )
        )
    scheduler.watched = list(matches)
    for n, match in enumerate(matches):
        match.play(seed=n + 11)
    try:
        scheduler.run(lambda: len(results) == len(games))
    finally:
        scheduler.close()
        for match in matches:
            match.stop()
    return results


def rounds():
    for _ in range(3):
        collector = WaveCollector(lambda: Count(5), seating("p"), settings(2, 4))
        assert collector.collect()["p"].valid.all()
        collector.close()
        collector.close()
        collector = WaveCollector(Slow, seating("p"), settings(2, 4))
        assert collector.collect()["p"].valid.all()
        collector.close()


def test_pitfalls_asy_01_three_rounds_in_one_process():
    rounds()


def test_pitfalls_asy_01_inside_a_running_loop():
    async def notebook():
        rounds()

    asyncio.run(notebook())


@direct
async def stops_at_five(controller, seat):
    for _ in range(5):
        seat.reward(await controller.act(await seat.decide(controller.observe())))


@direct
async def hangs_at_five(controller, seat):
    await stops_at_five(controller, seat)
    await Gate()


async def hangs_in_asyncio(controller, seat):
    await stops_at_five(controller, seat)
    await asyncio.Event().wait()


@pytest.mark.parametrize("player", [stops_at_five, hangs_at_five, hangs_in_asyncio])
def test_pitfalls_asy_04_the_other_player_finishes(player):
    result = play(Duel(), {"blue": player}, patience=0.2)[0]
    assert result.error is None
    assert result.num_offline == 1
    episodes = {e.role: e for e in result.episodes}
    assert (episodes["red"].length, episodes["red"].offline) == (10, False)
    assert (episodes["blue"].length, episodes["blue"].offline) == (5, True)


def test_pitfalls_asy_06_a_slow_reset_blocks_nobody():
    made = iter([1.0, *[0.0] * 7])
    collector = WaveCollector(
        lambda: Slow(next(made)), seating("p"), settings(8, 10), max_wait=0.0005
    )
    start = time.monotonic()
    while len(collector.take_episodes()) < 7 and collector.num_decisions < 700:
        collector.collect()
    assert time.monotonic() - start < 0.9
    assert collector.num_failed == 0
    collector.close()


def test_pitfalls_asy_07_a_partial_wave_is_served():
    scheduler = Scheduler(max_wait=0.005)
    wave = PolicyWave(UniformPolicy(ROLE), np.random.default_rng(0), max_size=8)
    scheduler.waves = [wave]
    ended = []

    async def outsider(controller, seat):
        await asyncio.sleep(5.0)

    match = Match(
        Duel(),
        {"red": Cast(train, wave), "blue": Cast(train, wave)},
        scheduler,
        name="Duel",
        ended=lambda match, result: ended.append(result),
    )
    match.play(1)
    waiting = scheduler.start(outsider(None, None), lambda error: None, by_hand=False)
    start = time.monotonic()
    scheduler.run(lambda: bool(ended))
    assert time.monotonic() - start < 2.0
    assert wave.num_waves == 10
    assert wave.num_decisions == 20
    waiting.stop()
    scheduler.close()


def test_a_wave_closes_at_once_when_all_tasks_wait_for_it():
    async def ordinary(controller, seat):  # not marked direct: an asyncio task
        await train(controller, seat)

    start = time.monotonic()
    scheduler_results = play([Duel() for _ in range(20)], {"red": ordinary, "blue": ordinary})
    assert all(r.error is None for r in scheduler_results.values())
    assert time.monotonic() - start < 1.0


def test_wave_closes_on_size():
    collector = WaveCollector(lambda: Count(5), seating("p"), settings(10, 4))
    wave = collector._waves["p"]
    wave.max_size = 4
    sizes = []
    act = wave.policy.act
    wave.policy.act = lambda inputs, *rest: (sizes.append(len(inputs["x"])), act(inputs, *rest))[1]
    collector.collect()
    assert max(sizes) == 4
    collector.close()


async def sleeper(controller, seat):
    while controller.alive:
        await asyncio.sleep(0.001)
        async with asyncio.timeout(5.0):
            action = await seat.decide(controller.observe())
        seat.reward(await asyncio.wait_for(controller.act(action), 5.0))


def test_ordinary_asyncio_players():
    result = play(Duel(), {"blue": sleeper})[0]
    assert result.error is None
    assert [e.length for e in result.episodes] == [10, 10]


def test_a_timeout_around_a_gate_is_raised_in_the_player():
    caught = []

    async def impatient(controller, seat):
        try:
            async with asyncio.timeout(0.01):
                await Gate()
        except TimeoutError:
            caught.append(True)
        await train(controller, seat)

    result = play(Duel(), {"blue": impatient})[0]
    assert caught == [True]
    assert result.error is None


def test_hand_stepped_players_may_use_asyncio_after_all():
    @direct
    async def mixed(controller, seat):
        while controller.alive:
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            seat.reward(await controller.act(await seat.decide(controller.observe())))

    assert play(Duel(), {"blue": mixed})[0].error is None


@pytest.mark.parametrize("by_hand", [True, False])
def test_pitfalls_asy_09_an_exception_fails_its_match_only(by_hand):
    cancelled = []

    async def raises(controller, seat):
        for _ in range(3):
            seat.reward(await controller.act(await seat.decide(controller.observe())))
        if seat.controller.game.number == 1:
            raise RuntimeError("boom at three")
        await train(controller, seat)

    async def sibling(controller, seat):
        try:
            await train(controller, seat)
        except (GeneratorExit, asyncio.CancelledError):
            cancelled.append(controller.game.number)
            raise

    if by_hand:
        raises, sibling = direct(raises), direct(sibling)
    games = [Duel() for _ in range(3)]
    for number, game in enumerate(games):
        game.number = number
    results = play(games, {"red": raises, "blue": sibling})
    error = results[1].error
    assert isinstance(error, GameError)
    assert "Duel1 (seed 12), player 'r': RuntimeError: boom at three" in str(error)
    assert error.__cause__.__traceback__ is not None
    assert cancelled == [1]
    for n in (0, 2):
        assert results[n].error is None
        assert [e.length for e in results[n].episodes] == [10, 10]


def test_pitfalls_asy_09_repeated_failures_stop_with_the_first_error():
    count = [0]

    class Breaks(Count):
        def tick(self, actions):
            count[0] += 1
            raise ValueError(f"broken {count[0]}")

    collector = WaveCollector(Breaks, seating("p"), settings(1, 4))
    with pytest.raises(GameError, match="broken 1"):
        collector.collect()
    assert collector.num_failed == 5
    collector.close()


def test_a_failing_match_among_good_ones_is_counted_and_replaced():
    made = iter(range(100))

    class Sometimes(Count):
        def __init__(self):
            super().__init__(5)
            self.number, self.matches = next(made), 0

        def begin(self, rng, roles):
            self.matches += 1
            return super().begin(rng, roles)

        def tick(self, actions):
            super().tick(actions)
            if self.number == 0 and self.matches % 2 and self.ticks == 2:
                raise ValueError("now and then")

    collector = WaveCollector(Sometimes, seating("p"), settings(3, 4))
    for _ in range(5):
        got = collector.collect()["p"]
        assert got.valid.all()
        # Whatever a failed match recorded is gone: every life in the data is whole and in order.
        assert np.isin(np.diff(got.inputs["x"][:, :, 0], axis=0), (1, -4)).all()
    assert collector.num_failed > 1
    collector.close()


def test_a_reset_that_never_returns_is_named():
    class Deaf(MDP):
        roles = {"p": ROLE}

        async def reset(self, seed, roles=None):
            await asyncio.Event().wait()

    assert "reset()" in str(play(Deaf(), {}, patience=0.1)[0].error)


def test_a_game_that_never_resumes_anybody_is_named():
    class Holds(Duel):
        def advance(self):
            pass

    result = play(Holds(), {})[0]
    assert "does not return from act() while b, r waited" in str(result.error)


def test_wrong_number_of_rewards_is_named():
    class Two(Slow):
        async def reset(self, seed, roles=None):
            (controller,) = await super().reset(seed, roles)

            async def act(action):
                return [1.0, 2.0]

            controller.act = act
            return [controller]

    result = play(Two(), {})[0]
    assert "expected 1 rewards" in str(result.error)


def test_acting_out_of_turn_is_refused():
    @direct
    async def hasty(controller, seat):
        controller.act({"a": 0})
        controller.act({"a": 0})

    result = play(Duel(), {"red": hasty})[0]
    assert "acted when it was not awaited" in str(result.error)


def test_sim_clock_jumps():
    from lamarckian.mdp.batching import Clock

    clock = Clock(simulated=True)
    scheduler = Scheduler(clock=clock)
    log = []

    @direct
    async def waits(seconds):
        await clock.sleep(seconds)
        log.append((seconds, clock.now()))

    for seconds in (30.0, 10.0, 20.0):
        scheduler.start(waits(seconds), lambda error: None, by_hand=True)
    start = time.monotonic()
    scheduler.run(lambda: len(log) == 3)
    assert time.monotonic() - start < 1.0
    assert log == [(10.0, 10.0), (20.0, 20.0), (30.0, 30.0)]
    scheduler.close()
    assert view(1).inputs["x"] == [1]

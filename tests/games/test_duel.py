from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from lamarckian.errors import ConfigError
from lamarckian.mdp.games import Duel
from lamarckian.mdp.games.duel import ADVANCE, LUNGE, PARRY, RETREAT, WAIT, fencer, random

from .play import Recorder, scripted


def play(red: list[int], blue: list[int], **options: Any) -> tuple[Duel, Recorder]:
    game = Duel(**options)
    recorder = Recorder(game)
    result = recorder.play({"red": scripted("move", red), "blue": scripted("move", blue)})
    assert result.error is None
    return game, recorder


def total(recorder: Recorder, player: str) -> float:
    return sum(rewards[0] for *_, rewards in recorder.life(player))


def test_a_lunge_in_reach_is_a_touch() -> None:
    # the gap is 14 - 8 = 6; eight advances of 0.5 leave 2.0, in reach; the ninth move touches
    _, recorder = play([ADVANCE] * 8 + [LUNGE], [WAIT], touches=1)
    assert len(recorder.life("red")) == 9
    assert total(recorder, "red") == 1.0
    assert total(recorder, "blue") == -1.0
    records = {record.role: record for record in recorder.results[0].episodes}
    assert (records["red"].score, records["red"].result) == (1.0, 1)
    assert records["red"].statistics == {"touches": 1.0, "activeness": 1 / 9}


def test_out_of_reach_nothing_happens() -> None:
    _, recorder = play([ADVANCE] * 7 + [LUNGE, WAIT], [WAIT], touches=1, max_ticks=20)
    assert total(recorder, "red") == 0.0
    # eight decisions, then three ticks of recovery, then the other nine ticks: 8 + 9 = 17
    assert len(recorder.life("red")) == 17
    assert len(recorder.life("blue")) == 20


def test_a_parry_costs_the_attacker_twice_the_recovery() -> None:
    _, recorder = play([ADVANCE] * 8 + [LUNGE, WAIT], [WAIT] * 8 + [PARRY, WAIT], max_ticks=20)
    assert total(recorder, "red") == 0.0
    assert len(recorder.life("red")) == 9 + (20 - 9 - 6)
    # what blue sees after the parry: an enemy that recovers for 6 more ticks
    assert recorder.life("blue")[9][0].inputs["state"][3] == 1.0


def test_touches_at_the_same_tick_cancel_out() -> None:
    _, recorder = play([ADVANCE] * 4 + [LUNGE, WAIT], [ADVANCE] * 4 + [LUNGE, WAIT], max_ticks=9)
    assert total(recorder, "red") == total(recorder, "blue") == 0.0


def test_nobody_walks_off_the_piste_or_through_the_other() -> None:
    game, _ = play([RETREAT], [ADVANCE], max_ticks=60)
    assert game._walked == [0.0, 14.0]


def test_it_is_zero_sum_and_ends() -> None:
    for seed in range(5):
        recorder = Recorder(Duel())
        result = recorder.play({"red": fencer, "blue": random}, seed)
        assert result.error is None
        assert total(recorder, "red") + total(recorder, "blue") == 0.0
        assert sum(record.score or 0.0 for record in result.episodes) == pytest.approx(1.0)


def test_the_fencer_beats_random_play() -> None:
    wins = 0
    for seed in range(10):
        result = Recorder(Duel()).play({"red": fencer, "blue": random}, seed)
        wins += sum(record.result or 0 for record in result.episodes if record.role == "red")
    assert wins >= 8


@pytest.mark.parametrize("late", ["repeat", "idle", "scripted"])
@pytest.mark.parametrize("gone", ["red", "blue"])
def test_pitfalls_asy_04_the_bout_goes_on_without_a_player(late: Any, gone: str) -> None:
    game = Duel(late=late, max_ticks=100)
    recorder = Recorder(game)
    result = recorder.play({"red": fencer, "blue": fencer}, quits={gone: 5})
    assert result.error is None
    assert result.num_offline == 1
    assert len(recorder.life(gone)) == 5
    stayed = next(record for record in result.episodes if record.role != gone)
    assert not stayed.offline
    assert stayed.score is not None
    assert next(record for record in result.episodes if record.role == gone).offline


def test_late_policies() -> None:
    game = Duel(late="scripted")
    game._set_up()
    assert game._substitute(0) == RETREAT
    game._walked = [6.0, 6.5]
    assert game._substitute(0) == PARRY
    game.late = "repeat"
    game._last = [LUNGE, WAIT]
    assert game._substitute(0) == LUNGE
    game.late = "idle"
    assert game._substitute(0) == WAIT
    with pytest.raises(ConfigError, match="late"):
        Duel(late="never")  # type: ignore[arg-type]


def test_one_role_may_play_alone() -> None:
    recorder = Recorder(Duel(touches=1))
    result = recorder.play({"red": scripted("move", [ADVANCE] * 8 + [LUNGE])})
    assert result.error is None
    assert total(recorder, "red") == 1.0


def test_both_sides_see_the_same_from_their_own_end() -> None:
    game, _ = play([ADVANCE, WAIT], [RETREAT, PARRY], max_ticks=2)
    # red walked 4.5, blue 3.5; the gap is 6; no time is left
    expected = [4.5 / 14, 6 / 14, 0, 0, 1, 0, 0, 0]
    np.testing.assert_allclose(game.view("red").inputs["state"], expected, atol=1e-6)
    expected = [3.5 / 14, 6 / 14, 0, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(game.view("blue").inputs["state"], expected, atol=1e-6)
    frame = game.frame()
    assert json.loads(json.dumps(frame)) == frame


def test_the_catalogue_puts_the_duel_on_the_clock() -> None:
    from lamarckian.mdp.catalogue import make_mdp
    from lamarckian.mdp.realtime import RealTime

    waiting, running = make_mdp("duel"), make_mdp("duel?real_time=true&hertz=50&touches=2")
    assert isinstance(running, RealTime)
    assert not isinstance(waiting, RealTime)
    assert running.period == 1 / 50
    assert list(running.bots) == list(waiting.bots)
    assert dict(running.roles) == dict(waiting.roles)

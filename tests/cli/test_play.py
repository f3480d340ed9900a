"""Watching matches: who plays, what is shown, what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamarckian.cli.main import main
from lamarckian.cli.play import Table, choose_sides
from lamarckian.mdp import catalogue
from lamarckian.mdp.core import Discrete, Input, Observation, Role
from lamarckian.mdp.evaluation import record_replay
from lamarckian.runs.folder import Run
from lamarckian.runs.training import load_policies
from lamarckian.viewer import keyboard
from lamarckian.viewer.keyboard import CONTROLS, Person, controls_for
from lamarckian.viewer.matches import Side, Watch, play_match

GAMES = [
    "pong",
    "cartpole",
    "pendulum",
    "rps",
    "connect-four",
    "skirmish",
    "duel",
    "mpe:simple_spread",
]


@pytest.mark.parametrize("game", GAMES)
def test_bots_play_every_built_in_game(game: str, document: Any) -> None:
    code, result = document("play", game, "--json")
    assert code == 0
    assert result["finished"]
    again = document("play", game, "--json")[1]
    assert again == result
    if game in ("pong", "rps", "connect-four", "duel"):
        first, second = result["players"]
        assert sum(first["returns"]) == -sum(second["returns"])  # zero-sum
        assert first["result"] == -second["result"]


def test_frames_are_one_json_line_a_tick(
    tmp_path: Path, document: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a b" / "frames ü.jsonl"
    file.parent.mkdir()
    code, result = document("play", "duel", "--frames", str(file), "--json")
    assert code == 0
    frames = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert [frame["tick"] for frame in frames] == list(range(result["ticks"] + 1))
    # Without a terminal the frames go to standard output, the result to standard error.
    assert main(["play", "duel"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == frames
    assert "match over" in err


def test_frames_of_a_game_that_draws_nothing_are_what_players_see(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["play", "lamarckian.testing.games:Const7"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 8
    assert set(lines[0]) == {"tick", "player"}


def test_a_match_can_be_cut(document: Any) -> None:
    for game in ("pong", "duel", "connect-four"):
        code, result = document("play", game, "--max-ticks", "3", "--json")
        assert (code, result["ticks"], result["finished"]) == (0, 3, False)


def test_opponents_and_seeds(document: Any) -> None:
    played = document("play", "connect-four", "--opponent", "careful", "--json")[1]["players"]
    assert [player["played_by"] for player in played] == ["greedy", "careful"]
    played = document(
        "play", "connect-four", "--role", "second", "--opponent", "careful", "--json"
    )[1]["players"]
    assert [player["played_by"] for player in played] == ["careful", "greedy"]
    one, two = (document("play", "pong", "--seed", seed, "--json")[1] for seed in "12")
    assert one["ticks"] != two["ticks"]


def test_pitfalls_env_10_a_run_plays_as_it_is_evaluated(pong_run: Path, tmp_path: Path) -> None:
    """Tick by tick what the evaluator's own loop records, from the same ``act``."""
    file = tmp_path / "frames"
    assert main(["play", str(pong_run), "--seed", "5", "--frames", str(file), "--json"]) == 0
    assembly = load_policies(Run.open(pong_run))
    frames = record_replay(assembly.make_game(1), assembly.seating, seed=5)
    assert [json.loads(line) for line in file.read_text().splitlines()] == frames


def test_who_plays_in_a_run(pong_run: Path, document: Any) -> None:
    def names(*options: str) -> list[str]:
        code, result = document("play", str(pong_run), "--max-ticks", "1", "--json", *options)
        assert code == 0
        return [player["played_by"] for player in result["players"]]

    assert names() == ["policy version 2", "rule"]
    assert names("--opponent", "random") == ["policy version 2", "random"]
    # The policy sees the same from the other side, so it can sit there.
    assert names("--role", "right", "--opponent", "random") == ["random", "policy version 2"]
    assert names("--checkpoint", "best", "--stochastic") == ["policy version 2", "rule"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["pog"], "did you mean 'pong'"),
        (["runs/nothing-here"], "no such run folder"),
        (["pong", "--role", "lft"], "no role 'lft'; did you mean 'left'"),
        (["pong", "--opponent", "rul"], "did you mean 'rule'"),
        (["pong", "--checkpoint", "best"], "--checkpoint: has no effect on a game"),
        (["pong", "--stochastic"], "--stochastic: has no effect on a game"),
        (["cartpole", "--opponent", "random"], "--opponent: has no effect"),
        (["pong", "--speed", "0"], "--speed: expected a number above 0"),
        (["pong", "--max-ticks", "0"], "--max-ticks: expected at least 1"),
        (["pong", "--seed", "-1"], "--seed: expected at least 0"),
        (["pong", "--frames", "/nowhere/at/all"], "/nowhere/at/all: cannot write"),
        (["pong", "--against", "me"], "needs a terminal"),
        (["pong", "--against", "me", "--role", "lft"], "no role 'lft'"),
        (["pendulum?x=1"], "refused the options"),
    ],
)
def test_mistakes_are_one_message(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1


class Pressed:
    """A keyboard that was pressed as told, one list per look."""

    def __init__(self, *looks: list[str]) -> None:
        self.looks = list(looks)

    def pressed(self) -> list[str]:
        return self.looks.pop(0) if self.looks else []


def test_names_of_keys() -> None:
    assert keyboard.names("\x1b[A\x1bOB \x1b[1;2Cq\x1b[D") == [
        "up",
        "down",
        "space",
        "right",
        "q",
        "left",
    ]
    assert keyboard.names("\x1b") == ["escape"]
    assert keyboard.names("\x1b[3~A") == ["a"]


@pytest.mark.parametrize("game", GAMES)
def test_every_built_in_game_has_keys_for_its_actions(game: str) -> None:
    made = catalogue.make_game(game, 1)
    roles = (made if not isinstance(made, list) else made[0]).roles
    for role in roles.values():
        for parts in [*CONTROLS[game].keys.values(), CONTROLS[game].idle]:
            for name, value in parts.items():
                part = role.actions[name]
                assert not isinstance(part, Discrete) or 0 <= value < part.num


def test_a_key_counts_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(keyboard.time, "monotonic", lambda: now[0])
    role = Role({"x": Input((1,))}, {"move": Discrete(3)})
    seen = Observation({"x": np.zeros(1, np.float32)})
    person = Person(Pressed(["down", "up"], [], []), CONTROLS["pong"], role)
    moves = []
    for moment in (0.0, 0.15, 0.25):  # a key counts for 0.2 s, the last one wins, 1 is idle
        now[0] = moment
        action = person.action(seen)
        assert action is not None
        moves.append(int(action["move"]))
    assert moves == [0, 0, 1]


def test_a_game_without_a_clock_waits_for_a_legal_choice() -> None:
    role = Role({"x": Input((1,))}, {"column": Discrete(7)}, masked=("column",))
    legal = np.array([False, True, True, True, True, True, True])
    seen = Observation({"x": np.zeros(1, np.float32)}, {"column": legal})
    person = Person(Pressed([], ["1"], ["x"], ["2"]), CONTROLS["connect-four"], role)
    answers = [person.action(seen) for _ in range(4)]
    assert answers[:3] == [None, None, None]
    assert answers[3] == {"column": 1}


def test_an_illegal_key_becomes_a_legal_action_where_the_game_goes_on() -> None:
    made = catalogue.make_batch("skirmish", 1)
    made.reset(np.zeros(1, np.int64))
    role = made.roles["red"]
    seen = made.observe("red")
    one = Observation({}, {name: mask[0] for name, mask in seen.legal.items()})
    assert not one.legal["order"][5]  # nobody is near yet
    action = Person(Pressed(["space"]), CONTROLS["skirmish"], role).action(one)
    assert action == {"order": 0, "target": 0}


def test_digits_are_the_keys_of_other_games() -> None:
    small = Role({"x": Input((1,))}, {"push": Discrete(4)})
    assert controls_for("mine:Game", small).keys["3"] == {"push": 3}
    many = Role({"x": Input((1,))}, {"push": Discrete(11)})
    with pytest.raises(Exception, match="there are no keys for 'mine:Game'"):
        controls_for("mine:Game", many)


def test_a_person_takes_the_seat_no_policy_was_trained_for(pong_run: Path) -> None:
    assembly = load_policies(Run.open(pong_run))
    policies = {"left": assembly.policies["left"]}
    table = Table("pong", {}, assembly.roles, {}, dict(policies), {"right": "random"})
    person = Person(Pressed(), CONTROLS["pong"], assembly.roles["left"])
    sides = choose_sides(table, None, None, person)
    assert sides["right"].person is person
    assert sides["left"].name == "policy version 2"
    sides = choose_sides(table, "left", None, person)
    assert sides["left"].person is person
    assert sides["right"].name == "policy version 2"


@pytest.mark.parametrize("game", ["pong", "duel"])
def test_pitfalls_asy_05_the_tick_never_waits_for_a_person(game: str) -> None:
    """A person who presses nothing: the match runs on at its pace, and the ticks are even."""
    made = catalogue.make_game(game, 1)
    one = made[0] if isinstance(made, list) else made
    name = next(iter(one.roles))
    moments: list[float] = []
    watch = Watch(seconds=0.02, max_ticks=25)
    watch.shows.append(lambda frame: moments.append(time.monotonic()))
    sides = {role: Side("bot", next(iter(one.bots.values())), None) for role in one.roles}
    sides[name].person = Person(Pressed(), CONTROLS[game], one.roles[name])
    record = play_match(made, sides, watch, seed=0)
    assert record.ticks == 25
    gaps = np.diff(moments)
    assert sum(gaps) > 0.02 * (len(gaps) - 1)  # never hurried
    assert np.median(gaps) < 0.035  # never held up (busy machines get some room)
    one.close()


def test_a_person_may_think_where_the_game_has_no_clock() -> None:
    made = catalogue.make_game("connect-four", 1)
    assert isinstance(made, list)
    looks = [[], [], ["4"], [], ["4"], [], [], ["q"]]
    person = Person(Pressed(*looks), CONTROLS["connect-four"], made[0].roles["first"])
    sides = {
        "first": Side("you", made[0].bots["random"], person),
        "second": Side("random", made[0].bots["random"]),
    }
    record = play_match(made, sides, Watch(leave=lambda: person.quits), seed=0)
    assert record.ticks == 4  # two discs each
    assert not record.finished

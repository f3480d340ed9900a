"""check-game: what is broken is named, what is handled is noted, and the exit code says which."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import toys

from lamarckian.cli import check_game as command
from lamarckian.cli import games as games_command
from lamarckian.cli.main import main
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.checking import check_game
from lamarckian.mdp.core import MDP, Controller, Discrete, Input, Observation, Role


class Steps(BatchGame):
    """A batch game that is right unless told which fault to have."""

    fault = ""
    exact_state = False

    def __init__(self, num_games: int) -> None:
        self.num_games = num_games
        self.roles = {"one": Role(inputs={"x": Input((1,))}, actions={"a": Discrete(2)})}

    def reset(self, seeds):
        self.x = np.asarray(seeds, np.float32)[:, None]
        self.tick = 0

    def observe(self, role):
        x = self.x.astype(np.float64) if self.fault == "dtype" else self.x
        return Observation({} if self.fault == "missing" else {"x": x})

    def step(self, actions):
        self.x = self.x + 1
        self.tick += 1
        over = np.full(self.num_games, self.tick % 7 == 0)
        none = np.zeros(self.num_games, np.bool_)
        out = RowStep(np.ones((self.num_games, 1), np.float32), none, over)
        out.final_rows = np.flatnonzero(over)
        out.final = Observation({"x": self.x})
        if self.fault == "both":
            out.terminated = over
        if self.fault == "final":
            out.final = None
        if self.fault == "rewards":
            out.rewards = out.rewards[:, 0]
        if self.fault == "nan":
            out.rewards = out.rewards * np.nan
        return {"one": out}


class Half(Controller):
    """A controller whose act never returns after the first decision."""

    role = "one"
    player = "somebody"

    def __init__(self) -> None:
        self.decisions = 0

    def observe(self):
        return Observation({"x": np.zeros(1, np.float32)})

    async def act(self, action):
        import asyncio

        self.decisions += 1
        if self.decisions == 2:
            await asyncio.Event().wait()
        return (0.0,)


class Waits(MDP):
    roles = Steps(1).roles

    async def reset(self, seed, roles=None):
        return [Half()]


class Blocks(toys.Counter):
    def step(self, action):
        if self.count == 2:
            time.sleep(60)
        return super().step(action)


class Outside(toys.Counter):
    def _see(self):
        return super()._see() - 2e6


def check(name, **options):
    return check_game(f"{__name__}:{name}", deadline=options.pop("deadline", 2.0), **options)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("dtype", "input 'x': expected float32 (4, 1), got float64"),
        ("missing", "input 'x' is missing"),
        ("both", "both terminated and truncated"),
        ("final", "no final observation"),
        ("rewards", "rewards: expected float32 (4, 1), got float32 (4,)"),
        ("nan", "rewards hold NaN"),
    ],
)
def test_faults_of_a_batch_game_are_named(monkeypatch, fault, text) -> None:
    monkeypatch.setattr(Steps, "fault", fault)
    report = check("Steps")
    assert len(report.problems) == 1
    assert text in report.problems[0]
    assert "tick" in report.problems[0]


def test_a_right_batch_game_is_ok() -> None:
    report = check("Steps")
    assert report.ok
    assert report.deterministic
    assert report.episodes >= 12
    assert report.decisions_per_second > 0


def test_a_coroutine_that_never_returns_is_named() -> None:
    report = check("Waits", deadline=0.3)
    assert report.problems == [
        "seed 0, player somebody, decision 1, act(): did not return within 0.3 s"
    ]


def test_a_call_that_blocks_is_named() -> None:
    started = time.monotonic()
    report = check("Blocks", deadline=0.5)
    assert time.monotonic() - started < 5
    assert "tick 2, step(): did not return within 0.5 s" in report.problems[0]


def test_raw_data_outside_the_declared_box() -> None:
    report = check("Outside")
    assert "'observation'[0]: expected within [-1e+06, 1e+06], got -2e+06" in report.problems[0]


def test_what_the_adapter_handles_is_noted(monkeypatch) -> None:
    for cls in ("Alias", "Counter", "Drifting"):
        monkeypatch.setattr(sys.modules[__name__], cls, getattr(toys, cls), raising=False)
    assert any("same array is returned again" in note for note in check("Alias").notes)
    report = check("Counter", options={"dtype": "float64"})
    assert any("float64: cast to float32" in note for note in report.notes)
    report = check("Drifting")
    assert report.deterministic is False


def test_command_line(capsys, tmp_path, monkeypatch) -> None:
    assert main(["check-game", "gym:CartPole-v1", "--episodes", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"]
    assert document["roles"]["player"]["actions"] == {"action": "discrete 2"}
    monkeypatch.setattr(Steps, "fault", "both")
    assert main(["check-game", f"{__name__}:Steps"]) == 2
    assert "1 problem(s)\n  - tick 6" in capsys.readouterr().err
    assert main(["check-game", "pnog"]) == 2
    assert "did you mean 'pong'" in capsys.readouterr().err
    assert main(["games", "--json"]) == 0
    games = json.loads(capsys.readouterr().out)["games"]
    assert games["pong"]["roles"]["left"]["inputs"]
    assert main(["games"]) == 0
    assert "cartpole" in capsys.readouterr().out
    assert command.__doc__
    assert games_command.__doc__


def test_pitfalls_ins_03_the_catalogue_needs_no_optional_package() -> None:
    code = (
        "import sys\n"
        "for name in ('gymnasium', 'ale_py', 'pettingzoo', 'envpool', 'torch'): sys.modules[name] = None\n"
        "from lamarckian.mdp.catalogue import resolve\n"
        "from lamarckian.errors import MissingDependency\n"
        "import lamarckian.mdp.checking\n"
        "for name in ('gym:CartPole-v1', 'gymvec:CartPole-v1', 'ale:Pong', 'envpool:Pong-v5',\n"
        "             'pettingzoo:classic/rps_v2'):\n"
        "    try:\n"
        "        resolve(name).make(1)\n"
        "    except MissingDependency as error:\n"
        "        assert 'pip install' in str(error), error\n"
        "    else:\n"
        "        raise SystemExit(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

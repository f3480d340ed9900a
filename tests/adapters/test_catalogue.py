"""Games by name: the table, prefixes, a user's own classes and functions, and what goes wrong."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from lamarckian.errors import ConfigError, GameError, UnknownName
from lamarckian.mdp.batch_game import BatchGame
from lamarckian.mdp.catalogue import GAMES, make_batch, make_game, make_mdp, resolve
from lamarckian.mdp.core import MDP

OWN = """
import gymnasium
from gymnasium import spaces
import numpy as np
from lamarckian.mdp.core import Discrete, Input, Observation, Role
from lamarckian.mdp.tick import TickGame


class Env(gymnasium.Env):
    def __init__(self, size=3):
        self.observation_space = spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        return np.zeros(self.observation_space.shape, np.float32), 0.0, False, False, {}


class Match(TickGame):
    roles = {"red": Role(inputs={"x": Input((1,))}, actions={"a": Discrete(2)})}

    def begin(self, rng, roles):
        return [("red", "one")]

    def view(self, player):
        return Observation({"x": np.zeros(1, np.float32)})

    def tick(self, actions):
        self.finish_all()


def make_env(size=2):
    return Env(size)


def make_match():
    return Match()


def nothing():
    return 3


NUMBER = 3


class Neither:
    pass
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "my_own_games.py").write_text(textwrap.dedent(OWN))
    (tmp_path / "broken_game.py").write_text("raise ValueError('half written')")
    (tmp_path / "needy_game.py").write_text("import surely_not_installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "my_own_games"


def test_prefix_with_options_in_the_reference() -> None:
    game = make_batch("gym:CartPole-v1?on_bad_data=drop&sutton_barto_reward=true", 2)
    assert isinstance(game, BatchGame)
    game.reset(np.arange(2))
    assert game._envs[0].unwrapped._sutton_barto_reward is True
    game.close()


def test_own_classes_and_factories(own) -> None:
    for name, size in (("Env", 3), ("make_env", 2)):
        game = make_batch(f"{own}:{name}", 2)
        assert game.roles["player"].inputs["observation"].shape == (size,)
    game = make_batch(f"{own}:Env", 2, {"size": 7})
    assert game.roles["player"].inputs["observation"].shape == (7,)
    for name in ("Match", "make_match"):
        assert isinstance(make_mdp(f"{own}:{name}"), MDP)
        assert len(make_game(f"{own}:{name}", 3)) == 3
    with pytest.raises(ConfigError, match="is an MDP"):
        make_batch(f"{own}:Match", 2)
    with pytest.raises(ConfigError, match="is a batch game"):
        make_mdp(f"{own}:Env")


@pytest.mark.parametrize(
    ("reference", "error", "text"),
    [
        ("pnog", UnknownName, "did you mean 'pong'"),
        ("gym:", UnknownName, "gym:CartPole-v1"),
        ("gym:CartPoel-v1", UnknownName, "did you mean 'CartPole-v1'"),
        ("not_there:Game", UnknownName, "no module 'not_there'"),
        ("my_own_games:Evn", UnknownName, "did you mean 'Env'"),
        ("my_own_games:NUMBER", GameError, "got int"),
        ("my_own_games:Neither", GameError, "neither a BatchGame"),
        ("my_own_games:nothing", GameError, "returned int"),
        ("broken_game:X", GameError, "raised ValueError: half written"),
        ("needy_game:X", GameError, "surely_not_installed"),
        ("my_own_games:Env?sizes=3", ConfigError, "sizes"),
        ("my_own_games:Match?speed=3", ConfigError, "speed"),
    ],
)
def test_what_is_wrong_is_named(own, reference, error, text) -> None:
    with pytest.raises(error, match=text):
        make_game(reference, 1)


def test_every_prefix_resolves_to_a_constructor() -> None:
    for reference in ("gym:CartPole-v1",):
        assert callable(resolve(reference).make)
    assert {"pong", "cartpole", "pendulum", "rps", "connect-four", "skirmish", "duel"} <= set(GAMES)

"""EnvPool through a stub of its interface: the calls, and the rows it spends on resets."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from gymnasium import spaces

from lamarckian.errors import ConfigError, MissingDependency, UnknownName
from lamarckian.mdp.catalogue import make_batch


class Pool:
    """Answers as recorded from EnvPool 0.8: auto-reset in the step after the end."""

    observation_space = spaces.Box(0, 99, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, seed: int) -> None:
        self.num_envs, self.seed = num_envs, seed
        self.closed = False

    def reset(self):
        self.count = np.zeros(self.num_envs, np.int64)
        return self._see(), {}

    def _see(self):
        return self.count[:, None].astype(np.float32)

    def step(self, actions):
        assert actions.shape == (self.num_envs,)
        done = self.count == 3
        self.count = np.where(done, 0, self.count + 1)
        limited = self.count == 3
        reward = np.where(done, 0.0, 1.0).astype(np.float32)
        return self._see(), reward, np.zeros_like(limited), limited, {}

    def close(self):
        self.closed = True


@pytest.fixture
def stub(monkeypatch):
    module = types.ModuleType("envpool")
    module.pools = []

    def make(task, env_type, num_envs, seed, num_threads=0):
        assert env_type == "gymnasium"
        module.pools.append(Pool(num_envs, seed))
        return module.pools[-1]

    module.make = make
    module.list_all_envs = lambda: ["Pong-v5"]
    monkeypatch.setitem(sys.modules, "envpool", module)
    return module


def test_rows_that_reset_are_nobodys_decision(stub) -> None:
    game = make_batch("envpool:Pong-v5?num_threads=1", 2)
    game.reset(np.arange(2))
    alive, finals = [], []
    for _ in range(9):
        alive.append(bool(game.alive("player")[0]))
        step = game.step({"player": {"action": np.zeros(2, np.int64)}})["player"]
        if step.truncated.any():
            finals.append(step.final.inputs["observation"].ravel().tolist())
        if not alive[-1]:
            assert not step.rewards.any()
    assert alive == [True, True, True, False, True, True, True, False, True]
    assert finals == [[3, 3], [3, 3]]
    game.close()
    assert all(pool.closed for pool in stub.pools)


def test_seeds_reach_the_pool(stub) -> None:
    game = make_batch("envpool:Pong-v5", 2)
    for seeds in ([1, 2], [1, 2], [1, 3]):
        game.reset(np.array(seeds))
    used = [pool.seed for pool in stub.pools[1:]]
    assert used[0] == used[1] != used[2]


def test_what_is_wrong_is_named(stub, monkeypatch) -> None:
    with pytest.raises(UnknownName, match="did you mean 'Pong-v5'"):
        make_batch("envpool:Pnog-v5", 1)
    with pytest.raises(ConfigError, match="wobble"):
        make_batch("envpool:Pong-v5?wobble=1", 1)
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(MissingDependency, match="pip install envpool"):
        make_batch("envpool:Pong-v5", 1)

"""PettingZoo: agents as rows, turns as coroutines."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from lamarckian.errors import ConfigError, GameError, UnknownName
from lamarckian.mdp.adapters.pettingzoo import ParallelGame, TurnsGame, pettingzoo_game
from lamarckian.mdp.catalogue import make_batch, make_mdp
from lamarckian.mdp.core import random_actions


class DieEarly(ParallelEnv):
    """Three agents: agent_1 is out at step 3, agent_2 joins at 5, the match is cut at 10."""

    metadata: ClassVar = {"name": "die_early"}
    possible_agents: ClassVar = ["agent_0", "agent_1", "agent_2"]

    def observation_space(self, agent):
        return spaces.Box(0, 99, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def _see(self):
        return {a: np.full(1, self.count, np.float32) for a in self.agents}

    def reset(self, seed=None, options=None):
        self.count = 0
        self.agents = ["agent_0", "agent_1"]
        return self._see(), {a: {} for a in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.count += 1
        if self.count == 5:
            self.agents = [*self.agents, "agent_2"]
        seen = self._see()
        ended = {a: a == "agent_1" and self.count == 3 for a in self.agents}
        limited = dict.fromkeys(self.agents, self.count == 10)
        rewards = dict.fromkeys(self.possible_agents, 1.0)  # also to those who are out
        self.agents = [a for a in self.agents if not (ended[a] or limited[a])]
        return seen, rewards, ended, limited, {a: {} for a in seen}

    def close(self):
        return None


class Turns(AECEnv):
    """Two players alternate; +5 for player_0 is paid during player_1's move, which ends the match."""

    metadata: ClassVar = {"name": "turns"}
    possible_agents: ClassVar = ["player_0", "player_1"]

    def __init__(self):
        super().__init__()
        self.render_mode = None

    def observation_space(self, agent):
        return spaces.Box(0, 9, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.full(1, self.moves, np.float32)

    def reset(self, seed=None, options=None):
        self.moves = 0
        self.agents = self.possible_agents[:]
        self.agent_selection = "player_0"
        for name, value in (
            ("rewards", 0.0),
            ("_cumulative_rewards", 0.0),
            ("terminations", False),
            ("truncations", False),
            ("infos", {}),
        ):
            setattr(self, name, dict.fromkeys(self.agents, value))

    def step(self, action):
        if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self._clear_rewards()
        self.moves += 1
        if self.agent_selection == "player_1":
            self.rewards["player_0"] = 5.0
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = "player_1" if self.agent_selection == "player_0" else "player_0"

    def close(self):
        return None


def play(game, ticks):
    game.reset(np.arange(game.num_games))
    rng = np.random.default_rng(0)
    out = []
    for _ in range(ticks):
        alive = {role: game.alive(role) for role in game.roles}
        actions = {
            role: random_actions(item, game.observe(role).legal, game.num_games * item.seats, rng)
            for role, item in game.roles.items()
        }
        out.append((alive, game.step(actions)))
    return out


def test_pitfalls_ma_02_and_03_agents_that_leave_and_join() -> None:
    game = pettingzoo_game(2, DieEarly)
    assert isinstance(game, ParallelGame)
    assert game.roles["agent"].seats == 3
    record = play(game, 11)
    alive = np.array([a["agent"] for a, _ in record])
    # Rows of match 0 are 0, 1, 2 and of match 1 are 3, 4, 5.
    assert alive[:10, 0].all()
    assert alive[:10, 1].tolist() == [True] * 3 + [False] * 7
    assert alive[:10, 2].tolist() == [False] * 5 + [True] * 5
    np.testing.assert_array_equal(alive[:, :3], alive[:, 3:])
    rewards = np.array([s["agent"].rewards[:, 0] for _, s in record[:10]])
    assert rewards[:, :3].sum(0).tolist() == [10, 3, 5]
    assert record[2][1]["agent"].terminated.tolist() == [False, True, False] * 2
    last = record[9][1]["agent"]
    assert last.truncated.tolist() == [True, False, True] * 2
    assert last.final_rows.tolist() == [0, 2, 3, 5]
    assert last.final.inputs["observation"].ravel().tolist() == [10] * 4
    assert alive[10, :3].tolist() == [True, True, False]  # the next match


def test_agents_as_roles_of_their_own() -> None:
    game = pettingzoo_game(1, DieEarly, group_agents=False)
    assert list(game.roles) == ["agent_0", "agent_1", "agent_2"]


def test_pitfalls_ma_01_reward_paid_while_the_other_moves() -> None:
    game = pettingzoo_game(1, Turns)
    assert isinstance(game, TurnsGame)
    got = {}

    async def player(controller):
        await controller.ready()
        rewards = []
        while controller.alive:
            rewards.append((await controller.act({"action": 0}))[0])
        got[controller.player] = (rewards, controller.terminated)

    async def match():
        controllers = await game.reset(3)
        await asyncio.gather(*(player(c) for c in controllers))

    asyncio.run(match())
    assert got == {"player_0": ([5.0], True), "player_1": ([0.0], True)}


@pytest.mark.filterwarnings("ignore")
def test_connect_four_plays_to_its_end_with_legal_moves() -> None:
    game = make_mdp("pettingzoo:classic/connect_four_v3")
    (role,) = game.roles
    assert game.roles[role].seats == 2
    assert game.roles[role].masked == ("action",)
    totals = {}

    async def player(controller, rng):
        await controller.ready()
        total = 0.0
        while controller.alive:
            seen = controller.observe()
            assert seen.legal["action"].any()
            legal = {k: v[None] for k, v in seen.legal.items()}
            action = random_actions(game.roles[role], legal, 1, rng)
            total += (await controller.act({k: v[0] for k, v in action.items()}))[0]
        controller.observe()
        totals[controller.player] = total

    async def match(seed):
        rng = np.random.default_rng(seed)
        controllers = await game.reset(seed)
        await asyncio.gather(*(player(c, rng) for c in controllers))

    for seed in range(3):
        asyncio.run(match(seed))
        assert sum(totals.values()) == 0
        assert sorted(totals.values()) in ([-1, 1], [0, 0])
    game.close()


@pytest.mark.filterwarnings("ignore")
def test_parallel_rps_by_name() -> None:
    game = make_batch("pettingzoo:classic/rps_v2", 2)
    record = play(game, 20)
    for _, step in record:
        (rows,) = step.values()
        np.testing.assert_allclose(rows.rewards.reshape(2, 2).sum(1), 0)
    game.close()


@pytest.mark.filterwarnings("ignore")
def test_what_is_wrong_is_named() -> None:
    with pytest.raises(UnknownName, match="family/name_vN"):
        pettingzoo_game(1, "classic/connect_five_v3")
    with pytest.raises(ConfigError, match="parallel_env"):
        pettingzoo_game(1, "classic/connect_four_v3", api="parallel")

    class Leaver(DieEarly):
        def step(self, actions):
            result = super().step(actions)
            if self.count == 2:
                self.agents = ["agent_0"]
            return result

    with pytest.raises(GameError, match=r"tick 2, seed 0: agent agent_1 left without"):
        play(pettingzoo_game(1, Leaver), 4)

"""The particle games beside mpe2's, tick by tick, and their rules by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import random_actions
from lamarckian.mdp.games.particle_games import (
    SimpleAdversary,
    SimpleReference,
    SimpleSpeakerListener,
    SimpleTag,
)
from lamarckian.mdp.games.particles import ParticleGame
from lamarckian.mdp.games.simple_spread import SimpleSpread


def native_actions(game: ParticleGame, drawn: dict[str, Any], player: int) -> Any:
    """The action of one player of a single match as mpe2 takes it."""
    role = game.players[player].role
    seat = game.seats[role].index(player)
    parts = [np.asarray(array[seat]) for array in drawn[role].values()]
    if game.continuous:
        return np.concatenate(parts).astype(np.float32)
    if len(parts) == 2:
        return int(parts[0]) + 5 * int(parts[1])
    return int(parts[0])


def put(game: ParticleGame, world: Any) -> None:
    """Give mpe2's world the places of the match that has just begun."""
    for n, entity in enumerate(world.entities):
        entity.state.p_pos = game._place[n, :, 0].copy()
        entity.state.p_vel = np.zeros(2)
    for agent in world.agents:
        agent.state.c = np.zeros(world.dim_c)


def compare(game: ParticleGame, env: Any, arrange: Any = put, episodes: int = 6) -> int:
    """Play random matches on both; returns how often bodies touched."""
    game.reset(np.array([11]))
    rng = np.random.default_rng(1)
    world = env.unwrapped.world
    touches = 0
    for _ in range(episodes):
        env.reset(seed=0)
        arrange(game, world)
        for tick in range(1, game.max_ticks + 1):
            drawn = {
                name: random_actions(role, {}, role.seats, rng) for name, role in game.roles.items()
            }
            names = list(env.agents)
            seen, rewards, _, truncations, _ = env.step(
                {name: native_actions(game, drawn, n) for n, name in enumerate(names)}
            )
            steps = game.step(drawn)
            gaps = game.distance[game._one, game._other] - game._reach[..., None][..., 0]
            touches += int((gaps < 0).sum())
            last = tick == game.max_ticks
            assert truncations[names[0]] == last
            for n, name in enumerate(names):
                role = game.players[n].role
                seat = game.seats[role].index(n)
                step = steps[role]
                assert step.truncated[seat] == last
                np.testing.assert_allclose(step.rewards[seat, 0], rewards[name], atol=1e-5)
                shown = step.final if last else game.observe(role)
                assert shown is not None
                np.testing.assert_allclose(
                    shown.inputs["observation"][seat], seen[name], atol=1e-5, err_msg=name
                )
                np.testing.assert_allclose(
                    shown.state["observations"][seat],
                    np.concatenate([seen[each] for each in names]),
                    atol=1e-5,
                )
    return touches


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("num", [3, 5])
def test_simple_spread_steps_as_mpe2_does(num: int, continuous: bool) -> None:
    spread = pytest.importorskip("mpe2.simple_spread_v3")
    env = spread.parallel_env(N=num, continuous_actions=continuous, local_ratio=0.3)
    game = SimpleSpread(1, num_players=num, continuous=continuous, local_ratio=0.3)
    assert compare(game, env) > 3
    env.close()


@pytest.mark.parametrize("continuous", [False, True])
def test_simple_tag_steps_as_mpe2_does(continuous: bool) -> None:
    tag = pytest.importorskip("mpe2.simple_tag_v3")
    env = tag.parallel_env(
        num_good=2, num_adversaries=3, num_obstacles=2, continuous_actions=continuous, max_cycles=60
    )
    game = SimpleTag(1, num_agents=2, continuous=continuous, max_ticks=60)
    assert compare(game, env) > 3
    env.close()


@pytest.mark.parametrize("num", [2, 4])
def test_simple_adversary_steps_as_mpe2_does(num: int) -> None:
    adversary = pytest.importorskip("mpe2.simple_adversary_v3")
    env = adversary.parallel_env(N=num)
    game = SimpleAdversary(1, num_agents=num)

    def arrange(game: Any, world: Any) -> None:
        put(game, world)
        for agent in world.agents:
            agent.goal_a = world.landmarks[int(game._goal[0])]

    compare(game, env, arrange)
    env.close()


@pytest.mark.parametrize("continuous", [False, True])
def test_simple_speaker_listener_steps_as_mpe2_does(continuous: bool) -> None:
    module = pytest.importorskip("mpe2.simple_speaker_listener_v4")
    env = module.parallel_env(continuous_actions=continuous)
    game = SimpleSpeakerListener(1, continuous=continuous)

    def arrange(game: Any, world: Any) -> None:
        put(game, world)
        world.agents[0].goal_b = world.landmarks[int(game._goal[0])]

    compare(game, env, arrange)
    env.close()


@pytest.mark.parametrize("continuous", [False, True])
def test_simple_reference_steps_as_mpe2_does(continuous: bool) -> None:
    module = pytest.importorskip("mpe2.simple_reference_v3")
    env = module.parallel_env(continuous_actions=continuous, local_ratio=0.3)
    game = SimpleReference(1, continuous=continuous, local_ratio=0.3)

    def arrange(game: Any, world: Any) -> None:
        put(game, world)
        for n in (0, 1):
            goal = world.landmarks[int(game._goals[n, 0])]
            world.agents[n].goal_b = goal
            world.agents[1 - n].color = goal.color

    compare(game, env, arrange)
    env.close()


def test_simple_spread_by_hand() -> None:
    game = SimpleSpread(2, num_players=2)
    game.reset(np.arange(2))
    # Match 0: players at (0, 0) and (0.4, 0), landmarks at (0, 1) and (1, 0), nobody touches.
    game._place[..., 0] = [[0, 0], [0.4, 0], [0, 1], [1, 0]]
    game._measure()
    # Player 0 stays, player 1 goes right.
    step = game.step({"agent": {"move": np.array([0, 2, 0, 0])}})["agent"]
    # The first tick only accelerates: 5 * 0.1 = 0.5. Nearest: 1 to landmark 0, 0.6 to landmark 1.
    np.testing.assert_allclose(step.rewards[:2, 0], [-0.8, -0.8], atol=1e-6)
    seen = game.observe("agent").inputs["observation"][1]
    np.testing.assert_allclose(seen, [0.5, 0, 0.4, 0, -0.4, 1, 0.6, 0, -0.4, 0, 0, 0], atol=1e-6)
    step = game.step({"agent": {"move": np.array([0, 1, 0, 0])}})["agent"]
    # It moves by 0.05; its speed is 0.75 * 0.5 - 0.5 = -0.125.
    seen = game.observe("agent").inputs["observation"][1]
    np.testing.assert_allclose(seen[:4], [-0.125, 0, 0.45, 0], atol=1e-6)
    np.testing.assert_allclose(step.rewards[:2, 0], [-0.775, -0.775], atol=1e-6)


def test_simple_spread_counts_collisions_and_covered_landmarks() -> None:
    game = SimpleSpread(1, num_players=2, max_ticks=1)
    game.reset(np.arange(1))
    game._place[..., 0] = [[0, 0], [0.1, 0], [0.05, 0], [3, 0]]
    game._measure()
    step = game.step({"agent": {"move": np.zeros(2, np.int64)}})["agent"]
    # Nobody has speed yet, so all stay: distances 0.05 and 2.9; each overlaps the other.
    np.testing.assert_allclose(step.rewards[:, 0], [-0.5 * 2.95 - 0.5] * 2, atol=1e-6)
    assert step.truncated.all()
    assert not step.terminated.any()
    assert step.outcomes["covered"].tolist() == [1, 1]
    assert step.outcomes["collisions"].tolist() == [1, 1]
    np.testing.assert_allclose(step.outcomes["distance"], [2.95, 2.95], atol=1e-6)
    # The contact pushes them apart: depth 0.2, force 100 * 0.2 = 20, speed 2 within the tick.
    assert step.final is not None
    np.testing.assert_allclose(step.final.inputs["observation"][:, 0], [-2.0, 2.0], atol=1e-5)


def test_wrong_options_are_named() -> None:
    with pytest.raises(ConfigError, match="num_players"):
        SimpleSpread(1, num_players=0)
    with pytest.raises(ConfigError, match="local_ratio"):
        SimpleSpread(1, local_ratio=2.0)

"""Battles of JaxMARL: equal to its own single battles, ends told apart, exact state.

Each test compiles the battles anew (20 s and more), so they are not among the quick ones.
"""

from __future__ import annotations

import numpy as np
import pytest

from lamarckian.errors import ConfigError, MissingDependency, UnknownName
from lamarckian.mdp.catalogue import make_batch

try:
    import jaxmarl  # noqa: F401
except ImportError:
    HAS_IT = False
else:
    HAS_IT = True
# Compiling takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(900)
needs_it = pytest.mark.skipif(not HAS_IT, reason="needs jaxmarl")
MOVES = 5


def legal_draw(game, rng):
    legal = game.observe("ally").legal["action"]
    return (rng.random(legal.shape) * legal).argmax(-1)


@pytest.mark.skipif(HAS_IT, reason="jaxmarl is installed")
def test_without_the_package_the_message_says_what_to_install() -> None:
    with pytest.raises(MissingDependency, match=r"pip install 'lamarckian\[smax\]'"):
        make_batch("smax:3m", 1)


@needs_it
def test_wrong_names_and_options_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"'3n'.*3m"):
        make_batch("smax:3n", 1)
    with pytest.raises(ConfigError, match="closest or random"):
        make_batch("smax:3m?enemy=nearest", 1)
    with pytest.raises(ConfigError, match="max_ticks"):
        make_batch("smax:3m?max_ticks=0", 1)


@needs_it
@pytest.mark.slow
def test_a_batch_plays_what_single_battles_play_and_resumes_exactly() -> None:
    import jax
    from jaxmarl.environments.smax.heuristic_enemy_smax_env import HeuristicEnemySMAX
    from jaxmarl.environments.smax.smax_env import map_name_to_scenario

    env = HeuristicEnemySMAX(scenario=map_name_to_scenario("2s3z"), max_steps=12)
    game = make_batch("smax:2s3z?max_ticks=12", 3)
    seeds = np.array([1, 2**40 + 5, 7])
    game.reset(seeds)
    rng = np.random.default_rng(0)
    battles = []
    for seed in seeds.tolist():
        key = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
        key, start = jax.random.split(key)
        seen, battle = env.reset(start)
        battles.append([key, seen, battle])
    truncated = 0
    for tick in range(30):
        view = game.observe("ally")
        for number, (_, seen, battle) in enumerate(battles):
            legal = env.get_avail_actions(battle)
            for unit, agent in enumerate(env.agents):
                row = number * 5 + unit
                np.testing.assert_allclose(
                    view.inputs["observation"][row], seen[agent], rtol=1e-5, atol=1e-5
                )
                np.testing.assert_array_equal(view.legal["action"][row], legal[agent] > 0)
            np.testing.assert_allclose(
                view.state["world"][number * 5], seen["world_state"], rtol=1e-5, atol=1e-5
            )
        if tick == 15:
            kept = game.state()
        actions = legal_draw(game, rng)
        step = game.step({"ally": {"action": actions}})["ally"]
        for number, item in enumerate(battles):
            key, draw = jax.random.split(item[0])
            chosen = {
                agent: np.int32(actions[number * 5 + unit]) for unit, agent in enumerate(env.agents)
            }
            seen, battle, rewards, dones, _ = env.step_env(draw, item[2], chosen)
            rows = slice(number * 5, number * 5 + 5)
            np.testing.assert_allclose(
                step.rewards[rows, 0], [rewards[agent] for agent in env.agents], atol=1e-5
            )
            over = bool(dones["__all__"])
            assert ((step.terminated | step.truncated)[rows] == over).all()
            if step.truncated[rows].any():
                truncated += 1
                first = int(np.flatnonzero(step.final_rows == number * 5)[0])
                np.testing.assert_allclose(
                    step.final.inputs["observation"][first], seen["ally_0"], rtol=1e-5, atol=1e-5
                )
            if over:
                key, start = jax.random.split(key)
                seen, battle = env.reset(start)
            item[:] = [key, seen, battle]
    assert truncated

    def play_on(which):
        rng = np.random.default_rng(3)
        out = []
        for _ in range(20):
            step = which.step({"ally": {"action": legal_draw(which, rng)}})["ally"]
            out.append((step.rewards, which.observe("ally").inputs["observation"]))
        return out

    other = make_batch("smax:2s3z?max_ticks=12", 3)
    other.load_state(*kept)
    game.load_state(*kept)
    for (a, x), (b, y) in zip(play_on(game), play_on(other), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(x, y)


@needs_it
@pytest.mark.slow
def test_dead_units_leave_or_watch() -> None:
    for watch in (True, False):
        game = make_batch(f"smax:3m?dead_watch={str(watch).lower()}", 4)
        game.reset(np.arange(4))
        rng = np.random.default_rng(1)
        deaths = ends = 0
        for _ in range(60):
            before = game.alive("ally").copy()
            view = game.observe("ally")
            health = view.inputs["observation"][:, -10]  # own features come last, health first
            if watch:
                assert before.all()
                dead = health == 0
                assert (view.legal["action"][dead].sum(1) == 1).all()
                assert view.legal["action"][dead][:, MOVES - 1].all()
                deaths += int(dead.sum())
            step = game.step({"ally": {"action": legal_draw(game, rng)}})["ally"]
            over = step.terminated | step.truncated
            if not watch:
                assert not (over & ~before).any()
                assert (step.rewards[~before] == 0).all()
                alone = np.isnan(step.outcomes["score"][over]) if over.any() else np.zeros(0)
                deaths += int(alone.sum())
            if over.any():
                ends += int(np.isfinite(step.outcomes["score"][over]).sum())
        assert deaths
        assert ends

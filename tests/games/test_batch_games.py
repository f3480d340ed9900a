"""What every batch game promises: determinism, independence of neighbours, exact state, valid data."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lamarckian.errors import CheckpointError, ConfigError
from lamarckian.mdp.batch_game import BatchGame, RowStep
from lamarckian.mdp.core import (
    Arrays,
    Observation,
    Role,
    action_shape,
    mask_size,
    random_actions,
)
from lamarckian.mdp.games import CartPole, Pendulum, Pong, RockPaperScissors, Skirmish
from lamarckian.mdp.games.particle_games import (
    SimpleAdversary,
    SimpleReference,
    SimpleSpeakerListener,
    SimpleTag,
)
from lamarckian.mdp.games.simple_spread import SimpleSpread
from lamarckian.testing.games import Const7, CountBox, Everything, MaskEnv, Memory, TwoStep

Make = Callable[[int], BatchGame]

GAMES: dict[str, Make] = {
    "pong": lambda num: Pong(num, rounds=2, max_ticks=60),
    "pong-image": lambda num: Pong(num, rounds=2, max_ticks=60, image=True),
    "cartpole": lambda num: CartPole(num, max_ticks=30),
    "rps": lambda num: RockPaperScissors(num, rounds=7),
    "skirmish": lambda num: Skirmish(num, max_ticks=70),
    "skirmish-hybrid": lambda num: Skirmish(
        num, units_per_side=2, sight=9.0, max_ticks=70, heading=True, image=True
    ),
    "skirmish-watch": lambda num: Skirmish(num, units_per_side=4, arena=8.0, dead_watch=True),
    "pendulum": lambda num: Pendulum(num, max_ticks=30),
    "simple-spread": lambda num: SimpleSpread(num, num_players=4),
    "simple-speaker-listener": SimpleSpeakerListener,
    "simple-reference": lambda num: SimpleReference(num, continuous=True),
    "simple-tag": lambda num: SimpleTag(num, num_agents=2),
    "simple-adversary": SimpleAdversary,
}
TOYS: dict[str, Make] = {
    "const7": lambda num: Const7(num, end="truncated"),
    "two-step": TwoStep,
    "mask": MaskEnv,
    "count-box": CountBox,
    "memory": Memory,
    "everything": Everything,
}
EVERY = GAMES | TOYS
every_game = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())
games = pytest.mark.parametrize("make", GAMES.values(), ids=GAMES.keys())


def rows(game: BatchGame, role: str) -> int:
    return game.num_games * game.roles[role].seats


def draw(game: BatchGame, rng: np.random.Generator) -> dict[str, Arrays]:
    return {
        name: random_actions(role, game.observe(name).legal, rows(game, name), rng)
        for name, role in game.roles.items()
    }


def freeze(game: BatchGame, steps: dict[str, RowStep] | None = None) -> dict[str, Any]:
    """Everything a player could notice, copied."""
    seen: dict[str, Any] = {}
    for name in game.roles:
        observation = game.observe(name)
        for group in ("inputs", "legal", "state"):
            for key, array in getattr(observation, group).items():
                seen[f"{name}/{group}/{key}"] = array.copy()
        seen[f"{name}/alive"] = game.alive(name).copy()
        if steps is not None:
            step = steps[name]
            seen[f"{name}/rewards"] = step.rewards.copy()
            seen[f"{name}/terminated"] = step.terminated.copy()
            seen[f"{name}/truncated"] = step.truncated.copy()
            ended = step.terminated | step.truncated
            for key, array in step.outcomes.items():
                seen[f"{name}/outcome/{key}"] = np.where(ended, array, 0)
    return seen


def same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def check_observation(role: Role, observation: Observation, num: int) -> None:
    for declared, given in ((role.inputs, observation.inputs), (role.state, observation.state)):
        assert list(declared) == list(given)
        for name, item in declared.items():
            assert given[name].shape == (num, *item.shape), name
            assert given[name].dtype == np.dtype(item.dtype), name
            if item.dtype == "float32":
                assert np.isfinite(given[name]).all(), name
            if item.kind == "category":
                assert (given[name] >= 0).all()
                assert (given[name] < item.num_categories).all()
    assert set(observation.legal) == set(role.masked)
    for name in role.masked:
        mask = observation.legal[name]
        assert mask.shape == (num, mask_size(role.actions[name]))
        assert mask.dtype == np.bool_


@every_game
def test_data_agree_with_the_declared_roles(make: Make) -> None:
    game = make(3)
    game.reset(np.arange(3))
    rng = np.random.default_rng(0)
    endings = 0
    for _ in range(150):
        for name, role in game.roles.items():
            observation = game.observe(name)
            check_observation(role, observation, rows(game, name))
            for part in role.masked:
                edges = np.cumsum(
                    (0, *getattr(role.actions[part], "nums", (mask_size(role.actions[part]),)))
                )
                for low, high in itertools.pairwise(edges):
                    assert observation.legal[part][:, low:high].any(axis=1).all()
            for part_name, part in role.actions.items():
                drawn = random_actions(role, observation.legal, rows(game, name), rng)[part_name]
                assert drawn.shape == (rows(game, name), *action_shape(part))
        before = {name: game.alive(name).copy() for name in game.roles}
        steps = game.step(draw(game, rng))
        assert set(steps) == set(game.roles)
        for name, role in game.roles.items():
            step, num = steps[name], rows(game, name)
            assert step.rewards.shape == (num, role.num_rewards)
            assert step.rewards.dtype == np.float32
            assert not (step.terminated & step.truncated).any()
            ended = step.terminated | step.truncated
            assert not (ended & ~before[name]).any()
            endings += int(ended.sum())
            np.testing.assert_array_equal(step.final_rows, np.flatnonzero(step.truncated))
            if len(step.final_rows):
                assert step.final is not None
                check_observation(role, step.final, len(step.final_rows))
            for key, value in step.outcomes.items():
                assert value.shape == (num,), key
                assert value.dtype == np.float32, key
    assert endings > 0


@every_game
def test_equal_seeds_give_equal_matches_and_others_do_not(make: Make) -> None:
    game, twin, other = make(4), make(4), make(4)
    game.reset(np.array([5, 6, 7, 5]))
    twin.reset(np.array([5, 6, 7, 5]))
    other.reset(np.array([50, 60, 70, 51]))
    rng = np.random.default_rng(1)
    differs = False
    for _ in range(80):
        actions = draw(game, rng)
        first = freeze(game, game.step(actions))
        same(first, freeze(twin, twin.step(actions)))
        second = freeze(other, other.step(actions))
        differs |= any(not np.array_equal(first[name], second[name]) for name in first)
    assert differs or not hasattr(game, "streams")
    game.reset(np.array([5, 6, 7, 5]))
    twin.reset(np.array([5, 6, 7, 5]))
    same(freeze(game), freeze(twin))


@every_game
def test_a_batch_equals_single_games(make: Make) -> None:
    seeds = np.array([3, 11, 4])
    game = make(3)
    game.reset(seeds)
    singles = [make(1) for _ in seeds]
    for single, seed in zip(singles, seeds):
        single.reset(np.array([seed]))
    rng = np.random.default_rng(2)
    for _ in range(100):
        actions = draw(game, rng)
        seen = freeze(game, game.step(actions))
        for n, single in enumerate(singles):
            own = {}
            for role, parts in actions.items():
                seats = game.roles[role].seats
                own[role] = {k: v[n * seats : (n + 1) * seats] for k, v in parts.items()}
            alone = freeze(single, single.step(own))
            for name, array in alone.items():
                if "outcome" in name and name not in seen:
                    continue
                width = len(array)
                np.testing.assert_array_equal(array, seen[name][n * width : (n + 1) * width], name)


@every_game
def test_a_restored_state_continues_bit_for_bit(make: Make) -> None:
    game = make(3)
    game.reset(np.arange(3))
    rng = np.random.default_rng(3)
    for _ in range(47):
        game.step(draw(game, rng))
    data, arrays = game.state()
    data = json.loads(json.dumps(data))
    arrays = {name: array.copy() for name, array in arrays.items()}
    twin = make(3)
    twin.reset(np.arange(100, 103))
    twin.step(draw(twin, np.random.default_rng(9)))
    twin.load_state(data, arrays)
    same(freeze(game), freeze(twin))
    for _ in range(70):
        actions = draw(game, rng)
        same(freeze(game, game.step(actions)), freeze(twin, twin.step(actions)))
        assert game.frame(1) == twin.frame(1)


@every_game
def test_a_state_of_another_size_is_refused(make: Make) -> None:
    game, wider = make(2), make(3)
    game.reset(np.arange(2))
    wider.reset(np.arange(3))
    with pytest.raises(CheckpointError, match="number of games"):
        wider.load_state(*game.state())


@games
def test_frames_are_json_and_hold_what_the_drawing_names(make: Make) -> None:
    game = make(2)
    game.reset(np.arange(2))
    rng = np.random.default_rng(4)
    scene: dict[str, Any] = type(game).drawing  # type: ignore[attr-defined]
    json.dumps(scene)
    for _ in range(40):
        game.step(draw(game, rng))
        frame = game.frame(1)
        assert frame is not None
        assert json.loads(json.dumps(frame)) == frame
        assert "tick" in frame
        for item in scene["items"]:
            value = frame[item["field"]]
            if item["shape"] == "text":
                assert isinstance(value, str | int | float)
                continue
            lengths = {"rect": (2,), "circle": (2, 3), "line": (4,)}[item["shape"]]
            assert all(len(point) in lengths for point in value)


@games
def test_bots_play_legally_from_observations_alone(make: Make) -> None:
    game = make(2)
    game.reset(np.arange(2))
    rng = np.random.default_rng(5)
    for bot in game.bots.values():
        for _ in range(20):
            actions = draw(game, rng)
            for name, role in game.roles.items():
                observation = game.observe(name)
                played = bot(observation.inputs, observation.legal, rng)
                assert set(played) == set(role.actions)
                for part in role.actions:
                    shape = (rows(game, name), *action_shape(role.actions[part]))
                    assert played[part].shape == shape
                for part in role.masked:
                    if played[part].ndim == 1:
                        chosen = np.take_along_axis(
                            observation.legal[part], played[part][:, None], axis=1
                        )
                        assert chosen[game.alive(name)].all()
                actions[name] = played
            game.step(actions)


@games
def test_wrong_counts_are_refused(make: Make) -> None:
    with pytest.raises(ConfigError, match="num_games"):
        make(0)
    with pytest.raises(ConfigError, match="seeds"):
        make(2).reset(np.arange(3))

"""The scalar Gymnasium adapter: what arrives, what is refused, and how faults are named."""

from __future__ import annotations

import pathlib
import sys

import gymnasium
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import toys

from lamarckian.errors import ConfigError, GameError, MissingDependency, UnknownName
from lamarckian.mdp.adapters.gymnasium import ROLE, GymnasiumGame
from lamarckian.mdp.core import random_actions


def play(game, ticks, seed=0, seeds=None):
    """Random legal play; returns copies of (observation before, actions, step) per tick."""
    rng = np.random.default_rng(seed)
    game.reset(np.arange(game.num_games) if seeds is None else np.asarray(seeds))
    return advance(game, ticks, rng)


def advance(game, ticks, rng):
    record = []
    for _ in range(ticks):
        seen = game.observe(ROLE)
        inputs = {k: v.copy() for k, v in seen.inputs.items()}
        actions = random_actions(game.roles[ROLE], seen.legal, game.num_games, rng)
        record.append((inputs, actions, game.step({ROLE: actions})[ROLE]))
    return record


def same(left, right):
    for (a, b, c), (d, e, f) in zip(left, right, strict=True):
        for x, y in ((a, d), (b, e)):
            assert x.keys() == y.keys()
            for key in x:
                np.testing.assert_array_equal(x[key], y[key])
        np.testing.assert_array_equal(c.rewards, f.rewards)
        np.testing.assert_array_equal(c.terminated, f.terminated)
        np.testing.assert_array_equal(c.truncated, f.truncated)
        np.testing.assert_array_equal(c.final_rows, f.final_rows)


def test_pitfalls_env_01_aliasing() -> None:
    game = GymnasiumGame(1, toys.Alias)
    record = play(game, 10)
    assert [int(inputs["observation"][0, 0]) for inputs, _, _ in record] == list(range(10))


def test_pitfalls_env_03_wrong_shape_names_everything() -> None:
    game = GymnasiumGame(3, toys.WrongShape)
    with pytest.raises(GameError) as caught:
        play(game, 5)
    text = str(caught.value)
    for part in ("WrongShape", "environment 0", "episode 0", "tick 3", "seed 0", "'observation'"):
        assert part in text
    assert "float32 (4,)" in text
    assert "float32 (4, 1)" in text


@pytest.mark.parametrize(
    ("wrong", "got"),
    [("words", "words"), (np.zeros(4, complex), "complex128"), (np.zeros(5), "float64 (5,)")],
)
def test_pitfalls_env_03_late_wrong_data_is_still_caught(wrong, got) -> None:
    game = GymnasiumGame(1, lambda: toys.WrongShape(wrong, at=40))
    with pytest.raises(GameError, match="tick 40") as caught:
        play(game, 41)
    assert got in str(caught.value)


def test_pitfalls_env_03_reset_returning_none() -> None:
    class NoReset(toys.Counter):
        def reset(self, *, seed=None, options=None):
            return None

    game = GymnasiumGame(2, NoReset, action_mask="none")
    with pytest.raises(GameError, match=r"environment 0.*reset\(\) must return .*got None"):
        game.reset(np.arange(2))


def test_pitfalls_env_03_first_steps_check_flags() -> None:
    class Flags(toys.Counter):
        def step(self, action):
            seen, reward, _, _, info = super().step(action)
            return seen, reward, None, False, info

    with pytest.raises(GameError, match=r"tick 1.*expected terminated to be a bool, got None"):
        play(GymnasiumGame(1, Flags), 1)


def test_pitfalls_env_04_and_07_nested_spaces_round_trip() -> None:
    from lamarckian.mdp.trajectory import Trajectory, from_arrays

    game = GymnasiumGame(1, toys.Nested)
    role = game.roles[ROLE]
    assert list(role.inputs) == ["img", "vec", "nested/a", "nested/b"]
    assert role.inputs["img"].layout == "HWC"
    assert set(role.actions) == {"move", "inner/key", "inner/pair/0", "inner/pair/1"}
    record = play(game, 20)
    env = game._envs[0]
    shown = env.shown[-21:]  # the probing reset came before
    for (inputs, _, _), native in zip(record, shown, strict=False):
        assert inputs["img"][0].tobytes() == native["img"].tobytes()
        assert inputs["vec"][0].tobytes() == native["vec"].tobytes()
        assert inputs["nested/a"][0] == native["nested"]["a"]
        assert inputs["nested/b"][0].astype(np.int8).tobytes() == native["nested"]["b"].tobytes()
    for (_, actions, _), native in zip(record, env.seen, strict=True):
        np.testing.assert_array_equal(native["move"], actions["move"][0])
        assert native["inner"]["key"] == actions["inner/key"][0] + 5
        np.testing.assert_array_equal(native["inner"]["pair"][0], actions["inner/pair/0"][0])
        np.testing.assert_array_equal(native["inner"]["pair"][1], actions["inner/pair/1"][0])
    stacked = {k: np.stack([inputs[k] for inputs, _, _ in record]) for k in role.inputs}
    acted = {k: np.stack([actions[k] for _, actions, _ in record]) for k in role.actions}
    flat = np.zeros((20, 1))
    trajectory = Trajectory(
        stacked,
        {},
        {},
        acted,
        flat,
        flat,
        flat,
        flat,
        flat,
        flat,
        flat,
        flat,
        flat,
        flat,
        {},
        {},
        flat,
    )
    back = from_arrays(*trajectory.to_arrays())
    for name, array in stacked.items():
        assert back.inputs[name].tobytes() == array.tobytes()
        assert back.inputs[name].dtype == role.inputs[name].dtype
    for name, array in acted.items():
        assert back.actions[name].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(300, 500, np.float32), (-0.1, 0.3, np.float64), (0, 255, np.uint8), (-1, 9, np.int64)],
)
def test_pitfalls_env_08_actions_stay_inside_the_box(low, high, dtype) -> None:
    game = GymnasiumGame(1, lambda: toys.CountBox(low, high, dtype))
    game.reset(np.zeros(1, np.int64))
    for value in (low, high, low - 1, high + 1, (low + high) / 2):
        game.step({ROLE: {"action": np.full((1, 4), value, np.float32)}})
    actions = np.array(game._envs[0].actions)
    assert actions.shape == (5, 2, 2)
    np.testing.assert_allclose(
        actions[4], (low + high) / 2, atol=0.5 if dtype is np.uint8 else 1e-6
    )
    with pytest.raises(GameError, match="finite"):
        game.step({ROLE: {"action": np.full((1, 4), np.nan, np.float32)}})


def test_pitfalls_env_12_float64_is_cast_at_the_border() -> None:
    game = GymnasiumGame(2, lambda: toys.Counter(dtype="float64"))
    for inputs, _, step in play(game, 8):
        assert inputs["observation"].dtype == np.float32
        assert step.rewards.dtype == np.float32


def test_pitfalls_env_15_generations_give_identical_trajectories() -> None:
    class Gymnasium029(toys.Counter):
        pass

    games = [
        GymnasiumGame(2, toys.Counter),
        GymnasiumGame(2, Gymnasium029),
        GymnasiumGame(2, toys.Old26, api="gym-0.26"),
        GymnasiumGame(2, toys.Old21, api="gym-0.21"),
    ]
    records = [play(game, 23) for game in games]
    assert records[0][4][2].truncated.all()
    for other in records[1:]:
        same(records[0], other)


def test_pitfalls_env_15_wrong_generation_is_named() -> None:
    class Four(toys.Counter):
        def step(self, action):
            return super().step(action)[:4]

    with pytest.raises(GameError, match=r"4 values.*api=\"gym-0.21\""):
        play(GymnasiumGame(1, Four), 1)
    with pytest.raises(GameError, match=r"not the api gym-0.21"):
        play(GymnasiumGame(1, lambda: _with_seed(toys.Counter()), api="gym-0.21"), 1)
    with pytest.raises(ConfigError, match=r"did you mean 'gym-0"):
        GymnasiumGame(1, toys.Counter, api="gym-0.2")


def _with_seed(env):
    env.seed = lambda seed: None
    return env


@pytest.mark.parametrize(
    ("end", "terminated", "truncated"),
    [("truncated", False, True), ("terminated", True, False), ("both", True, False)],
)
def test_pitfalls_ep_03_final_observation_is_data_of_its_own(end, terminated, truncated) -> None:
    game = GymnasiumGame(2, lambda: toys.Counter(5, end))
    record = play(game, 6)
    _, _, step = record[4]
    assert step.terminated.tolist() == [terminated] * 2
    assert step.truncated.tolist() == [truncated] * 2
    assert record[5][0]["observation"][:, 0].tolist() == [0, 0]  # the reset one comes next
    if truncated:
        assert step.final_rows.tolist() == [0, 1]
        assert step.final.inputs["observation"][:, 0].tolist() == [5, 5]
    else:
        assert step.final is None


@pytest.mark.parametrize("where", ["info", "observation"])
def test_masks_are_found_and_obeyed(where) -> None:
    game = GymnasiumGame(3, lambda: toys.MaskEnv(where))
    role = game.roles[ROLE]
    assert role.masked == ("action",)
    assert list(role.inputs) == ["observation"]
    play(game, 30)
    seen = game.observe(ROLE)
    np.testing.assert_array_equal(seen.legal["action"], seen.inputs["observation"] > 0)


@pytest.mark.parametrize(("where", "key"), [("reward", "reward"), ("observation", "'observation'")])
def test_pitfalls_num_01_non_finite_data_are_named(where, key) -> None:
    game = GymnasiumGame(4, lambda: toys.Poison(where))
    with pytest.raises(GameError) as caught:
        play(game, 5, seeds=[5, 6, 7, 8])
    text = str(caught.value)
    assert "environment 0, episode 0, tick 3, seed 5" in text
    assert key in text


@pytest.mark.parametrize("where", ["reward", "observation"])
def test_pitfalls_num_01_drop_cuts_the_episode_off(where) -> None:
    game = GymnasiumGame(2, lambda: toys.Poison(where), on_bad_data="drop")
    record = play(game, 7)
    step = record[2][2]
    assert step.truncated.all()
    assert not step.rewards.any()
    assert step.outcomes["bad_data"].tolist() == [1, 1]
    assert step.final.inputs["observation"][:, 0].tolist() == [2, 2]  # the last good one
    for inputs, _, step in record:
        assert np.isfinite(inputs["observation"]).all()
        assert np.isfinite(step.rewards).all()


def test_pitfalls_num_01_inside_a_nested_dict() -> None:
    game = GymnasiumGame(1, lambda: toys.Nested(poison_at=17))
    with pytest.raises(GameError, match=r"tick 17.*'vec'"):
        play(game, 20)


def test_faults_of_the_environment_keep_their_traceback() -> None:
    with pytest.raises(GameError, match=r"environment 0, episode 0, tick 4, seed 0.*KeyError") as e:
        play(GymnasiumGame(2, toys.Boom), 9)
    assert isinstance(e.value.__cause__, KeyError)
    with pytest.raises(GameError, match="boom in reset"):
        GymnasiumGame(1, lambda: toys.Boom("reset"))
    with pytest.raises(GameError, match="boom in init"):
        GymnasiumGame(1, lambda: toys.Boom("init"))


def test_one_instance_twice_is_refused() -> None:
    env = toys.Counter()
    with pytest.raises(GameError, match="same environment twice"):
        GymnasiumGame(2, lambda: env).reset(np.arange(2))


def test_unknown_and_missing_environments() -> None:
    with pytest.raises(UnknownName, match="did you mean 'CartPole-v1'"):
        GymnasiumGame(1, "CartPoel-v1")
    with pytest.raises(ConfigError, match="refused the options"):
        GymnasiumGame(1, "CartPole-v1", env_options={"wobble": 3})


def test_pitfalls_ins_03_missing_package_names_the_command(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingDependency, match=r"pip install 'lamarckian\[gymnasium\]'"):
        GymnasiumGame(1, "CartPole-v1")


def test_equal_seeds_give_equal_matches() -> None:
    first = play(GymnasiumGame(3, "CartPole-v1"), 80, seeds=[1, 2, 3])
    again = GymnasiumGame(3, "CartPole-v1")
    play(again, 17)
    same(first, play(again, 80, seeds=[1, 2, 3]))


def test_state_continues_exactly() -> None:
    game = GymnasiumGame(3, "CartPole-v1")
    play(game, 67)
    data, arrays = game.state()
    expected = advance(game, 60, np.random.default_rng(9))
    other = GymnasiumGame(3, "CartPole-v1")
    other.reset(np.zeros(3, np.int64))
    other.load_state(data, arrays)
    got = advance(other, 60, np.random.default_rng(9))
    same(expected, got)
    data, arrays = other.state()  # a state taken after a resume is as good
    third = GymnasiumGame(3, "CartPole-v1")
    third.load_state(data, arrays)
    same(advance(other, 40, np.random.default_rng(1)), advance(third, 40, np.random.default_rng(1)))


def test_state_of_a_drifting_environment_cuts_the_episode_with_a_warning() -> None:
    game = GymnasiumGame(1, lambda: toys.Drifting(9))
    play(game, 3)
    data, arrays = game.state()
    other = GymnasiumGame(1, lambda: toys.Drifting(9))
    with pytest.warns(UserWarning, match="cut off"):
        other.load_state(data, arrays)
    saved = other.observe(ROLE).inputs["observation"].copy()
    np.testing.assert_array_equal(saved, arrays["inputs/observation"])
    step = advance(other, 1, np.random.default_rng(0))[0][2]
    assert step.truncated.tolist() == [True]
    np.testing.assert_array_equal(step.final.inputs["observation"], saved)
    assert other.observe(ROLE).inputs["observation"][0, 0] == 0


def test_long_episodes_keep_a_bounded_log(monkeypatch) -> None:
    from lamarckian.mdp.adapters import replay

    monkeypatch.setattr(replay, "LIMIT", 600)
    game = GymnasiumGame(1, lambda: toys.Counter(10_000))
    play(game, 1100)
    assert len(game._log._ticks) <= 600 + 512
    data, _ = game.state()
    assert data["kept"] == [0]


def test_pendulum_from_gymnasium_is_scaled_and_ends_truncated() -> None:
    game = GymnasiumGame(2, "Pendulum-v1")
    record = play(game, 200)
    assert game.roles[ROLE].actions["action"].low == (-2.0,)
    assert record[-1][2].truncated.all()
    assert record[-1][2].final.inputs["observation"].shape == (2, 3)
    assert gymnasium.__version__


def test_statistics_of_info_become_outcomes() -> None:
    game = GymnasiumGame(2, toys.Counter, statistics=["progress"])
    record = play(game, 5)
    assert record[-1][2].outcomes["progress"].tolist() == [5, 5]

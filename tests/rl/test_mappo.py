"""MAPPO against numbers worked out by hand, against a plain version, and through real games."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trajectories import make_trajectory

import lamarckian as lm
from lamarckian import config
from lamarckian.cli.main import main
from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Discrete, Input, Role
from lamarckian.mdp.critic_view import NOISE
from lamarckian.mdp.policy import draw_noise
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.assembly import Training, assemble, make_learners
from lamarckian.rl.mappo import MAPPO, MAPPOLearner, huber, value_deviation
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.presets import expand
from lamarckian.rl.returns import generalised_advantages
from lamarckian.runs.training import TrainingRun

NETWORK = NetworkConfig(hidden=(16,), critic_hidden=(), shared=False)
ROLE = Role(
    inputs={"x": Input((3,))},
    actions={"a": Discrete(4)},
    state={"whole": Input((5,))},
    seats=2,
)


def collect(own: MAPPOLearner, length: int, lanes: int, seed: int = 0) -> Trajectory:
    """Decide on random observations, with random rewards, ends, and players who are out."""
    rng = np.random.default_rng(seed)
    flat = length * lanes
    inputs = {"x": rng.normal(size=(length, lanes, 3)).astype(np.float32)}
    state = {"whole": rng.normal(size=(length, lanes, 5)).astype(np.float32)}
    decisions = own.policy.act(
        {"x": inputs["x"].reshape(flat, 3)},
        {},
        {"whole": state["whole"].reshape(flat, 5)},
        {},
        draw_noise(ROLE, flat, rng),
    )
    terminated = rng.random((length, lanes)) < 0.15
    valid = np.ones((length, lanes), np.bool_)
    for lane in range(lanes):  # who dies is out for some ticks
        for t in np.flatnonzero(terminated[:, lane]):
            if terminated[t, lane]:
                out = slice(t + 1, t + 1 + int(rng.integers(0, 4)))
                valid[out, lane] = terminated[out, lane] = False
    open_end = np.flatnonzero(valid[-1] & ~terminated[-1]) + (length - 1) * lanes
    return make_trajectory(
        inputs=inputs,
        state=state,
        actions={k: v.reshape(length, lanes) for k, v in decisions.actions.items()},
        log_prob=decisions.log_prob,
        values=decisions.values.reshape(length, lanes, 1),
        rewards=rng.normal(size=(length, lanes, 1)) * valid[..., None],
        terminated=terminated,
        truncated=np.zeros_like(terminated),
        valid=valid,
        bootstraps={int(i): 0.5 for i in open_end},
    )


def learner(**settings: Any) -> MAPPOLearner:
    record = MAPPO(**{"network": NETWORK, "normalise_values": "none", "num_epochs": 1, **settings})
    return record.make_learner(record.make_policy(ROLE, 3), 5)


def test_huber_by_hand() -> None:
    errors = torch.tensor([0.0, -2.0, 10.0, -12.0])
    assert huber(errors, 10.0).tolist() == [0.0, 2.0, 50.0, 70.0]
    assert huber(errors, None).tolist() == [0.0, 2.0, 50.0, 72.0]


def test_pitfalls_ma_02_the_dead_are_no_part_of_the_scale() -> None:
    advantages = np.array([[1.0, 2.0, 3.0, 99.0]], np.float32)
    alive = np.array([[True, True, True, False]])
    scaled = learner().weighed(advantages, alive)
    np.testing.assert_allclose(scaled[alive], (np.array([1, 2, 3]) - 2) / 0.816497, rtol=1e-4)


def test_advantages_are_mixed_with_the_players_own_noise() -> None:
    own = learner(advantage_noise=0.25, normalise_advantages=False)
    own.seat_noise = np.array([4.0, -8.0], np.float32)
    mixed = own.weighed(np.array([[1.0, 2.0, 3.0, 4.0]], np.float32), np.ones((1, 4), np.bool_))
    # Two seats, two matches: lanes are seats 0, 1, 0, 1.
    np.testing.assert_allclose(mixed, [[1.75, -0.5, 3.25, 1.0]])


def plain_update(own: MAPPOLearner, trajectory: Trajectory) -> dict[str, float]:
    """The same losses, decision by decision in plain Python, by the weights before the update."""
    settings = own.settings
    length, lanes = trajectory.valid.shape
    advantages = np.zeros((length, lanes))
    targets = np.zeros((length, lanes))
    ends = dict(zip(trajectory.bootstrap_index, trajectory.bootstrap_values[:, 0], strict=True))
    for lane in range(lanes):
        after, following = 0.0, 0.0
        for t in reversed(range(length)):
            if not trajectory.valid[t, lane]:
                continue
            value = float(trajectory.values[t, lane, 0])
            index = t * lanes + lane
            if trajectory.terminated[t, lane]:
                after, following = 0.0, 0.0
            elif index in ends:
                after, following = 0.0, float(ends[index])
            error = float(trajectory.rewards[t, lane, 0]) + 0.99 * following - value
            after = error + 0.99 * 0.95 * after
            advantages[t, lane], targets[t, lane] = after, after + value
            following = value
    alive = [(t, n) for t in range(length) for n in range(lanes) if trajectory.valid[t, n]]
    kept = np.array([advantages[place] for place in alive])
    mean, deviation = kept.mean(), kept.std()
    sums = {"policy_loss": 0.0, "value_loss": 0.0, "entropy": 0.0}
    for t, lane in alive:
        with torch.no_grad():
            new = own.policy.evaluate_actions(
                {"x": torch.from_numpy(trajectory.inputs["x"][t, lane][None])},
                {},
                {"whole": torch.from_numpy(trajectory.state["whole"][t, lane][None])},
                {"a": torch.from_numpy(trajectory.actions["a"][t, lane][None])},
            )
        scaled = (advantages[t, lane] - mean) / (deviation + 1e-5)
        ratio = np.exp(float(new.log_prob) - float(trajectory.log_prob[t, lane]))
        bounded = min(max(ratio, 0.8), 1.2)
        sums["policy_loss"] -= min(ratio * scaled, bounded * scaled)
        old, value = float(trajectory.values[t, lane, 0]), float(new.values_normalised)
        near = old + min(max(value - old, -0.2), 0.2)
        losses = []
        for guess in (value, near):
            error = abs(targets[t, lane] - guess)
            delta = settings.huber_delta
            losses.append(error**2 / 2 if error <= delta else delta * (error - delta / 2))
        sums["value_loss"] += max(losses)
        sums["entropy"] += float(new.entropy)
    return {name: total / len(alive) for name, total in sums.items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("delta", [10.0, 0.5])
def test_losses_match_a_plain_version(seed: int, delta: float) -> None:
    own = learner(huber_delta=delta)
    trajectory = collect(own, 12, 4, seed)
    rng = np.random.default_rng(seed + 10)
    # As if other weights had drawn the data, and valued it.
    trajectory.log_prob += rng.normal(scale=0.3, size=(12, 4)).astype(np.float32)
    trajectory.values += rng.normal(scale=0.3, size=(12, 4, 1)).astype(np.float32)
    expected = plain_update(own, trajectory)
    found = own.update(trajectory)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=2e-5), name


def test_pitfalls_ma_06_the_first_ratio_is_exactly_one() -> None:
    own = learner()
    found = own.update(collect(own, 12, 4))
    assert found["approximate_kl"] == pytest.approx(0.0, abs=1e-7)
    assert found["clip_fraction"] == 0.0


def test_the_dead_add_nothing() -> None:
    one, other = learner(num_epochs=3), learner(num_epochs=3)
    trajectory, same = collect(one, 24, 8), collect(other, 24, 8)
    out = ~same.valid
    assert out.any()
    for group in (same.inputs, same.state):
        for array in group.values():
            array[out] = 1e6
    same.values[out] = -1e6
    same.log_prob[out] = -50.0
    one.update(trajectory)
    other.update(same)
    for name, array in one.policy.arrays().items():
        np.testing.assert_array_equal(array, other.policy.arrays()[name], err_msg=name)


def test_without_a_clip_range_it_is_the_plain_policy_gradient() -> None:
    own = learner(clip_range=None, value_weight=0.0, entropy_weight=0.0)
    trajectory = collect(own, 12, 4)
    trajectory.log_prob -= 3.0  # ratios of 20 are neither clipped nor weighed
    found = own.update(trajectory)
    returns = generalised_advantages(trajectory, own.discounts, own.gae_lambdas)
    weights = own.weighed(returns.advantages[..., 0], trajectory.valid)[trajectory.valid]
    log_prob = trajectory.log_prob[trajectory.valid] + 3.0
    assert found["policy_loss"] == pytest.approx(-(log_prob * weights).mean(), abs=1e-4)
    assert found["clip_fraction"] == 0.0


def test_pitfalls_ma_09_the_scale_of_rewards_changes_no_policy() -> None:
    arrays = []
    for scale in (1.0, 1000.0):
        own = learner(normalise_values="running", num_epochs=2)
        trajectory = collect(own, 16, 4)
        trajectory.rewards *= scale
        trajectory.values *= 0
        trajectory.bootstrap_values *= 0
        own.update(trajectory)
        arrays.append(
            {k: v for k, v in own.policy.arrays().items() if k.startswith(("trunk", "policy_head"))}
        )
    assert arrays[0]
    for name, array in arrays[0].items():
        np.testing.assert_allclose(array, arrays[1][name], atol=1e-4, err_msg=name)


def test_value_deviation_by_hand() -> None:
    own = learner()
    trajectory = collect(own, 1, 4)
    trajectory.valid[:] = True
    trajectory.values[0, :, 0] = [1.0, 3.0, 0.0, 8.0]  # deviations 1 and 4
    assert value_deviation(trajectory, ROLE) == {"value_deviation": 2.5}
    trajectory.valid[0, 3] = False
    assert value_deviation(trajectory, ROLE) == {"value_deviation": 1.0}


def test_noise_is_the_same_when_deciding_bootstrapping_and_learning() -> None:
    training = Training(
        game="mpe:simple_spread", algorithm=MAPPO(value_noise=2.0, num_games=3, fragment_length=7)
    )
    assembly = assemble(training)
    collector = assembly.make_collector(3, 1)
    for trajectory in collector.collect().values():
        noise = trajectory.state[NOISE]
        assert noise.shape == (7, 9, 10)
        assert (noise == noise[0]).all()  # constant in time,
        assert (noise[0].reshape(3, 3, 10) == noise[0, :3]).all()  # a trait of the seat,
        assert len(np.unique(noise[0, :3, 0])) == 3  # each its own.
        ends = trajectory.bootstrap_index % 9
        np.testing.assert_array_equal(trajectory.bootstrap_state[NOISE], noise[0][ends])
    collector.close()
    again = assemble(training).make_collector(3, 5)  # another actor of the same run
    (other,) = again.collect().values()
    np.testing.assert_array_equal(other.state[NOISE][0], noise[0])
    again.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ippo", {"critic": "own"}),
        ("nv-mappo", {"value_noise": 1.0}),
        ("na-mappo", {"advantage_noise": 0.05}),
        ("nv-ippo", {"critic": "own", "value_noise": 1.0}),
        ("mapg", {"clip_range": None}),
        ("nv-mapg", {"clip_range": None, "value_noise": 1.0}),
    ],
)
def test_variants_go_by_their_published_names(
    name: str, expected: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in (
        {"algorithm": name},
        {"algorithm.name": name},
        {"algorithm": {"name": name}},
    ):
        record = config.build(TrainingRun, {"game": "mpe:simple_spread", **expand(given)})
        for key, value in expected.items():
            assert getattr(record.algorithm, key) == value
    own = expand({"algorithm": "nv-mappo", "algorithm.value_noise": 3.0})
    assert own["algorithm.value_noise"] == 3.0
    command = ["train", "mpe:simple_spread", "--algorithm", name, "--frames", "600", "--json"]
    small = [
        "--algorithm.num_games",
        "4",
        "--evaluation.episodes",
        "4",
        "--run",
        str(tmp_path / "r"),
    ]
    assert main([*command, *small]) == 0
    assert json.loads(capsys.readouterr().out)["evaluation"]["episodes"] >= 4


@pytest.mark.parametrize(
    ("memory", "frames", "gain"),
    [("none", 72_000, 3.0), pytest.param("gru", 300_000, 6.0, marks=pytest.mark.slow)],
)
def test_a_team_learns_to_cover_landmarks(
    memory: str, frames: int, gain: float, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "algorithm.num_games": 32,
        "algorithm.fragment_length": 25,
        "algorithm.num_epochs": 5,
        "algorithm.network.memory": memory,
        "algorithm.chunk_length": 5,
    }
    evaluation = {"episodes": 90, "greedy": False}
    scores = []
    for budget in (1, frames):
        result = lm.train(
            "mpe:simple_spread",
            algorithm="mappo",
            frames=budget,
            evaluation=evaluation,
            run=tmp_path / f"{budget}",
            show=False,
            **settings,
        )
        assert result.evaluation is not None
        scores.append(result.evaluation["score"])
    assert scores[1] > scores[0] + gain, scores


def test_idle_and_contrary_settings_are_refused(tmp_path: Path) -> None:
    for settings, words in (
        ({"algorithm.value_noise_size": 4}, "no effect without algorithm.value_noise"),
        (
            {"algorithm.value_noise": 1.0, "algorithm.normalise_observations": True},
            "would scale the noise",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            lm.train("mpe:simple_spread", algorithm="mappo", run=tmp_path / "x", **settings)
        assert not (tmp_path / "x").exists()


def test_every_role_has_a_policy_of_its_own_where_spaces_differ() -> None:
    """MA-10: speakers and listeners differ in what they see and do."""
    assembly = assemble(
        Training(
            game="lamarckian.mdp.games.particle_games:SimpleSpeakerListener",
            algorithm=MAPPO(num_games=4, fragment_length=8, num_epochs=1),
        )
    )
    assert len(assembly.policies) == 2
    learners = make_learners(assembly)
    collector = assembly.make_collector(4, 1)
    for _ in range(2):
        for group, trajectory in collector.collect().items():
            assert np.isfinite(learners[group].update(trajectory)["total_loss"])
    collector.close()


def test_a_policy_plays_where_its_critics_state_is_missing(tmp_path: Path) -> None:
    """The noise is made in training only; whoever plays the game itself needs no critic."""
    own = learner(network=NetworkConfig(shared=False, memory="gru", memory_size=4))
    policy = own.policy
    inputs = {"x": np.ones((3, 3), np.float32)}
    memory = {name: np.ones((3, *array.shape), np.float32) for name, array in policy.memory.items()}
    seen = policy.act(inputs, {}, {"whole": np.ones((3, 5), np.float32)}, memory, None)
    blind = policy.act(inputs, {}, {}, memory, None)
    np.testing.assert_array_equal(blind.actions["a"], seen.actions["a"])
    np.testing.assert_array_equal(blind.recurrent["hidden"], seen.recurrent["hidden"])
    np.testing.assert_array_equal(blind.recurrent["critic_hidden"], memory["critic_hidden"])
    assert np.isnan(blind.values).all()
    assert np.isfinite(seen.values).all()

"""DQN: targets and losses by hand, exploration, what is refused, and a run with everything on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trajectories import make_trajectory

from lamarckian import config
from lamarckian.errors import ConfigError, UnsupportedSpace
from lamarckian.mdp.core import Arrays, Continuous, Discrete, Input, MultiDiscrete, Role
from lamarckian.mdp.policy import draw_noise
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.bundle import load_bundle, save_bundle
from lamarckian.rl.dqn import DQN, DQNLearner, make_target, set_epsilon, targets
from lamarckian.rl.export import export_onnx
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.off_policy import follow
from lamarckian.rl.policy import TorchPolicy
from lamarckian.rl.replay import Sample
from lamarckian.runs.folder import Run
from lamarckian.runs.training import TrainingRun, load_policies, resume, train

ROLE = Role(inputs={"x": Input((2,))}, actions={"a": Discrete(3)}, masked=("a",))
BRANCHES = Role(inputs={"x": Input((2,))}, actions={"a": MultiDiscrete((2, 3)), "b": Discrete(2)})
NARROW = NetworkConfig(hidden=(8,), critic_hidden=(4,))


def constant_policy(values: list[float], role: Role = ROLE, **settings: Any) -> TorchPolicy:
    """A policy whose action values are ``values``, whatever it sees."""
    policy = DQN(network=NARROW, duelling=False, **settings).make_policy(role, 0)
    head = policy.network.policy_head
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor(values))
    return policy


def make_sample(size: int = 1, **more: Any) -> Sample:
    rows = {"x": torch.zeros(size, 2)}
    given: dict[str, Any] = {
        "inputs": rows,
        "legal": {"a": torch.ones(size, 3, dtype=torch.bool)},
        "next_inputs": rows,
        "next_legal": {"a": torch.ones(size, 3, dtype=torch.bool)},
        "actions": {"a": torch.zeros(size, dtype=torch.int64)},
        "returns": torch.full((size,), 1.0),
        "discounts": torch.full((size,), 0.9),
        "weights": torch.ones(size),
        "slots": np.arange(size),
        **more,
    }
    return Sample(**given)


def test_double_targets_by_hand() -> None:
    online = constant_policy([1.0, 2.0, 3.0]).network
    target = constant_policy([30.0, 20.0, 10.0]).network
    sample = make_sample()
    assert float(targets(online, target, sample, double=True)) == pytest.approx(1 + 0.9 * 10)
    assert float(targets(online, target, sample, double=False)) == pytest.approx(1 + 0.9 * 30)
    ended = make_sample(discounts=torch.zeros(1))
    assert float(targets(online, target, ended, double=True)) == 1.0


@pytest.mark.parametrize("double", [True, False])
def test_pitfalls_the_target_never_picks_an_illegal_next_action(double: bool) -> None:
    policy = constant_policy([1e6, 5.0, 4.0])
    sample = make_sample(next_legal={"a": torch.tensor([[False, True, True]])})
    found = targets(policy.network, policy.network, sample, double=double)
    assert float(found) == pytest.approx(1 + 0.9 * 5)
    # Where nothing is legal everything is, as when the player acts.
    nothing = make_sample(next_legal={"a": torch.zeros(1, 3, dtype=torch.bool)})
    assert float(targets(policy.network, policy.network, nothing, double=double)) > 8e5


def test_branches_share_the_mean_of_their_best_values() -> None:
    policy = constant_policy([1.0, 3.0, 0.0, 6.0, 2.0, -5.0, -9.0], BRANCHES)
    sample = make_sample(
        legal={}, next_legal={}, actions={"a": torch.zeros(1, 2), "b": torch.zeros(1)}
    )
    wanted = 1 + 0.9 * (3.0 + 6.0 - 5.0) / 3
    assert float(targets(policy.network, policy.network, sample, double=True)) == pytest.approx(
        wanted
    )
    decisions = policy.act({"x": np.zeros((1, 2), np.float32)}, {}, {}, {}, None)
    assert decisions.game_actions["a"].tolist() == [[1, 1]]
    assert decisions.game_actions["b"].tolist() == [0]
    assert decisions.values.tolist() == [[pytest.approx(4 / 3)]]


def test_duelling_by_hand() -> None:
    policy = DQN(network=NARROW).make_policy(BRANCHES, 0)
    network = policy.network
    assert network.value_head is not None
    with torch.no_grad():
        for head in (network.policy_head, network.value_head):
            head.weight.zero_()
        network.policy_head.bias.copy_(torch.tensor([1.0, 3.0, 0.0, 6.0, 3.0, 5.0, 5.0]))
        network.value_head.bias.fill_(10.0)
    outputs, _, _ = network({"x": torch.zeros(1, 2)}, {}, {})
    assert outputs.tolist() == [[9.0, 11.0, 7.0, 13.0, 10.0, 10.0, 10.0]]


def lane(length: int = 1, **more: Any) -> Trajectory:
    made = make_trajectory(
        rewards=np.full((length, 1), 2.0),
        values=np.zeros((length, 1)),
        terminated=np.ones((length, 1)),
        truncated=np.zeros((length, 1)),
        inputs={"x": np.zeros((length, 1, 2), np.float32)},
        actions={"a": np.ones((length, 1), np.int64)},
        legal={"a": np.ones((length, 1, 3), bool)},
        **more,
    )
    made.bootstrap_legal = {"a": np.zeros((0, 3), bool)}
    return made


def make_learner(policy: TorchPolicy, **settings: Any) -> DQNLearner:
    given: dict[str, Any] = {
        "network": NARROW,
        "num_games": 1,
        "fragment_length": 1,
        "replay_size": 64,
        "batch_size": 1,
        "decisions_per_update": 1.0,
        "learning_starts": 1,
        **settings,
    }
    return DQN(**given).make_learner(policy, 0)


@pytest.mark.parametrize(
    ("value", "delta", "loss"), [(1.5, 1.0, 0.125), (-3.0, 1.0, 4.5), (-3.0, 2.0, 8.0)]
)
def test_the_huber_loss_by_hand(value: float, delta: float, loss: float) -> None:
    policy = constant_policy([0.0, value, 0.0])
    stats = make_learner(policy, duelling=False, huber_delta=delta).update(lane())
    assert stats["total_loss"] == pytest.approx(loss)
    assert stats["temporal_difference_error"] == pytest.approx(abs(value - 2.0))
    assert stats["q_mean"] == pytest.approx(value)


def test_priorities_and_importance_weights_enter_the_loss() -> None:
    policy = constant_policy([0.0, 1.5, 0.0])
    learner = make_learner(
        policy, duelling=False, prioritised=True, priority_exponent=1.0, learning_rate=1e-9
    )
    learner.update(lane())
    tree = learner.replay._tree
    assert tree is not None
    assert tree.leaves[0] == pytest.approx(0.5, abs=1e-5)
    assert tree.leaves[1:].sum() == 0.0


def test_the_target_network_is_copied_or_dragged_along() -> None:
    hard = make_learner(constant_policy([0.0, 0.0, 0.0]), duelling=False, target_every=3)
    before = hard.target.policy_head.bias.clone()
    for step in range(1, 7):
        hard.update(lane())
        online = hard.policy.network.policy_head.bias
        if step % 3 == 0:
            assert torch.equal(hard.target.policy_head.bias, online)
        elif step < 3:
            assert torch.equal(hard.target.policy_head.bias, before)
        else:
            assert not torch.equal(hard.target.policy_head.bias, online)
    one, two = constant_policy([0.0, 0.0, 8.0]).network, constant_policy([4.0, 0.0, 0.0]).network
    follow(one, two, 0.25)
    assert one.policy_head.bias.tolist() == [1.0, 0.0, 6.0]


def test_the_target_sees_through_the_statistics_of_the_policy() -> None:
    policy = DQN(network=NARROW, normalise_observations=True).make_policy(ROLE, 0)
    target = make_target(policy.network)
    rows = np.random.default_rng(0).normal(5, 3, (50, 2)).astype(np.float32)
    policy.update_normalisers({"x": rows})
    inputs = {"x": torch.from_numpy(rows)}
    assert torch.equal(policy.network(inputs, {}, {})[0], target(inputs, {}, {})[0])


def test_exploration_is_epsilon_greedy_over_what_is_legal() -> None:
    policy = constant_policy([9.0, 5.0, 1.0])
    set_epsilon(policy, 0.3)
    rng = np.random.default_rng(0)
    size = 40_000
    inputs: Arrays = {"x": np.zeros((size, 2), np.float32)}
    legal: Arrays = {"a": np.tile([False, True, True], (size, 1))}
    noise = draw_noise(ROLE, size, rng)
    decisions = policy.act(inputs, legal, {}, {}, noise)
    drawn = decisions.game_actions["a"]
    shares = np.bincount(drawn, minlength=3) / size
    assert shares[0] == 0.0
    assert shares.tolist() == pytest.approx([0.0, 0.85, 0.15], abs=0.01)
    assert np.exp(decisions.log_prob[drawn == 2]) == pytest.approx(0.15, rel=1e-4)
    assert (policy.act(inputs, legal, {}, {}, noise).game_actions["a"] == drawn).all()
    # The best action is the best one, however much is explored.
    set_epsilon(policy, 1.0)
    assert (policy.act(inputs, legal, {}, {}, None).game_actions["a"] == 1).all()
    set_epsilon(policy, 0.0)
    greedy = policy.act(inputs, legal, {}, {}, noise)
    assert (greedy.game_actions["a"] == 1).all()
    assert greedy.log_prob == pytest.approx(np.zeros(size))


def test_epsilon_falls_over_its_share_of_the_run() -> None:
    settings = DQN(epsilon_start=0.9, epsilon_end=0.1, epsilon_share=0.5)
    found = [settings.epsilon_at(progress) for progress in (0.0, 0.25, 0.5, 1.0)]
    assert found == pytest.approx([0.9, 0.5, 0.1, 0.1])
    assert DQN(epsilon_share=0.0).epsilon_at(0.0) == pytest.approx(0.05)
    learner = make_learner(constant_policy([0.0, 0.0, 0.0]), duelling=False, epsilon_share=0.5)
    learner.update(lane(), progress=0.25)
    assert float(learner.policy.arrays()["epsilon"]) == pytest.approx(0.525)


def test_the_pace_is_kept_over_visits() -> None:
    learner = make_learner(
        constant_policy([0.0, 0.0, 0.0]),
        duelling=False,
        decisions_per_update=2.5,
        learning_starts=4,
    )
    counts = []
    for _ in range(10):
        learner.update(lane())
        counts.append(learner.num_updates)
    # Three decisions are not enough; from the fourth on 1 / 2.5 of a step is due for each.
    assert counts == [0, 0, 0, 0, 0, 1, 1, 2, 2, 2]


def test_what_cannot_be_learned_is_refused_with_what_to_do() -> None:
    role = Role(inputs={"x": Input((2,))}, actions={"push": Continuous(1)})
    with pytest.raises(UnsupportedSpace, match=r"'push' is continuous.*use sac"):
        DQN().make_policy(role, 0)
    with pytest.raises(UnsupportedSpace, match=r"network\.memory lstm.*ppo or impala"):
        DQN(network=NetworkConfig(memory="lstm")).make_policy(ROLE, 0)
    with pytest.raises(ConfigError, match=r"network\.shared"):
        DQN(network=NetworkConfig(shared=False)).make_policy(ROLE, 0)
    policy = DQN().make_policy(ROLE, 0)
    for settings, message in (
        (DQN(priority_exponent=0.5), r"priority_exponent.*prioritised true"),
        (DQN(replay_size=100), r"replay_size: expected at least 136 rows"),
        (DQN(replay_size=500), r"replay_size: expected at least 1000 rows \(learning_starts\)"),
        (DQN(reward_weights=(1.0, 2.0)), r"reward_weights: expected 1 numbers"),
    ):
        with pytest.raises(ConfigError, match=message):
            settings.make_learner(policy, 0)


@pytest.mark.parametrize("duelling", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_an_exported_file_and_a_bundle_play_alike(
    duelling: bool, epsilon: float, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    role = Role(
        inputs={"x": Input((3,)), "c": Input((), "int64", "category", num_categories=3)},
        actions={"a": Discrete(3), "b": MultiDiscrete((2, 4))},
        masked=("a",),
        rewards=("one", "two"),
        state={"all": Input((5,))},
    )
    policy = DQN(network=NARROW, duelling=duelling).make_policy(role, 1)
    set_epsilon(policy, epsilon)
    assert export_onnx(policy, tmp_path / "policy.onnx") < 1e-5
    again = load_bundle(save_bundle(policy, tmp_path / "bundle"))
    assert again.fingerprint() == policy.fingerprint()
    assert again.kind == policy.kind


def test_a_prioritised_run_resumes_bit_for_bit_and_unchanged_parts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamarckian.rl.replay.BLOCK_BYTES", 1000)
    record = config.build(
        TrainingRun,
        {
            "game": "cartpole",
            "algorithm": "dqn",
            "algorithm.num_games": 2,
            "algorithm.prioritised": True,
            # What follows the run's progress would differ between its halves and the whole.
            "algorithm.epsilon_share": 0.0,
            "algorithm.importance_exponent": 1.0,
            "algorithm.learning_starts": 32,
            "algorithm.batch_size": 8,
            "algorithm.target_every": 7,
            "algorithm.replay_size": 200,
            "algorithm.network.hidden": [8],
            "evaluation.episodes": 2,
            "checkpoint_every": 2,
            "frames": 480,
        },
    )
    whole = train(record, tmp_path / "whole")
    train(config.apply(record, {"frames": 256}), tmp_path / "half")
    resumed = resume(tmp_path / "half", frames=480)
    assert resumed.metrics["total_loss"] == whole.metrics["total_loss"]
    assert resumed.evaluation == whole.evaluation
    one, two = (Run.open(tmp_path / name).load("last") for name in ("whole", "half"))
    assert one.arrays.keys() == two.arrays.keys()
    for name, array in one.arrays.items():
        assert array.tobytes() == two.arrays[name].tobytes(), name
    infos = Run.open(tmp_path / "whole").checkpoints()
    before, after = (
        {name: blob.sha256 for name, blob in info.parts.items() if "/replay/" in name}
        for info in infos[-2:]
    )
    assert len(after) > 4
    assert sum(before.get(name) == digest for name, digest in after.items()) >= 2
    # Playing reads no replay.
    loaded = load_policies(Run.open(tmp_path / "whole"))
    assert loaded.policies["player"].version == one.state["learners"]["player"]["version"]


def test_actors_in_processes_explore_with_the_chance_they_are_sent(tmp_path: Path) -> None:
    record = config.build(
        TrainingRun,
        {
            "game": "cartpole",
            "algorithm": "dqn",
            "placement": "processes",
            "num_actors": 1,
            "algorithm.num_games": 2,
            "algorithm.learning_starts": 32,
            "algorithm.network.hidden": [8],
            "algorithm.epsilon_share": 0.5,
            "evaluation.episodes": 2,
            "frames": 512,
        },
    )
    result = train(record, tmp_path / "run")
    assert result.finished
    assert result.metrics["exploration_rate"] == pytest.approx(0.05)

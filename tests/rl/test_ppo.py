"""PPO against numbers worked out by hand and against a plain numpy version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trajectories import make_trajectory

from lamarckian.errors import ConfigError, NumericsError
from lamarckian.mdp.core import Arrays, Continuous, Discrete, Input, MultiDiscrete, Role
from lamarckian.mdp.policy import draw_noise
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.policy import TorchPolicy
from lamarckian.rl.ppo import PPO, PPOLearner

NETWORK = NetworkConfig(hidden=(16,), critic_hidden=(8,))
ROLE = Role(
    inputs={"x": Input((3,))},
    actions={"a": Discrete(4), "m": MultiDiscrete((2, 3)), "c": Continuous(2, (-1, -1), (1, 1))},
    masked=("a",),
    rewards=("first", "second"),
)


def collect(policy: TorchPolicy, length: int, lanes: int, seed: int = 0) -> Trajectory:
    """Decide on random observations under random masks, with random rewards and ends."""
    rng = np.random.default_rng(seed)
    role = policy.role
    inputs = {"x": rng.normal(size=(length, lanes, 3)).astype(np.float32)}
    legal: Arrays = {}
    if role.masked:
        mask = rng.random((length, lanes, 4)) < 0.6
        mask[..., 0] |= ~mask.any(axis=-1)
        legal = {"a": mask}
    flat = length * lanes
    decisions = policy.act(
        {k: v.reshape(flat, -1) for k, v in inputs.items()},
        {k: v.reshape(flat, -1) for k, v in legal.items()},
        {},
        {},
        draw_noise(role, flat, rng),
    )
    terminated = rng.random((length, lanes)) < 0.1
    open_end = np.flatnonzero(~terminated[-1]) + (length - 1) * lanes
    heads = role.num_rewards
    return make_trajectory(
        inputs=inputs,
        legal=legal,
        actions={k: v.reshape(length, lanes, *v.shape[1:]) for k, v in decisions.actions.items()},
        log_prob=decisions.log_prob,
        values=decisions.values.reshape(length, lanes, heads),
        rewards=rng.normal(size=(length, lanes, heads)),
        terminated=terminated,
        truncated=np.zeros_like(terminated),
        bootstraps={int(i): 0.5 for i in open_end},
    )


def learner(role: Role = ROLE, **settings: Any) -> PPOLearner:
    record = PPO(network=NETWORK, **settings)
    return record.make_learner(record.make_policy(role, 3), 5)


def loss_terms(own: PPOLearner, trajectory: Trajectory, advantages: np.ndarray) -> dict[str, float]:
    batch = own._tensors(trajectory, advantages, np.zeros_like(trajectory.values))
    _, terms = own._loss(batch, float(trajectory.valid.sum()))
    return {name: float(value) for name, value in terms.items()}


def test_pitfalls_ma_06_ratio_is_one_at_the_first_epoch() -> None:
    own = learner()
    trajectory = collect(own.policy, 16, 4)
    batch = own._tensors(trajectory, np.zeros((16, 4), np.float32), trajectory.values)
    new = own.policy.evaluate_actions(batch.inputs, batch.legal, batch.state, batch.actions)
    assert float((new.log_prob - batch.columns["log_prob"]).detach().abs().max()) < 1e-5
    terms = loss_terms(own, trajectory, np.ones((16, 4), np.float32))
    # Every ratio is 1, so the objective is the mean advantage: policy loss -1, nothing clipped.
    assert terms["policy_loss"] == pytest.approx(-1.0, abs=1e-5)
    assert terms["clip_fraction"] == 0.0
    assert terms["approximate_kl"] == pytest.approx(0.0, abs=1e-6)


def test_loss_matches_a_plain_version() -> None:
    own = learner(clip_range=0.2, value_weight=0.5, entropy_weight=0.01)
    trajectory = collect(own.policy, 16, 4)
    # As if another policy had drawn the data: log-probabilities moved by known amounts.
    rng = np.random.default_rng(1)
    moved = rng.normal(scale=0.3, size=(16, 4)).astype(np.float32)
    trajectory.log_prob = (trajectory.log_prob + moved).astype(np.float32)
    advantages = rng.normal(size=(16, 4)).astype(np.float32)
    targets = rng.normal(size=(16, 4, 2)).astype(np.float32)
    batch = own._tensors(trajectory, advantages, targets)
    loss, terms = own._loss(batch, 64.0)
    ratio = np.exp(-moved)
    surrogate = np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.2) * advantages)
    value_loss = ((trajectory.values - targets) ** 2).mean(axis=-1).mean()
    assert float(terms["policy_loss"]) == pytest.approx(-surrogate.mean(), abs=1e-5)
    assert float(terms["value_loss"]) == pytest.approx(value_loss, abs=1e-5)
    assert float(terms["clip_fraction"]) == pytest.approx((np.abs(ratio - 1) > 0.2).mean())
    expected = -surrogate.mean() + 0.5 * value_loss - 0.01 * float(terms["entropy"])
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-5)


def test_micro_batches_give_the_same_step() -> None:
    whole, parts = learner(minibatch_size=0), learner(minibatch_size=0, microbatch_size=7)
    trajectory = collect(whole.policy, 16, 4)
    whole.update(trajectory)
    parts.update(trajectory)
    for name, array in whole.policy.arrays().items():
        np.testing.assert_allclose(parts.policy.arrays()[name], array, atol=2e-6, err_msg=name)


def test_left_out_rows_change_nothing() -> None:
    """MA-02: whatever a dead player's rows hold, the update is the same."""
    clean, dirty = learner(num_epochs=1, minibatch_size=0), learner(num_epochs=1, minibatch_size=0)
    first, second = collect(clean.policy, 12, 3), collect(clean.policy, 12, 3)
    for trajectory in (first, second):
        trajectory.valid[6:, 1] = False
        trajectory.terminated[5, 1] = True
        trajectory.terminated[6:, 1] = False
    second.rewards[6:, 1] = 99.0
    second.log_prob[6:, 1] = -500.0
    second.inputs["x"][6:, 1] = 1e6
    clean.update(first)
    dirty.update(second)
    for name, array in clean.policy.arrays().items():
        np.testing.assert_array_equal(dirty.policy.arrays()[name], array, err_msg=name)


def test_pitfalls_ma_02_advantages_are_normalised_over_the_living() -> None:
    # Advantages 1, 2, 3 of the living and 99 of a dead player: mean 2, deviation 0.8165.
    own = learner()
    seen = []
    original = own._loss

    def spy(batch: Any, num_valid: float) -> Any:
        seen.append(batch.columns["advantages"][batch.valid])
        return original(batch, num_valid)

    own._loss = spy  # type: ignore[method-assign]
    trajectory = collect(own.policy, 4, 1)
    trajectory.valid[3] = False
    batch = own._tensors(
        trajectory, np.array([[1.0], [2.0], [3.0], [99.0]], np.float32), trajectory.values
    )
    from lamarckian.rl.batches import Totals

    own._step(batch, Totals())
    np.testing.assert_allclose(seen[0].numpy(), np.array([-1, 0, 1]) / 0.81649658, atol=1e-5)


def test_pitfalls_num_02_a_step_that_is_not_finite_is_skipped_and_counted() -> None:
    own = learner(num_epochs=1, minibatch_size=0)
    trajectory = collect(own.policy, 8, 2)
    before = own.policy.arrays()
    trajectory.log_prob[3, 0] = np.nan
    stats = own.update(trajectory)
    assert stats["skipped_updates"] == 1.0
    for name, array in own.policy.arrays().items():
        if name != "version":
            np.testing.assert_array_equal(array, before[name], err_msg=name)
    for _ in range(8):
        own.update(trajectory)
    with pytest.raises(NumericsError, match="10 optimiser steps in a row were not finite"):
        own.update(trajectory)


def test_pitfalls_num_03_stale_ratios_stay_finite() -> None:
    own = learner()
    trajectory = collect(own.policy, 8, 2)
    trajectory.log_prob[0, 0] -= 89.0
    batch = own._tensors(trajectory, -np.ones((8, 2), np.float32), trajectory.values)
    loss, _ = own._loss(batch, 16.0)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in own.policy.parameters() if p.grad is not None)


def test_pitfalls_ma_09_scaled_rewards_give_the_same_policy_updates() -> None:
    """Rewards times 1,000 with value normalisation: the policy moves alike."""
    role = Role(inputs={"x": Input((3,))}, actions={"a": Discrete(4)})
    outcomes = []
    for scale in (1.0, 1000.0):
        own = learner(
            role, normalise_values="running", num_epochs=2, minibatch_size=0, max_gradient_norm=1e9
        )
        trajectory = collect(own.policy, 16, 8)
        trajectory.rewards *= scale
        trajectory.values *= 0
        trajectory.bootstrap_values *= 0
        own.update(trajectory)
        outcomes.append(own.policy.arrays())
    for name, array in outcomes[0].items():
        if not name.startswith("value_normaliser"):
            np.testing.assert_allclose(outcomes[1][name], array, atol=1e-4, err_msg=name)


def test_state_continues_exactly() -> None:
    straight, stopped = learner(minibatch_size=16), learner(minibatch_size=16)
    data = [collect(straight.policy, 16, 4, seed) for seed in range(4)]
    for trajectory in data:
        straight.update(trajectory)
    for trajectory in data[:2]:
        stopped.update(trajectory)
    resumed = learner(minibatch_size=16)
    resumed.load_state(*stopped.state())
    for trajectory in data[2:]:
        resumed.update(trajectory)
    for name, array in straight.policy.arrays().items():
        np.testing.assert_array_equal(resumed.policy.arrays()[name], array, err_msg=name)


def test_linear_schedule_and_target_divergence() -> None:
    own = learner(learning_rate=1e-2, learning_rate_schedule="linear")
    assert own.update(collect(own.policy, 8, 2), progress=0.75)["learning_rate"] == pytest.approx(
        2.5e-3
    )
    eager = learner(learning_rate=0.05, num_epochs=50, minibatch_size=0, target_kl=0.01)
    eager.update(collect(eager.policy, 16, 4))
    assert eager.num_updates < 50


def test_settings_per_head_must_match_the_role() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.discount: expected one number or 2"):
        learner(discount=(0.9, 0.9, 0.9))
    with pytest.raises(ConfigError, match=r"algorithm\.reward_weights: expected 2 numbers"):
        learner(reward_weights=(1.0,))


def test_reward_weights_choose_what_is_learned() -> None:
    """A head with weight 0 leaves the policy's gradient alone."""
    outcomes = []
    for factor in (1.0, 50.0):
        own = learner(reward_weights=(1.0, 0.0), value_weight=0.0, num_epochs=1, minibatch_size=0)
        trajectory = collect(own.policy, 16, 4)
        trajectory.rewards[..., 1] *= factor
        own.update(trajectory)
        outcomes.append(own.policy.arrays())
    for name, array in outcomes[0].items():
        np.testing.assert_array_equal(outcomes[1][name], array, err_msg=name)


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_sequences_with_a_memory_train(memory: str) -> None:
    """EP-09 in the learner: recomputed log-probabilities equal the stored ones before any step."""
    from lamarckian.mdp.collector import CollectorSettings, Seating
    from lamarckian.mdp.games.cartpole import CartPole
    from lamarckian.mdp.vectorised import BatchCollector

    settings = PPO(
        network=NetworkConfig(hidden=(8,), critic_hidden=(8,), memory=memory, memory_size=6),
        chunk_length=8,
        minibatch_size=64,
    )
    game = CartPole(num_games=4)
    policy = settings.make_policy(game.roles["player"], 0)
    own = settings.make_learner(policy, 0)
    collector = BatchCollector(
        game,
        Seating({"player": policy}, {"player": "player"}),
        CollectorSettings(4, 64, lambda role: (0.99,), 0, chunk_length=8),
    )
    trajectory = collector.collect()["player"]
    assert trajectory.terminated.any()
    batch = own._tensors(trajectory, np.zeros((64, 4), np.float32), trajectory.values)
    new = policy.evaluate_actions(
        batch.inputs, batch.legal, batch.state, batch.actions, batch.recurrent, batch.starts
    )
    assert float((new.log_prob - batch.columns["log_prob"]).detach().abs().max()) < 1e-5
    assert own.update(trajectory)["skipped_updates"] == 0

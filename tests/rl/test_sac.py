"""SAC: densities, targets and losses by hand, what is refused, and a run that resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lamarckian import config, seeding
from lamarckian.errors import ConfigError, UnsupportedSpace
from lamarckian.mdp.core import Continuous, Discrete, Input, Role
from lamarckian.rl.bundle import load_bundle, save_bundle
from lamarckian.rl.distributions import ActionDistribution
from lamarckian.rl.export import export_onnx
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.replay import Sample
from lamarckian.rl.sac import SAC, SACLearner, critic_actions, draw_actions
from lamarckian.runs.folder import Run
from lamarckian.runs.training import TrainingRun, resume, train

ROLE = Role(
    inputs={"x": Input((2,))},
    actions={"push": Continuous(2, (-2.0, 0.0), (2.0, 10.0)), "drift": Continuous(1)},
)
ONE = Role(inputs={"x": Input((2,))}, actions={"push": Continuous(1, (-2.0,), (2.0,))})
NARROW = NetworkConfig(hidden=(8,), critic_hidden=(8,), log_std="dependent")


def make_learner(role: Role = ONE, **settings: Any) -> SACLearner:
    given: dict[str, Any] = {"network": NARROW, "replay_size": 2000, **settings}
    algorithm = SAC(**given)
    return algorithm.make_learner(algorithm.make_policy(role, 0), 0)


def make_sample(raw: float = 0.3, reward: float = 1.0, discount: float = 0.9) -> Sample:
    inputs = {"x": torch.tensor([[0.2, -0.4]])}
    return Sample(
        inputs=inputs,
        legal={},
        next_inputs={"x": torch.tensor([[1.0, 0.5]])},
        next_legal={},
        actions={"push": torch.tensor([[raw]])},
        returns=torch.tensor([reward]),
        discounts=torch.tensor([discount]),
        weights=torch.ones(1),
        slots=np.zeros(1, np.int64),
    )


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-0.7, 0.6)])
def test_the_squashed_density_integrates_to_one(mean: float, log_std: float) -> None:
    distribution = ActionDistribution(ONE, "tanh")
    edge = 12.0
    raw = torch.linspace(-edge, edge, 40_001, dtype=torch.float64)
    outputs = torch.tensor([[mean, log_std]], dtype=torch.float64).expand(len(raw), 2)
    noise = ((raw - mean) / np.exp(log_std)).unsqueeze(1)
    actions, log_prob, deviations = draw_actions(outputs, noise, distribution)
    assert float(torch.trapezoid(log_prob.exp(), actions[:, 0])) == pytest.approx(1.0, abs=1e-5)
    assert float(deviations[0, 0]) == pytest.approx(log_std)
    # The platform's own density is that of the game's action, here twice as wide.
    stored = {"push": raw.unsqueeze(1).float()}
    own = distribution.log_prob(outputs.float(), {}, stored)
    middle = slice(17_000, 23_000)
    assert own[middle].numpy() == pytest.approx(log_prob[middle].numpy() - np.log(2.0), abs=1e-4)


def test_bounded_numbers_are_squashed_and_the_others_are_not() -> None:
    distribution = ActionDistribution(ROLE, "tanh")
    outputs = torch.tensor([[0.5, -0.5, 3.0, 0.1, 0.2, 0.3]])
    noise = torch.tensor([[1.0, -1.0, 2.0]])
    raw = outputs[:, :3] + outputs[:, 3:].exp() * noise
    actions, log_prob, _ = draw_actions(outputs, noise, distribution)
    assert actions[0].tolist() == pytest.approx(
        [np.tanh(float(raw[0, 0])), np.tanh(float(raw[0, 1])), float(raw[0, 2])], rel=1e-6
    )
    normal = torch.distributions.Normal(outputs[:, :3], outputs[:, 3:].exp())
    wanted = normal.log_prob(raw).sum() - torch.log(1 - torch.tanh(raw[:, :2]) ** 2).sum()
    assert float(log_prob) == pytest.approx(float(wanted), rel=1e-5)
    stored = {"push": raw[:, :2], "drift": raw[:, 2:]}
    assert torch.equal(critic_actions(stored, distribution), actions)


def test_gradients_flow_through_actions_and_densities_as_finite_differences_say() -> None:
    distribution = ActionDistribution(ROLE, "tanh")
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda o: draw_actions(o, noise, distribution)[:2], (outputs,))


def test_critic_and_policy_losses_by_hand() -> None:
    learner = make_learner(temperature=0.25, temperature_learning_rate=0.0, learning_rate=1e-12)
    with torch.no_grad():
        for critic, value in zip(
            (
                learner.critics.first,
                learner.critics.second,
                learner.target.first,
                learner.target.second,
            ),
            (2.0, 6.0, 7.0, 5.0),
            strict=True,
        ):
            critic.head.weight.zero_()
            critic.head.bias.fill_(value)
    sample = make_sample()
    noise = seeding.restore(seeding.state_of(learner._rng))

    def entropy_term(inputs: dict[str, torch.Tensor]) -> float:
        outputs = learner.policy.network(inputs, {}, {})[0].detach().numpy()[0].astype(np.float64)
        mean, log_std = outputs
        drawn = float(noise.standard_normal((1, 1), dtype=np.float32)[0, 0])
        raw = mean + np.exp(log_std) * drawn
        return float(
            -0.5 * drawn**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(raw) ** 2)
        )

    target = 1.0 + 0.9 * (5.0 - 0.25 * entropy_term(sample.next_inputs))
    wanted_policy = 0.25 * entropy_term(sample.inputs) - 2.0
    stats = learner._step(sample)
    assert stats["value_loss"] == pytest.approx(
        0.5 * ((2 - target) ** 2 + (6 - target) ** 2), rel=1e-5
    )
    assert stats["policy_loss"] == pytest.approx(wanted_policy, rel=1e-4)
    assert stats["temporal_difference_error"] == pytest.approx(
        (abs(2 - target) + abs(6 - target)) / 2, rel=1e-5
    )
    ended = make_sample(discount=0.0)
    assert learner._step(ended)["value_loss"] == pytest.approx(0.5 * (1.0 + 25.0), rel=1e-5)


@pytest.mark.parametrize(("target", "sign"), [(5.0, 1.0), (-50.0, -1.0)])
def test_the_temperature_rises_while_entropy_is_too_low(target: float, sign: float) -> None:
    learner = make_learner(temperature=0.5, temperature_learning_rate=0.01, target_entropy=target)
    before = learner.temperature.log_alpha.item()
    learner._step(make_sample())
    # The first step of Adam is as long as its step size.
    assert learner.temperature.log_alpha.item() == pytest.approx(before + sign * 0.01, abs=1e-5)
    assert make_learner(ROLE).target_entropy == -3.0


def test_critics_begin_differently_learn_and_are_followed() -> None:
    learner = make_learner(target_rate=0.25, learning_rate=0.01)
    first, second = learner.critics.first.head.weight, learner.critics.second.head.weight
    assert not torch.equal(first, second)
    old = learner.target.first.head.weight.clone()
    assert torch.equal(old, first)
    learner._step(make_sample())
    moved = learner.critics.first.head.weight
    assert not torch.equal(moved, old)
    expected = old + 0.25 * (moved - old)
    assert learner.target.first.head.weight.detach().numpy() == pytest.approx(
        expected.detach().numpy(), rel=1e-5
    )
    assert all(parameter.requires_grad for parameter in learner.critics.parameters())
    assert not any(parameter.requires_grad for parameter in learner.target.parameters())


def test_what_cannot_be_learned_is_refused_with_what_to_do() -> None:
    role = Role(inputs={"x": Input((2,))}, actions={"push": Continuous(1), "jump": Discrete(2)})
    with pytest.raises(UnsupportedSpace, match=r"'jump' is Discrete.*use dqn, ppo or impala"):
        SAC().make_policy(role, 0)
    with pytest.raises(UnsupportedSpace, match=r"network\.memory gru"):
        SAC(network=NetworkConfig(memory="gru")).make_policy(ONE, 0)
    with pytest.raises(ConfigError, match=r"network\.shared"):
        SAC(network=NetworkConfig(shared=False)).make_policy(ONE, 0)


def test_an_exported_file_and_a_bundle_play_alike(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    policy = SAC(network=NARROW).make_policy(ROLE, 1)
    assert policy.bounds == "tanh"
    assert export_onnx(policy, tmp_path / "policy.onnx") < 1e-5
    again = load_bundle(save_bundle(policy, tmp_path / "bundle"))
    assert again.fingerprint() == policy.fingerprint()
    assert again.kind == "actor"


def test_a_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    record = config.build(
        TrainingRun,
        {
            "game": "pendulum",
            "algorithm": "sac",
            "algorithm.num_games": 2,
            "algorithm.num_steps": 2,
            "algorithm.prioritised": True,
            "algorithm.importance_exponent": 1.0,
            "algorithm.learning_starts": 32,
            "algorithm.batch_size": 8,
            "algorithm.decisions_per_update": 4,
            "algorithm.replay_size": 200,
            "algorithm.network.hidden": [8],
            "algorithm.network.critic_hidden": [8],
            "evaluation.episodes": 2,
            "frames": 320,
        },
    )
    whole = train(record, tmp_path / "whole")
    train(config.apply(record, {"frames": 160}), tmp_path / "half")
    resumed = resume(tmp_path / "half", frames=320)
    assert resumed.metrics["total_loss"] == whole.metrics["total_loss"]
    one, two = (Run.open(tmp_path / name).load("last") for name in ("whole", "half"))
    assert one.arrays.keys() == two.arrays.keys()
    for name, array in one.arrays.items():
        assert array.tobytes() == two.arrays[name].tobytes(), name

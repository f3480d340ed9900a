"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905) for continuous actions.

A Gaussian policy, squashed into the bounds of its actions, earns reward and entropy. Two critics value
state and action; the smaller one counts (Fujimoto et al. 2018). The weight of the entropy, the
temperature, is learned so that the policy's entropy stays near a target.

Critics see a bounded number as it is after the hyperbolic tangent, in (-1, 1), and log-probabilities are
densities of that number: the same for a torque of +-2 newton metres and one of +-200.

Shape letters: ``B`` rows of a batch, ``S`` continuous numbers of all action parts.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn

from lamarckian import seeding
from lamarckian.errors import ConfigError, UnsupportedSpace
from lamarckian.mdp.core import Arrays, Continuous, Role, below
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.batches import Totals, staleness
from lamarckian.rl.distributions import ActionDistribution, gaussian_log_prob, log_tanh_slope
from lamarckian.rl.encoders import Torso, initialise, mlp
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.off_policy import (
    Pace,
    ReplaySettings,
    follow,
    load_parameters,
    named,
    parameters_of,
    refuse_memory,
    replay_state,
)
from lamarckian.rl.optimiser import GuardedAdam
from lamarckian.rl.policy import TorchPolicy
from lamarckian.rl.replay import Sample
from lamarckian.rl.training_state import load_training_state, training_state


class SAC(
    ReplaySettings,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="sac",
):
    """Soft actor-critic: continuous actions from a replay, with learned temperature."""

    learning_rate: Annotated[
        float,
        Meta(gt=0.0, le=1.0, description="Step size of Adam for policy and critics at the start."),
    ] = 3e-4
    batch_size: Annotated[int, Meta(ge=1, description="Decisions in one optimiser step.")] = 256
    decisions_per_update: Annotated[
        float, Meta(gt=0.0, description="Decisions collected for each optimiser step.")
    ] = 1.0
    target_rate: Annotated[
        float,
        Meta(gt=0.0, le=1.0, description="Share by which the target critics follow at each step."),
    ] = 0.005
    temperature: Annotated[
        float, Meta(gt=0.0, description="Weight of the entropy (alpha) at the start.")
    ] = 1.0
    temperature_learning_rate: Annotated[
        float,
        Meta(
            ge=0.0,
            le=1.0,
            description="Step size of Adam for the temperature; 0 leaves it as it is.",
        ),
    ] = 3e-4
    target_entropy: Annotated[
        float | None,
        Meta(
            description="Entropy the temperature steers to, nats, of actions within -1 and 1; None: minus "
            "the number of continuous actions."
        ),
    ] = None
    network: Annotated[
        NetworkConfig,
        Meta(description="Layers; hidden is the policy, critic_hidden each of the critics."),
    ] = NetworkConfig(
        hidden=(256, 256),
        critic_hidden=(256, 256),
        activation="relu",
        log_std="dependent",
        log_std_range=(-5.0, 2.0),
    )

    def make_policy(self, role: Role, seed: int) -> TorchPolicy:
        """Build the policy of ``role``.

        Raises UnsupportedSpace for an action part that is not continuous, or a memory.
        """
        for name, part in role.actions.items():
            if not isinstance(part, Continuous):
                raise UnsupportedSpace(
                    f"action part {name!r} is {type(part).__name__}: sac learns continuous actions; use "
                    "dqn, ppo or impala"
                )
        refuse_memory(self.network, "sac")
        if not self.network.shared:
            raise ConfigError(
                "algorithm.network.shared: has no effect, the critics of sac always have layers of their "
                "own; use true"
            )
        parts = [part for part in role.actions.values() if isinstance(part, Continuous)]
        return TorchPolicy(
            role,
            self.network,
            seed,
            bounds="tanh" if any(part.bounded.any() for part in parts) else "clip",
            normalise_observations=self.normalise_observations,
            kind="actor",
        )

    def make_learner(self, policy: TorchPolicy, seed: int) -> SACLearner:
        """Build the learner that trains ``policy`` in place."""
        return SACLearner(self, policy, seed)


class Critic(nn.Module):
    """One value ``[B]`` of a state and the actions taken in it."""

    def __init__(self, role: Role, config: NetworkConfig, num_actions: int) -> None:
        super().__init__()
        self.torso = Torso(role.inputs, config, False)
        size = self.torso.size + num_actions
        self.layers = mlp(size, config.critic_hidden, config)
        self.head = nn.Linear(config.critic_hidden[-1] if config.critic_hidden else size, 1)
        initialise(self.head, 1.0)

    def forward(self, inputs: Mapping[str, Tensor], actions: Tensor) -> Tensor:
        """``inputs`` are normalised already; ``actions`` ``[B, S]`` as of :func:`critic_actions`."""
        features = torch.cat([self.torso.encode(inputs), actions], dim=1)
        value: Tensor = self.head(self.layers(features)).squeeze(1)
        return value


class Critics(nn.Module):
    """Two critics that begin differently."""

    def __init__(self, role: Role, config: NetworkConfig, num_actions: int) -> None:
        super().__init__()
        self.first = Critic(role, config, num_actions)
        self.second = Critic(role, config, num_actions)

    def forward(self, inputs: Mapping[str, Tensor], actions: Tensor) -> Tensor:
        """Return both values, ``[2, B]``."""
        return torch.stack([self.first(inputs, actions), self.second(inputs, actions)])


class Temperature(nn.Module):
    """The weight of the entropy, always positive."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(math.log(first)))

    def forward(self) -> Tensor:
        return self.log_alpha.exp()


class SACLearner:
    """Turns trajectories into weights. The policy it trains is changed in place."""

    def __init__(self, settings: SAC, policy: TorchPolicy, seed: int) -> None:
        self.settings = settings
        self.policy = policy
        self.replay = settings.make_replay(policy.role, seed)
        self.pace = Pace(settings, self.replay)
        size = sum(item.size for item in policy.distribution.gaussians)
        self.target_entropy = -float(size)
        if settings.target_entropy is not None:
            self.target_entropy = settings.target_entropy
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seeding.derive(seed, "critics"))
            self.critics = Critics(policy.role, settings.network, size).to(policy.device)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.temperature = Temperature(settings.temperature).to(policy.device)
        self._rng = seeding.stream(seed, "actions")

        def adam(module: nn.Module, learning_rate: float) -> GuardedAdam:
            return GuardedAdam(
                module,
                learning_rate=learning_rate,
                epsilon=settings.adam_epsilon,
                max_gradient_norm=settings.max_gradient_norm,
            )

        self.optimiser = adam(policy, settings.learning_rate)
        self.critic_optimiser = adam(self.critics, settings.learning_rate)
        self.temperature_optimiser = adam(self.temperature, settings.temperature_learning_rate)
        self.num_updates = 0

    def update(self, trajectory: Trajectory, progress: float = 0.0) -> dict[str, float]:
        """Store one batch and take the optimiser steps that are due; see the contract of Learner.

        Losses are means over those steps, and absent while there are none. Raises NumericsError after
        too many non-finite steps in a row.
        """
        settings, policy = self.settings, self.policy
        learning_rate = settings.learning_rate_at(progress)
        for optimiser in (self.optimiser, self.critic_optimiser):
            optimiser.set_learning_rate(learning_rate)
        policy.update_normalisers(trajectory.inputs, trajectory.valid)
        totals = Totals()
        policy.train()
        for _ in range(self.pace.steps(trajectory)):
            sample = self.replay.sample(
                settings.batch_size, settings.importance_at(progress), policy.device
            )
            if sample is None:
                break
            totals.add(self._step(sample))
        policy.eval()
        policy.version += 1
        skipped = (self.optimiser, self.critic_optimiser, self.temperature_optimiser)
        return {
            **totals.means(),
            "temperature": float(self.temperature().detach()),
            "replay_fill": self.replay.fill,
            "learning_rate": learning_rate,
            "skipped_updates": float(sum(optimiser.num_skipped for optimiser in skipped)),
            **staleness(policy.version, trajectory),
        }

    def _step(self, sample: Sample) -> dict[str, float]:
        policy, distribution = self.policy, self.policy.distribution
        torso = policy.network.torso
        alpha = self.temperature().detach()
        seen, following = torso.normalise(sample.inputs), torso.normalise(sample.next_inputs)

        # Critics: equation 5 with the target of the policy's own next action.
        with torch.no_grad():
            actions, log_prob, _ = self._draw(sample.next_inputs)
            values = self.target(following, actions).amin(dim=0)
            wanted = sample.returns + sample.discounts * (values - alpha * log_prob)
        taken = critic_actions(sample.actions, distribution)
        errors = self.critics(seen, taken) - wanted
        value_loss = (0.5 * errors.square().sum(dim=0) * sample.weights).mean()
        self.critic_optimiser.zero_gradients()
        value_loss.backward()
        norm = self.critic_optimiser.step(value_loss.detach())
        size = errors.detach().abs().mean(dim=0)
        self.replay.set_priorities(sample.slots, size.cpu().numpy())

        # Policy: equation 9, through the actions into critics that stay as they are.
        actions, log_prob, log_std = self._draw(sample.inputs)
        self.critics.requires_grad_(False)
        gain = self.critics(seen, actions).amin(dim=0)
        policy_loss = ((alpha * log_prob - gain) * sample.weights).mean()
        self.optimiser.zero_gradients()
        policy_loss.backward()
        self.optimiser.step(policy_loss.detach())
        self.critics.requires_grad_(True)

        # Temperature: equation 18, on its logarithm.
        if self.settings.temperature_learning_rate:
            excess = (log_prob.detach() + self.target_entropy).mean()
            loss = -self.temperature.log_alpha * excess
            self.temperature_optimiser.zero_gradients()
            loss.backward()  # type: ignore[no-untyped-call]
            self.temperature_optimiser.step(loss.detach())
        follow(self.target, self.critics, self.settings.target_rate)
        self.num_updates += 1
        return {
            "total_loss": float(value_loss.detach() + policy_loss.detach()),
            "policy_loss": float(policy_loss.detach()),
            "value_loss": float(value_loss.detach()),
            "entropy": -float(log_prob.detach().mean()),
            "log_std_mean": float(log_std.detach().mean()),
            "gradient_norm": float(norm),
            "q_mean": float(gain.detach().mean()),
            "temporal_difference_error": float(size.mean()),
        }

    def _draw(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Draw actions of the present policy: see :func:`draw_actions`."""
        outputs, _, _ = self.policy.network(inputs, {}, {}, with_values=False)
        size = sum(item.size for item in self.policy.distribution.gaussians)
        noise = self._rng.standard_normal((len(outputs), size), dtype=np.float32)
        return draw_actions(
            outputs, torch.from_numpy(noise).to(outputs.device), self.policy.distribution
        )

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything the next update depends on, policy included, as (JSON data, arrays).

        The arrays of the replay are views: save or copy them before the next update.
        """
        data, arrays = training_state(self.policy, self.optimiser, self.num_updates)
        more, kept = replay_state(self.replay, self.pace)
        data |= more | {"rng": seeding.state_of(self._rng)}
        for name, module in self._modules().items():
            arrays |= named(f"{name}/", parameters_of(module))
        for name, optimiser in self._optimisers().items():
            data[name], moments = optimiser.state()
            arrays |= named(f"{name}/", moments)
        return data, arrays | kept

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.num_updates = load_training_state(self.policy, self.optimiser, data, arrays)
        for name, module in self._modules().items():
            load_parameters(module, below(f"{name}/", arrays))
        for name, optimiser in self._optimisers().items():
            optimiser.load_state(data[name], below(f"{name}/", arrays))
        self.replay.load_state(data["replay"], below("replay/", arrays))
        self.pace.owed = float(data["owed"])
        self._rng = seeding.restore(data["rng"])

    def _modules(self) -> dict[str, nn.Module]:
        return {"critics": self.critics, "target": self.target, "temperature": self.temperature}

    def _optimisers(self) -> dict[str, GuardedAdam]:
        return {
            "critic_optimiser": self.critic_optimiser,
            "temperature_optimiser": self.temperature_optimiser,
        }


def draw_actions(
    outputs: Tensor, noise: Tensor, distribution: ActionDistribution
) -> tuple[Tensor, Tensor, Tensor]:
    """Return actions ``[B, S]``, their log-density ``[B]`` and the log deviations ``[B, S]``.

    ``outputs`` ``[B, P]`` of the policy head; ``noise`` standard normal ``[B, S]``. Actions are those of
    :func:`critic_actions`, and gradients flow through them. The density of a bounded number is that of
    its hyperbolic tangent (equation 26 of arXiv 1812.05905).
    """
    actions: list[Tensor] = []
    deviations: list[Tensor] = []
    total = outputs.new_zeros(outputs.shape[0])
    column = 0
    for item in distribution.gaussians:
        mean = outputs[:, item.start : item.start + item.size]
        log_std = outputs[:, item.log_std : item.log_std + item.size]
        raw = mean + log_std.exp() * noise[:, column : column + item.size]
        column += item.size
        bounded = torch.from_numpy(item.part.bounded).to(raw.device)
        slope = torch.where(bounded, log_tanh_slope(raw), 0.0)
        total = total + gaussian_log_prob(mean, log_std, raw) - slope.sum(dim=1)
        actions.append(torch.where(bounded, raw.tanh(), raw))
        deviations.append(log_std)
    return torch.cat(actions, dim=1), total, torch.cat(deviations, dim=1)


def critic_actions(raw: Mapping[str, Tensor], distribution: ActionDistribution) -> Tensor:
    """Return stored raw actions as critics see them, ``[B, S]``: bounded ones within (-1, 1)."""
    columns = []
    for item in distribution.gaussians:
        bounded = torch.from_numpy(item.part.bounded).to(raw[item.name].device)
        columns.append(torch.where(bounded, raw[item.name].tanh(), raw[item.name]))
    return torch.cat(columns, dim=1)

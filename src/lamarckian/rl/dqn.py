"""Deep Q-learning (Mnih et al. 2015) with what has proved itself since.

Double (van Hasselt et al. 2016), duelling (Wang et al. 2016), n-step targets, prioritised replay (Schaul
et al. 2016). Several choices at once are branches (Tavakoli et al. 2018): each has action values of its
own, and all learn towards one target. Illegal actions are masked where the player acts and where the
target looks for the best next action.

Shape letters: ``B`` rows of a batch, ``A`` actions of a choice, ``D`` choices.
"""

from __future__ import annotations

import copy
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor
from torch.nn import functional

from lamarckian.errors import ConfigError, UnsupportedSpace
from lamarckian.mdp.core import Arrays, Continuous, Role, below
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.algorithm import Unit
from lamarckian.rl.batches import Totals, staleness
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.networks import ActorCritic
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
from lamarckian.rl.policy import TorchPolicy, legal_values
from lamarckian.rl.replay import Sample
from lamarckian.rl.training_state import load_training_state, training_state


class DQN(
    ReplaySettings,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="dqn",
):
    """Deep Q-learning: double, duelling, n-step, prioritised replay; discrete and multi-discrete."""

    num_steps: Annotated[
        int, Meta(ge=1, description="Rewards in a target before it bootstraps (n).")
    ] = 3
    double: Annotated[
        bool,
        Meta(
            description="The learning network chooses the next action, the target network values it."
        ),
    ] = True
    duelling: Annotated[
        bool,
        Meta(
            description="Action values are a state value (network.critic_hidden) and advantages; false: "
            "network.critic_hidden is not used."
        ),
    ] = True
    huber_delta: Annotated[
        float, Meta(gt=0.0, description="Errors beyond this count linearly instead of squared.")
    ] = 1.0
    target_rate: Annotated[
        float,
        Meta(
            gt=0.0,
            le=1.0,
            description="Share by which the target network follows at each visit: 1 copies (hard), "
            "less drags it along (soft).",
        ),
    ] = 1.0
    target_every: Annotated[
        int, Meta(ge=1, description="Optimiser steps between visits of the target network.")
    ] = 200
    epsilon_start: Annotated[Unit, Meta(description="Chance of a random action at first.")] = 1.0
    epsilon_end: Annotated[Unit, Meta(description="Chance of a random action at last.")] = 0.05
    epsilon_share: Annotated[
        Unit, Meta(description="Share of the run over which that chance falls.")
    ] = 0.2
    network: Annotated[
        NetworkConfig,
        Meta(description="Layers; hidden is the trunk, critic_hidden the state value's own."),
    ] = NetworkConfig()

    def epsilon_at(self, progress: float) -> float:
        """Return the chance of a random action once the share ``progress`` of the run has passed."""
        share = min(1.0, progress / self.epsilon_share) if self.epsilon_share else 1.0
        return self.epsilon_start + share * (self.epsilon_end - self.epsilon_start)

    def make_policy(self, role: Role, seed: int) -> TorchPolicy:
        """Build the policy of ``role``.

        Raises UnsupportedSpace for a continuous action part or a memory.
        """
        for name, part in role.actions.items():
            if isinstance(part, Continuous):
                raise UnsupportedSpace(
                    f"action part {name!r} is continuous: dqn learns values of single actions, "
                    "discrete and multi-discrete; use sac, ppo or impala"
                )
        refuse_memory(self.network, "dqn")
        if not self.network.shared:
            raise ConfigError(
                "algorithm.network.shared: dqn has one network, the duelling state value stands on "
                "its trunk; use true"
            )
        policy = TorchPolicy(
            role,
            self.network,
            seed,
            normalise_observations=self.normalise_observations,
            kind="dueling-q" if self.duelling else "q",
        )
        set_epsilon(policy, self.epsilon_at(0.0))
        return policy

    def make_learner(self, policy: TorchPolicy, seed: int) -> DQNLearner:
        """Build the learner that trains ``policy`` in place."""
        return DQNLearner(self, policy, seed)


class DQNLearner:
    """Turns trajectories into weights. The policy it trains is changed in place."""

    def __init__(self, settings: DQN, policy: TorchPolicy, seed: int) -> None:
        self.settings = settings
        self.policy = policy
        self.replay = settings.make_replay(policy.role, seed)
        self.pace = Pace(settings, self.replay)
        self.target = make_target(policy.network)
        self.optimiser = GuardedAdam(
            policy,
            learning_rate=settings.learning_rate,
            epsilon=settings.adam_epsilon,
            max_gradient_norm=settings.max_gradient_norm,
        )
        self.num_updates = 0

    def update(self, trajectory: Trajectory, progress: float = 0.0) -> dict[str, float]:
        """Store one batch and take the optimiser steps that are due; see the contract of Learner.

        Losses are means over those steps, and absent while there are none. Raises NumericsError after
        too many non-finite steps in a row.
        """
        settings, policy = self.settings, self.policy
        learning_rate = settings.learning_rate_at(progress)
        self.optimiser.set_learning_rate(learning_rate)
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
        set_epsilon(policy, settings.epsilon_at(progress))
        return {
            **totals.means(),
            "exploration_rate": settings.epsilon_at(progress),
            "replay_fill": self.replay.fill,
            "learning_rate": learning_rate,
            "skipped_updates": float(self.optimiser.num_skipped),
            **staleness(policy.version, trajectory),
        }

    def _step(self, sample: Sample) -> dict[str, float]:
        settings, network = self.settings, self.policy.network
        wanted = targets(network, self.target, sample, double=settings.double)
        outputs, _, _ = network(sample.inputs, {}, {}, with_values=False)
        values = taken_values(outputs, sample, self.policy)
        delta = settings.huber_delta
        losses = functional.huber_loss(
            values, wanted.unsqueeze(1).expand_as(values), reduction="none", delta=delta
        ).mean(dim=1)
        loss = (losses * sample.weights).mean()
        self.optimiser.zero_gradients()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = self.optimiser.step(loss.detach())
        errors = (values.detach() - wanted.unsqueeze(1)).abs().mean(dim=1)
        self.replay.set_priorities(sample.slots, errors.cpu().numpy())
        self.num_updates += 1
        if self.num_updates % settings.target_every == 0:
            follow(self.target, network, settings.target_rate)
        return {
            "total_loss": float(loss.detach()),
            "gradient_norm": float(norm),
            "q_mean": float(values.detach().mean()),
            "temporal_difference_error": float(errors.mean()),
        }

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything the next update depends on, policy included, as (JSON data, arrays).

        The arrays of the replay are views: save or copy them before the next update.
        """
        data, arrays = training_state(self.policy, self.optimiser, self.num_updates)
        more, kept = replay_state(self.replay, self.pace)
        return data | more, arrays | named("target/", parameters_of(self.target)) | kept

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.num_updates = load_training_state(self.policy, self.optimiser, data, arrays)
        load_parameters(self.target, below("target/", arrays))
        self.replay.load_state(data["replay"], below("replay/", arrays))
        self.pace.owed = float(data["owed"])


def make_target(network: ActorCritic) -> ActorCritic:
    """Return a copy of ``network`` that sees inputs through the same running statistics."""
    target = copy.deepcopy(network)
    target.torso.normalisers = network.torso.normalisers
    target.requires_grad_(False)
    return target


def set_epsilon(policy: TorchPolicy, epsilon: float) -> None:
    """Let ``policy`` explore with this chance of a random action in each choice."""
    assert policy.network.epsilon is not None
    policy.network.epsilon.fill_(epsilon)


@torch.no_grad()
def targets(online: ActorCritic, target: ActorCritic, sample: Sample, *, double: bool) -> Tensor:
    """Return ``R + discount * mean over choices of Q_target(s', a')``, float32 ``[B]``.

    ``a'`` is the best legal next action of each choice: in the eyes of ``online`` (double), or of
    ``target`` itself.
    """
    outputs, _, _ = target(sample.next_inputs, {}, {}, with_values=False)
    values = legal_values(outputs, sample.next_legal, target.distribution)
    judged = values
    if double:
        seen, _, _ = online(sample.next_inputs, {}, {}, with_values=False)
        judged = legal_values(seen, sample.next_legal, target.distribution)
    best = [
        value.gather(1, judge.argmax(dim=1, keepdim=True))
        for value, judge in zip(values, judged, strict=True)
    ]
    return sample.returns + sample.discounts * torch.cat(best, dim=1).mean(dim=1)


def taken_values(outputs: Tensor, sample: Sample, policy: TorchPolicy) -> Tensor:
    """Return the value of the stored action of each choice, ``[B, D]``."""
    columns = []
    for item in policy.distribution.choices:
        action = sample.actions[item.name]
        if item.index is not None:
            action = action[:, item.index]
        columns.append(outputs[:, item.start : item.start + item.size].gather(1, action[:, None]))
    return torch.cat(columns, dim=1)

"""IMPALA (Espeholt et al. 2018, arXiv 1802.01561): an actor-critic corrected by V-trace.

Actors play on with somewhat older weights while the learner learns. How much each decision counts is
corrected by the ratio of the present policy to the one that drew it, which is known per decision
(see :func:`~.returns.vtrace`). One optimiser step per batch; a memory is unrolled over the whole fragment.

Shape letters: ``T`` decisions, ``N`` lanes, ``K`` reward heads.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta

from lamarckian.mdp.core import Arrays
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.algorithm import ActorCriticSettings, PerHead
from lamarckian.rl.batches import (
    explained_variance,
    staleness,
    time_major,
    to_batch,
    to_tensor,
)
from lamarckian.rl.normalisers import RawValues
from lamarckian.rl.optimiser import GuardedAdam
from lamarckian.rl.policy import TorchPolicy
from lamarckian.rl.returns import importance_ratios, vtrace
from lamarckian.rl.training_state import load_training_state, training_state


class IMPALA(
    ActorCriticSettings,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="impala",
):
    """Importance-weighted actor-learner: V-trace corrects data of older policies."""

    fragment_length: Annotated[
        int, Meta(ge=1, description="Decisions per lane in one batch (T).")
    ] = 32
    rho_bar: Annotated[
        float,
        Meta(gt=0.0, description="Bound of the ratio in each step: what the values converge to."),
    ] = 1.0
    c_bar: Annotated[
        float, Meta(gt=0.0, description="Bound of the ratio in the trace: how fast they do.")
    ] = 1.0
    vtrace_lambda: Annotated[
        PerHead, Meta(description="Lambda of the traces; one number, or one per reward head.")
    ] = 1.0
    normalise_advantages: Annotated[
        bool, Meta(description="Scale advantages to mean 0, deviation 1 over each batch.")
    ] = False

    @property
    def chunk_length(self) -> int:
        """A memory is unrolled over the whole fragment."""
        return self.fragment_length

    @property
    def is_asynchronous(self) -> bool:
        """Made for data of older policies."""
        return True

    def make_learner(self, policy: TorchPolicy, seed: int) -> IMPALALearner:
        """Build the learner that trains ``policy`` in place."""
        return IMPALALearner(self, policy)


class IMPALALearner:
    """Turns trajectories into weights. The policy it trains is changed in place."""

    def __init__(self, settings: IMPALA, policy: TorchPolicy) -> None:
        role = policy.role
        self.settings = settings
        self.policy = policy
        self.discounts = np.array(settings.per_head("discount", role.num_rewards), np.float32)
        self.lambdas = np.array(settings.per_head("vtrace_lambda", role.num_rewards), np.float32)
        self.reward_weights = settings.head_weights(role)
        self.optimiser = GuardedAdam(
            policy,
            learning_rate=settings.learning_rate,
            epsilon=settings.adam_epsilon,
            max_gradient_norm=settings.max_gradient_norm,
        )
        self.num_updates = 0

    def update(self, trajectory: Trajectory, progress: float = 0.0) -> dict[str, float]:
        """One step on one batch; ``progress`` in [0, 1] is the share of the run that has passed.

        Returns losses and diagnostics (names as in :mod:`lamarckian.metrics`). Raises NumericsError after
        too many non-finite steps in a row.
        """
        settings, policy = self.settings, self.policy
        learning_rate = settings.learning_rate_at(progress)
        self.optimiser.set_learning_rate(learning_rate)
        policy.train()
        batch = to_batch(trajectory, policy.device)
        new = batch.evaluate(policy)
        log_prob = time_major(new.log_prob, trajectory)
        returns = vtrace(
            trajectory,
            log_prob=log_prob,
            values=time_major(policy.denormalised_values(new.values_normalised), trajectory),
            bootstrap_values=policy.values(
                trajectory.bootstrap_inputs,
                trajectory.bootstrap_state,
                trajectory.bootstrap_recurrent,
            ),
            discounts=self.discounts,
            lambdas=self.lambdas,
            rho_bar=settings.rho_bar,
            c_bar=settings.c_bar,
        )
        advantages = returns.advantages @ self.reward_weights
        if settings.normalise_advantages and trajectory.num_decisions > 1:
            kept = advantages[trajectory.valid]
            advantages = (advantages - kept.mean()) / (kept.std() + 1e-8)

        num_valid = max(1, trajectory.num_decisions)
        valid = batch.valid
        keep = valid & ~new.no_legal
        # Select before multiplying: a left-out row may hold anything, and 0 * inf is not 0.
        weights = to_tensor(trajectory, advantages, policy.device)
        gain = torch.where(keep, new.log_prob * weights, 0.0)
        policy_loss = -gain.sum() / num_valid
        wanted = RawValues(to_tensor(trajectory, returns.targets, policy.device))
        targets = policy.normalised_targets(wanted)
        squares = (new.values_normalised - targets).square().mean(dim=-1)
        value_loss = torch.where(valid, squares, 0.0).sum() / num_valid
        entropy = torch.where(keep, new.entropy, 0.0).sum() / num_valid
        loss = (
            settings.policy_weight * policy_loss
            + settings.value_weight * value_loss
            - settings.entropy_weight * entropy
        )
        self.optimiser.zero_gradients()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = self.optimiser.step(loss.detach())
        self.num_updates += 1

        # Statistics of this batch are for the next one: inside a batch, the policy that drew the actions
        # and the one that learns must see the same numbers.
        kept_targets = torch.from_numpy(returns.targets[trajectory.valid]).to(policy.device)
        policy.update_value_statistics(RawValues(kept_targets))
        policy.update_normalisers(trajectory.inputs, trajectory.valid, trajectory.state)
        policy.eval()
        policy.version += 1
        ratios = importance_ratios(trajectory, log_prob)[trajectory.valid]
        terms = {
            "total_loss": float(loss.detach()),
            "policy_loss": float(policy_loss.detach()),
            "value_loss": float(value_loss.detach()),
            "entropy": float(entropy.detach()),
            "gradient_norm": float(norm),
            "approximate_kl": float((ratios - 1 - np.log(ratios)).mean()) if len(ratios) else 0.0,
            "clip_fraction": float((ratios > settings.rho_bar).mean()) if len(ratios) else 0.0,
            "ratio_max": float(ratios.max(initial=0.0)),
            "rows_without_legal_action": float((new.no_legal & valid).sum()),
        }
        return {
            **{name: value for name, value in terms.items() if np.isfinite(value)},
            "explained_variance": explained_variance(returns.targets, trajectory),
            "learning_rate": learning_rate,
            "skipped_updates": float(self.optimiser.num_skipped),
            **staleness(policy.version, trajectory),
        }

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything the next update depends on, policy included, as (JSON data, arrays)."""
        return training_state(self.policy, self.optimiser, self.num_updates)

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.num_updates = load_training_state(self.policy, self.optimiser, data, arrays)

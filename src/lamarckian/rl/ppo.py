"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), clipped objective.

Top to bottom: the settings, one update, the loss. The policy ratio is the joint one over all action
parts; advantages of several reward heads are estimated per head and then weighed together; terminated,
truncated and left-out decisions are told apart by the trajectory (see :mod:`lamarckian.rl.returns`).

Shape letters: ``T`` decisions, ``N`` lanes, ``B`` rows of a minibatch, ``K`` reward heads.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from lamarckian import seeding
from lamarckian.mdp.core import Arrays
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.algorithm import ActorCriticSettings, PerHead
from lamarckian.rl.batches import Batch, Totals, explained_variance, staleness, to_batch
from lamarckian.rl.normalisers import RawValues
from lamarckian.rl.optimiser import GuardedAdam
from lamarckian.rl.policy import TorchPolicy
from lamarckian.rl.returns import MAX_LOG_RATIO, generalised_advantages
from lamarckian.rl.training_state import load_training_state, training_state


class PPO(
    ActorCriticSettings,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="ppo",
):
    """Proximal policy optimisation: the clipped objective, several epochs over each batch."""

    num_epochs: Annotated[int, Meta(ge=1, description="Passes over each batch.")] = 4
    minibatch_size: Annotated[
        int, Meta(ge=0, description="Decisions per optimiser step; 0: the whole batch.")
    ] = 1024
    microbatch_size: Annotated[
        int,
        Meta(
            ge=0,
            description="Decisions per forward pass, gradients added up: the same step with less "
            "memory traffic; 0: as large as the minibatch.",
        ),
    ] = 0
    clip_range: Annotated[
        float, Meta(gt=0.0, description="How far the policy ratio may move the objective.")
    ] = 0.2
    value_clip_range: Annotated[
        float | None,
        Meta(description="Clip the critic's change too, in its own units; None: do not."),
    ] = None
    gae_lambda: Annotated[
        PerHead, Meta(description="Lambda of advantage estimation; one number, or one per head.")
    ] = 0.95
    normalise_advantages: Annotated[
        bool, Meta(description="Scale advantages to mean 0, deviation 1 over each minibatch.")
    ] = True
    target_kl: Annotated[
        Annotated[float, Meta(gt=0.0)] | None,
        Meta(description="Stop the epochs of a batch once the policy moved this far; None: never."),
    ] = None
    chunk_length: Annotated[
        int, Meta(ge=1, description="Decisions per sequence when a memory is trained.")
    ] = 16

    @property
    def is_asynchronous(self) -> bool:
        """PPO learns from data of its present policy, unless asked otherwise."""
        return False

    def make_learner(self, policy: TorchPolicy, seed: int) -> PPOLearner:
        """Build the learner that trains ``policy`` in place."""
        return PPOLearner(self, policy, seed)


class PPOLearner:
    """Turns trajectories into weights. The policy it trains is changed in place."""

    def __init__(self, settings: PPO, policy: TorchPolicy, seed: int) -> None:
        role = policy.role
        self.settings = settings
        self.policy = policy
        self.discounts = np.array(settings.per_head("discount", role.num_rewards), np.float32)
        self.gae_lambdas = np.array(settings.per_head("gae_lambda", role.num_rewards), np.float32)
        self.reward_weights = settings.head_weights(role)
        self.optimiser = GuardedAdam(
            policy,
            learning_rate=settings.learning_rate,
            epsilon=settings.adam_epsilon,
            max_gradient_norm=settings.max_gradient_norm,
        )
        self.num_updates = 0
        self._rng = seeding.stream(seed, "learner")

    def update(self, trajectory: Trajectory, progress: float = 0.0) -> dict[str, float]:
        """Learn from one batch; ``progress`` in [0, 1] is the share of the run that has passed.

        Returns the means of losses and diagnostics (names as in :mod:`lamarckian.metrics`). Raises
        NumericsError after too many non-finite steps in a row.
        """
        settings = self.settings
        learning_rate = settings.learning_rate_at(progress)
        self.optimiser.set_learning_rate(learning_rate)
        returns = generalised_advantages(trajectory, self.discounts, self.gae_lambdas)
        self.policy.train()
        self.policy.update_value_statistics(
            RawValues(torch.from_numpy(returns.targets[trajectory.valid]).to(self.policy.device))
        )
        batch = self._tensors(trajectory, returns.advantages @ self.reward_weights, returns.targets)
        totals = Totals()
        for _ in range(settings.num_epochs):
            minibatches = batch.minibatches(settings.minibatch_size, self._rng)
            divergences = [self._step(minibatch, totals) for minibatch in minibatches]
            if settings.target_kl is not None and np.mean(divergences) > settings.target_kl:
                break
        # Statistics of this batch's observations are for the next one: inside a batch the policy that
        # drew the actions and the one that learns must see the same numbers.
        self.policy.update_normalisers(trajectory.inputs, trajectory.valid, trajectory.state)
        self.policy.eval()
        self.policy.version += 1
        return {
            **totals.means(),
            "explained_variance": explained_variance(returns.targets, trajectory),
            "learning_rate": learning_rate,
            "skipped_updates": float(self.optimiser.num_skipped),
            **staleness(self.policy.version, trajectory),
        }

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything the next update depends on, policy included, as (JSON data, arrays)."""
        data, arrays = training_state(self.policy, self.optimiser, self.num_updates)
        return {"rng": seeding.state_of(self._rng), **data}, arrays

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.num_updates = load_training_state(self.policy, self.optimiser, data, arrays)
        self._rng = seeding.restore(data["rng"])

    def _tensors(
        self, trajectory: Trajectory, advantages: NDArray[np.float32], targets: NDArray[np.float32]
    ) -> Batch:
        device = self.policy.device
        batch = to_batch(
            trajectory,
            device,
            {
                "log_prob": trajectory.log_prob,
                "advantages": advantages,
                "targets": targets,
                "values": trajectory.values,
            },
        )
        normalised = self.policy.normalised_targets
        for name in ("targets", "values"):
            batch.columns[name] = normalised(RawValues(batch.columns[name]))
        return batch

    def _step(self, minibatch: Batch, totals: Totals) -> float:
        """One optimiser step on one minibatch, micro-batch by micro-batch; returns the divergence."""
        settings = self.settings
        num_valid = float(minibatch.valid.sum())
        if num_valid == 0:
            return 0.0
        if settings.normalise_advantages and num_valid > 1:
            advantages = minibatch.columns["advantages"]
            kept = advantages[minibatch.valid]
            minibatch.columns["advantages"] = (advantages - kept.mean()) / (
                kept.std(correction=0) + 1e-8
            )
        num = minibatch.num_rows
        size = settings.microbatch_size // minibatch.row_length if settings.microbatch_size else num
        size = max(1, size)
        self.optimiser.zero_gradients()
        sums: dict[str, Tensor] = {}
        for first in range(0, num, size):
            part = minibatch if size >= num else minibatch.rows(slice(first, first + size))
            loss, terms = self._loss(part, num_valid)
            loss.backward()  # type: ignore[no-untyped-call]
            for name, value in terms.items():
                sums[name] = sums[name] + value if name in sums else value
        sums["gradient_norm"] = self.optimiser.step(sums["total_loss"])
        means = {name: float(value) for name, value in sums.items()}
        totals.add(means)
        self.num_updates += 1
        return means["approximate_kl"]

    def _loss(self, batch: Batch, num_valid: float) -> tuple[Tensor, dict[str, Tensor]]:
        """The clipped objective (equations 7 and 9); sums over rows divided by ``num_valid``."""
        settings = self.settings
        new = batch.evaluate(self.policy)
        columns = batch.columns
        keep = batch.valid & ~new.no_legal
        share = keep.to(torch.float32) / num_valid

        log_ratio = (new.log_prob - columns["log_prob"]).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
        gain = torch.minimum(ratio * columns["advantages"], clipped * columns["advantages"])
        # Select before multiplying: a left-out row may hold anything, and 0 * inf is not 0.
        policy_loss = -(torch.where(keep, gain, 0.0) * share).sum()

        squares = (new.values_normalised - columns["targets"]).square()
        if settings.value_clip_range is not None:
            moved = (new.values_normalised - columns["values"]).clamp(
                -settings.value_clip_range, settings.value_clip_range
            )
            squares = torch.maximum(
                squares, (columns["values"] + moved - columns["targets"]).square()
            )
        valid = batch.valid
        value_loss = torch.where(valid, squares.mean(dim=-1), 0.0).sum() / num_valid

        entropy = torch.where(keep, new.entropy, 0.0).sum() / num_valid
        loss = (
            settings.policy_weight * policy_loss
            + settings.value_weight * value_loss
            - settings.entropy_weight * entropy
        )
        with torch.no_grad():
            # The estimator (r - 1) - log r of the divergence: never negative, low variance.
            kl = torch.where(keep, ratio - 1 - log_ratio, 0.0).sum() / num_valid
            outside = ((ratio - 1).abs() > settings.clip_range) & keep
            terms = {
                "total_loss": loss.detach(),
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "approximate_kl": kl,
                "clip_fraction": outside.sum() / num_valid,
                "rows_without_legal_action": (new.no_legal & valid).sum(),
            }
        return loss, terms

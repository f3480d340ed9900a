"""MAPPO (Yu et al. 2022, arXiv 2103.01955): PPO for teams, with a critic that sees what its players do not.

Every player decides on its own observation; one network serves all seats of a role. The critic reads the
central state (``critic: central``), or what its player sees (``own``, which is IPPO). Decisions of players
who are out are no part of any mean. Beside the paper's method stand those of Hu et al. (2021, arXiv
2106.14334), which are settings of this one:

NV-MAPPO   ``value_noise``: each player's critic also reads a Gaussian vector that is its own.
NA-MAPPO   ``advantage_noise``: advantages are mixed with a Gaussian number of the player's own.
MAPG       ``clip_range: null``: the plain policy gradient.

``lamarckian algorithms`` lists the names these go by. Top to bottom: the settings, one update, the loss.

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
from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Arrays, Role
from lamarckian.mdp.critic_view import CriticView, Source
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.algorithm import ActorCriticSettings, PerHead, Unit
from lamarckian.rl.batches import Batch, Totals, explained_variance, staleness, to_batch
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.normalisers import RawValues
from lamarckian.rl.optimiser import GuardedAdam
from lamarckian.rl.policy import TorchPolicy, ValueNormalisation
from lamarckian.rl.returns import MAX_LOG_RATIO, generalised_advantages
from lamarckian.rl.training_state import load_training_state, training_state

EPSILON = 1e-5
Positive = Annotated[float, Meta(gt=0.0)]


class MAPPO(
    ActorCriticSettings,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="mappo",
):
    """PPO for teams: a central critic, value normalisation, clipped Huber value loss; noisy variants."""

    learning_rate: Annotated[
        float, Meta(gt=0.0, le=1.0, description="Step size of Adam at the start.")
    ] = 7e-4
    critic: Annotated[
        Source,
        Meta(
            description="What the critic reads: the central state, that and the player's own inputs, "
            "or the player's own inputs alone (IPPO)."
        ),
    ] = "central"
    num_epochs: Annotated[int, Meta(ge=1, description="Passes over each batch.")] = 10
    minibatch_size: Annotated[
        int, Meta(ge=0, description="Decisions per optimiser step; 0: the whole batch.")
    ] = 0
    clip_range: Annotated[
        Positive | None,
        Meta(
            description="How far the policy ratio may move the objective; null: the plain policy gradient "
            "(MAPG)."
        ),
    ] = 0.2
    value_clip_range: Annotated[
        Positive | None,
        Meta(description="Clip the critic's change too, in its own units; null: do not."),
    ] = 0.2
    huber_delta: Annotated[
        Positive | None,
        Meta(description="Errors of the critic beyond this count linearly; null: all are squared."),
    ] = 10.0
    value_weight: Annotated[float, Meta(ge=0.0, description="Weight of the value loss.")] = 1.0
    max_gradient_norm: Annotated[
        float, Meta(gt=0.0, description="Gradients beyond this norm are scaled down.")
    ] = 10.0
    gae_lambda: Annotated[
        PerHead, Meta(description="Lambda of advantage estimation; one number, or one per head.")
    ] = 0.95
    normalise_advantages: Annotated[
        bool, Meta(description="Scale advantages to mean 0, deviation 1 over each batch.")
    ] = True
    normalise_values: Annotated[
        ValueNormalisation,
        Meta(
            description="Let the critic learn scaled targets: by running statistics, or PopArt, "
            "which also keeps its outputs as they were."
        ),
    ] = "running"
    chunk_length: Annotated[
        int, Meta(ge=1, description="Decisions per sequence when a memory is trained.")
    ] = 10
    value_noise: Annotated[
        float,
        Meta(
            ge=0.0, description="Deviation of the vector the critic reads of each player; 0: none."
        ),
    ] = 0.0
    value_noise_size: Annotated[int, Meta(ge=1, description="Numbers in that vector.")] = 10
    value_noise_interval: Annotated[
        int, Meta(ge=0, description="Matches between dealing the vectors anew; 0: never.")
    ] = 0
    advantage_noise: Annotated[
        Unit, Meta(description="Share of a player's own constant noise in its advantages; 0: none.")
    ] = 0.0
    network: Annotated[NetworkConfig, Meta(description="Layers of policy and critic.")] = (
        NetworkConfig(
            hidden=(64, 64),
            critic_hidden=(),
            shared=False,
            activation="relu",
            layer_norm=True,
            input_norm=True,
        )
    )

    @property
    def is_asynchronous(self) -> bool:
        """MAPPO learns from data of its present policy, unless asked otherwise."""
        return False

    def critic_view(self, seed: int) -> CriticView:
        """Return what critics see; ``seed`` is the run's. Raises ConfigError for idle settings."""
        if not self.value_noise:
            for name in ("value_noise_size", "value_noise_interval"):
                if getattr(self, name) != getattr(MAPPO(), name):
                    raise ConfigError(
                        f"algorithm.{name}: has no effect without algorithm.value_noise"
                    )
        elif self.normalise_observations:
            raise ConfigError(
                "algorithm.normalise_observations: would scale the noise of algorithm.value_noise away; "
                "choose one of them"
            )
        return CriticView(
            source=self.critic,
            noise_size=self.value_noise_size if self.value_noise else 0,
            noise_scale=self.value_noise,
            shuffle_every=self.value_noise_interval,
            seed=seeding.derive(seed, "critic view"),
        )

    def make_learner(self, policy: TorchPolicy, seed: int) -> MAPPOLearner:
        """Build the learner that trains ``policy`` in place."""
        return MAPPOLearner(self, policy, seed)


class MAPPOLearner:
    """Turns trajectories into weights. The policy it trains is changed in place."""

    def __init__(self, settings: MAPPO, policy: TorchPolicy, seed: int) -> None:
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
        # One number per seat, drawn once and kept: it is a trait of the player.
        self.seat_noise = seeding.stream(seed, "advantage noise").standard_normal(
            role.seats, np.float32
        )

    def update(self, trajectory: Trajectory, progress: float = 0.0) -> dict[str, float]:
        """Learn from one batch; ``progress`` in [0, 1] is the share of the run that has passed.

        Returns the means of losses and diagnostics (names as in :mod:`lamarckian.metrics`). Raises
        NumericsError after too many non-finite steps in a row.
        """
        settings, policy = self.settings, self.policy
        learning_rate = settings.learning_rate_at(progress)
        self.optimiser.set_learning_rate(learning_rate)
        returns = generalised_advantages(trajectory, self.discounts, self.gae_lambdas)
        policy.train()
        kept = torch.from_numpy(returns.targets[trajectory.valid]).to(policy.device)
        policy.update_value_statistics(RawValues(kept))
        advantages = self.weighed(returns.advantages @ self.reward_weights, trajectory.valid)
        batch = to_batch(
            trajectory,
            policy.device,
            {
                "log_prob": trajectory.log_prob,
                "advantages": advantages,
                "targets": returns.targets,
                "values": trajectory.values,
            },
        )
        for name in ("targets", "values"):
            batch.columns[name] = policy.normalised_targets(RawValues(batch.columns[name]))
        totals = Totals()
        for _ in range(settings.num_epochs):
            for minibatch in batch.minibatches(settings.minibatch_size, self._rng):
                self._step(minibatch, totals)
        # Statistics of this batch's observations are for the next one: inside a batch the policy that
        # drew the actions and the one that learns must see the same numbers.
        policy.update_normalisers(trajectory.inputs, trajectory.valid, trajectory.state)
        policy.eval()
        policy.version += 1
        return {
            **totals.means(),
            **value_deviation(trajectory, policy.role),
            "explained_variance": explained_variance(returns.targets, trajectory),
            "learning_rate": learning_rate,
            "skipped_updates": float(self.optimiser.num_skipped),
            **staleness(policy.version, trajectory),
        }

    def weighed(
        self, advantages: NDArray[np.float32], valid: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return advantages ``[T, N]`` scaled over living players and mixed with their noise."""
        settings = self.settings
        scaled = advantages.astype(np.float32)
        if settings.normalise_advantages and valid.sum() > 1:
            kept = scaled[valid]
            scaled = (scaled - kept.mean()) / (kept.std() + np.float32(EPSILON))
        share = np.float32(settings.advantage_noise)
        if share:
            # Lanes are match-major: lane n is seat n % seats.
            lanes = self.seat_noise[np.arange(scaled.shape[1]) % len(self.seat_noise)]
            scaled = (1 - share) * scaled + share * lanes
        return scaled

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything the next update depends on, policy included, as (JSON data, arrays)."""
        data, arrays = training_state(self.policy, self.optimiser, self.num_updates)
        return {"rng": seeding.state_of(self._rng), **data}, arrays

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.num_updates = load_training_state(self.policy, self.optimiser, data, arrays)
        self._rng = seeding.restore(data["rng"])

    def _step(self, minibatch: Batch, totals: Totals) -> None:
        num_valid = float(minibatch.valid.sum())
        if num_valid == 0:
            return
        self.optimiser.zero_gradients()
        loss, terms = self._loss(minibatch, num_valid)
        loss.backward()  # type: ignore[no-untyped-call]
        terms["gradient_norm"] = self.optimiser.step(terms["total_loss"])
        totals.add({name: float(value) for name, value in terms.items()})
        self.num_updates += 1

    def _loss(self, batch: Batch, num_valid: float) -> tuple[Tensor, dict[str, Tensor]]:
        """The clipped objective and the clipped Huber loss; sums over rows divided by ``num_valid``."""
        settings = self.settings
        new = batch.evaluate(self.policy)
        columns = batch.columns
        valid = batch.valid
        keep = valid & ~new.no_legal

        log_ratio = (new.log_prob - columns["log_prob"]).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = log_ratio.exp()
        if settings.clip_range is None:
            gain = new.log_prob * columns["advantages"]
            outside = torch.zeros_like(keep)
        else:
            clipped = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
            gain = torch.minimum(ratio * columns["advantages"], clipped * columns["advantages"])
            outside = ((ratio - 1).abs() > settings.clip_range) & keep
        # Select before multiplying: a left-out row may hold anything, and 0 * inf is not 0.
        policy_loss = -torch.where(keep, gain, 0.0).sum() / num_valid

        values, before = new.values_normalised, columns["values"]
        errors = huber(columns["targets"] - values, settings.huber_delta)
        if settings.value_clip_range is not None:
            moved = (values - before).clamp(-settings.value_clip_range, settings.value_clip_range)
            errors = torch.maximum(
                errors, huber(columns["targets"] - before - moved, settings.huber_delta)
            )
        value_loss = torch.where(valid, errors.mean(dim=-1), 0.0).sum() / num_valid

        entropy = torch.where(keep, new.entropy, 0.0).sum() / num_valid
        loss = (
            settings.policy_weight * policy_loss
            + settings.value_weight * value_loss
            - settings.entropy_weight * entropy
        )
        with torch.no_grad():
            # The estimator (r - 1) - log r of the divergence: never negative, low variance.
            kl = torch.where(keep, ratio - 1 - log_ratio, 0.0).sum() / num_valid
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


def huber(errors: Tensor, delta: float | None) -> Tensor:
    """Return e^2 / 2 where |e| <= ``delta``, else ``delta`` (|e| - ``delta`` / 2); None: always e^2 / 2."""
    if delta is None:
        return errors.square() / 2
    size = errors.abs()
    return torch.where(size <= delta, errors.square() / 2, delta * (size - delta / 2))


def value_deviation(trajectory: Trajectory, role: Role) -> dict[str, float]:
    """Return how far values of team-mates lie apart: their deviation in a match and tick, averaged.

    Empty for a role with one seat, or where they never decided all at once. Noisy values are to raise it.
    """
    length, lanes = trajectory.valid.shape
    seats = role.seats
    if seats < 2 or lanes % seats:
        return {}
    valid = trajectory.valid.reshape(length, -1, seats)
    values = trajectory.values.mean(axis=-1).reshape(length, -1, seats)
    together = valid.all(axis=-1)
    if not together.any():
        return {}
    return {"value_deviation": float(values[together].std(axis=-1).mean())}

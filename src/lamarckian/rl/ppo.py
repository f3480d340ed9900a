"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), clipped objective.

Top to bottom: the settings, one update, the loss. The policy ratio is the joint one over all action
parts; advantages of several reward heads are estimated per head and then weighed together; terminated,
truncated and left-out decisions are told apart by the trajectory (see :mod:`lamarckian.rl.returns`).

Shape letters: ``T`` decisions, ``N`` lanes, ``B`` rows of a minibatch, ``K`` reward heads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from lamarckian import seeding
from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Arrays, below
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.normalisers import RawValues
from lamarckian.rl.optimiser import GuardedAdam
from lamarckian.rl.policy import TorchPolicy
from lamarckian.rl.returns import generalised_advantages

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped before the exponential: exp(89) is infinite in float32 (NUM-03)."""

Unit = Annotated[float, Meta(ge=0.0, le=1.0)]
PerHead = Unit | tuple[Unit, ...]


class PPO(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="name",
    tag="ppo",
):
    """Settings of PPO. A batch is ``num_games`` x seats x ``fragment_length`` decisions."""

    learning_rate: Annotated[
        float, Meta(gt=0.0, le=1.0, description="Step size of Adam at the start.")
    ] = 3e-4
    learning_rate_schedule: Annotated[
        Literal["constant", "linear"],
        Meta(description="linear: falls to zero over the frames of the run."),
    ] = "constant"
    num_games: Annotated[int, Meta(ge=1, description="Matches played side by side.")] = 64
    fragment_length: Annotated[
        int, Meta(ge=1, description="Decisions per lane in one batch (T).")
    ] = 64
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
    discount: Annotated[
        PerHead, Meta(description="Discount per decision; one number, or one per reward head.")
    ] = 0.99
    gae_lambda: Annotated[
        PerHead, Meta(description="Lambda of advantage estimation; one number, or one per head.")
    ] = 0.95
    reward_weights: Annotated[
        tuple[float, ...],
        Meta(description="Weight of each reward head in the policy's advantage; empty: all 1."),
    ] = ()
    policy_weight: Annotated[float, Meta(ge=0.0, description="Weight of the policy loss.")] = 1.0
    value_weight: Annotated[float, Meta(ge=0.0, description="Weight of the value loss.")] = 0.5
    entropy_weight: Annotated[float, Meta(ge=0.0, description="Weight of the entropy bonus.")] = (
        0.01
    )
    normalise_advantages: Annotated[
        bool, Meta(description="Scale advantages to mean 0, deviation 1 over each minibatch.")
    ] = True
    max_gradient_norm: Annotated[
        float, Meta(gt=0.0, description="Gradients beyond this norm are scaled down.")
    ] = 0.5
    target_kl: Annotated[
        Annotated[float, Meta(gt=0.0)] | None,
        Meta(description="Stop the epochs of a batch once the policy moved this far; None: never."),
    ] = None
    adam_epsilon: Annotated[float, Meta(gt=0.0, description="Epsilon of Adam.")] = 1e-5
    chunk_length: Annotated[
        int, Meta(ge=1, description="Decisions per sequence when a memory is trained.")
    ] = 16
    normalise_observations: Annotated[
        bool, Meta(description="Scale vector inputs by running mean and deviation.")
    ] = False
    normalise_values: Annotated[
        Literal["none", "running", "popart"],
        Meta(
            description="Let the critic learn scaled targets: by running statistics, or PopArt, "
            "which also keeps its outputs as they were."
        ),
    ] = "none"
    bounds: Annotated[
        Literal["clip", "tanh"],
        Meta(description="How continuous actions are kept inside their bounds."),
    ] = "clip"
    network: Annotated[NetworkConfig, Meta(description="Layers of policy and critic.")] = (
        NetworkConfig()
    )

    def per_head(
        self, name: Literal["discount", "gae_lambda"], num_rewards: int
    ) -> tuple[float, ...]:
        """Return ``discount`` or ``gae_lambda`` for each of ``num_rewards`` heads."""
        value = getattr(self, name)
        if isinstance(value, float | int):
            return (float(value),) * num_rewards
        if len(value) != num_rewards:
            raise ConfigError(
                f"algorithm.{name}: expected one number or {num_rewards} (one per reward head), "
                f"got {len(value)}"
            )
        return tuple(value)

    def make_policy(self, role: Any, seed: int) -> TorchPolicy:
        """Build the policy these settings describe for ``role``."""
        return TorchPolicy(
            role,
            self.network,
            seed,
            bounds=self.bounds,
            normalise_observations=self.normalise_observations,
            normalise_values=self.normalise_values,
        )

    def make_learner(self, policy: TorchPolicy, seed: int) -> PPOLearner:
        """Build the learner that trains ``policy`` in place."""
        return PPOLearner(self, policy, seed)


@dataclass(slots=True)
class _Batch:
    """A trajectory as tensors; leading axes ``[T*N]``, or ``[L, S]`` (steps, sequences) with memory."""

    inputs: dict[str, Tensor]
    legal: dict[str, Tensor]
    state: dict[str, Tensor]
    actions: dict[str, Tensor]
    log_prob: Tensor
    advantages: Tensor
    targets: Tensor
    values: Tensor
    valid: Tensor
    starts: Tensor | None
    recurrent: dict[str, Tensor]

    def rows(self, index: Tensor | slice) -> _Batch:
        """Select rows, or whole sequences where there is a memory."""
        axis = 0 if self.starts is None else 1

        def pick(tensor: Tensor) -> Tensor:
            if isinstance(index, slice):
                return tensor[index] if axis == 0 else tensor[:, index]
            return tensor.index_select(axis, index)

        def each(group: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: pick(tensor) for name, tensor in group.items()}

        return _Batch(
            each(self.inputs),
            each(self.legal),
            each(self.state),
            each(self.actions),
            pick(self.log_prob),
            pick(self.advantages),
            pick(self.targets),
            pick(self.values),
            pick(self.valid),
            None if self.starts is None else pick(self.starts),
            {
                name: tensor[index] if isinstance(index, slice) else tensor.index_select(0, index)
                for name, tensor in self.recurrent.items()
            },
        )


class PPOLearner:
    """Turns trajectories into weights. The policy it trains is changed in place."""

    def __init__(self, settings: PPO, policy: TorchPolicy, seed: int) -> None:
        role = policy.role
        self.settings = settings
        self.policy = policy
        self.discounts = np.array(settings.per_head("discount", role.num_rewards), np.float32)
        self.gae_lambdas = np.array(settings.per_head("gae_lambda", role.num_rewards), np.float32)
        weights = settings.reward_weights or (1.0,) * role.num_rewards
        if len(weights) != role.num_rewards:
            raise ConfigError(
                f"algorithm.reward_weights: expected {role.num_rewards} numbers for the heads "
                f"{', '.join(role.rewards)}, got {len(weights)}"
            )
        self.reward_weights = np.array(weights, np.float32)
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
        learning_rate = settings.learning_rate
        if settings.learning_rate_schedule == "linear":
            learning_rate *= max(0.0, 1.0 - progress)
        self.optimiser.set_learning_rate(learning_rate)
        returns = generalised_advantages(trajectory, self.discounts, self.gae_lambdas)
        self.policy.train()
        self.policy.update_value_statistics(
            RawValues(torch.from_numpy(returns.targets[trajectory.valid]).to(self.policy.device))
        )
        batch = self._tensors(trajectory, returns.advantages @ self.reward_weights, returns.targets)
        totals = _Totals()
        for _ in range(settings.num_epochs):
            divergences = [self._step(minibatch, totals) for minibatch in self._minibatches(batch)]
            if settings.target_kl is not None and np.mean(divergences) > settings.target_kl:
                break
        # Statistics of this batch's observations are for the next one: inside a batch the policy that
        # drew the actions and the one that learns must see the same numbers.
        self.policy.update_normalisers(trajectory.inputs, trajectory.valid, trajectory.state)
        self.policy.eval()
        self.policy.version += 1
        staleness = self.policy.version - trajectory.policy_version[trajectory.valid]
        return {
            **totals.means(),
            "explained_variance": _explained_variance(returns.targets, trajectory),
            "learning_rate": learning_rate,
            "skipped_updates": float(self.optimiser.num_skipped),
            "staleness_mean": float(staleness.mean()) if len(staleness) else 0.0,
            "staleness_p95": float(np.percentile(staleness, 95)) if len(staleness) else 0.0,
            "staleness_max": float(staleness.max()) if len(staleness) else 0.0,
        }

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything the next update depends on, policy included, as (JSON data, arrays)."""
        data, arrays = self.optimiser.state()
        policy = {f"policy/{name}": array for name, array in self.policy.arrays().items()}
        return (
            {
                "rng": seeding.state_of(self._rng),
                "optimiser": data,
                "version": self.policy.version,
                "num_updates": self.num_updates,
            },
            {**policy, **{f"optimiser/{name}": array for name, array in arrays.items()}},
        )

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.policy.load_arrays(below("policy/", arrays))
        self.policy.version = int(data["version"])
        self.optimiser.load_state(data["optimiser"], below("optimiser/", arrays))
        self.num_updates = int(data["num_updates"])
        self._rng = seeding.restore(data["rng"])

    def _tensors(
        self, trajectory: Trajectory, advantages: NDArray[np.float32], targets: NDArray[np.float32]
    ) -> _Batch:
        length, lanes = trajectory.log_prob.shape
        device = self.policy.device
        chunk = trajectory.chunk_length if trajectory.recurrent else 0
        if chunk and length % chunk:
            raise ConfigError(
                f"algorithm.fragment_length: expected a multiple of chunk_length ({chunk}) for a "
                f"policy with memory, got {length}"
            )

        def tensor(array: NDArray[Any]) -> Tensor:
            if chunk:
                rest = array.shape[2:]
                steps = array.reshape(length // chunk, chunk, lanes, *rest)
                array = np.moveaxis(steps, 1, 0).reshape(chunk, -1, *rest)
            else:
                array = array.reshape(length * lanes, *array.shape[2:])
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        def each(group: Arrays) -> dict[str, Tensor]:
            return {name: tensor(array) for name, array in group.items()}

        normalised = self.policy.normalised_targets
        return _Batch(
            each(trajectory.inputs),
            each(trajectory.legal),
            each(trajectory.state),
            each(trajectory.actions),
            tensor(trajectory.log_prob),
            tensor(advantages),
            normalised(RawValues(tensor(targets))),
            normalised(RawValues(tensor(trajectory.values))),
            tensor(trajectory.valid),
            tensor(trajectory.starts) if chunk else None,
            {
                name: torch.from_numpy(array.reshape(-1, *array.shape[2:])).to(device)
                for name, array in trajectory.recurrent.items()
            }
            if chunk
            else {},
        )

    def _minibatches(self, batch: _Batch) -> Iterator[_Batch]:
        """Yield one epoch of minibatches, shuffled; whole sequences where there is a memory."""
        num = batch.valid.shape[-1]
        steps = 1 if batch.starts is None else batch.valid.shape[0]
        size = (
            max(1, self.settings.minibatch_size // steps) if self.settings.minibatch_size else num
        )
        if size >= num:
            yield batch
            return
        order = torch.from_numpy(self._rng.permutation(num)).to(batch.valid.device)
        # The last minibatch takes the remainder rather than making a tiny one with a noisy gradient.
        edges = [*range(0, num - size + 1, size), num]
        for first, last in itertools.pairwise(edges):
            yield batch.rows(order[first:last])

    def _step(self, minibatch: _Batch, totals: _Totals) -> float:
        """One optimiser step on one minibatch, micro-batch by micro-batch; returns the divergence."""
        settings = self.settings
        num_valid = float(minibatch.valid.sum())
        if num_valid == 0:
            return 0.0
        if settings.normalise_advantages and num_valid > 1:
            kept = minibatch.advantages[minibatch.valid]
            minibatch.advantages = (minibatch.advantages - kept.mean()) / (
                kept.std(correction=0) + 1e-8
            )
        num = minibatch.valid.shape[-1]
        steps = 1 if minibatch.starts is None else minibatch.valid.shape[0]
        size = max(1, settings.microbatch_size // steps) if settings.microbatch_size else num
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

    def _loss(self, batch: _Batch, num_valid: float) -> tuple[Tensor, dict[str, Tensor]]:
        """The clipped objective (equations 7 and 9); sums over rows divided by ``num_valid``."""
        settings = self.settings
        new = self.policy.evaluate_actions(
            batch.inputs,
            batch.legal,
            batch.state,
            batch.actions,
            recurrent=batch.recurrent or None,
            starts=batch.starts,
        )
        keep = batch.valid & ~new.no_legal
        share = keep.to(torch.float32) / num_valid

        log_ratio = (new.log_prob - batch.log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
        gain = torch.minimum(ratio * batch.advantages, clipped * batch.advantages)
        # Select before multiplying: a left-out row may hold anything, and 0 * inf is not 0.
        policy_loss = -(torch.where(keep, gain, 0.0) * share).sum()

        squares = (new.values_normalised - batch.targets).square()
        if settings.value_clip_range is not None:
            moved = (new.values_normalised - batch.values).clamp(
                -settings.value_clip_range, settings.value_clip_range
            )
            squares = torch.maximum(squares, (batch.values + moved - batch.targets).square())
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


class _Totals:
    """Running means of what the optimiser steps of one update report."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.count = 0

    def add(self, terms: dict[str, float]) -> None:
        self.count += 1
        for name, value in terms.items():
            if np.isfinite(value):
                self.sums[name] = self.sums.get(name, 0.0) + value

    def means(self) -> dict[str, float]:
        return {name: total / self.count for name, total in self.sums.items()}


def _explained_variance(targets: NDArray[np.float32], trajectory: Trajectory) -> float:
    """1 - Var(target - value) / Var(target) over all heads; 0 where targets do not vary."""
    wanted = targets[trajectory.valid]
    variance = float(wanted.var()) if len(wanted) else 0.0
    if variance == 0.0:
        return 0.0
    return 1.0 - float((wanted - trajectory.values[trajectory.valid]).var()) / variance

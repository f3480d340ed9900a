"""What the algorithms that learn from a replay have in common: settings, pace, target networks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import nn

from lamarckian.errors import ConfigError, UnsupportedSpace
from lamarckian.mdp.core import Arrays, Role
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.algorithm import Unit
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.replay import Replay


class ReplaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the algorithms with a replay memory have in common."""

    learning_rate: Annotated[
        float, Meta(gt=0.0, le=1.0, description="Step size of Adam at the start.")
    ] = 5e-4
    learning_rate_schedule: Annotated[
        Literal["constant", "linear"],
        Meta(description="linear: falls to zero over the frames of the run."),
    ] = "constant"
    num_games: Annotated[int, Meta(ge=1, description="Matches played side by side.")] = 8
    fragment_length: Annotated[
        int,
        Meta(
            ge=1,
            description="Decisions per lane between two visits of the learner; n-step returns do "
            "not reach across the end of a fragment.",
        ),
    ] = 16
    discount: Annotated[Unit, Meta(description="Discount per decision.")] = 0.99
    reward_weights: Annotated[
        tuple[float, ...],
        Meta(description="Weight of each reward head in the one reward learned; empty: all 1."),
    ] = ()
    num_steps: Annotated[
        int, Meta(ge=1, description="Rewards in a target before it bootstraps (n).")
    ] = 1
    batch_size: Annotated[int, Meta(ge=1, description="Decisions in one optimiser step.")] = 128
    decisions_per_update: Annotated[
        float, Meta(gt=0.0, description="Decisions collected for each optimiser step.")
    ] = 4.0
    learning_starts: Annotated[
        int, Meta(ge=0, description="Decisions in the replay before the first optimiser step.")
    ] = 1000
    replay_size: Annotated[
        int,
        Meta(ge=1, description="Rows kept: decisions, and the final observations of cuts."),
    ] = 100_000
    prioritised: Annotated[
        bool, Meta(description="Draw decisions in proportion to how wrong their estimates were.")
    ] = False
    priority_exponent: Annotated[
        float, Meta(gt=0.0, description="alpha: how strongly errors count. Only prioritised.")
    ] = 0.6
    importance_exponent: Annotated[
        Unit,
        Meta(description="beta at the start; grows to 1 over the run. Only prioritised."),
    ] = 0.4
    max_gradient_norm: Annotated[
        float, Meta(gt=0.0, description="Gradients beyond this norm are scaled down.")
    ] = 10.0
    adam_epsilon: Annotated[float, Meta(gt=0.0, description="Epsilon of Adam.")] = 1e-5
    normalise_observations: Annotated[
        bool, Meta(description="Scale vector inputs by running mean and deviation.")
    ] = False

    @property
    def chunk_length(self) -> int:
        """Nothing is stored for policies with memory: they are refused."""
        return self.fragment_length

    @property
    def is_asynchronous(self) -> bool:
        """A replay is made of data of older policies."""
        return True

    def per_head(self, name: str, num_rewards: int) -> tuple[float, ...]:
        """Return the setting ``name`` for each reward head: the same for all."""
        return (float(getattr(self, name)),) * num_rewards

    def head_weights(self, role: Role) -> NDArray[np.float32]:
        """Return the weight of each reward head, float32 ``[K]``. Raises ConfigError."""
        weights = self.reward_weights or (1.0,) * role.num_rewards
        if len(weights) != role.num_rewards:
            raise ConfigError(
                f"algorithm.reward_weights: expected {role.num_rewards} numbers for the heads "
                f"{', '.join(role.rewards)}, got {len(weights)}"
            )
        return np.array(weights, np.float32)

    def learning_rate_at(self, progress: float) -> float:
        """Return the step size once the share ``progress`` of the run has passed."""
        if self.learning_rate_schedule == "linear":
            return self.learning_rate * max(0.0, 1.0 - progress)
        return self.learning_rate

    def importance_at(self, progress: float) -> float:
        """Return beta once the share ``progress`` of the run has passed."""
        return self.importance_exponent + (1.0 - self.importance_exponent) * min(1.0, progress)

    def make_replay(self, role: Role, seed: int) -> Replay:
        """Build the replay of ``role``.

        Raises ConfigError for settings that contradict each other or do not fit into memory.
        """
        default = ReplaySettings()
        if not self.prioritised:
            for name in ("priority_exponent", "importance_exponent"):
                if getattr(self, name) != getattr(default, name):
                    raise ConfigError(
                        f"algorithm.{name}: has no effect without algorithm.prioritised true"
                    )
        # The smallest batch: one row per decision, and one final observation per lane.
        rows = self.num_games * role.seats * (self.fragment_length + 1)
        for name, least in (
            ("one batch of experience", rows),
            ("learning_starts", self.learning_starts),
        ):
            if self.replay_size < least:
                raise ConfigError(
                    f"algorithm.replay_size: expected at least {least} rows ({name}), got "
                    f"{self.replay_size}"
                )
        return Replay(
            role,
            self.replay_size,
            num_steps=self.num_steps,
            discount=self.discount,
            reward_weights=self.head_weights(role),
            priority_exponent=self.priority_exponent if self.prioritised else 0.0,
            seed=seed,
        )


class Pace:
    """How many optimiser steps the decisions collected so far are good for."""

    def __init__(self, settings: ReplaySettings, replay: Replay) -> None:
        self.settings = settings
        self.replay = replay
        self.owed = 0.0

    def steps(self, trajectory: Trajectory) -> int:
        """Put a trajectory into the replay; return the optimiser steps that are due for it."""
        self.replay.add(trajectory)
        if self.replay.num_learnable < max(1, self.settings.learning_starts):
            return 0
        self.owed += trajectory.num_decisions / self.settings.decisions_per_update
        steps = int(self.owed)
        self.owed -= steps
        return steps


def refuse_memory(network: NetworkConfig, name: str) -> None:
    """Raise UnsupportedSpace for a policy with memory: a replay of single decisions has none."""
    if network.memory != "none":
        raise UnsupportedSpace(
            f"network.memory {network.memory}: {name} learns from single decisions out of a replay, "
            "which hold no memory; use ppo or impala, or network.memory none"
        )


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, rate: float) -> None:
    """Move the parameters of ``target`` towards those of ``online``: by ``rate``, 1 copies."""
    for old, new in zip(target.parameters(), online.parameters(), strict=True):
        if rate == 1.0:
            old.copy_(new)
        else:
            old.lerp_(new, rate)


def parameters_of(module: nn.Module) -> Arrays:
    """Return copies of a module's parameters by name."""
    return {name: p.detach().cpu().numpy().copy() for name, p in module.named_parameters()}


@torch.no_grad()
def load_parameters(module: nn.Module, arrays: Arrays) -> None:
    """Put back what :func:`parameters_of` took."""
    for name, parameter in module.named_parameters():
        parameter.copy_(torch.from_numpy(arrays[name]))


def named(prefix: str, arrays: Arrays) -> Arrays:
    """Return ``arrays`` under ``prefix``."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def replay_state(replay: Replay, pace: Pace) -> tuple[dict[str, Any], Arrays]:
    """Return replay and pace as (JSON data, arrays named ``replay/...``)."""
    data, arrays = replay.state()
    return {"replay": data, "owed": pace.owed}, named("replay/", arrays)

"""What a training asks of an algorithm, whichever it is: its settings, and what it learns with.

Two contracts, and one record of settings most algorithms share. Everything around the algorithms (assembly,
actors, collectors, runs) is written against the contracts; ``Algorithm`` in :mod:`lamarckian.rl.assembly`
is the union of the settings that exist. An algorithm is one file: its settings, its learner, its loss.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Arrays, Role
from lamarckian.mdp.trajectory import Trajectory
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.policy import TorchPolicy

Unit = Annotated[float, Meta(ge=0.0, le=1.0)]
PerHead = Unit | tuple[Unit, ...]


class Learner(Protocol):
    """Turns trajectories into weights. The policy it trains is changed in place."""

    policy: TorchPolicy
    num_updates: int

    def update(self, trajectory: Trajectory, progress: float = 0.0) -> dict[str, float]:
        """Learn from one batch; ``progress`` in [0, 1] is the share of the run that has passed.

        Raises ``policy.version`` by one. Returns means of losses and diagnostics (names as in
        :mod:`lamarckian.metrics`). Raises NumericsError after too many non-finite steps in a row.
        """
        ...

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return everything the next update depends on, policy included, as (JSON data, arrays).

        The data hold ``version``, and the policy's arrays are named ``policy/...``.
        """
        ...

    def load_state(self, data: dict[str, Any], arrays: Arrays) -> None:
        """Continue exactly where :meth:`state` was taken."""
        ...


class AlgorithmSettings(Protocol):
    """The settings of an algorithm: a record with a ``name``, and what it builds."""

    @property
    def num_games(self) -> int:
        """Matches played side by side, over all actors."""
        ...

    @property
    def fragment_length(self) -> int:
        """Decisions per lane in one trajectory (T)."""
        ...

    @property
    def chunk_length(self) -> int:
        """Decisions between two stored states of a policy's memory."""
        ...

    @property
    def is_asynchronous(self) -> bool:
        """Whether actors in processes of their own play on while the learner learns, unless the user
        says otherwise: true of algorithms made for data of older policies."""
        ...

    def per_head(self, name: str, num_rewards: int) -> tuple[float, ...]:
        """Return the setting ``name`` (``discount``) for each reward head. Raises ConfigError."""
        ...

    def make_policy(self, role: Role, seed: int) -> TorchPolicy:
        """Build the policy of ``role``.

        Raises UnsupportedSpace for a role the algorithm cannot learn, ConfigError for settings that do
        not fit it. Called for every role before any actor is started.
        """
        ...

    def make_learner(self, policy: TorchPolicy, seed: int) -> Learner:
        """Build the learner that trains ``policy`` in place. Raises ConfigError, as above."""
        ...


class ActorCriticSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the actor-critic algorithms have in common. One batch is ``num_games`` x seats x
    ``fragment_length`` decisions."""

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
    discount: Annotated[
        PerHead, Meta(description="Discount per decision; one number, or one per reward head.")
    ] = 0.99
    reward_weights: Annotated[
        tuple[float, ...],
        Meta(description="Weight of each reward head in the policy's advantage; empty: all 1."),
    ] = ()
    policy_weight: Annotated[float, Meta(ge=0.0, description="Weight of the policy loss.")] = 1.0
    value_weight: Annotated[float, Meta(ge=0.0, description="Weight of the value loss.")] = 0.5
    entropy_weight: Annotated[float, Meta(ge=0.0, description="Weight of the entropy bonus.")] = (
        0.01
    )
    max_gradient_norm: Annotated[
        float, Meta(gt=0.0, description="Gradients beyond this norm are scaled down.")
    ] = 0.5
    adam_epsilon: Annotated[float, Meta(gt=0.0, description="Epsilon of Adam.")] = 1e-5
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

    def per_head(self, name: str, num_rewards: int) -> tuple[float, ...]:
        """Return ``discount`` or another setting per reward head for each of ``num_rewards`` heads."""
        value = getattr(self, name)
        if isinstance(value, float | int):
            return (float(value),) * num_rewards
        if len(value) != num_rewards:
            raise ConfigError(
                f"algorithm.{name}: expected one number or {num_rewards} (one per reward head), "
                f"got {len(value)}"
            )
        return tuple(value)

    def head_weights(self, role: Role) -> NDArray[np.float32]:
        """Return the weight of each reward head, float32 ``[K]``."""
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

    def make_policy(self, role: Role, seed: int) -> TorchPolicy:
        """Build the policy these settings describe for ``role``."""
        return TorchPolicy(
            role,
            self.network,
            seed,
            bounds=self.bounds,
            normalise_observations=self.normalise_observations,
            normalise_values=self.normalise_values,
        )

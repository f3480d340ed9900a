"""The networks of P members as one: weights side by side, layers as batched matrix products.

One optimiser takes the steps of all members, each with its own step size and guard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lamarckian.mdp.core import Arrays, Role
from lamarckian.mdp.policy import Decisions
from lamarckian.rl.distributions import ActionDistribution, limit_log_std
from lamarckian.rl.normalisers import CLIP, RunningNormaliser
from lamarckian.rl.policy import TorchPolicy

Place = tuple[int, int, tuple[int, ...]]
_BETA_1, _BETA_2 = 0.9, 0.999


class StackedNetwork:
    """Feed-forward policies of one shape, critic on the policy's trunk, in one ``[P, D]`` tensor.

    ``places`` maps a parameter's name to ``(start, end, shape)`` within a row.
    """

    def __init__(self, policies: Sequence[TorchPolicy]) -> None:
        self.policies = list(policies)
        first = policies[0]
        self.network = first.network
        self.inputs = list(self.network.torso.keys)
        self.places: dict[str, Place] = {}
        start = 0
        for name, parameter in first.named_parameters():
            end = start + parameter.numel()
            self.places[name] = (start, end, tuple(parameter.shape))
            start = end
        self._sizes = [end - begin for begin, end, _ in self.places.values()]
        self.weights = torch.empty(len(policies), start)
        self.scalers: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self.value_shift: Tensor | None = None
        self.value_scale: Tensor | None = None
        self.refresh()
        for row, policy in enumerate(policies):
            for name, parameter in policy.named_parameters():
                begin, end, _ = self.places[name]
                self.weights[row, begin:end] = parameter.detach().reshape(-1)

    def unstack(self) -> None:
        """Write the rows back into the members' own networks."""
        with torch.no_grad():
            for row, policy in enumerate(self.policies):
                for name, parameter in policy.named_parameters():
                    begin, end, shape = self.places[name]
                    parameter.copy_(self.weights[row, begin:end].reshape(shape))

    def refresh(self) -> None:
        """Read the members' running statistics; call it whenever they have changed."""
        for name, key in self.network.torso.keys.items():
            if key not in self.network.torso.normalisers:
                continue
            own: list[RunningNormaliser] = [
                cast(RunningNormaliser, policy.network.torso.normalisers[key])
                for policy in self.policies
            ]
            # One that has seen nothing yet passes its input on as it is.
            limits = [CLIP if each.ready else torch.inf for each in own]
            self.scalers[name] = (
                torch.stack([each.shift.reshape(1, -1) for each in own]),
                torch.stack([each.scale.reshape(1, -1) for each in own]),
                torch.tensor(limits)[:, None, None],
            )
        values = [each.value_normaliser for each in self.policies if each.value_normaliser]
        if values:
            self.value_shift = torch.stack([each.shift for each in values])[:, None]
            self.value_scale = torch.stack([each.scale for each in values])[:, None]

    def normalised_values(self, values: Tensor) -> Tensor:
        """Convert ``[P, B, K]`` from units of reward to those of each member's critic."""
        if self.value_shift is None or self.value_scale is None:
            return values
        return (values - self.value_shift) / self.value_scale

    def denormalised_values(self, values: Tensor) -> Tensor:
        """Convert ``[P, B, K]`` from units of each member's critic to those of reward."""
        if self.value_shift is None or self.value_scale is None:
            return values
        return values * self.value_scale + self.value_shift

    def features(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return ``[P, B, F]`` of named inputs ``[P, B, ...]``, in the order of the network."""
        parts = [self._scaled(name, inputs[name].flatten(2).float()) for name in self.inputs]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    def _scaled(self, name: str, part: Tensor) -> Tensor:
        part = part if part.dim() == 3 else part.unsqueeze(2)
        if name not in self.scalers:
            return part
        shift, scale, limit = self.scalers[name]
        return ((part - shift) * scale).clamp_(-limit, limit)

    def forward(
        self, weights: Tensor, features: Tensor, with_policy: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return head outputs ``[P, B, A]`` and values ``[P, B, K]`` under ``weights`` ``[P, D]``.

        Values are in units of each member's critic.
        """
        pieces = dict(zip(self.places, torch.split(weights, self._sizes, dim=1), strict=True))
        bottom = self._layers("network.trunk", self.network.trunk, pieces, features)
        outputs = features
        if with_policy:
            outputs = self._outputs(self._linear("network.policy_head", pieces, bottom), pieces)
        top = self._layers("network.critic", self.network.critic, pieces, bottom)
        return outputs, self._linear("network.value_head", pieces, top)

    def _layers(
        self, prefix: str, layers: nn.Sequential, pieces: Mapping[str, Tensor], hidden: Tensor
    ) -> Tensor:
        for index, layer in enumerate(layers):
            name = f"{prefix}.{index}"
            if isinstance(layer, nn.Linear):
                hidden = self._linear(name, pieces, hidden)
            elif isinstance(layer, nn.LayerNorm):
                hidden = nn.functional.layer_norm(hidden, layer.normalized_shape, eps=layer.eps)
                hidden = hidden * pieces[f"{name}.weight"].unsqueeze(1)
                hidden = hidden + pieces[f"{name}.bias"].unsqueeze(1)
            else:
                hidden = layer(hidden)
        return hidden

    def _linear(self, name: str, pieces: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        shape = self.places[f"{name}.weight"][2]
        weight = pieces[f"{name}.weight"].reshape(-1, *shape)
        bias = pieces[f"{name}.bias"].unsqueeze(1)
        return torch.baddbmm(bias, hidden, weight.transpose(1, 2))

    def _outputs(self, head: Tensor, pieces: Mapping[str, Tensor]) -> Tensor:
        network, config = self.network, self.network.config
        low, high = config.log_std_range
        soft = config.log_std_limit == "soft"
        if network.log_std is not None:
            spread = limit_log_std(pieces["network.log_std"], low, high, soft)
            return torch.cat([head, spread.unsqueeze(1).expand(-1, head.shape[1], -1)], dim=2)
        if network.dependent:
            middle = network.distribution.num_locations
            spread = limit_log_std(head[..., middle:], low, high, soft)
            return torch.cat([head[..., :middle], spread], dim=2)
        return head


class StackedPolicy:
    """Decides for the rows of all members, which stand side by side in equal shares.

    Implements :class:`lamarckian.mdp.policy.Policy`. Its "memory" is the number of the member a row
    belongs to: so bootstrap observations, which come for any rows, find their network.
    """

    def __init__(
        self, role: Role, network: StackedNetwork, distribution: ActionDistribution
    ) -> None:
        self.role = role
        self.version = 0
        self.memory: Arrays = {"member": np.zeros((), np.int64)}
        self.network = network
        self.distribution = distribution
        self.num_members = len(network.policies)

    def act(
        self,
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        noise: NDArray[np.float32] | None,
    ) -> Decisions:
        """Decide for ``P x N`` rows, member by member."""
        rows = len(recurrent["member"])
        share = rows // self.num_members
        with torch.inference_mode():
            stacked = {
                name: _tensor(
                    inputs[name].reshape(self.num_members, share, *inputs[name].shape[1:])
                )
                for name in self.network.inputs
            }
            features = self.network.features(stacked)
            outputs, values = self.network.forward(self.network.weights, features)
            actions, log_prob = self.distribution.sample(
                outputs.flatten(0, 1),
                {name: _tensor(legal[name]) for name in self.role.masked},
                None if noise is None else _tensor(noise),
            )
            raw = {name: tensor.numpy() for name, tensor in actions.items()}
            return Decisions(
                game_actions=self.distribution.game_actions(raw),
                actions=raw,
                log_prob=log_prob.numpy(),
                values=self.network.denormalised_values(values).flatten(0, 1).numpy(),
                recurrent={"member": np.arange(rows) // share},
            )

    def values(self, inputs: Arrays, state: Arrays, recurrent: Arrays) -> NDArray[np.float32]:
        """Return value estimates ``[F, K]`` of rows of any members."""
        members = np.asarray(recurrent["member"])
        order = np.argsort(members, kind="stable")
        counts = np.bincount(members, minlength=self.num_members)
        width = max(int(counts.max(initial=0)), 1)
        place = np.arange(len(members)) - np.repeat(np.cumsum(counts) - counts, counts)
        with torch.inference_mode():
            stacked = {}
            for name in self.network.inputs:
                array = np.asarray(inputs[name])
                padded = np.zeros((self.num_members, width, *array.shape[1:]), array.dtype)
                padded[members[order], place] = array[order]
                stacked[name] = torch.from_numpy(padded)
            features = self.network.features(stacked)
            _, values = self.network.forward(self.network.weights, features, with_policy=False)
            values = self.network.denormalised_values(values)
            sorted_values = values.numpy()[members[order], place]
        found: NDArray[np.float32] = np.empty_like(sorted_values)
        found[order] = sorted_values
        return found


class StackedAdam:
    """Adam for P members: step sizes, step counts, gradient clipping and the guard are their own.

    All tensors are ``[P, D]``, per-member numbers ``[P, 1]``.
    """

    def __init__(
        self,
        weights: Tensor,
        moments: tuple[Tensor, Tensor, Tensor],
        learning_rates: Tensor,
        max_norms: Tensor,
        epsilon: float,
    ) -> None:
        self.weights = weights
        self.mean, self.square, self.steps = moments
        self.learning_rates = learning_rates
        self.max_norms = max_norms
        self.epsilon = epsilon
        self.num_skipped = torch.zeros(len(weights), dtype=torch.int64)
        self.in_a_row = torch.zeros(len(weights), dtype=torch.int64)

    @torch.no_grad()
    def step(self, gradient: Tensor, losses: Tensor, active: Tensor) -> None:
        """Take one step of the members that are ``active`` bool [P] and whose numbers are finite."""
        norms = gradient.norm(dim=1, keepdim=True)
        sound = torch.isfinite(norms[:, 0]) & torch.isfinite(losses)
        taken = (sound & active)[:, None]
        skipped = active & ~sound
        self.num_skipped += skipped
        self.in_a_row = torch.where(sound, 0, self.in_a_row + skipped)
        everybody = bool(taken.all())
        before = (
            None if everybody else (self.weights.clone(), self.mean.clone(), self.square.clone())
        )
        self.steps += taken
        gradient = gradient.mul_((self.max_norms / (norms + 1e-6)).clamp_(max=1.0))
        self.mean.lerp_(gradient, 1.0 - _BETA_1)
        self.square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1.0 - _BETA_2)
        steps = self.steps.clamp(min=1.0)
        root = (1.0 - _BETA_2**steps).sqrt_()
        denominator = self.square.sqrt().div_(root).add_(self.epsilon)
        size = self.learning_rates / (1.0 - _BETA_1**steps)
        self.weights.sub_((self.mean / denominator).mul_(size))
        if before is not None:
            for now, then in zip((self.weights, self.mean, self.square), before, strict=True):
                now.copy_(torch.where(taken, now, then))


def _tensor(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())

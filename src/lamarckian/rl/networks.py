"""The network of a policy and its critic: torso, trunk, memory, heads.

Shape letters: ``T`` time, ``B`` batch, ``P`` head outputs, ``K`` reward heads, ``H`` memory units.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lamarckian.mdp.core import Role
from lamarckian.rl.distributions import ActionDistribution, limit_log_std, unlimited_log_std
from lamarckian.rl.encoders import Torso, initialise, mlp
from lamarckian.rl.network_config import DEFAULT_MEMORY_SIZE, NetworkConfig, PolicyKind

Tensors = dict[str, Tensor]


class Memory(nn.Module):
    """An LSTM or GRU whose state is zero where a life starts, wherever in a chunk that is.

    Its state is a mapping: ``hidden`` (and ``cell`` for an LSTM), each ``[B, H]``, under
    ``prefix``.
    """

    def __init__(self, kind: str, inputs: int, size: int, prefix: str = "") -> None:
        super().__init__()
        self.size = size
        self.names = [f"{prefix}hidden"] + ([f"{prefix}cell"] if kind == "lstm" else [])
        self.layer: nn.LSTM | nn.GRU = (nn.LSTM if kind == "lstm" else nn.GRU)(inputs, size)
        for name, parameter in self.layer.named_parameters():
            if name.startswith("weight"):
                for gate in torch.split(parameter.detach(), size):
                    nn.init.orthogonal_(gate)
            else:
                nn.init.zeros_(parameter)
        if kind == "lstm":  # remember by default (Jozefowicz et al. 2015): forget gate bias 1
            with torch.no_grad():
                self.layer.get_parameter("bias_ih_l0")[size : 2 * size] = 1.0

    def forward(
        self, features: Tensor, state: Mapping[str, Tensor], starts: Tensor | None
    ) -> tuple[Tensor, Tensors]:
        """Run ``features`` ``[T, B, F]`` from ``state``; return ``[T, B, H]`` and the last state.

        ``starts`` bool ``[T, B]``: the state is zero before these decisions. The sequence is cut
        only where somebody starts, so a chunk inside one life is one call.
        """
        present = [state[name] for name in self.names]
        if starts is None:
            outputs, present = self._run(features, present)
            return outputs, dict(zip(self.names, present, strict=True))
        cuts = starts.any(dim=1).nonzero().flatten().tolist()
        edges = sorted({0, *cuts})
        pieces: list[Tensor] = []
        for begin, end in zip(edges, [*edges[1:], features.shape[0]], strict=True):
            fresh = starts[begin].unsqueeze(1)
            present = [torch.where(fresh, torch.zeros_like(part), part) for part in present]
            piece, present = self._run(features[begin:end], present)
            pieces.append(piece)
        outputs = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        return outputs, dict(zip(self.names, present, strict=True))

    def _run(self, features: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        stacked = [part.unsqueeze(0) for part in state]
        if isinstance(self.layer, nn.LSTM):
            outputs, (hidden, cell) = self.layer(features, (stacked[0], stacked[1]))
            return outputs, [hidden[0], cell[0]]
        outputs, hidden = self.layer(features, stacked[0])
        return outputs, [hidden[0]]


class ActorCritic(nn.Module):
    """Policy head and ``K`` value heads over a shared or separate bottom.

    Shared: the critic's layers stand on the policy's trunk (and memory); a central state, if the
    role declares one, is encoded by a torso of its own and joined there. Separate: the critic has
    its own torso, trunk and memory, and reads the central state instead of the inputs where there
    is one.

    Other kinds (see :data:`~.network_config.PolicyKind`): ``actor`` is the policy head alone. ``q``
    reads the head's columns as action values, ``dueling-q`` as advantages around a state value that
    stands on the trunk (Wang et al. 2016, equation 9; per choice: Tavakoli et al. 2018). Neither sees
    the central state, since the player who acts does not. ``epsilon``, the chance of a random action,
    is kept here for action values, so that it travels with the weights.
    """

    epsilon: Tensor | None
    value_head: nn.Linear | None

    def __init__(
        self,
        role: Role,
        config: NetworkConfig,
        distribution: ActionDistribution,
        normalise: bool,
        kind: PolicyKind = "actor-critic",
    ) -> None:
        super().__init__()
        self.config = config
        self.kind: PolicyKind = kind
        self.distribution = distribution
        self.torso = Torso(role.inputs, config, normalise)
        self.trunk = mlp(self.torso.size, config.hidden, config)
        size = config.hidden[-1] if config.hidden else self.torso.size
        units = config.memory_size or DEFAULT_MEMORY_SIZE
        self.memory: Memory | None = None
        if config.memory != "none":
            self.memory = Memory(config.memory, size, units)
        top = units if self.memory is not None else size
        spreads = distribution.num_outputs - distribution.num_locations
        self.dependent = config.log_std == "dependent" and spreads > 0
        width = distribution.num_outputs if self.dependent else distribution.num_locations
        self.policy_head = nn.Linear(top, width)
        initialise(self.policy_head, config.output_gain)
        first = unlimited_log_std(
            config.initial_log_std, *config.log_std_range, config.log_std_limit == "soft"
        )
        self.log_std: nn.Parameter | None = None
        if self.dependent:
            with torch.no_grad():
                self.policy_head.bias[distribution.num_locations :] = first
        elif spreads:
            self.log_std = nn.Parameter(torch.full((spreads,), first))
        has_critic = kind == "actor-critic"
        sees_state = has_critic and bool(role.state)
        self.state_torso = Torso(role.state, config, normalise) if sees_state else None
        self.critic_torso: Torso | None = None
        self.critic_trunk: nn.Sequential | None = None
        self.critic_memory: Memory | None = None
        self.register_buffer("epsilon", torch.ones(()) if kind in ("q", "dueling-q") else None)
        if kind in ("actor", "q"):
            self.critic, self.value_head = nn.Sequential(), None
            return
        if has_critic and not config.shared:
            if self.state_torso is None:
                self.critic_torso = Torso(role.inputs, config, False)
            bottom = self.state_torso.size if self.state_torso else self.torso.size
            self.critic_trunk = mlp(bottom, config.hidden, config)
            critic_size = config.hidden[-1] if config.hidden else bottom
            if config.memory != "none":
                self.critic_memory = Memory(config.memory, critic_size, units, "critic_")
                critic_size = units
        else:
            critic_size = top + (self.state_torso.size if self.state_torso else 0)
        self.critic = mlp(critic_size, config.critic_hidden, config)
        self.value_head = nn.Linear(
            config.critic_hidden[-1] if config.critic_hidden else critic_size,
            role.num_rewards if has_critic else 1,
        )
        initialise(self.value_head, 1.0)

    @property
    def memories(self) -> list[Memory]:
        return [part for part in (self.memory, self.critic_memory) if part is not None]

    def memory_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name -> shape of one player's memory."""
        return {name: (part.size,) for part in self.memories for name in part.names}

    def forward(
        self,
        inputs: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
        recurrent: Mapping[str, Tensor],
        starts: Tensor | None = None,
        with_policy: bool = True,
        with_values: bool = True,
    ) -> tuple[Tensor | None, Tensor | None, Tensors]:
        """Return head outputs ``[B, P]``, normalised values ``[B, K]`` and the new memory.

        Arrays are flat, ``[B, ...]``. With a memory and ``starts`` ``[T, C]``, rows are ``T * C``
        time-major decisions of ``C`` chunks and ``recurrent`` holds ``[C, ...]``; without
        ``starts`` every row is one step of its own.
        """
        memory: Tensors = {}
        need_bottom = with_policy or (with_values and self.config.shared)
        outputs: Tensor | None = None
        values: Tensor | None = None
        bottom: Tensor | None = None
        if need_bottom:
            bottom = self.trunk(self.torso(inputs))
            if self.memory is not None:
                bottom, new = _remember(self.memory, bottom, recurrent, starts)
                memory.update(new)
        if with_policy:
            outputs = self._outputs(self.policy_head(bottom))
            if self.kind == "dueling-q":
                assert bottom is not None
                assert self.value_head is not None
                outputs = self._duelling(outputs, self.value_head(self.critic(bottom)))
        if with_values and self.kind == "actor-critic":
            assert self.value_head is not None
            if self.config.shared:
                assert bottom is not None
                features = bottom
                if self.state_torso is not None:
                    features = torch.cat([bottom, self.state_torso(state)], dim=1)
            else:
                assert self.critic_trunk is not None
                if self.state_torso is not None:
                    features = self.critic_trunk(self.state_torso(state))
                else:
                    assert self.critic_torso is not None
                    # Both sides see one set of running statistics: the policy's.
                    normalised = self.torso.normalise(inputs)
                    features = self.critic_trunk(self.critic_torso.encode(normalised))
                if self.critic_memory is not None:
                    features, new = _remember(self.critic_memory, features, recurrent, starts)
                    memory.update(new)
            values = self.value_head(self.critic(features))
        return outputs, values, memory

    def _duelling(self, advantages: Tensor, value: Tensor) -> Tensor:
        columns = [
            value + part - part.mean(dim=1, keepdim=True)
            for item in self.distribution.choices
            for part in [advantages[:, item.start : item.start + item.size]]
        ]
        return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)

    def _outputs(self, head: Tensor) -> Tensor:
        low, high = self.config.log_std_range
        soft = self.config.log_std_limit == "soft"
        if self.log_std is not None:
            spread = limit_log_std(self.log_std, low, high, soft)
            return torch.cat([head, spread.expand(head.shape[0], -1)], dim=1)
        if self.dependent:
            middle = self.distribution.num_locations
            spread = limit_log_std(head[:, middle:], low, high, soft)
            return torch.cat([head[:, :middle], spread], dim=1)
        return head


def _remember(
    memory: Memory, features: Tensor, recurrent: Mapping[str, Tensor], starts: Tensor | None
) -> tuple[Tensor, Tensors]:
    shape = (1, features.shape[0]) if starts is None else tuple(starts.shape)
    outputs, new = memory(features.reshape(*shape, features.shape[1]), recurrent, starts)
    return outputs.reshape(features.shape[0], memory.size), new

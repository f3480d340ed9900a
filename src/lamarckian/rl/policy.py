"""A trainable policy: normalisers, network and action distribution behind one ``act``.

Collection, evaluation, bundles and ONNX files all decide through :meth:`TorchPolicy.act` or are
checked against it. Numpy goes in and comes out; torch is inside.

Shape letters: ``N`` controllers, ``T`` time, ``B`` batch, ``K`` reward heads, ``P`` head outputs,
``Z`` noise columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lamarckian.errors import ConfigError, GameError, UnsupportedSpace
from lamarckian.mdp.core import Array, Arrays, Bounds, Continuous, Input, Role
from lamarckian.mdp.policy import Decisions
from lamarckian.rl.distributions import ActionDistribution
from lamarckian.rl.encoders import Torso, is_normalised
from lamarckian.rl.network_config import NetworkConfig, PolicyKind, check_network
from lamarckian.rl.networks import ActorCritic, Tensors
from lamarckian.rl.normalisers import (
    NormalisedValues,
    RawValues,
    RunningNormaliser,
    ValueNormaliser,
)
from lamarckian.rl.weights import LoadMode, export_arrays, import_arrays, layout
from lamarckian.seeding import derive

ValueNormalisation = Literal["none", "running", "popart"]
_DTYPES = {name: np.dtype(name) for name in ("float32", "uint8", "int64", "bool")}


@dataclass(slots=True)
class Evaluation:
    """Stored decisions seen by the present weights; tensors with gradients.

    ``log_prob``, ``entropy``  ``[B]`` joint over action parts (``[T, B]`` for sequences).
    ``values_normalised``      ``[B, K]`` in critic units; see :class:`ValueNormaliser`.
    ``no_legal``               bool ``[B]``: a part had no legal action; that part contributes a
                               constant log-probability, no entropy and no gradient.
    ``outputs``                ``[B, P]`` head outputs, for the KL divergence.
    """

    log_prob: Tensor
    entropy: Tensor
    values_normalised: NormalisedValues
    no_legal: Tensor
    outputs: Tensor


class TorchPolicy(nn.Module):
    """The policy of one role; implements :class:`lamarckian.mdp.policy.Policy`.

    ``network``                 layers, see :class:`NetworkConfig`.
    ``seed``                    initial weights; torch's global generator is left as it was.
    ``bounds``                  how bounded continuous actions are kept: ``clip`` or ``tanh``.
    ``normalise_observations``  running mean and deviation of vectors and entities.
    ``normalise_values``        ``none``, ``running`` (targets scaled) or ``popart`` (outputs
                                preserved).
    ``kind``                    what the network puts out, see :data:`PolicyKind`. Action values are
                                followed epsilon-greedily; ``values`` are then those of the best
                                actions, the same for every reward head. An ``actor`` has none: zeros.

    Raises UnsupportedSpace for what cannot be learned on, ConfigError for settings without effect.
    """

    def __init__(
        self,
        role: Role,
        network: NetworkConfig | None = None,
        seed: int = 0,
        bounds: Bounds = "clip",
        normalise_observations: bool = False,
        normalise_values: ValueNormalisation = "none",
        kind: PolicyKind = "actor-critic",
    ) -> None:
        super().__init__()
        self._role = role
        self.network_config = network or NetworkConfig()
        self.seed = seed
        self.bounds: Bounds = bounds
        self.normalise_observations = normalise_observations
        self.normalise_values: ValueNormalisation = normalise_values
        self.kind: PolicyKind = kind
        self._version = 0
        _check_role(role, bounds, normalise_observations)
        check_network(self.network_config, role)
        self.distribution = ActionDistribution(role, bounds)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(seed, "policy", "weights"))
            self.network = ActorCritic(
                role, self.network_config, self.distribution, normalise_observations, kind
            )
        self.value_normaliser = (
            None if normalise_values == "none" else ValueNormaliser(role.num_rewards)
        )
        self._split = layout(self.network, role.rewards)
        self._mask_names = role.masked
        self._memory_names = tuple(self.network.memory_shapes())

    @property
    def role(self) -> Role:
        return self._role

    @property
    def version(self) -> int:
        return self._version

    @version.setter
    def version(self, value: int) -> None:
        self._version = int(value)

    @property
    def memory(self) -> Arrays:
        """Zero memory of one player, name -> float32 ``[H]``; empty if the policy has none."""
        return {
            name: np.zeros(shape, np.float32)
            for name, shape in self.network.memory_shapes().items()
        }

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.policy_head.weight.device

    @property
    def is_recurrent(self) -> bool:
        return bool(self._memory_names)

    # Acting

    def act(
        self,
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        noise: NDArray[np.float32] | None,
    ) -> Decisions:
        """Decide for N players; ``noise`` ``[N, Z]`` from ``draw_noise``, None for the mode.

        A game that does not show what only the critic reads is played all the same; values are nan then.
        """
        with torch.inference_mode():
            valued = all(name in state for name in self._central)
            memory = self._memories(recurrent)
            outputs, values, new = self.network(
                self._tensors(inputs, self._role.inputs, "input"),
                self._tensors(state, self._central, "state") if valued else {},
                memory,
                with_values=valued,
            )
            memory |= new
            masks = self._masks(legal)
            actions, log_prob = self.distribution.sample(
                outputs,
                masks,
                None if noise is None else self._tensor(noise, _DTYPES["float32"]),
                self.network.epsilon,
            )
            if values is None:
                values = self._best_values(outputs, masks)
            raw = {name: tensor.cpu().numpy() for name, tensor in actions.items()}
            return Decisions(
                game_actions=self.distribution.game_actions(raw),
                actions=raw,
                log_prob=log_prob.cpu().numpy(),
                values=self._denormalised(values).cpu().numpy(),
                recurrent={name: tensor.cpu().numpy() for name, tensor in memory.items()},
            )

    def values(self, inputs: Arrays, state: Arrays, recurrent: Arrays) -> NDArray[np.float32]:
        """Return denormalised value estimates ``[N, K]``."""
        with torch.inference_mode():
            outputs, values, _ = self.network(
                self._tensors(inputs, self._role.inputs, "input"),
                self._tensors(state, self._central, "state"),
                self._memories(recurrent),
                with_policy=self.kind != "actor-critic",
            )
            if values is None:
                values = self._best_values(outputs, {})
            result: NDArray[np.float32] = self._denormalised(values).cpu().numpy()
            return result

    @property
    def _central(self) -> Mapping[str, Input]:
        """The central state as far as the network reads it."""
        return self._role.state if self.kind == "actor-critic" else {}

    def _best_values(self, outputs: Tensor, legal: Mapping[str, Tensor]) -> Tensor:
        """Return ``[N, K]`` where the network gives no values.

        Those of the best legal actions, mean over choices; zeros for an actor, nan for a critic that was
        not shown what it reads.
        """
        if self.kind in ("actor", "actor-critic"):
            filling = 0.0 if self.kind == "actor" else torch.nan
            return outputs.new_full((outputs.shape[0], self._role.num_rewards), filling)
        best = best_values(outputs, legal, self.distribution)
        return best.mean(dim=1, keepdim=True).expand(-1, self._role.num_rewards)

    def _tensors(self, arrays: Arrays, declared: Mapping[str, Input], what: str) -> Tensors:
        try:
            return {
                name: self._tensor(arrays[name], _DTYPES[item.dtype])
                for name, item in declared.items()
            }
        except KeyError as error:
            raise GameError(
                f"{what} {error.args[0]!r} is declared by the role but missing from the "
                f"observation; got {sorted(arrays)}"
            ) from None

    def _masks(self, legal: Arrays) -> Tensors:
        try:
            return {name: self._tensor(legal[name], _DTYPES["bool"]) for name in self._mask_names}
        except KeyError as error:
            raise GameError(
                f"action part {error.args[0]!r} is declared masked but its legal-action mask is "
                f"missing; got {sorted(legal)}"
            ) from None

    def _memories(self, recurrent: Arrays) -> Tensors:
        return {
            name: self._tensor(recurrent[name], _DTYPES["float32"]) for name in self._memory_names
        }

    def _tensor(self, array: Array, dtype: np.dtype[np.generic]) -> Tensor:
        """View ``array`` as a tensor of ``dtype`` beside the weights; copies only where it must."""
        if array.dtype != dtype or not array.flags.writeable or min(array.strides, default=0) < 0:
            array = np.array(array, dtype, order="C")
        return torch.from_numpy(array).to(self.device)

    def _denormalised(self, values: Tensor) -> Tensor:
        if self.value_normaliser is None:
            return values
        return self.value_normaliser.denormalise(NormalisedValues(values))

    # Learning

    def evaluate_actions(
        self,
        inputs: Mapping[str, Tensor],
        legal: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
        actions: Mapping[str, Tensor],
        recurrent: Mapping[str, Tensor] | None = None,
        starts: Tensor | None = None,
    ) -> Evaluation:
        """Evaluate stored raw actions under the present weights.

        Feed-forward: everything flat, ``[B, ...]``. With a memory: time-major ``[T, B, ...]`` with
        ``starts`` bool ``[T, B]`` and ``recurrent`` name -> ``[B, H]``, the memory before the first
        decision of each of the ``B`` chunks. Results keep the leading axes of the actions.
        """
        if self.is_recurrent and (recurrent is None or starts is None):
            raise ValueError(
                "a policy with a memory is evaluated on sequences: recurrent and starts"
            )
        lead: tuple[int, ...] = ()
        if self.is_recurrent:
            assert starts is not None
            lead = tuple(starts.shape)
            inputs, legal = _flat(inputs), _flat(legal)
            state, actions = _flat(state), _flat(actions)
        outputs, values, _ = self.network(
            inputs, state, recurrent or {}, starts if self.is_recurrent else None
        )
        log_prob, entropy, no_legal = self.distribution.evaluate(outputs, legal, actions)
        if lead:
            return Evaluation(
                log_prob.reshape(lead),
                entropy.reshape(lead),
                NormalisedValues(values.reshape(*lead, -1)),
                no_legal.reshape(lead),
                outputs.reshape(*lead, -1),
            )
        return Evaluation(log_prob, entropy, NormalisedValues(values), no_legal, outputs)

    def normalised_targets(self, targets: RawValues) -> NormalisedValues:
        """Convert value targets ``[..., K]`` to critic units."""
        if self.value_normaliser is None:
            return NormalisedValues(targets)
        return self.value_normaliser.normalise(targets)

    def denormalised_values(self, values: NormalisedValues) -> RawValues:
        """Convert critic outputs ``[..., K]`` to units of reward."""
        return RawValues(self._denormalised(values))

    def update_value_statistics(self, targets: RawValues) -> None:
        """Merge value targets ``[B, K]`` (valid decisions only); call before the loss uses them."""
        if self.value_normaliser is not None:
            head = self.network.value_head if self.normalise_values == "popart" else None
            self.value_normaliser.update(targets, head)

    def update_normalisers(
        self, inputs: Arrays, valid: NDArray[np.bool_] | None = None, state: Arrays | None = None
    ) -> None:
        """Merge observations ``[..., *shape]`` where ``valid`` ``[...]`` into the running
        statistics.

        Entity rows count where their mask is true. Masks, categories and images are never touched.
        """
        _update_torso(self.network.torso, inputs, valid)
        if state and self.network.state_torso is not None:
            _update_torso(self.network.state_torso, state, valid)

    # Weights

    def arrays(self) -> Arrays:
        """Return copies of all weights and statistics by name, and ``version`` (int64 ``[]``)."""
        arrays = export_arrays(self._states(), self._split)
        arrays["version"] = np.array(self._version, np.int64)
        return arrays

    def load_arrays(self, arrays: Mapping[str, Array], mode: LoadMode = "strict") -> list[str]:
        """Load what :meth:`arrays` gave; return the differences (mode ``partial``), one line each.

        Raises CheckpointError in mode ``strict`` if a name or shape differs; nothing is loaded
        then.
        """
        given = {name: array for name, array in arrays.items() if name != "version"}
        differences = import_arrays(self._states(), self._split, given, mode)
        for module in self.modules():
            if isinstance(module, RunningNormaliser | ValueNormaliser):
                module.refresh()
        if "version" in arrays:
            self._version = int(arrays["version"])
        return differences

    def _states(self) -> Tensors:
        states = dict(self.network.state_dict())
        named = [*self.network.named_modules(), ("value_normaliser", self.value_normaliser)]
        for name, module in named:
            if isinstance(module, RunningNormaliser | ValueNormaliser):
                states |= {f"{name}.{key}": value for key, value in module.moments().items()}
        return states

    def fingerprint(self) -> str:
        """Return the sha256 of all weights and statistics; the version does not count."""
        digest = hashlib.sha256()
        for name, array in sorted(self.arrays().items()):
            if name != "version":
                digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
                digest.update(array.tobytes())
        return digest.hexdigest()


def legal_values(
    outputs: Tensor, legal: Mapping[str, Tensor], distribution: ActionDistribution
) -> list[Tensor]:
    """Return the action values ``[B, A]`` of each choice, illegal ones as the lowest finite number.

    ``legal`` may be empty: everything is legal then, as it is in a row where nothing is.
    """
    found = []
    for item in distribution.choices:
        values = outputs[:, item.start : item.start + item.size]
        if item.masked and item.name in legal:
            mask = legal[item.name][:, item.mask_start : item.mask_start + item.size]
            mask = mask | ~mask.any(dim=1, keepdim=True)
            values = torch.where(mask, values, torch.finfo(values.dtype).min)
        found.append(values)
    return found


def best_values(
    outputs: Tensor, legal: Mapping[str, Tensor], distribution: ActionDistribution
) -> Tensor:
    """Return the largest legal action value of each choice, ``[B, choices]``."""
    return torch.stack([v.amax(dim=1) for v in legal_values(outputs, legal, distribution)], dim=1)


def _flat(tensors: Mapping[str, Tensor]) -> Tensors:
    return {name: tensor.flatten(0, 1) for name, tensor in tensors.items()}


def _update_torso(torso: Torso, arrays: Arrays, valid: NDArray[np.bool_] | None) -> None:
    for name, key in torso.keys.items():
        if key not in torso.normalisers:
            continue
        item = torso.inputs[name]
        array = np.asarray(arrays[name])
        lead = array.shape[: array.ndim - len(item.shape)]
        rows = array.reshape(-1, *item.shape)
        keep = np.ones(len(rows), bool) if valid is None else np.asarray(valid).reshape(-1)
        if item.kind == "entities":
            assert item.mask is not None
            mask = np.asarray(arrays[item.mask]).reshape(-1, item.shape[0])
            rows = rows[mask & keep[:, None]]
        elif valid is not None:
            rows = rows.reshape(int(np.prod(lead)), *item.shape)[keep]
        normaliser = torso.normalisers[key]
        assert isinstance(normaliser, RunningNormaliser)
        normaliser.update(rows)


def _check_role(role: Role, bounds: Bounds, normalise_observations: bool) -> None:
    groups = (role.inputs, role.state)
    if all(item.kind == "mask" for item in role.inputs.values()):
        raise UnsupportedSpace("role: every input is a mask; there is nothing to learn from")
    if normalise_observations and not any(
        is_normalised(item) for group in groups for item in group.values()
    ):
        raise ConfigError(
            "normalise_observations has no effect for this role: it has no vector or entity input "
            "of numbers; switch it off"
        )
    bounded = any(
        isinstance(part, Continuous) and part.bounded.any() for part in role.actions.values()
    )
    if bounds == "tanh" and not bounded:
        raise ConfigError(
            "bounds: tanh has no effect for this role: no continuous action part has bounds; "
            "use clip"
        )
    if bounds not in ("clip", "tanh"):
        raise ConfigError(f"bounds: expected clip or tanh, got {bounds!r}")

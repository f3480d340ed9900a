"""ONNX files of the whole act path, checked against the policy they were made from.

Normalisation, network, masks, sampling and bound handling are all in the graph. Names:

``input.X``   ``[N, ...]``   observation inputs          ``action.X``       what the game receives
``legal.X``   ``[N, A]``     legal-action masks          ``raw.X``          continuous, before
              bounds
``state.X``   ``[N, ...]``   central state (critic)      ``log_prob``       ``[N]``
``memory.X``  ``[N, H]``     memory before               ``values``         ``[N, K]``, denormalised
``noise``     ``[N, Z]``     optional, see below         ``next_memory.X``  ``[N, H]``

``noise`` is laid out as by :func:`lamarckian.mdp.policy.draw_noise`. Left out, or NaN, it asks for
the most likely action. The graph is written operator by operator, so that it needs no compiler and
holds nothing but the policy; arithmetic is float32 whatever the training used.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from lamarckian.mdp.core import Arrays, Input, MultiDiscrete, action_shape, mask_size
from lamarckian.mdp.role_record import role_to_record
from lamarckian.rl.distributions import LOG_TWO_PI, Choice, Gaussian, limit_log_std
from lamarckian.rl.encoders import (
    CategoryEncoder,
    ConvolutionEncoder,
    SetEncoder,
    Torso,
)
from lamarckian.rl.export_check import check_export
from lamarckian.rl.networks import Memory
from lamarckian.rl.normalisers import CLIP, RunningNormaliser
from lamarckian.rl.onnx_graph import OnnxGraph, array_of
from lamarckian.rl.policy import TorchPolicy

LOWEST = float(np.finfo(np.float32).min)


def export_onnx(
    policy: TorchPolicy,
    path: str | Path,
    *,
    with_values: bool = True,
    recorded: Arrays | None = None,
) -> float:
    """Write ``policy`` to ``path`` and compare the file with it; return the largest difference.

    ``with_values`` False leaves the critic out (a game client has no central state to give it).
    Only a policy of kind actor-critic has one.
    ``recorded`` are observation inputs ``[N, ...]`` from play, compared in addition to random ones.
    Raises MissingDependency without onnx and onnxruntime, CheckpointError if the file and the
    policy differ by 1e-5 or more; then no file is left.
    """
    with_values = with_values and policy.kind == "actor-critic"
    target = Path(path)
    temporary = target.with_name(target.name + ".partial")
    _Exporter(policy, with_values).write(temporary)
    try:
        difference = check_export(policy, temporary, with_values, recorded)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(target)
    return difference


class _Exporter:
    """Walks a policy's modules and appends their operators to a graph."""

    def __init__(self, policy: TorchPolicy, with_values: bool) -> None:
        self.policy = policy
        self.network = policy.network
        self.with_values = with_values
        self.graph = OnnxGraph()

    def write(self, path: Path) -> None:
        graph, role = self.graph, self.policy.role
        inputs = self._declare("input", role.inputs)
        legal = {
            name: graph.add_input(f"legal.{name}", "bool", (mask_size(role.actions[name]),))
            for name in role.masked
        }
        state = self._declare("state", role.state) if self.with_values else {}
        bottom = self._mlp(self.network.trunk, self._torso(self.network.torso, inputs))
        memories: list[tuple[str, str, int]] = []
        if self.network.memory is not None:
            bottom = self._memory(self.network.memory, bottom, memories)
        outputs = self._linear(self.network.policy_head, bottom)
        if self.network.kind == "dueling-q":
            outputs = self._duelling(outputs, bottom)
        noise = graph.constant(
            np.full((1, self.policy.distribution.num_noise), np.nan), name="noise"
        )
        graph.add_input("noise", "float32", (self.policy.distribution.num_noise,), "noise_N")
        self._actions(outputs, legal, noise)
        if self.with_values:
            self._values(bottom, inputs, state, memories)
        for name, value, size in memories:
            graph.add_output(f"next_memory.{name}", value, "float32", (size,))
        graph.save(
            path,
            {
                "role": role_to_record(role),
                "version": self.policy.version,
                "fingerprint": self.policy.fingerprint(),
                "bounds": self.policy.bounds,
            },
        )

    def _declare(self, group: str, declared: Any) -> dict[str, str]:
        return {
            name: self.graph.add_input(f"{group}.{name}", item.dtype, item.shape)
            for name, item in declared.items()
        }

    # Encoders

    def _torso(self, torso: Torso, values: dict[str, str], normalised: Torso | None = None) -> str:
        rows = []
        for name, key in torso.keys.items():
            value, item = values[name], torso.inputs[name]
            normalisers = (normalised or torso).normalisers
            if key in normalisers:
                value = self._normalise(normalisers[key], value, item)
                item = Input(item.shape, "float32", item.kind, mask=item.mask)
            rows.append(self._encode(torso.encoders[key], value, item, values))
        features = rows[0] if len(rows) == 1 else self.graph.op("Concat", *rows, axis=1)
        if torso.input_norm is not None:
            features = self._layer_norm(torso.input_norm, features)
        return features

    def _normalise(self, normaliser: nn.Module, value: str, item: Input) -> str:
        assert isinstance(normaliser, RunningNormaliser)
        graph = self.graph
        value = self._floats(value, item)
        if not normaliser.ready:
            return value
        value = graph.op("Sub", value, graph.constant(array_of(normaliser.shift)))
        value = graph.op("Mul", value, graph.constant(array_of(normaliser.scale)))
        return graph.op("Clip", value, graph.constant(-CLIP), graph.constant(CLIP))

    def _encode(self, encoder: nn.Module, value: str, item: Input, values: dict[str, str]) -> str:
        graph = self.graph
        if isinstance(encoder, ConvolutionEncoder):
            return self._image(encoder, value, item)
        if isinstance(encoder, SetEncoder):
            assert item.mask is not None
            return self._set(encoder, self._floats(value, item), values[item.mask], item)
        if isinstance(encoder, CategoryEncoder):
            expanded = graph.op("Unsqueeze", value, graph.integers(-1))
            numbers = graph.constant(array_of(encoder.numbers), "int64")
            value = graph.cast(graph.op("Equal", expanded, numbers), "float32")
            if encoder.table is not None:
                value = graph.op("MatMul", value, graph.constant(array_of(encoder.table)))
            return graph.op("Reshape", value, graph.integers(-1, encoder.size))
        value = self._floats(value, item)
        return graph.op("Reshape", value, graph.integers(-1, math.prod(item.shape)))

    def _floats(self, value: str, item: Input) -> str:
        return value if item.dtype == "float32" else self.graph.cast(value, "float32")

    def _image(self, encoder: ConvolutionEncoder, value: str, item: Input) -> str:
        graph = self.graph
        value = self._floats(value, item)
        if encoder.hwc:
            value = graph.op("Transpose", value, perm=[0, 3, 1, 2])
        if encoder.scaled:
            value = graph.op("Mul", value, graph.constant(1.0 / 255.0))
        for layer in encoder.convolutions:
            if isinstance(layer, nn.Conv2d):
                assert layer.bias is not None
                weight, bias = array_of(layer.weight), array_of(layer.bias)
                value = graph.op(
                    "Conv",
                    value,
                    graph.constant(weight),
                    graph.constant(bias),
                    kernel_shape=list(weight.shape[2:]),
                    strides=list(layer.stride),
                )
            else:
                value = self._activation(layer, value)
        value = graph.op("Flatten", value, axis=1)
        return self._activation(encoder.activation, self._linear(encoder.output, value))

    def _set(self, encoder: SetEncoder, value: str, mask: str, item: Input) -> str:
        graph = self.graph
        zero, low = graph.constant(0.0), graph.constant(-1e9)
        real = graph.op("Unsqueeze", mask, graph.integers(-1))
        hidden = self._mlp(encoder.entity, graph.op("Where", real, value, zero))
        if encoder.heads:
            hidden = graph.op("Add", hidden, self._attention(encoder, hidden, mask, item.shape[0]))
        number = graph.op("ReduceSum", graph.cast(mask, "float32"), graph.integers(1), keepdims=1)
        total = graph.op(
            "ReduceSum", graph.op("Where", real, hidden, zero), graph.integers(1), keepdims=0
        )
        mean = graph.op("Div", total, graph.op("Max", number, graph.constant(1.0)))
        largest = graph.op("ReduceMax", graph.op("Where", real, hidden, low), axes=[1], keepdims=0)
        largest = graph.op("Where", graph.op("Greater", number, zero), largest, zero)
        share = graph.op("Div", number, graph.constant(float(item.shape[0])))
        return graph.op("Concat", mean, largest, share, axis=1)

    def _attention(self, encoder: SetEncoder, hidden: str, mask: str, entities: int) -> str:
        graph = self.graph
        width = encoder.attended.in_features
        size = width // encoder.heads
        parts = []
        for part in graph.ops("Split", 3, self._linear(encoder.attend, hidden), axis=2):
            shape = graph.integers(-1, entities, encoder.heads, size)
            parts.append(graph.op("Transpose", graph.op("Reshape", part, shape), perm=[0, 2, 1, 3]))
        query, key, value = parts
        scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = graph.op("Mul", scores, graph.constant(size**-0.5))
        visible = graph.op("Unsqueeze", mask, graph.integers(1, 2))
        scores = graph.op("Where", visible, scores, graph.constant(-1e9))
        weights = graph.op("Softmax", scores, axis=-1)
        weights = graph.op("Where", visible, weights, graph.constant(0.0))
        mixed = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        mixed = graph.op("Reshape", mixed, graph.integers(-1, entities, width))
        return self._linear(encoder.attended, mixed)

    # Layers

    def _mlp(self, layers: nn.Sequential, value: str) -> str:
        for layer in layers:
            if isinstance(layer, nn.Linear):
                value = self._linear(layer, value)
            elif isinstance(layer, nn.LayerNorm):
                value = self._layer_norm(layer, value)
            else:
                value = self._activation(layer, value)
        return value

    def _linear(self, layer: nn.Linear, value: str) -> str:
        graph = self.graph
        weight = graph.constant(array_of(layer.weight).T)
        return graph.op(
            "Add", graph.op("MatMul", value, weight), graph.constant(array_of(layer.bias))
        )

    def _layer_norm(self, layer: nn.LayerNorm, value: str) -> str:
        graph = self.graph
        return graph.op(
            "LayerNormalization",
            value,
            graph.constant(array_of(layer.weight)),
            graph.constant(array_of(layer.bias)),
            axis=-1,
            epsilon=layer.eps,
        )

    def _activation(self, layer: nn.Module, value: str) -> str:
        graph = self.graph
        if isinstance(layer, nn.LeakyReLU):
            return graph.op("LeakyRelu", value, alpha=float(layer.negative_slope))
        if isinstance(layer, nn.SiLU):
            return graph.op("Mul", value, graph.op("Sigmoid", value))
        kinds: dict[type[nn.Module], str] = {nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.ELU: "Elu"}
        return graph.op(kinds[type(layer)], value)

    def _memory(self, memory: Memory, value: str, memories: list[tuple[str, str, int]]) -> str:
        graph, layer, size = self.graph, memory.layer, memory.size
        before = [graph.add_input(f"memory.{name}", "float32", (size,)) for name in memory.names]

        def affine(side: str, source: str) -> str:
            weight = graph.constant(array_of(layer.get_parameter(f"weight_{side}_l0")).T)
            bias = graph.constant(array_of(layer.get_parameter(f"bias_{side}_l0")))
            return graph.op("Add", graph.op("MatMul", source, weight), bias)

        read, recalled = affine("ih", value), affine("hh", before[0])
        if isinstance(layer, nn.LSTM):
            gates = graph.ops("Split", 4, graph.op("Add", read, recalled), axis=1)
            write, keep, show = (graph.op("Sigmoid", gates[index]) for index in (0, 1, 3))
            fresh = graph.op("Mul", write, graph.op("Tanh", gates[2]))
            cell = graph.op("Add", graph.op("Mul", keep, before[1]), fresh)
            hidden = graph.op("Mul", show, graph.op("Tanh", cell))
            memories += [(memory.names[0], hidden, size), (memory.names[1], cell, size)]
            return hidden
        first, second = graph.ops("Split", 3, read, axis=1), graph.ops("Split", 3, recalled, axis=1)
        reset, keep = (
            graph.op("Sigmoid", graph.op("Add", first[index], second[index])) for index in (0, 1)
        )
        candidate = graph.op("Tanh", graph.op("Add", first[2], graph.op("Mul", reset, second[2])))
        # h' = n + z (h - n)
        change = graph.op("Mul", keep, graph.op("Sub", before[0], candidate))
        hidden = graph.op("Add", candidate, change)
        memories.append((memory.names[0], hidden, size))
        return hidden

    # Heads

    def _duelling(self, advantages: str, bottom: str) -> str:
        graph, network = self.graph, self.network
        assert network.value_head is not None
        value = self._linear(network.value_head, self._mlp(network.critic, bottom))
        columns = []
        for choice in self.policy.distribution.choices:
            part = graph.columns(advantages, choice.start, choice.size)
            mean = graph.op("ReduceMean", part, axes=[1], keepdims=1)
            columns.append(graph.op("Add", value, graph.op("Sub", part, mean)))
        return columns[0] if len(columns) == 1 else graph.op("Concat", *columns, axis=1)

    def _explore(self, size: int, best: str, allowed: str) -> str:
        """Return the log-probabilities of an epsilon-greedy choice (see ``explore``)."""
        graph, lowest = self.graph, self.graph.constant(LOWEST)
        assert self.network.epsilon is not None
        epsilon = float(self.network.epsilon)
        numbers = graph.constant(np.arange(size)[None], "int64")
        one_hot = graph.cast(graph.op("Equal", numbers, best), "float32")
        random = graph.constant(np.full((1, size), epsilon / size))
        if allowed:
            legal = graph.cast(allowed, "float32")
            number = graph.op("ReduceSum", legal, graph.integers(1), keepdims=1)
            random = graph.op("Div", graph.op("Mul", graph.constant(epsilon), legal), number)
        greedy = graph.op("Mul", graph.constant(1.0 - epsilon), one_hot)
        shares = graph.op("Add", random, greedy)
        some = graph.op("Greater", shares, graph.constant(0.0))
        return graph.op("Where", some, graph.op("Log", shares), lowest)

    def _actions(self, outputs: str, legal: dict[str, str], noise: str) -> None:
        graph, distribution = self.graph, self.policy.distribution
        terms: list[str] = []
        drawn: dict[str, list[str]] = {}
        for choice in distribution.choices:
            action, log_prob = self._choice(choice, outputs, legal, noise)
            drawn.setdefault(choice.name, []).append(action)
            terms.append(log_prob)
        for name, columns in drawn.items():
            part = self.policy.role.actions[name]
            value = columns[0]
            if isinstance(part, MultiDiscrete):
                last = graph.integers(1)
                value = graph.op(
                    "Concat", *(graph.op("Unsqueeze", item, last) for item in columns), axis=1
                )
            graph.add_output(f"action.{name}", value, "int64", action_shape(part))
        for item in distribution.gaussians:
            terms.append(self._gaussian(item, outputs, noise))
        total = terms[0]
        for term in terms[1:]:
            total = graph.op("Add", total, term)
        graph.add_output("log_prob", total, "float32", ())

    def _choice(
        self, choice: Choice, outputs: str, legal: dict[str, str], noise: str
    ) -> tuple[str, str]:
        graph = self.graph
        zero, lowest = graph.constant(0.0), graph.constant(LOWEST)
        logits = graph.columns(outputs, choice.start, choice.size)
        allowed = ""
        if choice.masked:
            mask = graph.columns(legal[choice.name], choice.mask_start, choice.size)
            number = graph.op(
                "ReduceSum", graph.cast(mask, "float32"), graph.integers(1), keepdims=1
            )
            some = graph.op("Greater", number, zero)
            allowed = graph.op("Or", mask, graph.op("Not", some))
            logits = graph.op("Where", allowed, graph.op("Where", some, logits, zero), lowest)
        log_probs = graph.op("LogSoftmax", logits, axis=-1)
        if choice.masked:
            log_probs = graph.op("Where", allowed, log_probs, lowest)
        mode = graph.op("ArgMax", log_probs, axis=1, keepdims=1)
        if self.network.epsilon is not None:
            log_probs = self._explore(choice.size, mode, allowed)
        shares = graph.op("Exp", log_probs)
        if choice.masked:
            shares = graph.op("Where", allowed, shares, zero)
        edges = graph.op("CumSum", shares, graph.constant(1, "int64"))
        total = graph.columns(edges, choice.size - 1, 1)
        uniform = graph.columns(noise, choice.noise, 1)
        level = graph.op("Mul", uniform, total)
        passed = self._count(graph.op("LessOrEqual", edges, level))
        drawn = graph.op("Min", passed, self._count(graph.op("Less", edges, total)))
        action = graph.op("Where", graph.op("IsNaN", uniform), mode, drawn)
        log_prob = graph.op("GatherElements", log_probs, action, axis=1)
        flat = graph.integers(1)
        return graph.op("Squeeze", action, flat), graph.op("Squeeze", log_prob, flat)

    def _count(self, flags: str) -> str:
        graph = self.graph
        return graph.op("ReduceSum", graph.cast(flags, "int64"), graph.integers(1), keepdims=1)

    def _gaussian(self, item: Gaussian, outputs: str, noise: str) -> str:
        graph, part = self.graph, item.part
        mean = graph.columns(outputs, item.start, item.size)
        log_std = self._log_std(item, outputs)
        normal = graph.columns(noise, item.noise, item.size)
        spread = graph.op("Mul", graph.op("Exp", log_std), normal)
        raw = graph.op("Where", graph.op("IsNaN", normal), mean, graph.op("Add", mean, spread))
        scaled = graph.op(
            "Mul", graph.op("Sub", raw, mean), graph.op("Exp", graph.op("Neg", log_std))
        )
        half = graph.op("Mul", graph.constant(-0.5), graph.op("Mul", scaled, scaled))
        density = graph.op("Sub", half, log_std)
        bounded = part.bounded
        low = np.where(bounded, part.low, 0.0).astype(np.float32)
        high = np.where(bounded, part.high, 1.0).astype(np.float32)
        squash = self.policy.bounds == "tanh"
        if squash and bounded.any():
            twice = graph.op("Softplus", graph.op("Mul", graph.constant(-2.0), raw))
            inner = graph.op("Sub", graph.constant(math.log(2.0)), graph.op("Add", raw, twice))
            slope = graph.op("Mul", graph.constant(2.0), inner)
            width = np.log((high.astype(np.float64) - low) / 2.0)
            jacobian = graph.op("Add", slope, graph.constant(width))
            jacobian = graph.op(
                "Where", graph.constant(bounded, "bool"), jacobian, graph.constant(0.0)
            )
            density = graph.op("Sub", density, jacobian)
        log_prob = graph.op("ReduceSum", density, graph.integers(1), keepdims=0)
        log_prob = graph.op("Sub", log_prob, graph.constant(0.5 * LOG_TWO_PI * item.size))
        action = raw
        if bounded.any():
            one = graph.constant(1.0)
            unit = (
                graph.op("Tanh", raw)
                if squash
                else graph.op("Clip", raw, graph.constant(-1.0), one)
            )
            half_width = graph.constant(np.float32(0.5) * (high - low))
            wide = graph.op("Mul", graph.op("Add", unit, one), half_width)
            wide = graph.op("Add", wide, graph.constant(low))
            wide = graph.op("Max", graph.op("Min", wide, graph.constant(high)), graph.constant(low))
            action = graph.op("Where", graph.constant(bounded, "bool"), wide, raw)
        graph.add_output(f"action.{item.name}", action, "float32", (item.size,))
        graph.add_output(f"raw.{item.name}", raw, "float32", (item.size,))
        return log_prob

    def _log_std(self, item: Gaussian, outputs: str) -> str:
        graph, config = self.graph, self.network.config
        low, high = config.log_std_range
        soft = config.log_std_limit == "soft"
        if self.network.log_std is not None:
            limited = array_of(limit_log_std(self.network.log_std, low, high, soft))
            start = item.log_std - self.policy.distribution.num_locations
            return graph.constant(limited[None, start : start + item.size])
        raw = graph.columns(outputs, item.log_std, item.size)
        lowest, highest = graph.constant(low), graph.constant(high)
        if not soft:
            return graph.op("Clip", raw, lowest, highest)
        upper = graph.op("Sub", highest, graph.op("Softplus", graph.op("Sub", highest, raw)))
        return graph.op("Add", lowest, graph.op("Softplus", graph.op("Sub", upper, lowest)))

    def _values(
        self,
        bottom: str,
        inputs: dict[str, str],
        state: dict[str, str],
        memories: list[tuple[str, str, int]],
    ) -> None:
        graph, network = self.graph, self.network
        features = bottom
        if network.config.shared:
            if network.state_torso is not None:
                features = graph.op(
                    "Concat", bottom, self._torso(network.state_torso, state), axis=1
                )
        else:
            assert network.critic_trunk is not None
            if network.state_torso is not None:
                features = self._torso(network.state_torso, state)
            else:
                assert network.critic_torso is not None
                features = self._torso(network.critic_torso, inputs, network.torso)
            features = self._mlp(network.critic_trunk, features)
            if network.critic_memory is not None:
                features = self._memory(network.critic_memory, features, memories)
        assert network.value_head is not None
        values = self._linear(network.value_head, self._mlp(network.critic, features))
        normaliser = self.policy.value_normaliser
        if normaliser is not None:
            values = graph.op("Mul", values, graph.constant(array_of(normaliser.scale)))
            values = graph.op("Add", values, graph.constant(array_of(normaliser.shift)))
        graph.add_output("values", values, "float32", (self.policy.role.num_rewards,))

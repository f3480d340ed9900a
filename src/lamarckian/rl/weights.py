"""A network's weights as named arrays, and ways to load them into a changed network.

Matrices that read several inputs, or write several action parts, are split at those borders:
``trunk.0.weight@position`` holds the columns that read the input ``position``. So arrays can be
moved between networks whose inputs, actions or widths differ, name by name.

Two modes of loading: ``strict`` takes exactly this network's arrays and refuses the rest with a
list;
``partial`` copies what overlaps so that old inputs keep their old outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from lamarckian.errors import CheckpointError
from lamarckian.mdp.core import Array, Arrays
from lamarckian.rl.encoders import ConvolutionEncoder, Segment, SetEncoder, Torso
from lamarckian.rl.networks import ActorCritic, Memory

Split = dict[str, tuple[list[Segment], ...]]
"""Parameter name -> the segments of each of its axes."""

LoadMode = Literal["strict", "partial"]
NEW_ACTION_BIAS = -5.0
"""Logit of an action that the loaded policy did not know: rare, but it can be learned."""

_WHOLE: Segment = ("", ())


def layout(network: ActorCritic, rewards: tuple[str, ...]) -> Split:
    """Return parameter name -> segments of each axis for those parameters that are split."""
    config = network.config
    found: Split = {}
    outputs: list[Segment] = [
        (label, (size,)) for label, _, size in network.distribution.segments()
    ]
    heads = outputs if network.dependent else _until(outputs, network.distribution.num_locations)
    values: list[Segment] = [(name, (1,)) for name in rewards]
    found["policy_head.bias"] = (heads,)
    if network.kind != "actor-critic":
        values = [_WHOLE]
    else:
        found["value_head.bias"] = (values,)
    if network.log_std is not None:
        found["log_std"] = (outputs[len(heads) :],)
    bottom = network.torso.segments
    if config.hidden:
        found["trunk.0.weight"] = ([_WHOLE], bottom)
        bottom = [("trunk", (config.hidden[-1],))]
    if network.memory is not None:
        bottom = _memory(found, "memory", network.memory, bottom)
    found["policy_head.weight"] = (heads, bottom)
    if network.kind == "actor-critic" and not config.shared:
        source = network.state_torso or network.critic_torso
        assert source is not None
        bottom = source.segments
        if config.hidden:
            found["critic_trunk.0.weight"] = ([_WHOLE], bottom)
            bottom = [("trunk", (config.hidden[-1],))]
        if network.critic_memory is not None:
            bottom = _memory(found, "critic_memory", network.critic_memory, bottom)
    elif network.state_torso is not None:
        bottom = bottom + [(f"state.{name}", shape) for name, shape in network.state_torso.segments]
    if network.value_head is None:
        pass
    elif config.critic_hidden:
        found["critic.0.weight"] = ([_WHOLE], bottom)
        found["value_head.weight"] = (values, [_WHOLE])
    else:
        found["value_head.weight"] = (values, bottom)
    for name, module in network.named_modules():
        _inner(found, name, module)
    return found


def _until(segments: list[Segment], width: int) -> list[Segment]:
    kept, total = [], 0
    for label, shape in segments:
        if total < width:
            kept.append((label, shape))
        total += math.prod(shape)
    return kept


def _memory(found: Split, name: str, memory: Memory, bottom: list[Segment]) -> list[Segment]:
    labels = ("input", "forget", "candidate", "output")
    if isinstance(memory.layer, nn.GRU):
        labels = ("reset", "update", "candidate")  # type: ignore[assignment]
    gates: list[Segment] = [(label, (memory.size,)) for label in labels]
    found[f"{name}.layer.weight_ih_l0"] = (gates, bottom)
    found[f"{name}.layer.weight_hh_l0"] = (gates, [_WHOLE])
    found[f"{name}.layer.bias_ih_l0"] = (gates,)
    found[f"{name}.layer.bias_hh_l0"] = (gates,)
    return [("memory", (memory.size,))]


def _inner(found: Split, name: str, module: nn.Module) -> None:
    if isinstance(module, Torso) and module.input_norm is not None:
        found[f"{name}.input_norm.weight"] = (module.segments,)
        found[f"{name}.input_norm.bias"] = (module.segments,)
    elif isinstance(module, ConvolutionEncoder):
        found[f"{name}.output.weight"] = ([_WHOLE], [("pixels", module.output_shape)])
    elif isinstance(module, SetEncoder) and module.heads:
        size = module.attended.in_features // module.heads
        rows: list[Segment] = [(label, (module.heads, size)) for label in ("query", "key", "value")]
        found[f"{name}.attend.weight"] = (rows, [_WHOLE])
        found[f"{name}.attend.bias"] = (rows,)


def _pieces(
    name: str, shape: tuple[int, ...], split: tuple[list[Segment], ...] | None
) -> list[tuple[str, tuple[slice, ...], tuple[int, ...], tuple[int, ...]]]:
    """Return ``(label, slices, flat shape, full shape)`` of the pieces of one parameter."""
    if split is None:
        return [(name, tuple(slice(None) for _ in shape), shape, shape)]
    pieces: list[tuple[str, tuple[slice, ...], tuple[int, ...], tuple[int, ...]]] = [
        (name, (), (), ())
    ]
    for axis, segments in enumerate(split):
        grown = []
        for label, slices, flat, full in pieces:
            start = 0
            for segment, segment_shape in segments:
                inner = segment_shape if segment else (shape[axis],)
                size = math.prod(inner)
                text = label if segment == "" else f"{label}@{segment}"
                grown.append(
                    (text, (*slices, slice(start, start + size)), (*flat, size), (*full, *inner))
                )
                start += size
        pieces = grown
    return pieces


def export_arrays(tensors: Mapping[str, Tensor], split: Split) -> Arrays:
    """Return copies of a module's state, split where ``split`` says so."""
    arrays: Arrays = {}
    for name, tensor in tensors.items():
        array = tensor.detach().cpu().numpy()
        for label, slices, _, full in _pieces(name, tuple(array.shape), split.get(name)):
            arrays[label] = np.array(array[slices], order="C").reshape(full)
    return arrays


def import_arrays(
    tensors: Mapping[str, Tensor],
    split: Split,
    arrays: Mapping[str, Array],
    mode: LoadMode,
) -> list[str]:
    """Load ``arrays`` in place; return what differed, one line each (empty if nothing did).

    ``partial`` keeps old outputs on old inputs: new columns are zero, new units keep their initial
    weights, and an action the arrays do not know gets the logit :data:`NEW_ACTION_BIAS`.
    Raises CheckpointError in ``strict`` mode with the list of differences; nothing is loaded then.
    """
    differences: list[str] = []
    expected: set[str] = set()
    loads: list[tuple[str, Tensor, tuple[slice, ...], tuple[int, ...], Array | None]] = []
    for name, tensor in tensors.items():
        for label, slices, flat, full in _pieces(name, tuple(tensor.shape), split.get(name)):
            expected.add(label)
            source = arrays.get(label)
            if source is None:
                differences.append(f"  missing     {label}: expected {list(full)}")
            elif tuple(source.shape) != full:
                differences.append(
                    f"  different   {label}: expected {list(full)}, got {list(source.shape)}"
                )
            target = np.array(tensor.detach().cpu().numpy()[slices]).reshape(full)
            value: Array | None = None
            if mode == "partial":
                count = arrays.get(label.removesuffix(".squares") + ".count", np.zeros(()))
                value = _overlap(label, target, source, float(count))
            elif source is not None:
                value = np.asarray(source)
            loads.append((name, tensor, slices, flat, value))
    differences += [
        f"  unexpected  {label}: got {list(arrays[label].shape)}"
        for label in arrays
        if label not in expected
    ]
    if mode == "strict" and differences:
        raise CheckpointError(
            "weights do not fit this network (mode strict):\n"
            + "\n".join(sorted(differences))
            + "\nLoad with mode partial to copy what overlaps, or build the network they came from."
        )
    with torch.no_grad():
        for _, tensor, slices, flat, value in loads:
            if value is not None:
                piece = np.ascontiguousarray(value).reshape(flat)
                tensor[slices] = torch.from_numpy(piece.copy()).to(tensor.dtype)
    return differences


def _overlap(label: str, fresh: Array, source: Array | None, count: float) -> Array:
    """Merge ``source`` into ``fresh``: new columns zero, new rows as they are."""
    matrix = fresh.ndim >= 2
    if source is None or source.ndim != fresh.ndim:
        # A split matrix piece without a source reads or writes something new: silent at first.
        return np.zeros_like(fresh) if matrix and "@" in label else fresh
    shared = tuple(slice(0, min(a, b)) for a, b in zip(fresh.shape, source.shape, strict=True))
    merged = fresh.copy()
    if label.endswith(".squares"):
        merged[...] = count  # variance 1 for features without a past
    if matrix:
        merged[shared[0]] = 0.0
    if label.startswith("policy_head") and label.count("@") >= 1 and ".log_std" not in label:
        merged[shared[0].stop :] = 0.0 if matrix or label.endswith(".mean") else NEW_ACTION_BIAS
    merged[shared] = source[shared]
    return merged

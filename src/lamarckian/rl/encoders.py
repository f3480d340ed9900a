"""From named observation arrays to one feature vector.

Each input kind has an encoder; :class:`Torso` runs them and concatenates the results in the order
of the role. uint8 images become floats in [0, 1] here and nowhere else.

Shape letters: ``B`` batch, ``E`` entities, ``F`` features, ``C H W`` channels, height, width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Input
from lamarckian.rl.network_config import (
    Activation,
    EntityEncoder,
    ImageEncoder,
    NetworkConfig,
    Precision,
)
from lamarckian.rl.normalisers import RunningNormaliser

ACTIVATIONS: dict[Activation, Callable[..., nn.Module]] = {
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "silu": nn.SiLU,
}
SQUARE_ROOT_OF_TWO = 2.0**0.5


def has_bfloat16_instructions() -> bool:
    """True if this processor multiplies bfloat16 in hardware (AVX512-BF16 or AMX)."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, name, lambda: False)()) for name in checks)


def uses_bfloat16(precision: Precision) -> bool:
    """Resolve ``auto`` for this machine."""
    return precision == "bfloat16" or (precision == "auto" and has_bfloat16_instructions())


def initialise(layer: nn.Linear | nn.Conv2d, gain: float = SQUARE_ROOT_OF_TWO) -> None:
    """Orthogonal weights, zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def activation(kind: Activation) -> nn.Module:
    """Return the nonlinearity, in place where its gradient needs only its output (not SiLU)."""
    made = ACTIVATIONS[kind]
    return made() if kind in ("tanh", "silu") else made(inplace=True)


def mlp(size: int, hidden: tuple[int, ...], config: NetworkConfig) -> nn.Sequential:
    """Fully connected layers with the configured activation (and layer normalisation)."""
    layers: list[nn.Module] = []
    for width in hidden:
        linear = nn.Linear(size, width)
        initialise(linear)
        layers.append(linear)
        if config.layer_norm:
            layers.append(nn.LayerNorm(width))
        layers.append(activation(config.activation))
        size = width
    return nn.Sequential(*layers)


Segment = tuple[str, tuple[int, ...]]
"""A named run of columns (or rows) of a weight matrix and the shape it stands for."""


class VectorEncoder(nn.Module):
    """Numbers and booleans of any shape, flattened to float32 ``[B, size]``."""

    def __init__(self, name: str, item: Input) -> None:
        super().__init__()
        self.size = math.prod(item.shape)
        self.segments: list[Segment] = [(name, item.shape or (1,))]

    def forward(self, values: Tensor) -> Tensor:
        return values.reshape(values.shape[0], self.size).float()


class CategoryEncoder(nn.Module):
    """Integers ``[B, ...]`` as one-hot rows or embeddings; a number out of range is all zeros."""

    def __init__(self, name: str, item: Input, embedding: int | None) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.arange(item.num_categories), persistent=False)
        self.table: nn.Parameter | None = None
        if embedding is not None:
            self.table = nn.Parameter(torch.empty(item.num_categories, embedding))
            nn.init.normal_(self.table)
        shape = (*item.shape, embedding or item.num_categories)
        self.size = math.prod(shape)
        self.segments: list[Segment] = [(name, shape)]

    numbers: Tensor

    def forward(self, values: Tensor) -> Tensor:
        one_hot = (values.unsqueeze(-1) == self.numbers).float()
        features = one_hot if self.table is None else one_hot @ self.table
        return features.reshape(values.shape[0], self.size)


class ConvolutionEncoder(nn.Module):
    """Convolutions over an image in either layout, then one layer of ``config.size`` units.

    Runs channels-last throughout: an HWC image is a channels-last tensor as it lies in memory.
    Raises ConfigError if the image is too small for the convolutions.
    """

    def __init__(
        self, name: str, item: Input, config: ImageEncoder, network: NetworkConfig
    ) -> None:
        super().__init__()
        self.hwc = item.layout == "HWC"
        self.memory_format = torch.channels_last
        self.scaled = item.dtype == "uint8"
        channels, height, width = item.shape
        if self.hwc:
            height, width, channels = item.shape
        layers: list[nn.Module] = []
        for number, spec in enumerate(config.convolutions):
            if min(height, width) < spec.kernel:
                raise ConfigError(
                    f"input {name!r}: image of {item.shape} ({item.layout}) is too small for "
                    f"convolution {number + 1} (kernel {spec.kernel} on {height} x {width}); "
                    "declare fewer or smaller convolutions in network.image, or check the layout"
                )
            convolution = nn.Conv2d(channels, spec.channels, spec.kernel, spec.stride)
            initialise(convolution)
            layers += [convolution, activation(network.activation)]
            channels = spec.channels
            height = (height - spec.kernel) // spec.stride + 1
            width = (width - spec.kernel) // spec.stride + 1
        self.convolutions = nn.Sequential(*layers)
        self.convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.output = nn.Linear(channels * height * width, config.size)
        initialise(self.output)
        self.activation = activation(network.activation)
        self.size = config.size
        self.output_shape = (channels, height, width)
        self.segments: list[Segment] = [(name, (config.size,))]
        self.reduced = uses_bfloat16(network.precision)

    def forward(self, values: Tensor) -> Tensor:
        if self.hwc:
            values = values.permute(0, 3, 1, 2)
        values = values.contiguous(memory_format=self.memory_format)
        pixels = values.float()
        if self.scaled:  # 255 * float32(1 / 255) rounds to exactly 1
            pixels.mul_(1.0 / 255.0)
        if not self.reduced:
            return self._features(pixels)
        with torch.autocast(pixels.device.type, torch.bfloat16):
            features = self._features(pixels)
        return features.float()

    def _features(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.activation(self.output(self.convolutions(pixels).flatten(1)))
        return features


class SetEncoder(nn.Module):
    """A padded entity list ``[B, E, F]`` with its mask ``[B, E]``, as a set.

    An MLP on each entity, optionally one self-attention block, then masked mean, masked maximum and
    the share of real rows. Padding is replaced before anything is computed from it, so even NaN in
    a padded row changes nothing; a list with no entity gives zeros.
    """

    def __init__(
        self, name: str, item: Input, config: EntityEncoder, network: NetworkConfig
    ) -> None:
        super().__init__()
        width = config.hidden[-1]
        self.entity = mlp(item.shape[1], config.hidden, network)
        self.heads = config.attention_heads
        if self.heads:
            if width % self.heads:
                raise ConfigError(
                    f"network.entities.attention_heads: {self.heads} does not divide the entity "
                    f"width {width}"
                )
            self.attend = nn.Linear(width, 3 * width)
            self.attended = nn.Linear(width, width)
            initialise(self.attend, 1.0)
            initialise(self.attended, 1.0)
        self.size = 2 * width + 1
        self.segments: list[Segment] = [
            (f"{name}.mean", (width,)),
            (f"{name}.maximum", (width,)),
            (f"{name}.share", (1,)),
        ]

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        real = mask.unsqueeze(-1)
        values = torch.where(real, values, torch.zeros_like(values))
        hidden = self.entity(values)
        if self.heads:
            hidden = hidden + self._attention(hidden, mask)
        zeros = torch.zeros_like(hidden)
        number = mask.sum(dim=1, keepdim=True).to(hidden.dtype)
        mean = torch.where(real, hidden, zeros).sum(dim=1) / number.clamp_min(1.0)
        largest = torch.where(real, hidden, zeros - 1e9).amax(dim=1)
        largest = torch.where(number > 0, largest, torch.zeros_like(largest))
        return torch.cat([mean, largest, number / mask.shape[1]], dim=1)

    def _attention(self, hidden: Tensor, mask: Tensor) -> Tensor:
        batch, entities, width = hidden.shape
        size = width // self.heads
        parts = self.attend(hidden).reshape(batch, entities, 3, self.heads, size)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query @ key.transpose(-1, -2)) * size**-0.5
        visible = mask.reshape(batch, 1, 1, entities)
        hidden_scores = torch.zeros_like(scores) - 1e9
        weights = functional.softmax(torch.where(visible, scores, hidden_scores), dim=-1)
        weights = torch.where(visible, weights, torch.zeros_like(weights))
        mixed = (weights @ value).permute(0, 2, 1, 3).reshape(batch, entities, width)
        out: Tensor = self.attended(mixed)
        return out


class Torso(nn.Module):
    """All inputs of one group (a role's inputs, or its central state) as one row of features."""

    def __init__(self, inputs: Mapping[str, Input], config: NetworkConfig, normalise: bool) -> None:
        super().__init__()
        self.inputs = dict(inputs)
        consumed = {item.mask for item in inputs.values() if item.kind == "entities"}
        self.encoders = nn.ModuleDict()
        self.normalisers = nn.ModuleDict()
        self.keys: dict[str, str] = {}
        self.segments: list[Segment] = []
        self.size = 0
        for name, item in inputs.items():
            if item.kind == "mask" and name in consumed:
                continue
            key = f"{item.kind}:{name.replace('.', '/')}"
            encoder = _encoder(name, item, config)
            self.keys[name] = key
            self.encoders[key] = encoder
            self.segments += encoder.segments
            self.size += encoder.size
            if normalise and is_normalised(item):
                shape = item.shape if item.kind == "vector" else item.shape[1:]
                self.normalisers[key] = RunningNormaliser(shape)
        self.input_norm = nn.LayerNorm(self.size) if config.input_norm else None

    def normalise(self, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return ``values`` with the running statistics applied where a normaliser exists."""
        if not self.normalisers:
            return values
        changed = dict(values)
        for name, key in self.keys.items():
            if key in self.normalisers:
                changed[name] = self.normalisers[key](values[name].float())
        return changed

    def forward(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return float32 ``[B, size]`` for named tensors with a leading ``B``."""
        return self.encode(self.normalise(values))

    def encode(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return float32 ``[B, size]`` for inputs that are normalised already."""
        rows: list[Tensor] = []
        for name, key in self.keys.items():
            item = self.inputs[name]
            value = values[name]
            if item.kind == "entities":
                assert item.mask is not None  # the role checked it
                rows.append(self.encoders[key](value, values[item.mask]))
            else:
                rows.append(self.encoders[key](value))
        features = rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)
        if self.input_norm is not None:
            features = self.input_norm(features)
        return features


def is_normalised(item: Input) -> bool:
    """True for what an observation normaliser may touch: numbers, never masks, ids or images."""
    return item.kind in ("vector", "entities") and item.dtype != "bool"


def _encoder(
    name: str, item: Input, config: NetworkConfig
) -> VectorEncoder | CategoryEncoder | ConvolutionEncoder | SetEncoder:
    if item.kind == "image":
        return ConvolutionEncoder(name, item, config.image or ImageEncoder(), config)
    if item.kind == "entities":
        return SetEncoder(name, item, config.entities or EntityEncoder(), config)
    if item.kind == "category":
        return CategoryEncoder(name, item, config.category_embedding)
    return VectorEncoder(name, item)

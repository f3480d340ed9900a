"""What a network looks like, as a record that users write and runs store."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Continuous, Input, Role

Activation = Literal["leaky_relu", "relu", "tanh", "elu", "silu"]
MemoryKind = Literal["none", "lstm", "gru"]
Precision = Literal["auto", "float32", "bfloat16"]
PolicyKind = Literal["actor-critic", "actor", "q", "dueling-q"]
"""What a network puts out: a distribution and state values, a distribution alone, or a value for each
action of each choice (as state value and advantages: duelling)."""
Size = Annotated[int, Meta(ge=1)]


class Convolution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One convolution without padding, followed by the activation."""

    channels: Annotated[int, Meta(ge=1, description="Output channels.")]
    kernel: Annotated[int, Meta(ge=1, description="Width and height of the kernel, pixels.")] = 4
    stride: Annotated[int, Meta(ge=1, description="Step between kernel positions, pixels.")] = 2


DEFAULT_CONVOLUTIONS = tuple(Convolution(channels=channels) for channels in (16, 32, 64, 64))
DEFAULT_MEMORY_SIZE = 128


class ImageEncoder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Convolutions and one fully connected layer, for each image input."""

    convolutions: Annotated[
        tuple[Convolution, ...],
        Meta(min_length=1, description="Convolutions from the image upwards."),
    ] = DEFAULT_CONVOLUTIONS
    size: Annotated[int, Meta(ge=1, description="Width of the layer after the convolutions.")] = 256


class EntityEncoder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reads a padded list of entities as a set: order and padding never matter."""

    hidden: Annotated[
        tuple[Size, ...], Meta(min_length=1, description="Layers applied to every entity alone.")
    ] = (64, 64)
    attention_heads: Annotated[
        int,
        Meta(ge=0, description="Heads of one self-attention block between entities; 0 for none."),
    ] = 0


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Layers of a policy and its critic.

    The trunk reads all inputs, concatenated in the order of the role. The policy head sits on the
    trunk (after the memory, if there is one); the critic's layers follow the trunk too. With the
    defaults the policy is 256, 128 and the critic 256, 128, 128, 64 over a shared bottom, as in
    Table III of the Lamarckian paper.

    ``image``, ``entities``, ``category_embedding`` and ``memory_size`` are None for the default;
    giving one where no input or memory uses it is an error, raised by :func:`check_network`.
    """

    hidden: Annotated[
        tuple[Size, ...], Meta(description="Layers of the trunk, shared by policy and critic.")
    ] = (256, 128)
    critic_hidden: Annotated[
        tuple[Size, ...], Meta(description="Layers of the critic that follow the trunk.")
    ] = (128, 64)
    shared: Annotated[
        bool,
        Meta(
            description="True: the critic stands on the policy's trunk; False: on one of its own."
        ),
    ] = True
    activation: Annotated[Activation, Meta(description="Nonlinearity of every hidden layer.")] = (
        "leaky_relu"
    )
    layer_norm: Annotated[
        bool, Meta(description="Layer normalisation after every hidden layer of trunk and critic.")
    ] = False
    input_norm: Annotated[
        bool, Meta(description="Layer normalisation of the concatenated input features.")
    ] = False
    memory: Annotated[
        MemoryKind, Meta(description="Recurrent layer between the trunk and the heads.")
    ] = "none"
    memory_size: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Units of the memory; None for 128. Only with a memory."),
    ] = None
    image: Annotated[
        ImageEncoder | None,
        Meta(description="Encoder of image inputs; None for four K4S2 convolutions and 256 units."),
    ] = None
    entities: Annotated[
        EntityEncoder | None, Meta(description="Encoder of entity lists; None for 64, 64, pooled.")
    ] = None
    category_embedding: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Numbers that stand for a category; None for one-hot."),
    ] = None
    output_gain: Annotated[
        float, Meta(gt=0.0, description="Gain of the policy head's orthogonal initial weights.")
    ] = 0.01
    log_std: Annotated[
        Literal["independent", "dependent"],
        Meta(description="Spread of continuous actions: one learned number each, or a head."),
    ] = "independent"
    initial_log_std: Annotated[
        float, Meta(description="First log standard deviation, in units where bounds are -1 and 1.")
    ] = 0.0
    log_std_range: Annotated[
        tuple[float, float], Meta(description="Lowest and highest log standard deviation.")
    ] = (-20.0, 2.0)
    log_std_limit: Annotated[
        Literal["soft", "hard"],
        Meta(description="How the range is kept: softplus (gradient everywhere) or clamping."),
    ] = "soft"
    precision: Annotated[
        Precision,
        Meta(
            description="Arithmetic of the convolutions; everything else is float32. auto: bfloat16"
            " where the processor has instructions for it and an input is an image."
        ),
    ] = "auto"

    def __post_init__(self) -> None:
        low, high = self.log_std_range
        if not low < self.initial_log_std < high:
            raise ValueError(
                f"log_std_range: expected low < initial_log_std < high, got {low}, "
                f"{self.initial_log_std}, {high}"
            )


def _has(role: Role, kind: str) -> bool:
    groups: list[Input] = [*role.inputs.values(), *role.state.values()]
    return any(item.kind == kind for item in groups)


def check_network(config: NetworkConfig, role: Role) -> None:
    """Refuse settings that would have no effect for ``role``.

    Raises ConfigError naming the setting and what it would need.
    """
    continuous = any(isinstance(part, Continuous) for part in role.actions.values())
    default = NetworkConfig()
    idle: list[tuple[str, str]] = []
    if config.memory == "none" and config.memory_size is not None:
        idle.append(("memory_size", "memory: lstm or gru"))
    if config.image is not None and not _has(role, "image"):
        idle.append(("image", "an input of kind image"))
    if config.entities is not None and not _has(role, "entities"):
        idle.append(("entities", "an input of kind entities"))
    if config.category_embedding is not None and not _has(role, "category"):
        idle.append(("category_embedding", "an input of kind category"))
    if config.precision == "bfloat16" and not _has(role, "image"):
        idle.append(("precision: bfloat16", "an input of kind image"))
    if not continuous:
        for name in ("log_std", "initial_log_std", "log_std_range", "log_std_limit"):
            if getattr(config, name) != getattr(default, name):
                idle.append((name, "a continuous action part"))
    if config.layer_norm and not (config.hidden or config.critic_hidden):
        idle.append(("layer_norm", "hidden layers"))
    if idle:
        listed = "; ".join(f"network.{name} needs {need}" for name, need in idle)
        raise ConfigError(f"settings without effect for this role: {listed}; remove them")

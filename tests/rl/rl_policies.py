"""Roles and policies that several test modules build."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lamarckian.mdp.core import Arrays, Continuous, Discrete, Input, MultiDiscrete, Role, mask_size
from lamarckian.rl.network_config import Convolution, EntityEncoder, ImageEncoder, NetworkConfig
from lamarckian.rl.policy import TorchPolicy

SMALL = NetworkConfig(hidden=(16,), critic_hidden=(8,))
SMALL_IMAGE = ImageEncoder(convolutions=(Convolution(channels=4), Convolution(channels=4)), size=8)


def tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}


def simple_role(features: int = 3, actions: int = 4, **more: Any) -> Role:
    return Role(inputs={"x": Input((features,))}, actions={"a": Discrete(actions)}, **more)


def everything_role() -> Role:
    return Role(
        inputs={
            "vector": Input((5,)),
            "image": Input((3, 16, 16), "uint8", "image"),
            "units": Input((6, 4), kind="entities", mask="units_mask"),
            "units_mask": Input((6,), "bool", "mask"),
            "class": Input((2,), "int64", "category", num_categories=4),
        },
        actions={"a": Discrete(3), "b": Continuous(2, (-1.0, 0.0), (1.0, 5.0))},
        masked=("a",),
        rewards=("win", "style"),
        state={"all": Input((7,))},
    )


EVERYTHING = NetworkConfig(
    hidden=(16, 8),
    critic_hidden=(8,),
    image=SMALL_IMAGE,
    entities=EntityEncoder(hidden=(8, 8), attention_heads=2),
    category_embedding=3,
    memory="lstm",
    memory_size=4,
    layer_norm=True,
    log_std="dependent",
)


def everything_policy(config: NetworkConfig = EVERYTHING, seed: int = 0) -> TorchPolicy:
    return TorchPolicy(
        everything_role(),
        config,
        seed,
        "tanh",
        normalise_observations=True,
        normalise_values="popart",
    )


def random_wave(role: Role, number: int, rng: np.random.Generator) -> tuple[Arrays, Arrays, Arrays]:
    """Return random ``(inputs, legal, state)`` for ``number`` players."""
    arrays: Arrays = {}
    for name, item in {**role.inputs, **role.state}.items():
        shape = (number, *item.shape)
        if item.dtype == "uint8":
            arrays[name] = rng.integers(0, 256, shape, dtype=np.uint8)
        elif item.dtype == "bool":
            arrays[name] = rng.random(shape) < 0.5
        elif item.dtype == "int64":
            arrays[name] = rng.integers(0, max(1, item.num_categories), shape)
        else:
            arrays[name] = rng.normal(size=shape).astype(np.float32)
    legal: Arrays = {
        name: rng.random((number, mask_size(role.actions[name]))) < 0.7 for name in role.masked
    }
    inputs = {name: arrays[name] for name in role.inputs}
    return inputs, legal, {name: arrays[name] for name in role.state}


def memory_of(policy: TorchPolicy, number: int) -> Arrays:
    return {name: np.repeat(zero[None], number, 0) for name, zero in policy.memory.items()}


HYBRID_ROLE = Role(
    inputs={"x": Input((4,))},
    actions={
        "move": Discrete(3),
        "aim": MultiDiscrete((2, 3)),
        "push": Continuous(2, (-1.0, 0.0), (1.0, 4.0)),
        "drift": Continuous(1),
    },
    masked=("move", "aim"),
)

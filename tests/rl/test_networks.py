"""Encoders and memory: scaling once, layouts, sets without padding, widths and gradients."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_policies import (
    SMALL_IMAGE,
    everything_policy,
    memory_of,
    random_wave,
    simple_role,
    tensors,
)

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Continuous, Discrete, Input, Role
from lamarckian.mdp.policy import draw_noise
from lamarckian.rl.encoders import ConvolutionEncoder, SetEncoder, uses_bfloat16
from lamarckian.rl.network_config import Convolution, EntityEncoder, ImageEncoder, NetworkConfig
from lamarckian.rl.networks import Memory
from lamarckian.rl.policy import TorchPolicy


def image_policy(item: Input, **options: Any) -> TorchPolicy:
    role = Role(inputs={"i": item, "x": Input((3,))}, actions={"a": Discrete(3)})
    return TorchPolicy(role, NetworkConfig(image=SMALL_IMAGE), **options)


def first_layer_input(policy: TorchPolicy, image: np.ndarray) -> torch.Tensor:
    encoder = policy.network.torso.encoders["image:i"]
    assert isinstance(encoder, ConvolutionEncoder)
    seen: list[torch.Tensor] = []
    handle = encoder.convolutions[0].register_forward_hook(
        lambda module, inputs, output: seen.append(inputs[0].clone())
    )
    policy.act({"i": image, "x": np.zeros((len(image), 3), np.float32)}, {}, {}, {}, None)
    handle.remove()
    return seen[0]


def test_pitfalls_env_11_images_are_scaled_exactly_once() -> None:
    bytes_seen = first_layer_input(
        image_policy(Input((3, 16, 16), "uint8", "image")), np.full((2, 3, 16, 16), 255, np.uint8)
    )
    assert torch.all(bytes_seen == 1.0)
    floats_seen = first_layer_input(
        image_policy(Input((3, 16, 16), "float32", "image")),
        np.ones((2, 3, 16, 16), np.float32),
    )
    assert torch.all(floats_seen == 1.0)


def test_pitfalls_env_11_layouts_agree_and_hwc_trains_with_the_normaliser() -> None:
    chw = image_policy(Input((3, 16, 20), "uint8", "image", "CHW"))
    hwc = image_policy(Input((16, 20, 3), "uint8", "image", "HWC"), normalise_observations=True)
    arrays = chw.arrays()
    own = hwc.arrays()
    hwc.load_arrays({**own, **arrays})
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (4, 3, 16, 20), dtype=np.uint8)
    turned = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
    x = rng.normal(size=(4, 3)).astype(np.float32)
    one = chw.act({"i": image, "x": x}, {}, {}, {}, None)
    two = hwc.act({"i": turned, "x": x}, {}, {}, {}, None)
    assert np.allclose(one.values, two.values, atol=1e-5)
    hwc.update_normalisers({"i": turned, "x": x})
    inputs = tensors({"i": turned, "x": x})
    evaluation = hwc.evaluate_actions(inputs, {}, {}, {"a": torch.zeros(4, dtype=torch.int64)})
    evaluation.log_prob.sum().backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in hwc.network.torso.parameters()]
    assert all(g is not None and torch.isfinite(g).all() for g in gradients)


def test_an_image_too_small_is_named() -> None:
    role = Role(inputs={"screen": Input((3, 16, 16), "uint8", "image")}, actions={"a": Discrete(2)})
    with pytest.raises(ConfigError, match=r"'screen'.*convolution 3"):
        TorchPolicy(role)


def test_default_image_network_is_the_one_of_the_paper() -> None:
    role = Role(inputs={"i": Input((4, 84, 84), "uint8", "image")}, actions={"a": Discrete(6)})
    shapes = {
        name: tuple(parameter.shape)
        for name, parameter in TorchPolicy(role).network.named_parameters()
        if name.endswith("weight")
    }
    prefix = "torso.encoders.image:i."
    assert shapes[f"{prefix}convolutions.0.weight"] == (16, 4, 4, 4)
    assert shapes[f"{prefix}convolutions.6.weight"] == (64, 64, 4, 4)
    assert shapes[f"{prefix}output.weight"] == (256, 64 * 3 * 3)
    # policy 256, 128; critic 256, 128, 128, 64 over the shared bottom
    assert shapes["trunk.0.weight"] == (256, 256)
    assert shapes["trunk.2.weight"] == (128, 256)
    assert shapes["critic.0.weight"] == (128, 128)
    assert shapes["critic.2.weight"] == (64, 128)
    assert shapes["value_head.weight"] == (1, 64)


def entity_role(size: int = 5) -> Role:
    return Role(
        inputs={
            "u": Input((size, 3), kind="entities", mask="m"),
            "m": Input((size,), "bool", "mask"),
        },
        actions={"a": Discrete(3)},
    )


@pytest.mark.parametrize("heads", [0, 2])
def test_pitfalls_env_16_sets_ignore_padding_whatever_it_holds(heads: int) -> None:
    config = NetworkConfig(entities=EntityEncoder(hidden=(8, 8), attention_heads=heads))
    policy = TorchPolicy(entity_role(), config, normalise_observations=True)
    rng = np.random.default_rng(0)
    units = rng.normal(size=(3, 5, 3)).astype(np.float32)
    mask = np.zeros((3, 5), bool)
    mask[1, 2] = True
    mask[2] = True  # 0, 1 and all entities in one batch
    policy.update_normalisers({"u": units, "m": mask})
    clean = policy.act({"u": units, "m": mask}, {}, {}, {}, None)
    assert np.isfinite(clean.values).all()
    for filler in (0.0, 1e30, np.nan, -np.inf):
        dirty = np.where(mask[..., None], units, np.float32(filler))
        assert np.array_equal(policy.values({"u": dirty, "m": mask}, {}, {}), clean.values)
    inputs = tensors({"u": np.where(mask[..., None], units, np.nan), "m": mask})
    evaluation = policy.evaluate_actions(inputs, {}, {}, {"a": torch.zeros(3, dtype=torch.int64)})
    (evaluation.log_prob.sum() + evaluation.values_normalised.sum()).backward()
    assert all(
        p.grad is not None and torch.isfinite(p.grad).all() for p in policy.network.parameters()
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 5), st.integers(0, 3), st.integers(0, 2**31))
def test_sets_ignore_order_and_length_of_padding(number: int, extra: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = NetworkConfig()
    short = SetEncoder("u", Input((5, 3), kind="entities", mask="m"), EntityEncoder(), config)
    units = torch.zeros(1, 5, 3)
    units[0, :number] = torch.from_numpy(rng.normal(size=(number, 3)))
    mask = torch.arange(5).unsqueeze(0) < number
    out = short(units, mask)
    order = torch.from_numpy(rng.permutation(5))
    assert torch.allclose(short(units[:, order], mask[:, order]), out, atol=1e-5)
    longer = torch.cat([units, torch.full((1, extra, 3), 7.0)], dim=1)
    wider = torch.cat([mask, torch.zeros(1, extra, dtype=torch.bool)], dim=1)
    # all but the share of real rows, which is relative to the declared length
    assert torch.allclose(short(longer, wider)[:, :-1], out[:, :-1], atol=1e-5)
    if number == 0:
        assert not out.any()


def test_attention_heads_must_divide_the_width() -> None:
    config = NetworkConfig(entities=EntityEncoder(hidden=(9,), attention_heads=2))
    with pytest.raises(ConfigError, match="attention_heads"):
        TorchPolicy(entity_role(), config)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["lstm", "gru"]), st.integers(1, 8), st.integers(1, 4), st.data())
def test_memory_with_resets_equals_running_each_life_alone(
    kind: str, length: int, lanes: int, data: st.DataObject
) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=length * lanes, max_size=length * lanes))
    starts = torch.tensor(flags).reshape(length, lanes)
    torch.manual_seed(0)
    memory = Memory(kind, 3, 4)
    features = torch.randn(length, lanes, 3)
    state = {name: torch.randn(lanes, 4) for name in memory.names}
    outputs, last = memory(features, state, starts)
    for lane in range(lanes):
        alone = {name: value[lane : lane + 1] for name, value in state.items()}
        for t in range(length):
            if starts[t, lane]:
                alone = {name: torch.zeros(1, 4) for name in memory.names}
            step, alone = memory(features[t : t + 1, lane : lane + 1], alone, None)
            assert torch.allclose(outputs[t, lane], step[0, 0], atol=1e-5)
        for name in memory.names:
            assert torch.allclose(last[name][lane], alone[name][0], atol=1e-5)


def test_a_non_finite_old_memory_does_not_pass_a_start() -> None:
    memory = Memory("lstm", 3, 4)
    starts = torch.tensor([[True]])
    state = {name: torch.full((1, 4), torch.nan) for name in memory.names}
    outputs, _ = memory(torch.randn(1, 1, 3), state, starts)
    assert torch.isfinite(outputs).all()


def test_categories_are_one_hot_or_embedded() -> None:
    role = Role(
        inputs={"c": Input((2,), "int64", "category", num_categories=3)}, actions={"a": Discrete(2)}
    )
    encoder = TorchPolicy(role).network.torso.encoders["category:c"]
    assert encoder(torch.tensor([[2, 0]])).tolist() == [[0, 0, 1, 1, 0, 0]]
    assert encoder(torch.tensor([[7, -1]])).tolist() == [[0] * 6]
    embedded = TorchPolicy(role, NetworkConfig(category_embedding=5)).network.torso
    assert embedded.size == 10


def test_precision_auto_follows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    from lamarckian.rl import encoders

    for found in (True, False):
        monkeypatch.setattr(encoders, "has_bfloat16_instructions", lambda found=found: found)
        assert uses_bfloat16("auto") is found
        assert uses_bfloat16("bfloat16")
        assert not uses_bfloat16("float32")


def test_bfloat16_touches_the_convolutions_only() -> None:
    item = Input((3, 16, 16), "uint8", "image")
    role = Role(inputs={"i": item}, actions={"a": Continuous(1)})
    policies = [
        TorchPolicy(role, NetworkConfig(image=SMALL_IMAGE, precision=precision))
        for precision in ("float32", "bfloat16")
    ]
    rng = np.random.default_rng(0)
    inputs = {"i": rng.integers(0, 256, (8, 3, 16, 16), dtype=np.uint8)}
    exact, reduced = (policy.act(inputs, {}, {}, {}, None) for policy in policies)
    assert reduced.values.dtype == reduced.log_prob.dtype == np.float32
    assert 0 < np.abs(exact.values - reduced.values).max() < 0.05
    evaluation = policies[1].evaluate_actions(
        tensors(inputs), {}, {}, tensors({"a": reduced.actions["a"]})
    )
    assert evaluation.log_prob.dtype == torch.float32
    evaluation.log_prob.sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.dtype == torch.float32 for p in policies[1].parameters())


def test_gradients_reach_every_weight() -> None:
    for policy in (everything_policy(), TorchPolicy(simple_role())):
        rng = np.random.default_rng(0)
        inputs, legal, state = random_wave(policy.role, 16, rng)
        noise = draw_noise(policy.role, 16, rng)
        decisions = policy.act(inputs, legal, state, memory_of(policy, 16), noise)
        arguments = [tensors(group) for group in (inputs, legal, state, decisions.actions)]
        if policy.is_recurrent:
            arguments = [{k: v.unsqueeze(0) for k, v in group.items()} for group in arguments]
            starts = torch.zeros(1, 16, dtype=torch.bool)
            memory = {name: torch.randn(16, 4) for name in policy.memory}
            evaluation = policy.evaluate_actions(*arguments, memory, starts)
        else:
            evaluation = policy.evaluate_actions(*arguments)
        total = evaluation.log_prob.sum() + evaluation.entropy.sum()
        (total + evaluation.values_normalised.square().sum()).backward()  # type: ignore[no-untyped-call]
        for name, parameter in policy.network.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_config_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="log_std_range"):
        NetworkConfig(initial_log_std=3.0)
    with pytest.raises(msgspec.ValidationError, match="hiddn"):
        msgspec.convert({"hiddn": [3]}, NetworkConfig)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"hidden": [0]}, NetworkConfig)
    record = msgspec.to_builtins(
        NetworkConfig(image=ImageEncoder(convolutions=(Convolution(channels=3),)))
    )
    assert msgspec.convert(record, NetworkConfig).image is not None

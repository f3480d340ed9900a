"""Running statistics: exact moments, exclusion by type, and one owner of value scaling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_policies import SMALL, SMALL_IMAGE, simple_role, tensors

from lamarckian.mdp.core import Arrays, Discrete, Input, Role
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.normalisers import RawValues, RunningNormaliser, ValueNormaliser
from lamarckian.rl.policy import TorchPolicy


def moment(policy: TorchPolicy, key: str, name: str) -> torch.Tensor:
    normaliser = policy.network.torso.normalisers[key]
    assert isinstance(normaliser, RunningNormaliser)
    return normaliser.moments()[name]


def test_running_moments_by_hand() -> None:
    normaliser = RunningNormaliser((1,))
    normaliser.update(np.array([[1.0], [2.0]]))
    normaliser.update(np.array([[6.0]]))
    # 1, 2, 6: mean 3, squares (4 + 1 + 9) = 14, variance 14 / 3
    assert normaliser.mean.item() == pytest.approx(3.0)
    assert normaliser.squares.item() == pytest.approx(14.0)
    out = normaliser(torch.tensor([[3.0], [6.0]]))
    assert out[0].item() == pytest.approx(0.0)
    assert out[1].item() == pytest.approx(3.0 / (14.0 / 3.0) ** 0.5, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
    st.floats(-1e4, 1e4),
    st.floats(0.01, 100.0),
    st.integers(0, 2**31),
)
def test_merged_moments_equal_those_of_all_data(
    sizes: list[int], mean: float, deviation: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(mean, deviation, (size, 2)) for size in sizes]
    normaliser = RunningNormaliser((2,))
    for part in parts:
        normaliser.update(part)
    everything = np.concatenate(parts)
    assert np.allclose(normaliser.mean.numpy(), everything.mean(0), rtol=1e-9, atol=1e-9)
    variance = (normaliser.squares / normaliser.count).numpy()
    assert np.allclose(variance, everything.var(0), rtol=1e-6, atol=1e-9)


def test_clips_skips_non_finite_rows_and_starts_as_the_identity() -> None:
    normaliser = RunningNormaliser((2,))
    x = torch.tensor([[500.0, -3.0]])
    assert torch.equal(normaliser(x), x)
    normaliser.update(np.array([[0.0, 0.0], [np.nan, 1.0], [1.0, np.inf], [2.0, 2.0]]))
    assert normaliser.count.item() == 2
    assert normaliser.mean.tolist() == [1.0, 1.0]
    assert normaliser(torch.tensor([[1e9, -1e9]])).tolist() == [[10.0, -10.0]]


def test_pitfalls_ma_07_masks_ids_and_images_are_excluded_by_type() -> None:
    role = Role(
        inputs={
            "x": Input((2,)),
            "c": Input((), "int64", "category", num_categories=3),
            "u": Input((4, 2), kind="entities", mask="m"),
            "m": Input((4,), "bool", "mask"),
            "flags": Input((2,), "bool"),
            "i": Input((16, 16, 3), "uint8", "image", "HWC"),
            "f": Input((3, 16, 16), "float32", "image"),
        },
        actions={"a": Discrete(3)},
        masked=("a",),
    )
    policy = TorchPolicy(role, NetworkConfig(image=SMALL_IMAGE), normalise_observations=True)
    rng = np.random.default_rng(0)
    inputs: Arrays = {
        "x": rng.normal(5, 2, (10, 2)).astype(np.float32),
        "c": rng.integers(0, 3, 10),
        "u": rng.normal(3, 1, (10, 4, 2)).astype(np.float32),
        "m": rng.random((10, 4)) < 0.5,
        "flags": rng.random((10, 2)) < 0.5,
        "i": rng.integers(0, 256, (10, 16, 16, 3), dtype=np.uint8),
        "f": rng.random((10, 3, 16, 16), dtype=np.float32),
    }
    legal: Arrays = {"a": rng.random((10, 3)) < 0.5}
    before = {name: array.tobytes() for name, array in {**inputs, **legal}.items()}
    for _ in range(1000):
        policy.update_normalisers(inputs)
    policy.act(inputs, legal, {}, {}, None)
    assert {n: a.tobytes() for n, a in {**inputs, **legal}.items()} == before
    torso = policy.network.torso
    assert set(torso.normalisers) == {"vector:x", "entities:u"}
    normalised = torso.normalise(tensors(inputs))
    for name in ("c", "m", "flags", "i", "f"):
        assert torch.equal(normalised[name], torch.from_numpy(inputs[name]))
    # only real entities count: 1000 updates of the rows whose mask is true
    count = moment(policy, "entities:u", "count").item()
    assert count == 1000 * inputs["m"].sum()
    real = inputs["u"][inputs["m"]]
    mean = moment(policy, "entities:u", "mean").numpy()
    assert np.allclose(mean, real.mean(0), atol=1e-5)


def test_invalid_decisions_are_left_out() -> None:
    policy = TorchPolicy(simple_role(1), SMALL, normalise_observations=True)
    x = np.array([[[1.0], [100.0]], [[3.0], [100.0]]], np.float32)  # [T, N, 1]
    policy.update_normalisers({"x": x}, np.array([[True, False], [True, False]]))
    assert moment(policy, "vector:x", "mean").item() == 2.0


def test_value_normaliser_by_hand() -> None:
    normaliser = ValueNormaliser(1)
    targets = RawValues(torch.tensor([[1.0], [3.0]]))
    assert normaliser.normalise(targets).tolist() == targets.tolist()
    normaliser.update(targets)
    # debiased after one batch: mean 2, mean square 5, variance 5 - 4 = 1
    assert normaliser.normalise(targets).flatten().tolist() == pytest.approx([-1.0, 1.0], abs=1e-5)
    normaliser.update(RawValues(torch.tensor([[6.0], [6.0]])))
    # weights 0.99999 : 1: mean (2 * .99999 + 6) / 1.99999 = 4.00001..., square (5 + 36) / 2 = 20.5
    assert normaliser.shift.item() == pytest.approx(4.0, abs=1e-4)
    assert normaliser.scale.item() == pytest.approx(4.5**0.5, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.floats(-1e4, 1e4), st.floats(0.1, 1e4), st.integers(0, 2**31))
def test_denormalise_inverts_normalise(mean: float, deviation: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = torch.from_numpy(rng.normal(mean, deviation, (20, 2)).astype(np.float32))
    normaliser = ValueNormaliser(2)
    normaliser.update(RawValues(values))
    back = normaliser.denormalise(normaliser.normalise(RawValues(values)))
    assert torch.allclose(back, values, rtol=1e-4, atol=1e-4 * (abs(mean) + deviation))


def test_pitfalls_ma_09_popart_preserves_outputs() -> None:
    policy = TorchPolicy(simple_role(rewards=("a", "b")), SMALL, normalise_values="popart")
    rng = np.random.default_rng(0)
    inputs = {"x": rng.normal(size=(6, 3)).astype(np.float32)}
    for scale in (1.0, 1000.0, 0.1):
        before = policy.values(inputs, {}, {})
        targets = torch.from_numpy(rng.normal(3 * scale, scale, (100, 2)).astype(np.float32))
        policy.update_value_statistics(RawValues(targets))
        assert np.allclose(policy.values(inputs, {}, {}), before, rtol=1e-3, atol=1e-3)


def _trained_policy_weights(scale: float) -> torch.Tensor:
    policy = TorchPolicy(simple_role(), SMALL, normalise_values="running")
    rng = np.random.default_rng(0)
    inputs = {"x": torch.from_numpy(rng.normal(size=(64, 3)).astype(np.float32))}
    actions = {"a": torch.from_numpy(rng.integers(0, 4, 64))}
    targets = RawValues(torch.from_numpy(rng.normal(2, 1, (64, 1)).astype(np.float32) * scale))
    optimiser = torch.optim.SGD(policy.parameters(), 0.05)
    for _ in range(10):
        policy.update_value_statistics(targets)
        evaluation = policy.evaluate_actions(inputs, {}, {}, actions)
        values = policy.denormalised_values(evaluation.values_normalised).detach()
        advantage = (targets - values)[:, 0]
        advantage = (advantage - advantage.mean()) / advantage.std()
        error = evaluation.values_normalised - policy.normalised_targets(targets)
        optimiser.zero_grad()
        loss = -(evaluation.log_prob * advantage).mean() + 0.5 * error.square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return torch.cat([p.detach().flatten() for p in policy.network.parameters()])


def test_pitfalls_ma_09_reward_scale_does_not_change_the_updates() -> None:
    one, thousand = _trained_policy_weights(1.0), _trained_policy_weights(1000.0)
    assert (one - thousand).abs().max() < 1e-4


def test_statistics_load_with_the_weights_and_apply() -> None:
    policy = TorchPolicy(
        simple_role(), SMALL, normalise_observations=True, normalise_values="running"
    )
    x = np.random.default_rng(0).normal(50, 3, (100, 3)).astype(np.float32)
    policy.update_normalisers({"x": x})
    policy.update_value_statistics(RawValues(torch.tensor([[5.0], [9.0]])))
    other = TorchPolicy(
        simple_role(), SMALL, 1, normalise_observations=True, normalise_values="running"
    )
    other.load_arrays(policy.arrays())
    assert np.array_equal(other.values({"x": x}, {}, {}), policy.values({"x": x}, {}, {}))
    other.update_normalisers({"x": x})
    assert moment(other, "vector:x", "count").item() == 200

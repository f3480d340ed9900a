"""The policy as a whole: acting, learning on sequences, loading, and settings without effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rl_policies import (
    SMALL,
    everything_policy,
    memory_of,
    random_wave,
    simple_role,
    tensors,
)

from lamarckian.errors import CheckpointError, ConfigError, GameError, UnsupportedSpace
from lamarckian.mdp.core import Array, Arrays, Continuous, Discrete, Input, MultiDiscrete, Role
from lamarckian.mdp.policy import Policy, draw_noise
from lamarckian.rl.network_config import (
    EntityEncoder,
    ImageEncoder,
    NetworkConfig,
)
from lamarckian.rl.policy import TorchPolicy


def test_policy_implements_the_contract() -> None:
    policy: Policy = TorchPolicy(simple_role(rewards=("win", "style")), SMALL)
    rng = np.random.default_rng(0)
    inputs = {"x": rng.normal(size=(5, 3)).astype(np.float32)}
    decisions = policy.act(inputs, {}, {}, {}, draw_noise(policy.role, 5, rng))
    assert decisions.actions["a"].shape == (5,)
    assert decisions.actions["a"].dtype == np.int64
    assert decisions.log_prob.shape == (5,)
    assert decisions.log_prob.dtype == np.float32
    assert decisions.values.shape == (5, 2)
    assert np.array_equal(decisions.values, policy.values(inputs, {}, {}))
    assert policy.memory == {}
    assert policy.version == 0


def test_same_seed_same_weights_and_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, third = (TorchPolicy(simple_role(), SMALL, seed=s) for s in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert first.fingerprint() == second.fingerprint()
    assert first.fingerprint() != third.fingerprint()


def test_initial_policy_is_nearly_uniform() -> None:
    policy = TorchPolicy(simple_role(actions=4))
    inputs = {"x": np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)}
    decisions = policy.act(inputs, {}, {}, {}, None)
    assert np.abs(np.exp(decisions.log_prob) - 0.25).max() < 0.02


def test_pitfalls_ma_06_ratio_is_one_at_the_first_epoch() -> None:
    role = Role(
        inputs={"x": Input((3,))},
        actions={"a": Discrete(6), "b": MultiDiscrete((2, 3)), "c": Continuous(2)},
        masked=("a", "b"),
    )
    policy = TorchPolicy(role, SMALL)
    rng = np.random.default_rng(1)
    inputs = {"x": rng.normal(size=(500, 3)).astype(np.float32)}
    legal: Arrays = {"a": rng.random((500, 6)) < 0.3, "b": rng.random((500, 5)) < 0.4}
    decisions = policy.act(inputs, legal, {}, {}, draw_noise(role, 500, rng))
    evaluation = policy.evaluate_actions(
        tensors(inputs), tensors(legal), {}, tensors(decisions.actions)
    )
    ratio = (evaluation.log_prob - torch.from_numpy(decisions.log_prob)).exp()
    assert (ratio - 1).abs().max() < 1e-5
    expected = ~legal["a"].any(1) | ~legal["b"][:, :2].any(1) | ~legal["b"][:, 2:].any(1)
    assert np.array_equal(evaluation.no_legal.numpy(), expected)


def test_pitfalls_env_09_options_without_effect_are_refused() -> None:
    cases: list[tuple[Role, dict[str, Any], str]] = [
        (simple_role(), {"bounds": "tanh"}, "tanh"),
        (simple_role(), {"network": NetworkConfig(memory_size=8)}, "memory_size"),
        (simple_role(), {"network": NetworkConfig(image=ImageEncoder())}, "image"),
        (simple_role(), {"network": NetworkConfig(entities=EntityEncoder())}, "entities"),
        (simple_role(), {"network": NetworkConfig(category_embedding=4)}, "category_embedding"),
        (simple_role(), {"network": NetworkConfig(precision="bfloat16")}, "bfloat16"),
        (simple_role(), {"network": NetworkConfig(log_std="dependent")}, "log_std"),
        (simple_role(), {"network": NetworkConfig(initial_log_std=-1.0)}, "initial_log_std"),
        (
            Role(inputs={"i": Input((3, 64, 64), "uint8", "image")}, actions={"a": Discrete(2)}),
            {"normalise_observations": True},
            "normalise_observations",
        ),
        (
            Role(inputs={"x": Input((1,))}, actions={"a": Continuous(2)}),
            {"bounds": "tanh"},
            "tanh",
        ),
    ]
    for role, options, name in cases:
        with pytest.raises(ConfigError, match=name):
            TorchPolicy(role, **options)


def test_pitfalls_env_09_options_change_the_graph_where_they_apply() -> None:
    role = Role(inputs={"x": Input((4,))}, actions={"a": Continuous(1, (-2.0,), (2.0,))})
    base = TorchPolicy(role, SMALL).arrays()
    rng = np.random.default_rng(2)
    inputs = {"x": rng.normal(size=(4, 4)).astype(np.float32)}
    noise = draw_noise(role, 4, rng)
    plain = TorchPolicy(role, SMALL).act(inputs, {}, {}, {}, noise)
    for change in (
        {"hidden": (8,)},
        {"critic_hidden": (4,)},
        {"shared": False},
        {"layer_norm": True},
        {"input_norm": True},
        {"memory": "lstm"},
        {"memory": "gru"},
        {"log_std": "dependent"},
        {"initial_log_std": -1.0},
        {"log_std_limit": "hard"},
        {"output_gain": 0.5},
        {"log_std_range": (-3.0, 1.0)},
    ):
        settings = {"hidden": (16,), "critic_hidden": (8,), **change}
        arrays = TorchPolicy(role, NetworkConfig(**settings)).arrays()  # type: ignore[arg-type]
        same = arrays.keys() == base.keys() and all(
            arrays[name].shape == base[name].shape and np.array_equal(arrays[name], base[name])
            for name in base
        )
        assert not same, change
    for activation in ("relu", "tanh", "elu", "silu"):
        config = NetworkConfig(hidden=(16,), critic_hidden=(8,), activation=activation)
        changed = TorchPolicy(role, config).act(inputs, {}, {}, {}, noise)
        assert not np.array_equal(changed.values, plain.values)
    squashed = TorchPolicy(role, SMALL, bounds="tanh").act(inputs, {}, {}, {}, noise)
    assert not np.array_equal(squashed.game_actions["a"], plain.game_actions["a"])


def test_unsupported_spaces_are_refused_at_everything_policy() -> None:
    role = Role(inputs={"m": Input((3,), "bool", "mask")}, actions={"a": Discrete(2)})
    with pytest.raises(UnsupportedSpace, match="mask"):
        TorchPolicy(role)
    with pytest.raises(UnsupportedSpace, match="'a'"):
        TorchPolicy(Role(inputs={"x": Input((1,))}, actions={"a": "left"}))  # type: ignore[dict-item]


def test_missing_arrays_are_named() -> None:
    policy = TorchPolicy(simple_role(masked=("a",)), SMALL)
    x = np.zeros((1, 3), np.float32)
    with pytest.raises(GameError, match="'x'"):
        policy.act({"y": x}, {}, {}, {}, None)
    with pytest.raises(GameError, match="'a'"):
        policy.act({"x": x}, {}, {}, {}, None)


def test_pitfalls_env_12_float64_observations_and_read_only_views() -> None:
    policy = TorchPolicy(simple_role(), SMALL)
    x = np.random.default_rng(0).normal(size=(3, 3))
    expected = policy.act({"x": x.astype(np.float32)}, {}, {}, {}, None)
    x.setflags(write=False)
    got = policy.act({"x": x}, {}, {}, {}, None)
    assert np.array_equal(got.values, expected.values)
    backwards = policy.act({"x": x[::-1].astype(np.float32)[::-1]}, {}, {}, {}, None)
    assert np.array_equal(backwards.values, expected.values)
    turned = policy.act({"x": x.astype(np.float32)[::-1]}, {}, {}, {}, None)
    assert np.allclose(turned.values[::-1], expected.values, atol=1e-6)
    nobody = policy.act({"x": x[:0]}, {}, {}, {}, np.zeros((0, 1), np.float32))
    assert nobody.log_prob.shape == (0,)
    assert got.values.dtype == got.log_prob.dtype == np.float32
    # whatever moves to a device is float32: some have no float64 at all
    policy = everything_policy()
    assert all(p.dtype == torch.float32 for p in policy.parameters())
    assert all(b.dtype != torch.float64 for b in policy.buffers())
    assert policy.arrays()["torso.normalisers.vector:vector.mean"].dtype == np.float64


@pytest.mark.parametrize("memory", ["lstm", "gru"])
@pytest.mark.parametrize("shared", [True, False])
def test_pitfalls_ep_09_recomputed_equals_collected_with_boundaries_inside_chunks(
    memory: Any, shared: bool
) -> None:
    role = simple_role(masked=("a",))
    config = NetworkConfig(
        hidden=(8,), critic_hidden=(8,), memory=memory, memory_size=6, shared=shared
    )
    policy = TorchPolicy(role, config)
    rng = np.random.default_rng(7)
    T, N, C = 12, 3, 4  # three chunks of four decisions
    starts = np.zeros((T, N), bool)
    starts[0] = True
    for t, n in ((2, 0), (5, 1), (6, 0), (6, 2), (7, 2)):
        starts[t, n] = True
    x = rng.normal(size=(T, N, 3)).astype(np.float32)
    legal = rng.random((T, N, 4)) < 0.7
    state = {name: np.repeat(zero[None], N, 0) for name, zero in policy.memory.items()}
    kept: list[Arrays] = []
    actions, log_prob, values = [], [], []
    for t in range(T):
        for name in state:
            state[name] = np.where(starts[t][:, None], 0, state[name]).astype(np.float32)
        if t % C == 0:
            kept.append({name: array.copy() for name, array in state.items()})
        noise = draw_noise(role, N, rng)
        decisions = policy.act({"x": x[t]}, {"a": legal[t]}, {}, state, noise)
        actions.append(decisions.actions["a"])
        log_prob.append(decisions.log_prob)
        values.append(decisions.values)
        state = decisions.recurrent
    for chunk in range(T // C):
        rows = slice(chunk * C, (chunk + 1) * C)
        evaluation = policy.evaluate_actions(
            {"x": torch.from_numpy(x[rows])},
            {"a": torch.from_numpy(legal[rows])},
            {},
            {"a": torch.from_numpy(np.stack(actions[rows]))},
            tensors(kept[chunk]),
            torch.from_numpy(starts[rows]),
        )
        assert np.abs(evaluation.log_prob.detach().numpy() - np.stack(log_prob[rows])).max() < 1e-5
        difference = evaluation.values_normalised.detach().numpy() - np.stack(values[rows])
        assert np.abs(difference).max() < 1e-5


def test_pitfalls_ep_09_padding_and_neighbours_do_not_touch_a_row() -> None:
    role = simple_role()
    policy = TorchPolicy(role, NetworkConfig(hidden=(8,), memory="lstm", memory_size=6))
    rng = np.random.default_rng(8)
    x = torch.from_numpy(rng.normal(size=(5, 2, 3)).astype(np.float32))
    actions = torch.zeros(5, 2, dtype=torch.int64)
    starts = torch.zeros(5, 2, dtype=torch.bool)
    starts[0] = True
    state = {name: torch.zeros(2, 6) for name in policy.memory}
    together = policy.evaluate_actions({"x": x}, {}, {}, {"a": actions}, state, starts)
    # lengths [2, 5]: row 0 alone over its two decisions gives the same numbers
    alone = policy.evaluate_actions(
        {"x": x[:2, :1]},
        {},
        {},
        {"a": actions[:2, :1]},
        {name: value[:1] for name, value in state.items()},
        starts[:2, :1],
    )
    assert torch.allclose(together.log_prob[:2, :1], alone.log_prob, atol=1e-6)


def test_sequence_gradients_equal_the_step_by_step_ones() -> None:
    policy = TorchPolicy(simple_role(), NetworkConfig(hidden=(8,), memory="gru", memory_size=5))
    memory = policy.network.memory
    assert memory is not None
    rng = np.random.default_rng(9)
    features = torch.from_numpy(rng.normal(size=(6, 2, 8)).astype(np.float32))
    starts = torch.zeros(6, 2, dtype=torch.bool)
    starts[3, 1] = True
    first = features.clone().requires_grad_()
    out, _ = memory(first, {"hidden": torch.ones(2, 5)}, starts)
    out.square().sum().backward()
    second = features.clone().requires_grad_()
    hidden = {"hidden": torch.ones(2, 5)}
    total = torch.zeros(())
    for t in range(6):
        hidden = {"hidden": hidden["hidden"] * (~starts[t]).float().unsqueeze(1)}
        step, hidden = memory(second[t : t + 1], hidden, None)
        total = total + step.square().sum()
    total.backward()  # type: ignore[no-untyped-call]
    assert first.grad is not None
    assert second.grad is not None
    assert torch.allclose(first.grad, second.grad, atol=1e-5)
    assert torch.all(first.grad[:3, 1].abs() < 1e6)


def test_central_state_reaches_the_critic_only() -> None:
    for shared in (True, False):
        role = simple_role(state={"all": Input((5,))})
        policy = TorchPolicy(role, NetworkConfig(hidden=(8,), critic_hidden=(8,), shared=shared))
        rng = np.random.default_rng(0)
        inputs = {"x": rng.normal(size=(4, 3)).astype(np.float32)}
        noise = draw_noise(role, 4, rng)
        one = policy.act(inputs, {}, {"all": np.zeros((4, 5), np.float32)}, {}, noise)
        two = policy.act(inputs, {}, {"all": np.ones((4, 5), np.float32)}, {}, noise)
        assert np.array_equal(one.log_prob, two.log_prob)
        assert not np.array_equal(one.values, two.values)


def test_arrays_round_trip_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    policy = everything_policy()
    inputs, legal, state = random_wave(policy.role, 9, rng)
    policy.update_normalisers(inputs, None, state)
    policy.version = 12
    other = everything_policy(seed=1)
    assert other.load_arrays(policy.arrays()) == []
    assert other.version == 12
    assert other.fingerprint() == policy.fingerprint()
    noise = draw_noise(policy.role, 9, rng)
    one = policy.act(inputs, legal, state, memory_of(policy, 9), noise)
    two = other.act(inputs, legal, state, memory_of(policy, 9), noise)
    assert np.array_equal(one.log_prob, two.log_prob)
    assert np.array_equal(one.values, two.values)
    snapshot = policy.arrays()
    before = {name: array.copy() for name, array in snapshot.items()}
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1.0)
    assert all(np.array_equal(snapshot[name], before[name]) for name in before)


def test_pitfalls_ck_05_strict_refuses_and_names_the_layers() -> None:
    old = TorchPolicy(simple_role(3, 4), SMALL)
    new = TorchPolicy(simple_role(5, 5), SMALL, seed=1)
    before = new.fingerprint()
    with pytest.raises(CheckpointError) as caught:
        new.load_arrays(old.arrays())
    text = str(caught.value)
    assert "trunk.0.weight@x: expected [16, 5], got [16, 3]" in text
    assert "policy_head.bias@a: expected [5], got [4]" in text
    assert new.fingerprint() == before
    broken = old.arrays()
    del broken["value_head.bias@reward"]
    broken["surplus"] = np.zeros(2)
    with pytest.raises(CheckpointError, match=r"missing .*value_head.bias@reward"):
        old.load_arrays(broken)
    with pytest.raises(CheckpointError, match=r"unexpected .*surplus"):
        old.load_arrays({**old.arrays(), "surplus": np.zeros(2)})


def test_pitfalls_ck_05_partial_keeps_old_behaviour_on_old_inputs() -> None:
    rng = np.random.default_rng(0)
    old_role = Role(
        inputs={"x": Input((3,)), "y": Input((2,))}, actions={"a": Discrete(4), "b": Discrete(2)}
    )
    new_role = Role(
        inputs={"x": Input((5,)), "z": Input((6,)), "y": Input((2,))},
        actions={"a": Discrete(5), "b": Discrete(2), "c": Continuous(1)},
        rewards=("reward", "style"),
    )
    old = TorchPolicy(old_role, SMALL, normalise_observations=True)
    x, y = (rng.normal(3, 2, (50, size)).astype(np.float32) for size in (3, 2))
    old.update_normalisers({"x": x, "y": y})
    with torch.no_grad():
        old.network.policy_head.weight.mul_(100)
    wide = NetworkConfig(hidden=(32,), critic_hidden=(16,))
    new = TorchPolicy(new_role, wide, seed=1, normalise_observations=True)
    differences = new.load_arrays(old.arrays(), "partial")
    assert any("trunk.0.weight@x" in line for line in differences)
    before = old.act({"x": x, "y": y}, {}, {}, {}, None)
    wider = np.concatenate([x, rng.normal(size=(50, 2)).astype(np.float32)], axis=1)
    z = rng.normal(size=(50, 6)).astype(np.float32)
    after = new.act({"x": wider, "y": y, "z": z}, {}, {}, {}, None)
    assert np.array_equal(after.actions["a"], before.actions["a"])
    assert np.array_equal(after.actions["b"], before.actions["b"])
    assert np.allclose(after.values[:, 0], before.values[:, 0], atol=1e-5)
    old_outputs = old.network(tensors({"x": x, "y": y}), {}, {})[0]
    new_outputs = new.network(tensors({"x": wider, "y": y, "z": z}), {}, {})[0]
    assert torch.allclose(new_outputs[:, :4], old_outputs[:, :4], atol=1e-4)
    assert torch.allclose(new_outputs[:, 4], torch.full((50,), -5.0))


def test_partial_load_of_a_wider_memory_keeps_outputs() -> None:
    rng = np.random.default_rng(0)
    for memory in ("lstm", "gru"):

        def config(size: int, kind: Any = memory) -> NetworkConfig:
            return NetworkConfig(hidden=(8,), critic_hidden=(8,), memory=kind, memory_size=size)

        old = TorchPolicy(simple_role(), config(4))
        new = TorchPolicy(simple_role(), config(7), seed=1)
        new.load_arrays(old.arrays(), "partial")
        inputs = {"x": rng.normal(size=(4, 3)).astype(np.float32)}
        first, second = memory_of(old, 4), memory_of(new, 4)
        for _ in range(3):
            one = old.act(inputs, {}, {}, first, None)
            two = new.act(inputs, {}, {}, second, None)
            assert np.allclose(one.values, two.values, atol=1e-6)
            first, second = one.recurrent, two.recurrent


def test_values_are_denormalised_and_popart_preserves_them() -> None:
    policy = TorchPolicy(simple_role(), SMALL, normalise_values="popart")
    inputs = {"x": np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)}
    before = policy.values(inputs, {}, {})
    targets: Array = np.random.default_rng(1).normal(50, 9, (100, 1)).astype(np.float32)
    policy.update_value_statistics(torch.from_numpy(targets))  # type: ignore[arg-type]
    assert np.allclose(policy.values(inputs, {}, {}), before, atol=1e-4)

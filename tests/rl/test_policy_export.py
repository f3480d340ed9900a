"""ONNX files and bundles act like the policy they came from, without the training framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rl_policies import (
    HYBRID_ROLE,
    SMALL_IMAGE,
    everything_policy,
    everything_role,
    memory_of,
    random_wave,
    simple_role,
)

from lamarckian.errors import CheckpointError
from lamarckian.mdp.core import Continuous, Discrete, Input, Role
from lamarckian.mdp.onnx_player import OnnxPolicy
from lamarckian.mdp.policy import Policy, draw_noise
from lamarckian.mdp.role_record import role_from_record, role_to_record
from lamarckian.rl import export_check
from lamarckian.rl.export import export_onnx
from lamarckian.rl.network_config import EntityEncoder, NetworkConfig
from lamarckian.rl.policy import TorchPolicy

IMAGE = Input((16, 16, 3), "uint8", "image", "HWC")
MATRIX: dict[str, tuple[Role, dict[str, Any], dict[str, Any]]] = {
    "mlp": (simple_role(), {}, {"normalise_observations": True}),
    "mlp elu, layer norm": (
        simple_role(),
        {"activation": "elu", "layer_norm": True, "input_norm": True},
        {"normalise_values": "running"},
    ),
    "cnn and mlp": (
        Role(inputs={"i": IMAGE, "x": Input((3, 2))}, actions={"a": Discrete(3)}),
        {"image": SMALL_IMAGE, "activation": "silu"},
        {"normalise_observations": True},
    ),
    "float image": (
        Role(inputs={"i": Input((2, 16, 16), kind="image")}, actions={"a": Discrete(3)}),
        {"image": SMALL_IMAGE, "activation": "relu"},
        {},
    ),
    "lstm": (simple_role(masked=("a",)), {"memory": "lstm", "memory_size": 6}, {}),
    "gru, own critic": (
        simple_role(state={"all": Input((5,))}),
        {"memory": "gru", "shared": False, "activation": "tanh"},
        {"normalise_values": "popart"},
    ),
    "lstm, own critic on the inputs": (
        simple_role(),
        {"memory": "lstm", "shared": False},
        {"normalise_observations": True},
    ),
    "hybrid, clip": (HYBRID_ROLE, {}, {}),
    "hybrid, tanh": (HYBRID_ROLE, {"log_std": "dependent"}, {"bounds": "tanh"}),
    "hybrid, hard": (
        HYBRID_ROLE,
        {"log_std": "dependent", "log_std_limit": "hard", "hidden": ()},
        {"bounds": "tanh"},
    ),
    "set": (
        Role(
            inputs={
                "u": Input((5, 3), kind="entities", mask="m"),
                "m": Input((5,), "bool", "mask"),
            },
            actions={"a": Discrete(3)},
        ),
        {"entities": EntityEncoder(hidden=(8,))},
        {"normalise_observations": True},
    ),
    "odd names, wide bounds": (
        Role(
            inputs={"keys": Input((2,)), "a.b/c": Input((3,)), "x y": Input(())},
            actions={"go.left": Discrete(1), "w": Continuous(1, (-1e3,), (1e3,))},
            masked=("go.left",),
        ),
        {},
        {"normalise_observations": True},
    ),
    "category and flags": (
        Role(
            inputs={
                "c": Input((), "int64", "category", num_categories=5),
                "f": Input((2,), "bool"),
                "n": Input((2,), "int64"),
                "s": Input(()),
            },
            actions={"a": Continuous(1, (300.0,), (500.0,))},
        ),
        {},
        {"normalise_observations": True},
    ),
}


def policy_of(name: str) -> TorchPolicy:
    role, network, options = MATRIX[name]
    policy = TorchPolicy(role, NetworkConfig(**{"hidden": (16, 8), **network}), 3, **options)
    rng = np.random.default_rng(0)
    inputs, _, state = random_wave(role, 64, rng)
    policy.update_normalisers(inputs, None, state)
    if policy.value_normaliser is not None:
        targets = policy.network.value_head.weight.new_tensor(rng.normal(5, 3, (50, 1)))
        policy.update_value_statistics(targets)  # type: ignore[arg-type]
    policy.version = 7
    return policy


@pytest.mark.parametrize("name", MATRIX)
def test_pitfalls_exp_01_and_02_matrix(name: str, tmp_path: Path) -> None:
    policy = policy_of(name)
    rng = np.random.default_rng(1)
    recorded = random_wave(policy.role, 100, rng)[0]
    difference = export_onnx(policy, tmp_path / "policy.onnx", recorded=recorded)
    assert difference < 1e-5
    assert [item.name for item in tmp_path.iterdir()] == ["policy.onnx"]
    exported: Policy = OnnxPolicy(tmp_path / "policy.onnx")
    assert exported.version == 7
    assert exported.role == role_from_record(role_to_record(policy.role))
    assert exported.memory.keys() == policy.memory.keys()
    inputs, legal, state = random_wave(policy.role, 3, rng)
    memory = memory_of(policy, 3)
    ours, theirs = policy.values(inputs, state, memory), exported.values(inputs, state, memory)
    assert np.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    # one row NaN: the most likely action for that player, a draw for the others
    noise = draw_noise(policy.role, 3, rng)
    noise[1] = np.nan
    mixed = exported.act(inputs, legal, state, memory, noise)
    mode = policy.act(inputs, legal, state, memory, None)
    for part, action in mixed.game_actions.items():
        assert np.allclose(action[1], mode.game_actions[part][1], rtol=1e-5, atol=1e-5)


def test_pitfalls_exp_02_everything_at_once(tmp_path: Path) -> None:
    policy = everything_policy()
    rng = np.random.default_rng(0)
    inputs, legal, state = random_wave(policy.role, 64, rng)
    policy.update_normalisers(inputs, None, state)
    assert export_onnx(policy, tmp_path / "p.onnx") < 1e-5
    assert export_onnx(policy, tmp_path / "actor.onnx", with_values=False) < 1e-5
    actor = OnnxPolicy(tmp_path / "actor.onnx")
    decisions = actor.act(inputs, legal, {}, memory_of(policy, 64), None)
    assert np.isnan(decisions.values).all()


def test_pitfalls_exp_01_a_file_that_differs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = TorchPolicy(simple_role(), NetworkConfig(hidden=(8,)))
    other = TorchPolicy(simple_role(), NetworkConfig(hidden=(8,)), seed=9)
    export_onnx(other, tmp_path / "other.onnx")
    with pytest.raises(CheckpointError, match="export refused"):
        export_check.check_export(policy, tmp_path / "other.onnx", True)
    monkeypatch.setattr(export_check, "TOLERANCE", 0.0)
    with pytest.raises(CheckpointError):
        export_onnx(policy, tmp_path / "policy.onnx")
    assert [item.name for item in tmp_path.iterdir()] == ["other.onnx"]


def test_a_file_that_is_no_policy_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"x\.onnx"):
        OnnxPolicy(tmp_path / "x.onnx")


def test_roles_survive_their_records() -> None:
    for role in (everything_role(), HYBRID_ROLE, *(row[0] for row in MATRIX.values())):
        assert role_from_record(role_to_record(role)) == role
    with pytest.raises(CheckpointError, match="malformed"):
        role_from_record({"inputs": {}})
    broken = role_to_record(simple_role())
    broken["actions"]["a"]["type"] = "quantum"
    with pytest.raises(CheckpointError, match="quantum"):
        role_from_record(broken)


def test_pitfalls_exp_03_acts_without_the_training_framework(tmp_path: Path) -> None:
    policy = policy_of("hybrid, tanh")
    export_onnx(policy, tmp_path / "p.onnx")
    rng = np.random.default_rng(0)
    inputs, legal, _ = random_wave(policy.role, 4, rng)
    noise = draw_noise(policy.role, 4, rng)
    expected = policy.act(inputs, legal, {}, {}, noise)
    np.savez(tmp_path / "data.npz", noise=noise, x=inputs["x"], **legal)
    program = (
        "import sys\n"
        "for name in ('torch', 'ray', 'zmq', 'onnx', 'msgspec'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from lamarckian.mdp.onnx_player import OnnxPolicy\n"
        "policy = OnnxPolicy(sys.argv[1] + '/p.onnx')\n"
        "data = np.load(sys.argv[1] + '/data.npz')\n"
        "legal = {'move': data['move'], 'aim': data['aim']}\n"
        "out = policy.act({'x': data['x']}, legal, {}, {}, data['noise'])\n"
        "np.savez(sys.argv[1] + '/out.npz', **out.game_actions)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    out = np.load(tmp_path / "out.npz")
    for name, action in expected.game_actions.items():
        assert np.allclose(out[name], action, atol=1e-5)

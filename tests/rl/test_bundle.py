"""Bundles: everything a policy is travels in two files that hold no code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rl_policies import (
    SMALL,
    everything_policy,
    memory_of,
    random_wave,
    simple_role,
)

from lamarckian.errors import CheckpointError
from lamarckian.mdp.onnx_player import OnnxPolicy
from lamarckian.mdp.policy import draw_noise
from lamarckian.rl.bundle import load_bundle, save_bundle
from lamarckian.rl.export import export_onnx
from lamarckian.rl.normalisers import RawValues
from lamarckian.rl.policy import TorchPolicy


def test_pitfalls_env_10_collector_bundle_and_export_choose_the_same_action(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    policy = everything_policy()
    inputs, legal, state = random_wave(policy.role, 64, rng)
    policy.update_normalisers(inputs, None, state)
    policy.version = 31
    save_bundle(policy, tmp_path / "bundle")
    export_onnx(policy, tmp_path / "policy.onnx")
    noise = draw_noise(policy.role, 64, rng)
    memory = memory_of(policy, 64)
    expected = policy.act(inputs, legal, state, memory, noise)
    loaded = load_bundle(tmp_path / "bundle")
    assert loaded.version == 31
    assert loaded.fingerprint() == policy.fingerprint()
    same = loaded.act(inputs, legal, state, memory, noise)
    close = OnnxPolicy(tmp_path / "policy.onnx").act(inputs, legal, state, memory, noise)
    for name, action in expected.game_actions.items():
        assert np.array_equal(same.game_actions[name], action)
        assert np.allclose(close.game_actions[name], action, atol=1e-5)
        assert np.allclose(close.actions[name], expected.actions[name], atol=1e-5)


def test_pitfalls_ck_03_statistics_travel_with_the_policy_to_a_fresh_process(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    policy = TorchPolicy(
        simple_role(), SMALL, normalise_observations=True, normalise_values="running"
    )
    x = rng.normal(1000, 0.01, (500, 3)).astype(np.float32)
    policy.update_normalisers({"x": x})
    targets = rng.normal(50, 3, (100, 1)).astype(np.float32)
    policy.update_value_statistics(RawValues(torch.from_numpy(targets)))
    save_bundle(policy, tmp_path / "b")
    np.save(tmp_path / "x.npy", x)
    program = (
        "import sys, numpy as np\n"
        "from lamarckian.rl.bundle import load_bundle\n"
        "policy = load_bundle(sys.argv[1] + '/b')\n"
        "out = policy.act({'x': np.load(sys.argv[1] + '/x.npy')}, {}, {}, {}, None)\n"
        "np.savez(sys.argv[1] + '/out.npz', log_prob=out.log_prob, values=out.values)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=90)
    here = policy.act({"x": x}, {}, {}, {}, None)
    there = np.load(tmp_path / "out.npz")
    assert np.allclose(there["log_prob"], here.log_prob, atol=1e-6)
    assert np.allclose(there["values"], here.values, atol=1e-4)
    assert here.log_prob.std() > 0  # the 0.01 around 1000 is seen, not rounded away


def test_damaged_or_foreign_bundles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a policy bundle"):
        load_bundle(tmp_path / "nowhere")
    folder = save_bundle(TorchPolicy(simple_role(), SMALL), tmp_path / "b")
    weights = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="checksum"):
        load_bundle(folder)
    (folder / "weights.safetensors").write_bytes(weights[:40])
    with pytest.raises(CheckpointError, match="damaged"):
        load_bundle(folder)
    (folder / "weights.safetensors").write_bytes(weights)
    record = json.loads((folder / "policy.json").read_text())
    for change, message in (
        ({"schema": 99}, "schema 99"),
        ({"schema": None}, "schema number"),
        ({"network": {"hiden": [3]}}, "hiden"),
    ):
        (folder / "policy.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(CheckpointError, match=message):
            load_bundle(folder)


def test_loading_into_a_changed_policy_is_a_choice(tmp_path: Path) -> None:
    folder = save_bundle(TorchPolicy(simple_role(3), SMALL), tmp_path / "b")
    wider = TorchPolicy(simple_role(5), SMALL, seed=1)
    with pytest.raises(CheckpointError, match="strict"):
        load_bundle(folder, wider)
    assert load_bundle(folder, wider, "partial") is wider

"""A policy bundle: a folder that holds everything needed to act, and nothing executable.

``policy.json``         role, network, bounds, normalisers, version, checksum of the weights
``weights.safetensors`` all weights and running statistics by name

The format has a schema number of its own; :func:`load_bundle` reads every schema up to its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from lamarckian.errors import CheckpointError
from lamarckian.mdp.core import Array
from lamarckian.mdp.role_record import role_from_record, role_to_record
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.policy import TorchPolicy
from lamarckian.rl.weights import LoadMode

SCHEMA = 2
POLICY_FILE = "policy.json"
WEIGHTS_FILE = "weights.safetensors"


def policy_record(policy: TorchPolicy) -> dict[str, Any]:
    """Return how ``policy`` was built, as JSON-compatible data; :func:`build_policy` reads it."""
    return {
        "schema": SCHEMA,
        "role": role_to_record(policy.role),
        "network": msgspec.to_builtins(policy.network_config),
        "seed": policy.seed,
        "bounds": policy.bounds,
        "normalise_observations": policy.normalise_observations,
        "normalise_values": policy.normalise_values,
        "kind": policy.kind,
    }


def build_policy(record: Mapping[str, Any], source: str = "policy record") -> TorchPolicy:
    """Build the policy of :func:`policy_record`, with initial weights.

    Raises CheckpointError naming ``source`` for a newer schema or a malformed record.
    """
    schema = record.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise CheckpointError(f"{source}: expected a schema number, got {schema!r}")
    if schema > SCHEMA:
        raise CheckpointError(
            f"{source}: written with schema {schema}, this version reads up to {SCHEMA}; "
            "upgrade lamarckian"
        )
    try:
        return TorchPolicy(
            role_from_record(record["role"]),
            msgspec.convert(record["network"], NetworkConfig),
            int(record["seed"]),
            record["bounds"],
            bool(record["normalise_observations"]),
            record["normalise_values"],
            record["kind"] if schema > 1 else "actor-critic",
        )
    except (KeyError, msgspec.ValidationError) as error:
        raise CheckpointError(f"{source}: malformed policy record: {error}") from error


def save_bundle(policy: TorchPolicy, path: str | Path) -> Path:
    """Write ``policy`` into the folder ``path``; each file is synced and renamed into place."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        **policy_record(policy),
        "version": policy.version,
        "fingerprint": policy.fingerprint(),
    }
    _write(folder / WEIGHTS_FILE, save_tensors(_contiguous(policy.arrays())))
    _write(folder / POLICY_FILE, json.dumps(record, indent=1).encode())
    return folder


def load_bundle(
    path: str | Path, policy: TorchPolicy | None = None, mode: LoadMode = "strict"
) -> TorchPolicy:
    """Read a bundle: into a policy built from its own record, or into ``policy`` under ``mode``.

    Raises CheckpointError if a file is missing or damaged, or does not fit.
    """
    folder = Path(path)
    try:
        record = json.loads((folder / POLICY_FILE).read_bytes())
        arrays = load_tensors((folder / WEIGHTS_FILE).read_bytes())
    except OSError as error:
        raise CheckpointError(f"{folder}: not a policy bundle: {error}") from error
    except (ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: damaged policy bundle: {error}") from error
    own = build_policy(record, str(folder / POLICY_FILE))
    own.load_arrays(arrays)
    if own.fingerprint() != record.get("fingerprint"):
        raise CheckpointError(
            f"{folder}: the weights are not those the bundle was saved with "
            "(checksum differs); restore the folder from a copy"
        )
    if policy is None:
        return own
    policy.load_arrays(arrays, mode)
    return policy


def _contiguous(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)

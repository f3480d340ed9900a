"""A role as JSON-compatible data, for bundles, ONNX files and run folders."""

from __future__ import annotations

import math
from typing import Any

from lamarckian.errors import CheckpointError
from lamarckian.mdp.core import Continuous, Discrete, Input, MultiDiscrete, Part, Role


def role_to_record(role: Role) -> dict[str, Any]:
    """Return ``role`` as nested dicts and lists; infinite bounds become None."""
    return {
        "inputs": {name: _input_record(item) for name, item in role.inputs.items()},
        "actions": {name: _part_record(part) for name, part in role.actions.items()},
        "rewards": list(role.rewards),
        "state": {name: _input_record(item) for name, item in role.state.items()},
        "masked": list(role.masked),
        "seats": role.seats,
    }


def role_from_record(record: dict[str, Any]) -> Role:
    """Rebuild what :func:`role_to_record` gave; raises CheckpointError if it is malformed."""
    try:
        return Role(
            inputs={name: _input(item) for name, item in record["inputs"].items()},
            actions={name: _part(part) for name, part in record["actions"].items()},
            rewards=tuple(record["rewards"]),
            state={name: _input(item) for name, item in record["state"].items()},
            masked=tuple(record["masked"]),
            seats=int(record["seats"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"role record is malformed: {error!r}") from error


def _input_record(item: Input) -> dict[str, Any]:
    return {
        "shape": list(item.shape),
        "dtype": item.dtype,
        "kind": item.kind,
        "layout": item.layout,
        "num_categories": item.num_categories,
        "mask": item.mask,
    }


def _input(record: dict[str, Any]) -> Input:
    return Input(**{**record, "shape": tuple(record["shape"])})


def _part_record(part: Part) -> dict[str, Any]:
    if isinstance(part, Discrete):
        return {"type": "discrete", "num": part.num}
    if isinstance(part, MultiDiscrete):
        return {"type": "multi_discrete", "nums": list(part.nums)}
    return {
        "type": "continuous",
        "size": part.size,
        "low": [None if math.isinf(value) else value for value in part.low],
        "high": [None if math.isinf(value) else value for value in part.high],
    }


def _part(record: dict[str, Any]) -> Part:
    kind = record["type"]
    if kind == "discrete":
        return Discrete(record["num"])
    if kind == "multi_discrete":
        return MultiDiscrete(tuple(record["nums"]))
    if kind == "continuous":
        low = tuple(-math.inf if value is None else value for value in record["low"])
        high = tuple(math.inf if value is None else value for value in record["high"])
        return Continuous(record["size"], low, high)
    raise CheckpointError(f"role record: unknown action part {kind!r}")

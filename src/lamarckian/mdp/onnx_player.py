"""Acting from an exported policy with numpy and onnxruntime alone.

:class:`OnnxPolicy` implements :class:`lamarckian.mdp.policy.Policy`, so an exported file plays
wherever a trained policy does. The training framework is never imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamarckian.errors import CheckpointError, GameError, MissingDependency
from lamarckian.mdp.core import Arrays, Continuous, Role, mask_size
from lamarckian.mdp.policy import Decisions
from lamarckian.mdp.role_record import role_from_record


class OnnxPolicy:
    """A policy read from a file written by ``lamarckian export``.

    ``threads`` bounds onnxruntime's own threads. Raises MissingDependency without onnxruntime,
    CheckpointError if the file is not an exported policy.
    """

    def __init__(self, path: str | Path, threads: int = 1) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingDependency(
                "an exported policy needs onnxruntime: pip install 'lamarckian[onnx]'"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
            record = json.loads(self._session.get_modelmeta().custom_metadata_map["lamarckian"])
        except Exception as error:  # onnxruntime raises its own family of exceptions
            raise CheckpointError(f"{path}: not an exported policy: {error}") from error
        self._role = role_from_record(record["role"])
        self._version = int(record["version"])
        self.fingerprint = str(record["fingerprint"])
        self._memory = {
            item.name.removeprefix("memory."): tuple(item.shape[1:])
            for item in self._session.get_inputs()
            if item.name.startswith("memory.")
        }
        self._wanted = {item.name for item in self._session.get_inputs()}
        self._outputs = [item.name for item in self._session.get_outputs()]

    @property
    def role(self) -> Role:
        return self._role

    @property
    def version(self) -> int:
        return self._version

    @property
    def memory(self) -> Arrays:
        """Zero memory of one player, name -> float32 ``[H]``."""
        return {name: np.zeros(shape, np.float32) for name, shape in self._memory.items()}

    def act(
        self,
        inputs: Arrays,
        legal: Arrays,
        state: Arrays,
        recurrent: Arrays,
        noise: NDArray[np.float32] | None,
    ) -> Decisions:
        """Decide for N players, as the policy would that the file was made from.

        ``values`` of the answer are NaN if the file was exported without its critic.
        """
        feeds: Arrays = {}
        for group, declared, arrays in (
            ("input", self._role.inputs, inputs),
            ("state", self._role.state, state),
        ):
            for name, item in declared.items():
                if f"{group}.{name}" in self._wanted:
                    feeds[f"{group}.{name}"] = _array(arrays, name, item.dtype)
        for name in self._role.masked:
            feeds[f"legal.{name}"] = _array(legal, name, "bool")
        for name in self._memory:
            feeds[f"memory.{name}"] = _array(recurrent, name, "float32")
        if noise is not None:
            feeds["noise"] = np.ascontiguousarray(noise, np.float32)
        found = dict(zip(self._outputs, self._session.run(self._outputs, feeds), strict=True))
        game = {name: found[f"action.{name}"] for name in self._role.actions}
        raw = {
            name: found[f"raw.{name}"] if isinstance(part, Continuous) else game[name]
            for name, part in self._role.actions.items()
        }
        log_prob = found["log_prob"]
        values = found.get("values")
        if values is None:
            values = np.full((len(log_prob), self._role.num_rewards), np.nan, np.float32)
        memory = {name: found[f"next_memory.{name}"] for name in self._memory}
        return Decisions(game, raw, log_prob, values, memory)

    def values(self, inputs: Arrays, state: Arrays, recurrent: Arrays) -> NDArray[np.float32]:
        """Return denormalised value estimates ``[N, K]``."""
        number = len(next(iter(inputs.values())))
        legal = {
            name: np.ones((number, mask_size(self._role.actions[name])), np.bool_)
            for name in self._role.masked
        }
        return self.act(inputs, legal, state, recurrent, None).values


def _array(arrays: Arrays, name: str, dtype: str) -> NDArray[Any]:
    if name not in arrays:
        raise GameError(f"{name!r} is declared by the role but missing; got {sorted(arrays)}")
    return np.ascontiguousarray(arrays[name], np.dtype(dtype))

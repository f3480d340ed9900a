"""A small writer of ONNX graphs: values are names, operators are appended in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian.errors import MissingDependency
from lamarckian.mdp.core import Array

OPSET = 17
IR_VERSION = 8


def import_onnx() -> Any:
    """Return the ``onnx`` package; raises MissingDependency with the install command."""
    try:
        import onnx
    except ImportError as error:
        raise MissingDependency(
            "export needs onnx and onnxruntime: pip install 'lamarckian[onnx]'"
        ) from error
    return onnx


class OnnxGraph:
    """Collects nodes, constants, inputs and outputs; :meth:`save` writes the file."""

    def __init__(self) -> None:
        self.onnx = import_onnx()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._known: dict[tuple[Any, ...], str] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append an operator with one output and return the output's name."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, number: int, *inputs: str, **attributes: Any) -> list[str]:
        """Append an operator with ``number`` outputs and return their names."""
        names = [f"{kind}_{len(self.nodes)}_{index}" for index in range(number)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def constant(self, value: Any, dtype: str = "float32", name: str = "") -> str:
        """Add an initialiser; equal unnamed ones are stored once."""
        array = np.array(value, dtype=dtype)
        key = (name, dtype, array.shape, array.tobytes())
        if key not in self._known:
            label = name or f"constant_{len(self.constants)}"
            self.constants.append(self.onnx.numpy_helper.from_array(array, label))
            self._known[key] = label
        return self._known[key]

    def integers(self, *values: int) -> str:
        """Add a one-dimensional int64 initialiser."""
        return self.constant(values, "int64")

    def add_input(self, name: str, dtype: str, shape: tuple[int, ...], batch: str = "N") -> str:
        """Declare a graph input ``[batch, *shape]``."""
        self.inputs.append(self._info(name, dtype, (batch, *shape)))
        return name

    def add_output(self, name: str, value: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Declare ``value`` a graph output ``[N, *shape]`` called ``name``."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        self.outputs.append(self._info(name, dtype, ("N", *shape)))

    def columns(self, value: str, start: int, size: int) -> str:
        """Return columns ``[N, size]`` of ``value``."""
        first, last = self.integers(start), self.integers(start + size)
        return self.op("Slice", value, first, last, self.integers(1))

    def cast(self, value: str, dtype: str) -> str:
        """Cast to a numpy dtype."""
        return self.op("Cast", value, to=self._type(dtype))

    def save(self, path: Path, metadata: dict[str, Any]) -> None:
        """Check the model and write it; ``metadata`` is kept as JSON under ``lamarckian``."""
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes, "policy", self.inputs, self.outputs, initializer=self.constants
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="lamarckian"
        )
        model.ir_version = IR_VERSION
        helper.set_model_props(model, {"lamarckian": json.dumps(metadata)})
        self.onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString())

    def _info(self, name: str, dtype: str, shape: tuple[str | int, ...]) -> Any:
        return self.onnx.helper.make_tensor_value_info(name, self._type(dtype), list(shape))

    def _type(self, dtype: str) -> int:
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def array_of(tensor: Any) -> Array:
    """Return a detached float32 or int64 copy of a torch tensor."""
    array: Array = tensor.detach().cpu().numpy()
    return array.astype(np.float32) if array.dtype == np.float64 else array.copy()

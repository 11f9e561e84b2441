"""From an ONNX model to weights and a list of operations in one safetensors file, for ``numpy_runner``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.experiment.export.graph import PolicyGraph
from rl_training.experiment.export.numpy_runner import OPERATIONS
from rl_training.experiment.export.onnx_file import NotExportable

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_LEFT_OUT = {"group": 1, "dilations": [1, 1], "ceil_mode": 0, "auto_pad": "NOTSET", "alpha": 1.0, "beta": 1.0}
"""Options that the runner leaves aside, because they have these values."""


def to_numpy(model: ModelProto, graph: PolicyGraph, facts: Mapping[str, str]) -> bytes:
    """Return the file; an operation that the runner does not have is refused by name."""
    import onnx
    from safetensors.numpy import save

    weights = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    plan = {
        "inputs": {field.name: {"dtype": field.dtype, "shape": field.shape} for field in graph.inputs},
        "outputs": [field.name for field in graph.outputs],
        "nodes": [_operation(node) for node in model.graph.node],
    }
    contiguous = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in weights.items()}
    return save(contiguous, {**facts, "policy": json.dumps(plan)})


def _operation(node: NodeProto) -> list[Any]:
    """Return name, inputs, outputs and options of one operation."""
    import onnx

    options = {one.name: _plain(onnx.helper.get_attribute_value(one)) for one in node.attribute}
    if node.op_type not in OPERATIONS or node.domain:
        raise _refused(node.op_type)
    if node.op_type == "Cast":
        options["to"] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(options["to"])).name
    if node.op_type == "ConstantOfShape":
        filled = onnx.numpy_helper.to_array(options["value"])
        options = {"value": filled.item(), "dtype": filled.dtype.name}
    if node.op_type == "Conv" and len(options["strides"]) != 2:
        raise _refused("convolutions of other than two dimensions")
    for name, value in _LEFT_OUT.items():
        if options.get(name, value) != value and not (node.op_type == "Elu" and name == "alpha"):
            raise _refused(f"{node.op_type} with {name}={options[name]}")
    return [node.op_type, list(node.input), list(node.output), options]


def _plain(value: Any) -> Any:
    """Return the value of an option as JSON has it, but for tensors."""
    if isinstance(value, bytes):
        return value.decode()
    return [*value] if isinstance(value, Iterable) else value


def _refused(what: str) -> NotExportable:
    return NotExportable(f"network: does {what}, which the NumPy runner does not know; .onnx does")

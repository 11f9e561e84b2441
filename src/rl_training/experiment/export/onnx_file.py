"""From the module of a policy to an ONNX model, and back to something that runs."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import nn

from rl_training.envs.extras import missing
from rl_training.errors import RLTrainingError
from rl_training.experiment.export.graph import MASK, PolicyGraph
from rl_training.spaces import Array

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 18
"""Of the operators' definitions: the newest that nearly every runtime has."""
BATCH = "batch"
_NEEDED = ("onnx", "onnxscript", "onnxruntime")
_FIXED = "fixes how many observations it takes; write x.shape[0] where it says len(x)"


class NotExportable(RLTrainingError):
    """A network does something that the format has no words for."""


def require_extra(target: str) -> None:
    """Say how to install what makes and runs ONNX files, if that is missing."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise missing("--to", target, "ONNX", "onnx")


def to_onnx(graph: PolicyGraph, facts: Mapping[str, str]) -> ModelProto:
    """Return a policy as a model for any number of rows; ``facts`` become its metadata."""
    with torch.no_grad(), _quiet():
        program = _traced(graph)
        try:
            made = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                verbose=False,
                input_names=[field.name for field in graph.inputs],
                output_names=[field.name for field in graph.outputs],
            )
        except Exception as error:
            _refuse_operation(program, error)
    assert made is not None
    return _tidied(made.model_proto, graph, facts)


def _traced(graph: PolicyGraph) -> torch.export.ExportedProgram:
    """Return what the module does as a list of operations."""
    device = next((p.device for p in graph.parameters()), torch.device("cpu"))
    # Of three rows, as one row would not show where rows are mixed up.
    rows = [
        np.full((3, *field.shape), 0 if field.low is None else field.low, field.dtype)
        for field in graph.inputs
    ]
    inputs = tuple(torch.as_tensor(row, device=device) for row in rows)
    free = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)
    running: list[nn.Module] = []
    try:
        with _watched(running):
            return torch.export.export(graph, inputs, dynamic_shapes=(free,), strict=False)
    except Exception as error:
        names = {module: name for name, module in graph.named_modules()}
        inner = running[-1] if running else graph
        what = _FIXED if "specialized" in str(error) else f"cannot be traced: {_first_line(error)}"
        raise NotExportable(f"{_part(names.get(inner, ''), type(inner).__name__)} {what}") from error


def _refuse_operation(program: torch.export.ExportedProgram, error: Exception) -> NoReturn:
    """Name the operation that has no counterpart, and the part of the network that it belongs to."""
    found = re.search(r"OpOverload\(op='([^']+)'", f"{error} {error.__cause__}")
    if found is None:
        raise NotExportable(f"the policy cannot be written as ONNX: {_first_line(error)}") from error
    where = ("", "an unknown part")
    # What the exporter made of an operation may not be called as it was in the network.
    for graph in (program.graph, program.run_decompositions().graph):
        for node in graph.nodes:
            stack = list(node.meta.get("nn_module_stack", {}).values())
            if stack and found[1].partition(".")[2] in str(node.target):
                where = stack[-1][0], str(stack[-1][1]).rpartition(".")[2]
    raise NotExportable(f"{_part(*where)} does {found[1]}, which ONNX does not know") from error


def _part(path: str, kind: str) -> str:
    """Return what a part of the policy is called, by its place in the learner's network."""
    inside = path.removeprefix("scorer").removeprefix(".network").removeprefix(".")
    return f"network: {inside} ({kind})" if inside else f"network: {kind}"


def _tidied(model: ModelProto, graph: PolicyGraph, facts: Mapping[str, str]) -> ModelProto:
    """Name the rows, make the mask optional, and leave out what the exporter notes of this machine's files."""
    import onnx

    rows = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == rows:
                dim.dim_param = BATCH
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del model.graph.value_info[:], model.graph.metadata_props[:], model.metadata_props[:]
    fields = {field.name: field for field in (*graph.inputs, *graph.outputs)}
    for value in (*model.graph.input, *model.graph.output):
        del value.metadata_props[:]
        value.doc_string = fields[value.name].about
        if value.name == MASK:
            # An initializer of an input's name is what it is where nothing is given: one row for all.
            value.type.tensor_type.shape.dim[0].dim_param = f"{BATCH} or 1"
            allowed = np.ones((1, *fields[MASK].shape), np.bool_)
            model.graph.initializer.append(onnx.numpy_helper.from_array(allowed, MASK))
    for initializer in model.graph.initializer:
        del initializer.metadata_props[:]
        initializer.doc_string = ""
    model.producer_name, model.graph.name, model.doc_string = "rl_training", "policy", ""
    onnx.helper.set_model_props(model, dict(facts))
    onnx.checker.check_model(model, full_check=True)
    return model


class OnnxRunner:
    """Runs a model by onnxruntime, on one thread of the CPU."""

    def __init__(self, model: bytes) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def __call__(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by their names."""
        return dict(zip(self._names, self._session.run(None, dict(given)), strict=True))


@contextlib.contextmanager
def _watched(running: list[nn.Module]) -> Iterator[None]:
    """Keep a list of the modules whose ``forward`` is under way, the innermost last."""

    def leave(module: nn.Module, inputs: Any, outputs: Any) -> None:
        running.pop()

    enters = nn.modules.module.register_module_forward_pre_hook(lambda module, inputs: running.append(module))
    leaves = nn.modules.module.register_module_forward_hook(leave)
    try:
        yield
    finally:
        enters.remove()
        leaves.remove()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch prints and logs on the way; what matters comes as an exception."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

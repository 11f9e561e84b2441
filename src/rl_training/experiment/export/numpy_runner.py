"""Runs a policy that ``rl-training export RUN --to policy.safetensors`` wrote, with NumPy and nothing else.

python numpy_inference.py policy.safetensors < observations.jsonl

Each line is one observation, or {"obs": ..., "reward": 1.0, "episode_start": true, "action_mask": [true, false]}, of which
only obs is needed. The action for each is printed. This file may be copied.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DTYPES = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    "I64": "i8",
    "I32": "i4",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}


def _windows(x: Any, kernel: list[int], strides: list[int], pads: list[int], fill: float) -> Any:
    """Return what a kernel sees of images [N, C, H, W] at every place: [N, C, h, w, *kernel]."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))
    return seen[:, :, :: strides[0], :: strides[1]]


def _conv(x: Any, weight: Any, bias: Any, strides: list[int], pads: list[int], **_: Any) -> Any:
    seen = _windows(x, weight.shape[2:], strides, pads, 0.0)
    out = np.tensordot(seen, weight, axes=([1, 4, 5], [1, 2, 3])) + bias
    return np.moveaxis(out, -1, 1)


def _slice(x: Any, starts: Any, ends: Any, axes: Any, steps: Any = None) -> Any:
    where = [slice(None)] * x.ndim
    for i, axis in enumerate(axes):
        where[axis] = slice(int(starts[i]), int(ends[i]), 1 if steps is None else int(steps[i]))
    return x[tuple(where)]


def _split(x: Any, sizes: Any = None, axis: int = 0, num_outputs: int = 0) -> Any:
    return np.split(x, num_outputs if sizes is None else np.cumsum(sizes)[:-1], axis)


def _scatter(x: Any, places: Any, values: Any, axis: int = 0, **_: Any) -> Any:
    out = x.copy()
    np.put_along_axis(out, places, values, axis)
    return out


def _softmax(x: Any, axis: int = -1) -> Any:
    shares = np.exp(x - x.max(axis, keepdims=True))
    return shares / shares.sum(axis, keepdims=True)


def _layer_norm(x: Any, scale: Any, shift: Any, axis: int = -1, epsilon: float = 1e-5, **_: Any) -> Any:
    centred = x - x.mean(axis, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis, keepdims=True) + np.float32(epsilon)) * scale + shift


def _reshape(x: Any, shape: Any, **_: Any) -> Any:
    return x.reshape([x.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)])


def _axes(axes: Any) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.atleast_1d(axes))


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Div": np.divide,
        "MatMul": np.matmul,
        "Mod": np.mod,
    },
    **{
        "Abs": np.abs,
        "Neg": np.negative,
        "Sqrt": np.sqrt,
        "Exp": np.exp,
        "Log": np.log,
        "Sin": np.sin,
        "Cos": np.cos,
    },
    **{"Equal": np.equal, "Greater": np.greater, "Less": np.less, "And": np.logical_and, "Or": np.logical_or},
    **{"Max": np.maximum, "Min": np.minimum, "Tanh": np.tanh, "Not": np.logical_not, "Pow": np.power},
    **{
        "Where": np.where,
        "Conv": _conv,
        "Slice": _slice,
        "Split": _split,
        "Softmax": _softmax,
        "Reshape": _reshape,
    },
    **{"LayerNormalization": _layer_norm, "ScatterElements": _scatter},
    "Gemm": lambda a, b, c=0.0, transB=0, **_: a @ (b.T if transB else b) + c,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: (np.tanh(x / 2) + 1) / 2,
    "Elu": lambda x, alpha=1.0: np.where(x > 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0))),
    "Erf": lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x),
    "Clip": lambda x, low=None, high=None: np.clip(x, low, high),
    "Cast": lambda x, to, **_: x.astype(to),
    "Shape": lambda x, start=0, end=None: np.array(x.shape[start:end]),
    "Gather": lambda x, index, axis=0: np.take(x, index, axis),
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape))),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, _axes(axes)),
    "Squeeze": lambda x, axes=None: np.squeeze(x, None if axes is None else _axes(axes)),
    "Transpose": lambda x, perm: np.transpose(x, perm),
    "Identity": lambda x: x,
    "ReduceMean": lambda x, axes, keepdims=1, **_: x.mean(_axes(axes), keepdims=bool(keepdims)),
    "ReduceSum": lambda x, axes, keepdims=1, **_: x.sum(_axes(axes), keepdims=bool(keepdims)),
    "ArgMax": lambda x, axis, keepdims=1, **_: np.argmax(x, axis, keepdims=bool(keepdims)),
    "MaxPool": lambda x, kernel_shape, strides, pads, **_: _windows(
        x, kernel_shape, strides, pads, -np.inf
    ).max((4, 5)),
}


class Policy:
    """Calling it with inputs [N, ...] by name gives the outputs; ``act`` takes care of one environment's memory."""

    def __init__(self, file: bytes) -> None:
        start = 8 + int.from_bytes(file[:8], "little")
        header = json.loads(file[8:start])
        plan = json.loads(header.pop("__metadata__")["policy"])
        self.inputs, self.outputs, self.nodes = plan["inputs"], plan["outputs"], plan["nodes"]
        self.weights: dict[str, Any] = {}
        for name, info in header.items():
            begin, end = (start + offset for offset in info["data_offsets"])
            self.weights[name] = np.frombuffer(file[begin:end], DTYPES[info["dtype"]]).reshape(info["shape"])
        self.memory: dict[str, Any] = {}

    def __call__(self, given: Any) -> dict[str, Any]:
        """Return the outputs by name."""
        values = {**self.weights, **given}
        for operation, inputs, outputs, options in self.nodes:
            found = OPERATIONS[operation](*(values[name] if name else None for name in inputs), **options)
            values.update(zip(outputs, found if operation == "Split" else [found], strict=True))
        return {name: values[name] for name in self.outputs}

    def act(self, given: dict[str, Any]) -> Any:
        """Return the action for one observation; ``episode_start`` forgets what was before."""
        full = {"episode_start": not self.memory, "reward": 0.0, **given}
        known = {
            name: np.array([full[name]], info["dtype"]) for name, info in self.inputs.items() if name in full
        }
        for name, info in self.inputs.items():
            if name.startswith("memory."):
                known[name] = self.memory.get(name, np.zeros((1, *info["shape"]), info["dtype"]))
        found = self(known)
        self.memory = {name[4:]: found[name] for name in found if name.startswith("new_memory.")}
        return found["action"][0]


if __name__ == "__main__":
    policy = Policy(Path(sys.argv[1]).read_bytes())
    for line in sys.stdin:
        told = json.loads(line)
        print(json.dumps(policy.act(told if isinstance(told, dict) else {"obs": told}).tolist()))

"""Runs a policy that ``rl-training export RUN --to policy.safetensors`` wrote, with NumPy and nothing else.

Run: echo '[0.0, 0.0, 0.1, 0.0]' | python numpy_inference.py policy.safetensors

Each line of the input is one observation, in order. The action for each is printed. A line can also be an object:
{"obs": [0.0, 0.0, 0.1, 0.0], "reward": 1.0, "episode_start": true, "action_mask": [true, false]}
Only the observation is needed; of a Dict, each part is an input of its own, such as "obs.camera".
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


def _windows(x: Any, kernel: Any, strides: Any, pads: Any, fill: float) -> Any:
    """Return what a kernel sees of images [N, C, H, W] at every place: [N, C, h, w, *kernel]."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), axis=(2, 3))
    return seen[:, :, :: strides[0], :: strides[1]]


def _conv(x: Any, weight: Any, bias: Any = None, *, strides: Any, pads: Any, **_: Any) -> Any:
    seen = _windows(x, weight.shape[2:], strides, pads, 0.0)
    out = np.moveaxis(np.tensordot(seen, weight, axes=([1, 4, 5], [1, 2, 3])), -1, 1)
    return out if bias is None else out + bias[:, None, None]


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


def _axes(axes: Any) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.atleast_1d(axes))


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "MatMul": np.matmul},
    **{"Sqrt": np.sqrt, "Exp": np.exp, "Cos": np.cos, "Tanh": np.tanh, "Max": np.maximum, "Min": np.minimum},
    **{"Equal": np.equal, "Greater": np.greater, "Less": np.less, "And": np.logical_and, "Where": np.where},
    **{"Conv": _conv, "Slice": _slice, "Split": _split, "ScatterElements": _scatter, "Softmax": _softmax},
    "LayerNormalization": _layer_norm,
    "Gemm": lambda a, b, c=0.0, transB=0, **_: a @ (b.T if transB else b) + c,
    "Mod": lambda a, b, **_: np.mod(a, b),
    "Not": np.logical_not,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: (np.tanh(x / 2) + 1) / 2,
    "Elu": lambda x, alpha=1.0: np.where(x > 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0))),
    "Erf": lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x),
    "Clip": lambda x, low=None, high=None: np.clip(x, low, high),
    "Cast": lambda x, to, **_: x.astype(to),
    "Shape": lambda x, start=0, end=None: np.array(x.shape[start:end]),
    "ConstantOfShape": lambda shape, value, dtype: np.full(tuple(shape), value, dtype),
    "Reshape": lambda x, to, **_: x.reshape([n or old for n, old in zip(to, (*x.shape, *to), strict=False)]),
    "Gather": lambda x, index, axis=0: np.take(x, index, axis),
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape))),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, _axes(axes)),
    "Squeeze": lambda x, axes: np.squeeze(x, _axes(axes)),
    "Transpose": lambda x, perm: np.transpose(x, perm),
    "ReduceMean": lambda x, axes, keepdims=1, **_: x.mean(_axes(axes), keepdims=bool(keepdims)),
    "ArgMax": lambda x, axis, keepdims=1, **_: np.argmax(x, axis, keepdims=bool(keepdims)),
    "MaxPool": lambda x, kernel_shape, strides, pads, **_: _windows(
        x, kernel_shape, strides, pads, -np.inf
    ).max((4, 5)),
}


class Policy:
    """Called with inputs [N, ...] by name it gives the outputs; ``act`` is for one environment, and remembers."""

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
        values = {"": None, **self.weights, **given}
        for operation, inputs, outputs, options in self.nodes:
            found = OPERATIONS[operation](*(values[name] for name in inputs), **options)
            values.update(zip(outputs, found if operation == "Split" else [found], strict=True))
        return {name: values[name] for name in self.outputs}

    def act(self, **given: Any) -> Any:
        """Return the action for one observation; ``episode_start=True`` forgets what was before."""
        told = {"episode_start": not self.memory, "reward": 0.0, **given}
        known = {}
        for name, info in self.inputs.items():
            if name.startswith("memory."):  # what came out as new_memory., at first zeros
                known[name] = self.memory.get(name, np.zeros((1, *info["shape"]), info["dtype"]))
            elif name in told:
                known[name] = np.asarray(
                    [told[name]], info["dtype"]
                )  # one row for each environment: here, one
        found = self(known)
        self.memory = {
            name.removeprefix("new_"): found[name] for name in found if name.startswith("new_memory.")
        }
        return found["action"][0]


if __name__ == "__main__":
    policy = Policy(Path(sys.argv[1]).read_bytes())
    for line in sys.stdin:
        told = json.loads(line)
        print(json.dumps(policy.act(**(told if isinstance(told, dict) else {"obs": told})).tolist()))

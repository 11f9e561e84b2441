"""Perceptrons of any size by compiled code, on the CPU; see ``native/mlp.h``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, c_double, c_int64, c_void_p
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from rl_training.models.batch_renorm import BatchRenorm
from rl_training.native import library

ACTIVATIONS = {"relu": 1, "tanh": 2}


class _Mlp(Structure):
    """``Mlp`` in ``native/mlp.h``."""

    _fields_ = (
        ("layers", c_int64),
        ("sizes", c_void_p),
        ("activation", c_int64),
        ("threads", c_int64),
        ("parameters", c_void_p),
        ("gradient", c_void_p),
    )


class _Normalized(Structure):
    """``Normalized`` in ``native/mlp.h``."""

    _fields_ = (
        ("mlp", _Mlp),
        *((name, c_void_p) for name in ("mean", "variance", "calls")),
        *((name, c_double) for name in ("momentum", "eps", "r_max", "d_max")),
        ("warm_up", c_int64),
    )


class CompiledMLP:
    """A perceptron whose parameters, and their gradient, lie one after the other in memory.

    With ``norms``, one for each layer, the layers' inputs are normalised over the batch. What a pass forward leaves
    behind lies in memory of its own until the next one: taken from the system anew each time, it would cost more than
    small networks compute.
    """

    def __init__(
        self,
        native: ctypes.CDLL,
        sizes: Sequence[int],
        activation: str,
        parameters: Sequence[torch.Tensor],
        gradient: Sequence[torch.Tensor] | None,
        norms: Sequence[BatchRenorm] = (),
    ) -> None:
        self._sizes = np.array(sizes, np.int64)
        # As long as there are addresses of them.
        self._kept: list[Any] = [[parameter.detach() for parameter in parameters], gradient]
        self._watched = [(parameters[0], parameters[0].data_ptr())]
        self._net = _Mlp(
            layers=len(sizes) - 1,
            sizes=self._sizes.ctypes.data,
            activation=ACTIVATIONS[activation],
            parameters=parameters[0].data_ptr(),
            gradient=None if gradient is None else gradient[0].data_ptr(),
        )
        self._inputs, self._outputs = int(sizes[0]), int(sizes[-1])
        self._widest, below = int(self._sizes.max()), int(self._sizes[:-1].sum())
        self._widths, self._extra = below - self._inputs + self._outputs, 0
        name, self._address = "mlp", ctypes.byref(self._net)
        if norms:
            whole = self._normalized(norms)
            self._net, name, self._address = whole.mlp, "normalized", ctypes.byref(whole)
            self._widths, self._extra = self._widths + below, 4 * below
        learning = [c_int64] if norms else []
        self._forward, self._backward = (
            getattr(native, f"{name}_forward"),
            getattr(native, f"{name}_backward"),
        )
        self._forward.argtypes = (c_void_p, c_int64, c_void_p, c_void_p, *learning)
        self._backward.argtypes = (
            *(c_void_p, c_int64, c_void_p, c_void_p),
            *(c_int64, c_void_p, c_void_p, c_void_p),
            *(c_int64, c_void_p, c_int64),
            *learning,
        )
        self._forward.restype = self._backward.restype = None
        self._work, self._scratch, self._passes = _room(0), _room(0), 0
        self._modes: tuple[tuple[int, ...], tuple[int, ...]] = ((0,), (1,)) if norms else ((), ())

    def _normalized(self, norms: Sequence[BatchRenorm]) -> _Normalized:
        places = {
            name: np.array([tensor.data_ptr() for tensor in tensors], np.int64)
            for name, tensors in {
                "mean": [norm.running_mean for norm in norms],
                "variance": [norm.running_var for norm in norms],
                "calls": [norm.calls for norm in norms],
            }.items()
        }
        norm = norms[0]
        whole = _Normalized(
            mlp=self._net,
            **{name: each.ctypes.data for name, each in places.items()},
            **{name: getattr(norm, name) for name in ("momentum", "eps", "r_max", "d_max", "warm_up")},
        )
        self._kept += [[[*each.buffers()] for each in norms], places, whole]
        self._watched.append((norm.running_mean, norm.running_mean.data_ptr()))
        return whole

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledMLP:
        """Refuse: a copy would go on with the parameters of the original."""
        raise TypeError(
            "a learner with compiled networks cannot be copied; build another and load its state_dict()"
        )

    def _check(self, x: torch.Tensor) -> None:
        """Raise an error if C would read something else than it thinks."""
        if x.shape[1:] != (self._inputs,) or x.dtype is not torch.float32 or x.device.type != "cpu":
            raise ValueError(
                f"inputs: should be float32 [B, {self._inputs}] on the CPU, not {x.dtype} {list(x.shape)} on {x.device}"
            )
        if any(tensor.data_ptr() != place for tensor, place in self._watched):
            raise RuntimeError("network: its parameters were moved after the learner was built around them")

    def forward(self, x: torch.Tensor, *, learning: bool = False) -> tuple[int, torch.Tensor]:
        """Return the number of this pass, by which it can be gone back, and the outputs [B, out] for inputs [B, in]."""
        self._check(x)
        count = len(x)
        size = count * self._widths + self._extra
        if len(self._work) < size:
            self._work = _room(size)
        self._net.threads = torch.get_num_threads()
        self._forward(self._address, count, x.data_ptr(), self._work.data_ptr(), *self._modes[learning])
        self._passes += 1
        out = self._work[size - count * self._outputs : size].clone()
        return self._passes, out.view(count, self._outputs)

    def _backwards(self, number: int, count: int) -> tuple[int, int]:
        """Return where the pass of that number and some scratch are."""
        if number != self._passes:
            raise RuntimeError(
                "network: it went forward again since, and only the last pass can be gone back"
            )
        if len(self._scratch) < 2 * count * self._widest:
            self._scratch = _room(2 * count * self._widest)
        return self._work.data_ptr(), self._scratch.data_ptr()

    def store(self, x: torch.Tensor, number: int, grad: torch.Tensor) -> None:
        """Write the gradient of the parameters, given that by the outputs [B, out]; normalised layers were learning."""
        count = len(x)
        assert self._net.gradient is not None
        assert grad.shape == (count, self._outputs)
        work, scratch = self._backwards(number, count)
        found = (x.data_ptr(), work, count, None, grad.data_ptr(), scratch)
        self._backward(self._address, count, *found, 1, None, 0, *self._modes[True])

    def slope(
        self, x: torch.Tensor, number: int, grad: torch.Tensor, first: int, rows: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the gradient [N, in - first] by the inputs from ``first`` on, of all rows or of some [N].

        Normalised layers were not learning.
        """
        count = len(grad)
        assert grad.shape == (count, self._outputs)
        assert len(x) == count if rows is None else rows.dtype is torch.int64 and rows.is_contiguous()
        work, scratch = self._backwards(number, count)
        out = _room(count * (self._inputs - first)).view(count, self._inputs - first)
        picked = None if rows is None else rows.data_ptr()
        found = (x.data_ptr(), work, count, picked, grad.data_ptr(), scratch)
        self._backward(self._address, len(x), *found, 0, out.data_ptr(), first, *self._modes[False])
        return out


def compiled_mlp(
    sizes: Sequence[int],
    activation: str,
    parameters: Sequence[torch.Tensor],
    gradient: Sequence[torch.Tensor] | None = None,
    norms: Sequence[BatchRenorm] = (),
) -> CompiledMLP | None:
    """Return a perceptron, or none if there is no compiled code, or none for what this one is."""
    native = library()
    if native is None or activation not in ACTIVATIONS or len({norm.options for norm in norms}) > 1:
        return None
    if [list(p.shape) for p in parameters] != _shapes(sizes, normalized=bool(norms)):
        return None
    if not all(_side_by_side(each) for each in (parameters, gradient) if each is not None):
        return None
    return CompiledMLP(native, sizes, activation, parameters, gradient, norms)


def _shapes(sizes: Sequence[int], *, normalized: bool) -> list[list[int]]:
    """Return the shapes of the parameters that the compiled code expects."""
    shapes = []
    for inputs, outputs in pairwise(sizes):
        shapes += [[inputs], [inputs]] if normalized else []
        shapes += [[outputs, inputs], [outputs]]
    return shapes


def _room(floats: int) -> torch.Tensor:
    return torch.empty(floats, dtype=torch.float32, device="cpu")


def _side_by_side(tensors: Sequence[torch.Tensor]) -> bool:
    """Say whether tensors of float32 lie one after the other on the CPU, without gaps."""
    place = tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.device.type != "cpu" or tensor.dtype is not torch.float32 or not tensor.is_contiguous():
            return False
        if tensor.data_ptr() != place:
            return False
        place += 4 * tensor.numel()
    return True

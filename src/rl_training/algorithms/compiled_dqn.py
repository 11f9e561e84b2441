"""DQN's gradient by compiled code, for small perceptrons on the CPU; see ``native/dqn_gradient.c``."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, c_void_p

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.q_learning import HeadLoss
from rl_training.data.transitions import Batch
from rl_training.models.mlp_q_network import MLPQNetwork
from rl_training.native import library

MAX_PRODUCTS = 2**23
"""Multiplications in one layer above which torch's products, which may use threads, are the faster ones."""


class _Network(Structure):
    """``Network`` in ``native/dqn_gradient.h``."""

    _fields_ = (
        ("layers", c_int64),
        ("parameters", c_int64),
        ("sizes", c_void_p),
        *((name, c_int64) for name in ("tanh", "dueling", "choose_online", "huber")),
        *((name, c_void_p) for name in ("online", "target", "grad", "work")),
    )


_ROWS = ("obs", "next_obs", "action", "reward", "discount", "weight", "next_mask")


class _Batch(Structure):
    """``Batch`` in ``native/dqn_gradient.h``: of each of ``_ROWS`` an address and a stride."""

    _fields_ = (("count", c_int64), ("rows", c_int64 * (2 * len(_ROWS))))


class CompiledGradient:
    """Computes what autograd would, for networks whose parameters lie in flat vectors ``online`` and ``target``."""

    def __init__(
        self,
        native: ctypes.CDLL,
        network: MLPQNetwork,
        online: torch.Tensor,
        target: torch.Tensor,
        grad: torch.Tensor,
        *,
        double: bool,
        huber: bool,
    ) -> None:
        sizes = np.array(network.mlp.sizes, np.int64)
        self._features = network.features
        self._kept = (online, target, grad, sizes)  # as long as there are addresses of them
        self._network = _Network(
            layers=len(sizes) - 1,
            parameters=len(online),
            sizes=sizes.ctypes.data,
            tanh=network.mlp.activation == "tanh",
            dueling=network.dueling,
            choose_online=double,
            huber=huber,
            online=online.data_ptr(),
            target=target.data_ptr(),
            grad=grad.data_ptr(),
        )
        self._batch = _Batch()
        self._arguments = ctypes.byref(self._network), ctypes.byref(self._batch)
        self._function = native.dqn_gradient
        self._function.argtypes, self._function.restype = (c_void_p, c_void_p, c_void_p), None
        self._sizes = sizes
        self._rows, self._work = 0, torch.empty(0)
        self._types = (torch.float32,) * 2 + (torch.int64,) + (torch.float32,) * 3 + (torch.bool,)
        self.max_rows = MAX_PRODUCTS // int((sizes[:-1] * sizes[1:]).max())
        """The largest batch that it is meant for."""

    def __call__(self, batch: Batch) -> HeadLoss:
        """Write the gradient of the mean loss to ``grad``; return what the loss is made of, ``each`` weighted."""
        count = len(batch.reward)
        if count != self._rows:
            self._make_room(count)
        rows = (
            self._features(batch.obs),
            self._features(batch.next_obs),
            batch.action,
            batch.reward,
            batch.discount,
            batch.weight,
            batch.next_mask,
        )
        given = self._batch
        given.count = count
        address = given.rows
        for i, (tensor, dtype) in enumerate(zip(rows, self._types, strict=True)):
            if tensor is None:
                address[2 * i] = 0
                continue
            if (
                tensor.dtype is not dtype
                or len(tensor) != count
                or (tensor.ndim == 2 and tensor.stride(1) != 1)
            ):
                raise ValueError(f"{_ROWS[i]}: expected {count} rows of {dtype} without gaps")
            address[2 * i], address[2 * i + 1] = tensor.data_ptr(), tensor.stride(0)
        facts = torch.empty(4, count)
        self._function(*self._arguments, facts.data_ptr())
        value, target, error, each = facts
        return HeadLoss(each, value, target, error, priority=error.abs())

    def _make_room(self, rows: int) -> None:
        sizes, whole = self._sizes, -(-rows // 8) * 8
        of_samples = whole * (4 * sizes[-1] + sizes.sum() + 3 * sizes.max() + 16)
        self._rows, self._work = rows, torch.empty(int(of_samples + 16 * sizes.sum()))
        self._network.work = self._work.data_ptr()


def compiled_gradient(
    network: nn.Module,
    online: torch.Tensor,
    target: torch.Tensor,
    grad: torch.Tensor,
    *,
    double: bool,
    huber: bool,
) -> CompiledGradient | None:
    """Return the gradient of a network, or none if the compiled code is missing or does something else.

    A subclass may compute something else than ``MLPQNetwork``.
    """
    native = library()
    if native is None or type(network) is not MLPQNetwork or network.mlp.noisy or not network.mlp.fused:
        return None
    if online.device.type != "cpu" or online.dtype is not torch.float32:
        return None
    return CompiledGradient(native, network, online, target, grad, double=double, huber=huber)

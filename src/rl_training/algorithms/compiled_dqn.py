"""DQN's gradient by compiled code, for small perceptrons on the CPU; see ``native/dqn_gradient.c``."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, c_void_p

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.value_learner import HeadLoss
from rl_training.data.transitions import Batch
from rl_training.models.mlp_q_network import MLPQNetwork
from rl_training.native import MAX_PRODUCTS, NORM_EPS, library

ROWS = ("obs", "next_obs", "action", "reward", "discount", "weight", "next_mask")
_TYPES = (*[torch.float32] * 2, torch.int64, *[torch.float32] * 3, torch.bool)


class _Network(Structure):
    """``Network`` in ``native/dqn_gradient.h``."""

    _fields_ = (
        ("layers", c_int64),
        ("parameters", c_int64),
        ("sizes", c_void_p),
        *((name, c_int64) for name in ("layer_norm", "dueling", "choose_online", "huber")),
        *((name, c_void_p) for name in ("online", "target", "grad", "work")),
    )


class _Batch(Structure):
    """``Batch`` in ``native/dqn_gradient.h``: of each of ``ROWS`` an address and a stride."""

    _fields_ = (("count", c_int64), ("rows", c_int64 * (2 * len(ROWS))))


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
            layer_norm=len(network.mlp.norms) > 0,
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
        self._function.argtypes, self._function.restype = (c_void_p, c_void_p, c_void_p), c_int64
        self._sizes = sizes
        self._shapes = ((int(sizes[0]),), (int(sizes[0]),), (), (), (), (), (network.num_actions,))
        self._rows, self._work = 0, torch.empty(0, dtype=torch.float32, device="cpu")
        self.max_rows = MAX_PRODUCTS // int((sizes[:-1] * sizes[1:]).max())
        """The largest batch that it is meant for."""

    def __call__(self, batch: Batch) -> HeadLoss:
        """Write the gradient of the mean loss to ``grad``; return what the loss is made of, ``each`` weighted."""
        count = len(batch.reward)
        if count != self._rows:
            self._make_room(count)
        given = [
            self._features(batch.obs),
            self._features(batch.next_obs),
            batch.action,
            batch.reward,
            batch.discount,
            batch.weight,
            batch.next_mask,
        ]
        self._batch.count = count
        addresses = self._batch.rows
        for i, tensor in enumerate(given):
            if tensor is None:
                addresses[2 * i] = 0
                continue
            if tensor.shape != (count, *self._shapes[i]):
                shape = [count, *self._shapes[i]]
                raise ValueError(f"{ROWS[i]}: expected the shape {shape}, got {list(tensor.shape)}")
            if tensor.dtype is not _TYPES[i] or (tensor.ndim == 2 and tensor.stride(1) != 1):
                tensor = given[i] = tensor.to(_TYPES[i]).contiguous()
            addresses[2 * i], addresses[2 * i + 1] = tensor.data_ptr(), tensor.stride(0)
        facts = torch.empty(4, count, dtype=torch.float32, device="cpu")
        wrong = self._function(*self._arguments, facts.data_ptr())
        if wrong >= 0:
            raise IndexError(f"action: {int(batch.action[wrong])} is none of {self._shapes[-1][0]}")
        value, target, error, each = facts
        return HeadLoss(each, value, target, error, priority=error.abs())

    def _make_room(self, rows: int) -> None:
        sizes, whole = self._sizes, -(-rows // 8) * 8
        of_samples = whole * (4 * sizes[-1] + 2 * sizes.sum() + 3 * sizes.max() + len(sizes) + 15)
        room = int(of_samples + 16 * sizes.sum())
        self._rows, self._work = rows, torch.empty(room, dtype=torch.float32, device="cpu")
        self._network.work = self._work.data_ptr()


def is_plain(network: nn.Module, flat: torch.Tensor) -> bool:
    """Say whether a network is rectified layers, normalised or not, whose parameters alone make up a vector.

    A subclass or a hook may compute something else, and a layer that is not trained is not in the vector.
    """
    if type(network) is not MLPQNetwork or network.mlp.noisy or network.mlp.activation != "relu":
        return False
    if any(type(norm) is not nn.LayerNorm or norm.eps != NORM_EPS for norm in network.mlp.norms):
        return False
    if any(module._forward_hooks or module._forward_pre_hooks for module in network.modules()):
        return False
    place = flat.data_ptr()
    for parameter in (*network.mlp.flat, *network.mlp.norms.parameters()):
        if parameter.data_ptr() != place or parameter.dtype is not torch.float32:
            return False
        place += 4 * parameter.numel()
    return flat.device.type == "cpu" and place == flat.data_ptr() + 4 * len(flat)


def compiled_gradient(
    network: nn.Module,
    target_network: nn.Module,
    online: torch.Tensor,
    target: torch.Tensor,
    grad: torch.Tensor,
    *,
    double: bool,
    huber: bool,
) -> CompiledGradient | None:
    """Return the gradient of a network, or none if there is no compiled code, or none for what this one computes."""
    native = library()
    if native is None or not (is_plain(network, online) and is_plain(target_network, target)):
        return None
    assert isinstance(network, MLPQNetwork)
    return CompiledGradient(native, network, online, target, grad, double=double, huber=huber)

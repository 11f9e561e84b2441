"""DQN's gradient by compiled loops, for small perceptrons on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.q_learning import HeadLoss
from rl_training.data.transitions import Batch
from rl_training.models.mlp_q_network import MLPQNetwork

MAX_PRODUCTS = 2**23
"""Multiplications in one layer above which torch's products, which may use threads, are the faster ones."""
_NO_WEIGHT, _NO_MASK = np.empty(0, np.float32), np.empty((0, 0), np.bool_)


class CompiledGradient:
    """Computes what autograd would, for networks whose parameters lie in flat vectors ``online`` and ``target``."""

    def __init__(
        self,
        network: MLPQNetwork,
        online: torch.Tensor,
        target: torch.Tensor,
        grad: torch.Tensor,
        *,
        double: bool,
        huber: bool,
    ) -> None:
        mlp = network.mlp
        self._features, self._sizes = network.features, np.array(mlp.sizes, np.int64)
        self._vectors = online.numpy(), target.numpy()
        self._flags = mlp.activation == "tanh", network.dueling, double, huber
        self._grad = grad.numpy()
        self._rows = 0
        self._work = self._scratch = np.empty(0, np.float32)
        self._kernel: Callable[..., None] | None = None
        self.max_rows = MAX_PRODUCTS // int((self._sizes[:-1] * self._sizes[1:]).max())
        """The largest batch that it is meant for."""

    def __call__(self, batch: Batch) -> HeadLoss:
        """Write the gradient of the mean loss to ``grad``; return what the loss is made of, ``each`` weighted."""
        kernel = self._kernel or self._load()
        if len(batch.reward) != self._rows:
            self._make_room(len(batch.reward))
        facts = np.empty((4, self._rows), np.float32)
        kernel(
            *self._vectors,
            self._sizes,
            *self._flags,
            self._features(batch.obs).numpy(),
            batch.action.numpy(),
            batch.reward.numpy(),
            batch.discount.numpy(),
            self._features(batch.next_obs).numpy(),
            _NO_WEIGHT if batch.weight is None else batch.weight.numpy(),
            _NO_MASK if batch.next_mask is None else batch.next_mask.numpy(),
            self._grad,
            self._work,
            self._scratch,
            facts,
        )
        value, target, error, each = torch.from_numpy(facts)
        return HeadLoss(each, value, target, error, priority=error.abs())

    def _load(self) -> Callable[..., None]:
        """Import what is compiled by that, not before it is needed: who only acts does not wait for it."""
        from rl_training.algorithms.dqn_kernels import gradient

        self._kernel = gradient
        return gradient

    def _make_room(self, rows: int) -> None:
        self._rows = rows
        self._work = np.empty(rows * self._sizes.sum(), np.float32)
        self._scratch = np.empty((2, rows * self._sizes.max()), np.float32)


def is_compilable(network: nn.Module) -> bool:
    """Say whether compiled loops compute what this network does; a subclass may compute something else."""
    if type(network) is not MLPQNetwork:
        return False
    on_cpu = all(p.device.type == "cpu" for p in network.parameters())
    return on_cpu and network.mlp.fused and not network.mlp.noisy

"""How likely each slot of a buffer is to be drawn, and the weights that correct for it (Schaul et al. 2016)."""

from __future__ import annotations

from math import nextafter
from typing import Any

import numpy as np
import torch

from rl_training.data.sum_tree import MAX_VALUE, SumTree
from rl_training.errors import CheckpointError
from rl_training.spaces import Array


class Priorities:
    """Slot i is drawn with P(i) = p_i**alpha / sum_k p_k**alpha, where p_i = |delta_i| + eps; 0 if it is not in use.

    What is new gets the largest p**alpha that was ever given, 1.0 at first. Drawing is stratified: one target in
    each of ``batch_size`` equal parts of the sum.
    """

    def __init__(self, slots: int, alpha: float, eps: float) -> None:
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"alpha must be from 0 to 1, got {alpha}")
        if not 0.0 <= eps < np.inf:
            raise ValueError(f"eps must be a finite number of at least 0, got {eps}")
        from rl_training.data import kernels

        self._stratify, self._weigh = kernels.stratify, kernels.weigh
        self.alpha, self.eps = alpha, eps
        self.tree = SumTree(slots)
        self.largest = 1.0  # p**alpha, over the whole history

    def draw(self, batch_size: int, rng: np.random.Generator) -> Array:
        """Return slots [batch_size] drawn by their priorities."""
        total = self.tree.total
        if total == 0.0:
            raise ValueError("every transition has priority 0; eps > 0 keeps them from that")
        targets = rng.random(batch_size)
        # The very last number can be rounded up to the total, which is in nobody's part.
        self._stratify(targets, total, nextafter(total, 0.0))
        return self.tree.find(targets)

    def weights(self, slots: Array, beta: float) -> Array:
        """Return (N P(i))**-beta of slots, divided by the largest of them, as float32."""
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must be from 0 to 1, got {beta}")
        weight = np.empty(len(slots), np.float32)
        # N and the total cancel against the largest weight, which is that of the smallest priority.
        self._weigh(self.tree.values, slots, beta, weight)
        return weight

    def set(self, slots: Array, errors: Array) -> None:
        """Give slots the priorities |delta| [N], which are from 0 to ``MAX_VALUE``, eps added."""
        values = (errors + self.eps) ** self.alpha
        self.tree.update(slots, values)
        self.largest = max(self.largest, float(values.max(initial=0.0)))

    def check(self, saved: Any, count: int, largest: float) -> Array:
        """Return saved values of ``count`` slots as an array, or refuse them."""
        values = np.asarray(saved)
        if values.dtype != np.float64 or values.shape != (count,):
            raise CheckpointError(
                f"replay: priorities are {values.dtype}{values.shape}, not float64({count},)"
            )
        if not (0.0 < largest <= MAX_VALUE and ((values >= 0.0) & (values <= largest)).all()):
            raise CheckpointError(f"replay: priorities are not from 0 to the largest one, {largest}")
        return values

    def restore(self, values: Array, largest: float) -> None:
        """Take over the checked values of the first slots; the others are not in use."""
        self.tree.fill(0, self.tree.capacity, 0.0)
        self.tree.update(np.arange(len(values)), values)
        self.largest = largest


def as_array(values: Array | torch.Tensor) -> Array:
    """Return numbers as an array in main memory."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def whole_numbers(indices: Array | torch.Tensor) -> Array:
    """Return indices as a new array of int64 [N]."""
    numbers = as_array(indices)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise ValueError(f"indices must be whole numbers [N], got {numbers.dtype}{numbers.shape}")
    return numbers.astype(np.int64)

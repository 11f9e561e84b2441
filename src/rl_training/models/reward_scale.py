"""Scaling of rewards by the spread of discounted returns, whose statistics are part of the model."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import nn

from rl_training.spaces import Array


class RewardScale(nn.Module):
    """Divides rewards by the standard deviation of discounted returns seen so far; nothing is subtracted.

    A return begins anew with every episode, however the one before ended, and goes on from rollout to rollout.
    """

    has_modes: ClassVar[bool] = False
    mean: torch.Tensor
    var: torch.Tensor
    count: torch.Tensor
    returns: torch.Tensor

    def __init__(self, num_envs: int, gamma: float, clip: float = 10.0, eps: float = 1e-8) -> None:
        super().__init__()
        self.gamma, self.clip, self.eps = gamma, clip, eps
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("var", torch.ones((), dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("returns", torch.zeros(num_envs, dtype=torch.float64))

    def scale(self, reward: Array, starts: Array, valid: Array) -> Array:
        """Take rewards [T, N] into the statistics, and return them scaled by what these are now.

        ``starts`` says where episodes begin: an interrupted one has no last step. Only ``valid`` rows are steps.
        """
        seen = np.empty(reward.shape)
        running = self.returns.cpu().numpy().copy()
        for t in range(len(reward)):
            before = np.where(starts[t], 0.0, running)
            running = np.where(valid[t], before * self.gamma + reward[t], running)
            seen[t] = running
        self.returns.copy_(torch.from_numpy(running))
        self._merge(seen[valid])
        scaled = reward / np.sqrt(float(self.var) + self.eps)
        bounded: Array = scaled.clip(-self.clip, self.clip).astype(np.float32)
        return bounded

    def _merge(self, batch: Array) -> None:
        """Merge numbers [K] into mean and variance (Chan et al.), as if all were seen in one pass."""
        count, held = len(batch), float(self.count)
        total = held + count
        delta = float(batch.mean()) - float(self.mean)
        squares = float(self.var) * held + float(batch.var()) * count + delta**2 * held * count / total
        self.mean += delta * count / total
        self.var.fill_(squares / total)
        self.count += count

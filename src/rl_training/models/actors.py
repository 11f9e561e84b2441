"""Policies for continuous actions in [-1, 1]: deterministic ones with noise, and squashed Gaussians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn

from rl_training.models.mlp import MLP

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


def clamp_straight_through(x: torch.Tensor, low: float = -1.0, high: float = 1.0) -> torch.Tensor:
    """Return ``x`` clamped, with a gradient as if it were not."""
    return x + (x.clamp(low, high) - x).detach()


def with_noise(mean: torch.Tensor, noise: torch.Tensor, clip: float | None = None) -> torch.Tensor:
    """Return actions in [-1, 1]: ``mean`` plus noise that is first clipped to ``clip`` in every dimension."""
    if clip is not None:
        noise = noise.clamp(-clip, clip)
    return clamp_straight_through(mean + noise)


class DeterministicActor(nn.Module):
    """One action for each input [B, in], bounded by tanh."""

    has_modes: ClassVar[bool] = False

    def __init__(
        self, size: int, action_size: int, hidden_sizes: Sequence[int], activation: str = "relu"
    ) -> None:
        super().__init__()
        self.net = MLP((size, *hidden_sizes, action_size), activation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return actions [B, A] in [-1, 1]."""
        return torch.tanh(self.net(x))


class SquashedGaussianActor(nn.Module):
    """A Gaussian for each input [B, in], squashed by tanh."""

    has_modes: ClassVar[bool] = False

    def __init__(
        self, size: int, action_size: int, hidden_sizes: Sequence[int], activation: str = "relu"
    ) -> None:
        super().__init__()
        self.net = MLP((size, *hidden_sizes, 2 * action_size), activation)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and logarithm of the standard deviation [B, A], before squashing."""
        mean, log_std = self.net(x).chunk(2, dim=-1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def mode(self, x: torch.Tensor) -> torch.Tensor:
        """Return the squashed means [B, A]."""
        return torch.tanh(self(x)[0])

    def sample(self, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions [B, A] made of standard normal ``noise`` [B, A], and the log of their density [B]."""
        mean, log_std = self(x)
        raw = mean + log_std.exp() * noise
        normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        # log(1 - tanh(u)^2), in a form that does not cancel for large u.
        slope = 2.0 * (math.log(2.0) - raw - nn.functional.softplus(-2.0 * raw))
        return torch.tanh(raw), (normal - slope).sum(-1)

"""Policies for continuous actions in [-1, 1]: deterministic ones with noise, and squashed Gaussians."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn

from rl_training.models.mlp import ACTIVATIONS, MLP

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


def clamp_straight_through(x: torch.Tensor, low: float = -1.0, high: float = 1.0) -> torch.Tensor:
    """Return ``x`` clamped, with a gradient as if it were not."""
    return x + (x.clamp(low, high) - x).detach()


def with_noise(mean: torch.Tensor, noise: torch.Tensor, clip: float | None = None) -> torch.Tensor:
    """Return actions in [-1, 1]: ``mean`` plus noise that is first clipped to ``clip`` in every dimension."""
    if clip is not None:
        noise = noise.clamp(-clip, clip)
    return clamp_straight_through(mean + noise)


def squashed(
    mean: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tanh(mean + std * noise) [B, A] for standard normal ``noise``, and the log of its density [B]."""
    raw = mean + log_std.exp() * noise
    normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
    # log(1 - tanh(u)^2), in a form that does not cancel for large u.
    slope = 2.0 * (math.log(2.0) - raw - nn.functional.softplus(-2.0 * raw))
    return torch.tanh(raw), (normal - slope).sum(-1)


class DeterministicActor(nn.Module):
    """One action for each input [B, in], bounded by tanh."""

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        size: int,
        action_size: int,
        hidden_sizes: Sequence[int],
        activation: str = "relu",
        *,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.net = MLP((size, *hidden_sizes, action_size), activation, layer_norm=layer_norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return actions [B, A] in [-1, 1]."""
        return torch.tanh(self.net(x))

    def mode(self, x: torch.Tensor) -> torch.Tensor:
        """Return the same."""
        return self(x)  # type: ignore[no-any-return]


class GaussianActor(nn.Module, ABC):
    """A Gaussian for each input [B, in], squashed by tanh; ``forward`` gives its parameters."""

    has_modes: ClassVar[bool] = False

    @abstractmethod
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and logarithm of the standard deviation [B, A], before squashing."""

    def mode(self, x: torch.Tensor) -> torch.Tensor:
        """Return the squashed means [B, A]."""
        return torch.tanh(self(x)[0])

    def sample(self, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions [B, A] made of standard normal ``noise`` [B, A], and the log of their density [B]."""
        mean, log_std = self(x)
        return squashed(mean, log_std, noise)


class OutputGaussianActor(GaussianActor):
    """Mean and standard deviation are two halves of a network's outputs [B, 2 A]."""

    has_modes: ClassVar[bool] = False

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and logarithm of the standard deviation [B, A], before squashing."""
        mean, log_std = self.net(x).chunk(2, dim=-1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)


class SquashedGaussianActor(OutputGaussianActor):
    """The network is a perceptron."""

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        size: int,
        action_size: int,
        hidden_sizes: Sequence[int],
        activation: str = "relu",
        *,
        layer_norm: bool = False,
    ) -> None:
        super().__init__(MLP((size, *hidden_sizes, 2 * action_size), activation, layer_norm=layer_norm))


class StateDependentActor(GaussianActor):
    """Noise that is a linear function of the last hidden layer (gSDE, Raffin et al. 2022).

    One draw of the matrix [H, A] makes the same noise for the same observation, so that exploration is smooth. Over
    all draws the noise is a Gaussian, which is what is learned from.
    """

    has_modes: ClassVar[bool] = False
    EPS = 1e-6

    def __init__(
        self,
        size: int,
        action_size: int,
        hidden_sizes: Sequence[int],
        activation: str = "relu",
        *,
        layer_norm: bool = False,
        log_std_init: float = -3.0,
    ) -> None:
        super().__init__()
        self.body = MLP((size, *hidden_sizes), activation, layer_norm=layer_norm)
        self.activate = ACTIVATIONS[activation]()
        self.norm = nn.LayerNorm(hidden_sizes[-1]) if layer_norm else nn.Identity()
        self.mean = nn.Linear(hidden_sizes[-1], action_size)
        self.log_std = nn.Parameter(torch.full((hidden_sizes[-1], action_size), log_std_init))

    def latent(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last hidden layer [B, H]."""
        hidden: torch.Tensor = self.activate(self.norm(self.body(x)))
        return hidden

    def std(self) -> torch.Tensor:
        """Return the standard deviations [H, A] of the matrix."""
        return self.log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and logarithm of the standard deviation [B, A], before squashing."""
        hidden = self.latent(x)
        # Features are learned for the mean alone: else they would shrink to make the noise small.
        variance = hidden.detach().square() @ self.std().square()
        return self.mean(hidden), 0.5 * (variance + self.EPS).log()

    def explored(self, x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        """Return actions [B, A] with the noise of one matrix [B, H, A] each, drawn as standard normal numbers."""
        hidden = self.latent(x)
        noise = torch.einsum("bh,bha->ba", hidden, matrix * self.std())
        return torch.tanh(self.mean(hidden) + noise)

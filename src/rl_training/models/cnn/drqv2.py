"""The networks of DrQ-v2: an encoder of images, an actor, and twin critics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from typing import ClassVar

import torch
from torch import nn

from rl_training.models.actors import DeterministicActor, with_noise
from rl_training.models.critics import TwinQ

MIN_SIZE = 15
"""Pixels below which nothing would be left after the convolutions."""


class DrQv2Encoder(nn.Module):
    """Four convolutions of channel-first ``uint8`` images [B, C, H, W], or of stacks [B, K, C, H, W] of them."""

    has_modes: ClassVar[bool] = False

    def __init__(self, obs_shape: Sequence[int], channels: int = 32) -> None:
        super().__init__()
        *depth, height, width = obs_shape
        if not depth or min(height, width) < MIN_SIZE:
            raise ValueError(f"images of at least {MIN_SIZE} x {MIN_SIZE} expected, got {tuple(obs_shape)}")
        self.convs = nn.Sequential(
            nn.Conv2d(prod(depth), channels, 3, stride=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3),
            nn.ReLU(inplace=True),
        )
        self.size = channels * prod((n - 3) // 2 + 1 - 6 for n in (height, width))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return features [B, size]."""
        images = obs.flatten(1, -3)
        # Channels last: the layout in which convolutions are fastest, on CPUs as on GPUs.
        x = images.to(torch.float32, memory_format=torch.channels_last)
        features: torch.Tensor = self.convs(x.div_(255.0).sub_(0.5))
        return features.flatten(1)


class Trunk(nn.Sequential):
    """From features to a small vector in [-1, 1]."""

    has_modes: ClassVar[bool] = False

    def __init__(self, size: int, out: int) -> None:
        super().__init__(nn.Linear(size, out), nn.LayerNorm(out), nn.Tanh())


class DrQv2Actor(nn.Module):
    """From features [B, size] to actions [B, A] in [-1, 1]."""

    has_modes: ClassVar[bool] = False

    def __init__(self, trunk: Trunk, head: DeterministicActor) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return actions."""
        action: torch.Tensor = self.head(self.trunk(features))
        return action


class DrQv2Critic(nn.Module):
    """From features [B, size] and actions [B, A] to two values [2, B]."""

    has_modes: ClassVar[bool] = False

    def __init__(self, trunk: Trunk, heads: TwinQ) -> None:
        super().__init__()
        self.trunk, self.heads = trunk, heads

    def forward(self, features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return both values."""
        values: torch.Tensor = self.heads(self.trunk(features), action)
        return values


class DrQv2Network(nn.Module):
    """One encoder, trained by the critic, and the actor and the critic that look at its features.

    ``encoder`` takes the place of the built-in one; it gives ``encoder_size`` features.
    """

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs_shape: Sequence[int],
        action_size: int,
        hidden_sizes: Sequence[int] = (1024, 1024),
        *,
        activation: str = "relu",
        feature_dim: int = 50,
        encoder: nn.Module | None = None,
        encoder_size: int = 0,
    ) -> None:
        super().__init__()
        built = DrQv2Encoder(obs_shape) if encoder is None else encoder
        size = built.size if isinstance(built, DrQv2Encoder) else encoder_size
        self.encoder = built
        shape = (feature_dim, action_size, hidden_sizes, activation)
        self.actor = DrQv2Actor(Trunk(size, feature_dim), DeterministicActor(*shape))
        self.critic = DrQv2Critic(Trunk(size, feature_dim), TwinQ(*shape))
        for part in (self.actor, self.critic, *([built] if encoder is None else [])):
            part.apply(_orthogonal)

    def actor_parameters(self) -> Iterator[nn.Parameter]:
        """Yield what the actor's loss trains."""
        return self.actor.parameters()

    def critic_parameters(self) -> Iterator[nn.Parameter]:
        """Yield what the critic's loss trains: the encoder, too."""
        return chain(self.encoder.parameters(), self.critic.parameters())

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the actions [B, A] that the actor takes for the best."""
        action: torch.Tensor = self.actor(self.encoder(obs))
        return action

    def sample(self, obs: torch.Tensor, noise: torch.Tensor, clip: float | None = None) -> torch.Tensor:
        """Return those actions with ``noise`` [B, A], in [-1, 1]."""
        return with_noise(self.act(obs), noise, clip)


def _orthogonal(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        gain = nn.init.calculate_gain("relu") if isinstance(module, nn.Conv2d) else 1.0
        nn.init.orthogonal_(module.weight, gain)
        assert module.bias is not None
        nn.init.zeros_(module.bias)

"""The network of IQN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn

from rl_training.models.encoders import Cnn, encoder_of
from rl_training.models.features import Obs
from rl_training.models.mlp import ACTIVATIONS, MLP
from rl_training.models.mlp_q_network import duel


class MLPIQNQNetwork(nn.Module):
    """Quantiles of the return at any fractions: observations and fractions [B, T] to [B, num_actions, T].

    The last hidden layer and the output lie behind the product of the state's features with an embedding of the
    fraction, ReLU(W cos(pi i tau) + b) for i = 1 .. ``num_cosines`` (Dabney et al. 2018). ``layer_norm`` normalises
    the hidden layers, but not that embedding.
    """

    has_modes: ClassVar[bool] = False
    frequencies: torch.Tensor

    def __init__(
        self,
        obs: Obs,
        num_actions: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        num_cosines: int = 64,
        dueling: bool = False,
        activation: str = "relu",
        noisy_sigma: float | None = None,
        layer_norm: bool = False,
        normalize_obs: bool = False,
        cnn: Cnn = "auto",
    ) -> None:
        super().__init__()
        if not hidden_sizes:
            raise ValueError("hidden_sizes: at least one layer is needed for the state's features")
        self.num_actions = num_actions
        self.dueling = dueling
        self.features = encoder_of(obs, normalize=normalize_obs, cnn=cnn)
        inner, behind = list(hidden_sizes[:-1] or hidden_sizes), list(hidden_sizes[1:][-1:])
        self.state = MLP([self.features.size, *inner], activation, layer_norm=layer_norm)
        self.norm = nn.LayerNorm(inner[-1]) if layer_norm else nn.Identity()
        self.embedding = nn.Linear(num_cosines, inner[-1])
        sizes = [inner[-1], *behind, num_actions + dueling]
        self.head = MLP(sizes, activation, layer_norm=layer_norm, noisy_sigma=noisy_sigma, noisy_from=0)
        self._activate = ACTIVATIONS[activation]()
        self.register_buffer("frequencies", math.pi * torch.arange(1, num_cosines + 1), persistent=False)

    def forward(self, obs: torch.Tensor, fractions: torch.Tensor) -> torch.Tensor:
        """Return the quantiles [B, num_actions, T] at ``fractions`` [B, T]."""
        batch, count = fractions.shape
        state = self._activate(self.norm(self.state(self.features(obs))))
        where = torch.relu(self.embedding(torch.cos(fractions[..., None] * self.frequencies)))  # [B, T, H]
        out = self.head((state[:, None] * where).flatten(0, 1)).view(batch, count, -1)
        out = out.transpose(1, 2)
        return duel(out) if self.dueling else out

    def act(self, obs: torch.Tensor, count: int = 32) -> torch.Tensor:
        """Return the actions [B] with the greatest mean over ``count`` evenly spaced quantiles."""
        quantiles: torch.Tensor = self(obs, midpoints(count).to(obs.device).expand(len(obs), -1))
        return quantiles.mean(2).argmax(1)


def midpoints(count: int) -> torch.Tensor:
    """Return the fractions (2i + 1) / 2N [N] in the middle of N equal shares."""
    return (torch.arange(count) + 0.5) / count

"""The Q-network for vector observations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rl_training.models.mlp import MLP
from rl_training.models.normalizer import RunningNormalizer


class MLPQNetwork(nn.Module):
    """A multilayer perceptron from observations [B, *obs_shape] to Q-values [B, num_actions].

    Observations of any shape are flattened; ``uint8`` ones are scaled to [0, 1]. With ``dueling``, one output
    is the state's value and the others are advantages: Q = V + A - mean(A) (Wang et al. 2016, Eq. 9).
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        num_actions: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        activation: str = "relu",
        dueling: bool = False,
        normalize_obs: bool = False,
    ) -> None:
        super().__init__()
        self.num_actions = num_actions
        self.dueling = dueling
        self.normalizer = RunningNormalizer(obs_shape) if normalize_obs else None
        outputs = num_actions + 1 if dueling else num_actions
        self.mlp = MLP([torch.Size(obs_shape).numel(), *hidden_sizes, outputs], activation)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return Q-values [B, num_actions]."""
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        elif obs.dtype == torch.uint8:
            obs = obs.float() / 255.0
        out: torch.Tensor = self.mlp(obs.flatten(1).float())
        return duel(out) if self.dueling else out

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return greedy actions [B]."""
        q: torch.Tensor = self(obs)
        return q.argmax(1)


def duel(out: torch.Tensor) -> torch.Tensor:
    """Combine [B, 1 + A] value and advantages into Q-values [B, A]."""
    value, advantage = out[:, :1], out[:, 1:]
    return value + advantage - advantage.mean(1, keepdim=True)

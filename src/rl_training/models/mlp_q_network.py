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
        out: torch.Tensor = self.mlp(self._features(obs))
        return duel(out) if self.dueling else out

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return greedy actions [B]."""
        q: torch.Tensor = self(obs)
        return q.argmax(1)

    def trace(self, obs: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return Q-values and what ``gradients`` needs to know of how they came about; no graph is recorded."""
        layers = self.mlp.layers(self._features(obs))
        return (duel(layers[-1]) if self.dueling else layers[-1]), layers

    def gradients(self, trace: list[torch.Tensor], grad: torch.Tensor, out: Sequence[torch.Tensor]) -> None:
        """Write the gradients of the parameters into ``out``, given that of the Q-values [B, num_actions]."""
        if self.dueling:  # Q = V + A - mean(A), so dV sums over the actions and dA is centred
            grad = torch.cat([grad.sum(1, keepdim=True), grad - grad.mean(1, keepdim=True)], 1)
        self.mlp.gradients(trace, grad, out)

    def _features(self, obs: torch.Tensor) -> torch.Tensor:
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        elif obs.dtype == torch.uint8:
            obs = obs.float() / 255.0
        if obs.ndim != 2:
            obs = obs.flatten(1)
        return obs if obs.dtype == torch.float32 else obs.float()


def duel(out: torch.Tensor) -> torch.Tensor:
    """Combine [B, 1 + A] value and advantages into Q-values [B, A]."""
    value, advantage = out[:, :1], out[:, 1:]
    return value + advantage - advantage.mean(1, keepdim=True)

"""Networks from vector observations to a value, or a distribution of values, of every action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypedDict

import torch
from torch import nn
from typing_extensions import Unpack

from rl_training.models.mlp import MLP
from rl_training.models.normalizer import RunningNormalizer


class Features(nn.Module):
    """Observations [B, *obs_shape] as float vectors [B, size]: flattened, ``uint8`` scaled to [0, 1].

    With ``normalize``, they are standardised by running statistics instead.
    """

    has_modes: ClassVar[bool] = False

    def __init__(self, obs_shape: tuple[int, ...], *, normalize: bool = False) -> None:
        super().__init__()
        self.size = torch.Size(obs_shape).numel()
        self.normalizer = RunningNormalizer(obs_shape) if normalize else None

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the vectors."""
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        elif obs.dtype == torch.uint8:
            obs = obs.float() / 255.0
        if obs.ndim != 2:
            obs = obs.flatten(1)
        return obs if obs.dtype == torch.float32 else obs.float()


class PerceptronOptions(TypedDict, total=False):
    """Keywords of ``ActionMLP`` that the networks built on it hand on."""

    activation: str
    dueling: bool
    normalize_obs: bool
    layer_norm: bool
    noisy_sigma: float | None


class ActionMLP(nn.Module):
    """A multilayer perceptron from observations [B, *obs_shape] to ``width`` numbers for each action.

    With ``dueling``, one more row of outputs is the state's value and the others are advantages, which are
    combined number by number: Q = V + A - mean(A) (Wang et al. 2016, Eq. 9). ``layer_norm`` normalises hidden
    layers. With ``noisy_sigma``, layers behind the first are noisy.
    """

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        num_actions: int,
        width: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        activation: str = "relu",
        dueling: bool = False,
        normalize_obs: bool = False,
        layer_norm: bool = False,
        noisy_sigma: float | None = None,
    ) -> None:
        super().__init__()
        self.num_actions, self.width = num_actions, width
        self.dueling = dueling
        self.features = Features(obs_shape, normalize=normalize_obs)
        sizes = [self.features.size, *hidden_sizes, (num_actions + dueling) * width]
        self.mlp = MLP(sizes, activation, layer_norm=layer_norm, noisy_sigma=noisy_sigma)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the numbers of every action [B, num_actions, width]."""
        out: torch.Tensor = self.mlp(self.features(obs))
        out = out.view(len(out), -1, self.width)
        return duel(out) if self.dueling else out


class MLPQNetwork(ActionMLP):
    """A multilayer perceptron from observations [B, *obs_shape] to Q-values [B, num_actions]."""

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        num_actions: int,
        hidden_sizes: Sequence[int] = (256, 256),
        **options: Unpack[PerceptronOptions],
    ) -> None:
        super().__init__(obs_shape, num_actions, 1, hidden_sizes, **options)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return Q-values [B, num_actions]."""
        out: torch.Tensor = self.mlp(self.features(obs))
        return duel(out) if self.dueling else out

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return greedy actions [B]."""
        q: torch.Tensor = self(obs)
        return q.argmax(1)


def duel(out: torch.Tensor) -> torch.Tensor:
    """Combine value and advantages [B, 1 + A, ...] into values of the actions [B, A, ...]."""
    value, advantage = out[:, :1], out[:, 1:]
    return value + advantage - advantage.mean(1, keepdim=True)

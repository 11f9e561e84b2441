"""Networks from observations to a value, or a distribution of values, of every action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypedDict

import torch
from torch import nn
from typing_extensions import Unpack

from rl_training.models.encoders import Cnn, encoder_of
from rl_training.models.features import Obs
from rl_training.models.mlp import MLP


class PerceptronOptions(TypedDict, total=False):
    """Keywords of ``ActionMLP`` that the networks built on it hand on."""

    activation: str
    dueling: bool
    normalize_obs: bool
    layer_norm: bool
    noisy_sigma: float | None
    cnn: Cnn


class ActionMLP(nn.Module):
    """A multilayer perceptron from observations [B, *obs] to ``width`` numbers for each action.

    With ``dueling``, one more row of outputs is the state's value and the others are advantages, which are
    combined number by number: Q = V + A - mean(A) (Wang et al. 2016, Eq. 9). ``layer_norm`` normalises hidden
    layers. With ``noisy_sigma``, layers behind the first are noisy. Images among the observations are encoded by
    ``cnn``.
    """

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs: Obs,
        num_actions: int,
        width: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        activation: str = "relu",
        dueling: bool = False,
        normalize_obs: bool = False,
        layer_norm: bool = False,
        noisy_sigma: float | None = None,
        cnn: Cnn = "auto",
    ) -> None:
        super().__init__()
        self.num_actions, self.width = num_actions, width
        self.dueling = dueling
        self.features = encoder_of(obs, normalize=normalize_obs, cnn=cnn)
        sizes = [self.features.size, *hidden_sizes, (num_actions + dueling) * width]
        plain = 0 if self.features.learned else 1  # behind convolutions, every layer is noisy
        self.mlp = MLP(sizes, activation, layer_norm=layer_norm, noisy_sigma=noisy_sigma, noisy_from=plain)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the numbers of every action [B, num_actions, width]."""
        out: torch.Tensor = self.mlp(self.features(obs))
        out = out.view(out.shape[0], -1, self.width)
        return duel(out) if self.dueling else out


class MLPQNetwork(ActionMLP):
    """A multilayer perceptron from observations [B, *obs] to Q-values [B, num_actions]."""

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs: Obs,
        num_actions: int,
        hidden_sizes: Sequence[int] = (256, 256),
        **options: Unpack[PerceptronOptions],
    ) -> None:
        super().__init__(obs, num_actions, 1, hidden_sizes, **options)

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

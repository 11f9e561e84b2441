"""The network of QR-DQN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from typing_extensions import Unpack

from rl_training.models.features import Obs
from rl_training.models.mlp_q_network import ActionMLP, PerceptronOptions


class MLPQRQNetwork(ActionMLP):
    """A multilayer perceptron from observations to quantiles of the return [B, num_actions, num_quantiles]."""

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs: Obs,
        num_actions: int,
        num_quantiles: int = 200,
        hidden_sizes: Sequence[int] = (256, 256),
        **options: Unpack[PerceptronOptions],
    ) -> None:
        super().__init__(obs, num_actions, num_quantiles, hidden_sizes, **options)

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the actions [B] with the greatest mean over the quantiles."""
        quantiles: torch.Tensor = self(obs)
        return quantiles.mean(2).argmax(1)

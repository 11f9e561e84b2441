"""The network of QR-DQN."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rl_training.models.mlp_q_network import ActionMLP


class MLPQRQNetwork(ActionMLP):
    """A multilayer perceptron from observations to quantiles of the return [B, num_actions, num_quantiles]."""

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        num_actions: int,
        num_quantiles: int = 200,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        activation: str = "relu",
        dueling: bool = False,
        normalize_obs: bool = False,
        layer_norm: bool = False,
        noisy_sigma: float | None = None,
    ) -> None:
        super().__init__(
            obs_shape,
            num_actions,
            num_quantiles,
            hidden_sizes,
            activation=activation,
            dueling=dueling,
            normalize_obs=normalize_obs,
            layer_norm=layer_norm,
            noisy_sigma=noisy_sigma,
        )

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the actions [B] with the greatest mean over the quantiles."""
        quantiles: torch.Tensor = self(obs)
        return quantiles.mean(2).argmax(1)

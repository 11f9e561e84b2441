"""The network of C51."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rl_training.models.mlp_q_network import ActionMLP


class MLPC51QNetwork(ActionMLP):
    """A multilayer perceptron from observations to logits over a fixed support [B, num_actions, num_atoms]."""

    support: torch.Tensor

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        num_actions: int,
        num_atoms: int = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
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
            num_atoms,
            hidden_sizes,
            activation=activation,
            dueling=dueling,
            normalize_obs=normalize_obs,
            layer_norm=layer_norm,
            noisy_sigma=noisy_sigma,
        )
        self.register_buffer("support", torch.linspace(v_min, v_max, num_atoms), persistent=False)

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the actions [B] with the greatest expected value."""
        logits: torch.Tensor = self(obs)
        return (logits.softmax(2) @ self.support).argmax(1)

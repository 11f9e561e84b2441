"""The network of C51."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from typing_extensions import Unpack

from rl_training.models.features import Obs
from rl_training.models.mlp_q_network import ActionMLP, PerceptronOptions


class MLPC51QNetwork(ActionMLP):
    """A multilayer perceptron from observations to logits over a fixed support [B, num_actions, num_atoms]."""

    has_modes: ClassVar[bool] = False
    support: torch.Tensor

    def __init__(
        self,
        obs: Obs,
        num_actions: int,
        num_atoms: int = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
        hidden_sizes: Sequence[int] = (256, 256),
        **options: Unpack[PerceptronOptions],
    ) -> None:
        super().__init__(obs, num_actions, num_atoms, hidden_sizes, **options)
        self.register_buffer("support", torch.linspace(v_min, v_max, num_atoms), persistent=False)

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the actions [B] with the greatest expected value."""
        logits: torch.Tensor = self(obs)
        return (logits.softmax(2) @ self.support).argmax(1)

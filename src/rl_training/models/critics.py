"""Values of actions, by several independent estimates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn

from rl_training.models.mlp import MLP


class QEnsemble(nn.Module):
    """``count`` perceptrons of the same shape, each with weights of its own.

    ``outputs`` is what each of them gives for an input: one value, the values of all discrete actions, or quantiles.
    """

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        inputs: int,
        hidden_sizes: Sequence[int],
        outputs: int = 1,
        *,
        count: int = 2,
        activation: str = "relu",
        layer_norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = (inputs, *hidden_sizes, outputs)
        self.members = nn.ModuleList(
            MLP(sizes, activation, layer_norm=layer_norm, dropout=dropout) for _ in range(count)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the estimates [C, B, outputs] for inputs [B, in]."""
        return torch.stack([member(x) for member in self.members])


class ActionQ(QEnsemble):
    """Estimates for continuous actions, which are inputs."""

    has_modes: ClassVar[bool] = False

    def forward(self, x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the estimates [C, B, outputs] of actions [B, A] for inputs [B, in]."""
        return super().forward(torch.cat((x, action), -1))

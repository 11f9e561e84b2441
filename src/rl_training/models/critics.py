"""Values of continuous actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn

from rl_training.models.mlp import MLP


class TwinQ(nn.Module):
    """Two independent estimates of an action's value, of which the smaller one is the safer."""

    has_modes: ClassVar[bool] = False

    def __init__(
        self, size: int, action_size: int, hidden_sizes: Sequence[int], activation: str = "relu"
    ) -> None:
        super().__init__()
        sizes = (size + action_size, *hidden_sizes, 1)
        self.first = MLP(sizes, activation)
        self.second = MLP(sizes, activation)

    def forward(self, x: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both values [B] of actions [B, A] for inputs [B, in]."""
        both = torch.cat((x, action), -1)
        return self.first(both).squeeze(-1), self.second(both).squeeze(-1)

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
    names: ClassVar[tuple[str, ...]] = ()
    """By which checkpoints know the members; none: by their numbers."""

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
        names = self.names or tuple(str(i) for i in range(count))
        self.members = [MLP(sizes, activation, layer_norm=layer_norm, dropout=dropout) for _ in names]
        for name, member in zip(names, self.members, strict=True):
            self.add_module(name, member)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the estimates [C, B, outputs] for inputs [B, in]."""
        return torch.stack([member(x) for member in self.members])


class ActionQ(QEnsemble):
    """Estimates for continuous actions, which are inputs."""

    has_modes: ClassVar[bool] = False

    def forward(self, x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the estimates [C, B, outputs] of actions [B, A] for inputs [B, in]."""
        return super().forward(torch.cat((x, action), -1))


class TwinQ(ActionQ):
    """Two independent estimates of an action's value, of which the smaller one is the safer."""

    has_modes: ClassVar[bool] = False
    names: ClassVar[tuple[str, ...]] = ("first", "second")

    def __init__(
        self, size: int, action_size: int, hidden_sizes: Sequence[int], activation: str = "relu"
    ) -> None:
        super().__init__(size + action_size, hidden_sizes, activation=activation)

    def forward(self, x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return both values [2, B] of actions [B, A] for inputs [B, in]."""
        return super().forward(x, action)[:, :, 0]

"""The temperature, which is the weight of the entropy: learned or fixed."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import nn


def temperature_gradient(entropy: torch.Tensor, target: torch.Tensor | float) -> torch.Tensor:
    """Return the slope of the temperature's loss, log(alpha) * (entropy - target), by log(alpha).

    Above the target it is positive, so that a descent makes the temperature smaller.
    """
    return (entropy - target).mean()


class Temperature(nn.Module):
    """alpha = exp(log_alpha), which is a parameter."""

    has_modes: ClassVar[bool] = False

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([math.log(initial)]))

    def forward(self) -> torch.Tensor:
        """Return alpha, a scalar without a graph."""
        return self.log_alpha.detach().exp()[0]


def initial_temperature(ent_coef: float | Literal["auto"], initial: float) -> Temperature:
    """Return the temperature to begin with: a fixed one as it is."""
    return Temperature(initial if ent_coef == "auto" else ent_coef)

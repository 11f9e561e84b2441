"""Noisy networks (Fortunato et al. 2018): exploration by learned noise on the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from rl_training.spaces import Array

Noise = tuple[torch.Tensor, torch.Tensor]
"""What disturbs a layer's inputs [R, in] and outputs [R, out]: one row for a whole batch, or one per observation."""


class NoisyLinear(nn.Module):
    """A linear layer with factorised Gaussian noise: w = mu + sigma * f(e_out) f(e_in)^T, f(x) = sign(x) sqrt|x|.

    Without a draw of noise (see ``noise``) it is its mean, the plain layer of ``weight`` and ``bias``.
    """

    has_modes: ClassVar[bool] = False

    def __init__(self, in_features: int, out_features: int, sigma: float = 0.5) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma * bound))
        self.noise: Noise | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output [B, ..., out] under the noise drawn, if there is any.

        Of more rows than there are draws, as with several fractions to an observation, neighbours share one.
        """
        if self.noise is None or len(self.noise[0]) == 1:
            return F.linear(x, *self.effective())
        inner, outer = (_spread(part, x) for part in self.noise)  # matrices that are never written out
        disturbed = F.linear(x * inner, self.weight_sigma, self.bias_sigma)
        return F.linear(x, self.weight, self.bias) + outer * disturbed

    def effective(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weight and bias as disturbed by noise that the whole batch shares."""
        if self.noise is None:
            return self.weight, self.bias
        inner, outer = self.noise
        weight = self.weight + self.weight_sigma * (outer.t() * inner)
        return weight, self.bias + self.bias_sigma * outer[0]

    def draw(self, rng: np.random.Generator, rows: int) -> None:
        """Draw noise for ``rows`` samples, or for a whole batch if that is 1."""
        inner, outer = draw_noise(rng, rows, self.weight.shape[1], self.weight.shape[0])
        device = self.weight.device
        self.noise = torch.from_numpy(inner).to(device), torch.from_numpy(outer).to(device)


def draw_noise(rng: np.random.Generator, rows: int, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Draw f(e_in) [rows, inputs] and f(e_out) [rows, outputs]."""
    drawn = rng.standard_normal((rows, inputs + outputs), np.float32)
    shaped = np.copysign(np.sqrt(np.abs(drawn)), drawn)
    return shaped[:, :inputs], shaped[:, inputs:]


def _spread(part: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Repeat the rows of ``part`` [R, F] so that they broadcast with ``x`` [R * k, ..., F]."""
    rows = part.repeat_interleave(len(x) // len(part), 0)
    return rows.view(len(x), *(1 for _ in x.shape[2:]), -1)


def noisy_layers(network: nn.Module) -> list[NoisyLinear]:
    """Return the noisy layers of a network, a user's own included."""
    return [module for module in network.modules() if isinstance(module, NoisyLinear)]


@contextmanager
def noise(layers: Sequence[NoisyLinear], rng: np.random.Generator, rows: int = 1) -> Iterator[None]:
    """Disturb these layers by one fresh draw; outside of it, networks are their means."""
    for layer in layers:
        layer.draw(rng, rows)
    try:
        yield
    finally:
        for layer in layers:
            layer.noise = None

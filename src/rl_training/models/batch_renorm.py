"""Batch renormalisation (Ioffe 2017): batch normalisation that trains on what it will be used with."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn


class BatchRenorm(nn.Module):
    """Normalises each feature of [B, size]; in training by the batch's statistics, else by running ones.

    After ``warm_up`` calls in training, batches are also corrected towards the running statistics: scaled by
    r = std / running std in [1 / r_max, r_max] and shifted by d in [-d_max, d_max], neither of which is differentiated.
    Until then r = 1 and d = 0, which is batch normalisation. Variances are those of the batch itself, without
    Bessel's correction.
    """

    has_modes: ClassVar[bool] = True
    running_mean: torch.Tensor
    running_var: torch.Tensor
    calls: torch.Tensor

    def __init__(
        self,
        size: int,
        *,
        momentum: float = 0.01,
        eps: float = 1e-3,
        r_max: float = 3.0,
        d_max: float = 5.0,
        warm_up: int = 100_000,
    ) -> None:
        super().__init__()
        self.momentum, self.eps, self.r_max, self.d_max, self.warm_up = momentum, eps, r_max, d_max, warm_up
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [B, size]; in training, move the running statistics."""
        if not self.training:
            scale = self.weight / (self.running_var + self.eps).sqrt()
            return x * scale + (self.bias - self.running_mean * scale)
        var, mean = torch.var_mean(x, 0, correction=0)
        out = (x - mean) / (var + self.eps).sqrt()
        if self._corrects():
            r, d = self._correction(mean.detach(), var.detach())
            out = out * r + d
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
            self.calls += 1
        return out * self.weight + self.bias

    def _corrects(self) -> bool:
        return int(self.calls) >= self.warm_up

    def _correction(self, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        running = (self.running_var + self.eps).sqrt()
        r = ((var + self.eps).sqrt() / running).clamp(1.0 / self.r_max, self.r_max)
        d = ((mean - self.running_mean) / running).clamp(-self.d_max, self.d_max)
        return r, d

"""Batch renormalisation (Ioffe 2017): batch normalisation that trains on what it will be used with."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.autograd.function import once_differentiable


class _Normalise(torch.autograd.Function):
    """``(centred * inverse * r + d) * weight + bias`` of [B, size], where mean and deviation follow from the batch.

    torch's own reductions over rows are slow, and autograd would keep and walk through every step between.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        centred: torch.Tensor,
        inverse: torch.Tensor,
        r: torch.Tensor | None,
        d: torch.Tensor | None,
    ) -> torch.Tensor:
        ctx.save_for_backward(centred, weight, inverse, r, d)
        scale = weight * inverse if r is None else weight * inverse * r
        shift = bias if d is None else bias + weight * d
        return torch.addcmul(shift, centred, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        centred, weight, inverse, r, d = ctx.saved_tensors
        rows = len(grad)
        total, along = grad.sum(0), (grad * centred).sum(0) * inverse
        scale = weight * inverse if r is None else weight * inverse * r
        # The batch's mean and deviation move with x: what changes only them has no effect.
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = torch.addcmul(scale * total / -rows, grad, scale)
            of_x.addcmul_(centred, scale * along * inverse / -rows)
        of_weight = along if r is None else along * r + total * d
        return of_x, of_weight, total, None, None, None, None


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

    @property
    def options(self) -> tuple[float, ...]:
        """Return what it was built with, but for its size."""
        return self.momentum, self.eps, self.r_max, self.d_max, self.warm_up

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [B, size]; in training, move the running statistics."""
        if not self.training:
            scale = self.weight / (self.running_var + self.eps).sqrt()
            return x * scale + (self.bias - self.running_mean * scale)
        mean = x.detach().mean(0)
        centred = x.detach() - mean
        var = centred.square().mean(0)
        r = d = None
        if self._corrects():
            r, d = self._correction(mean, var)
        out: torch.Tensor = _Normalise.apply(
            x, self.weight, self.bias, centred, (var + self.eps).rsqrt(), r, d
        )  # type: ignore[no-untyped-call]
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var, self.momentum)
        self.calls += 1
        return out

    def _corrects(self) -> bool:
        return int(self.calls) >= self.warm_up

    def _correction(self, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        running = (self.running_var + self.eps).sqrt()
        r = ((var + self.eps).sqrt() / running).clamp(1.0 / self.r_max, self.r_max)
        d = ((mean - self.running_mean) / running).clamp(-self.d_max, self.d_max)
        return r, d

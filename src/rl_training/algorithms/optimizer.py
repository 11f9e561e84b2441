"""Adam over one flat parameter vector: a whole optimizer step is a handful of kernel calls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from rl_training.algorithms.state import require_like
from rl_training.errors import NonFiniteError


def flatten_parameters(module: nn.Module) -> torch.Tensor:
    """Move a module's trainable parameters into one contiguous vector, of which they become views."""
    parameters = _trainable(module)
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    for p, view in zip(parameters, _views(flat, [p.detach() for p in parameters]), strict=True):
        p.data = view
    return flat


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def _views(flat: torch.Tensor, like: list[torch.Tensor]) -> list[torch.Tensor]:
    parts = torch.split(flat, [tensor.numel() for tensor in like])
    return [part.view_as(tensor) for part, tensor in zip(parts, like, strict=True)]


def polyak(target: torch.Tensor, online: torch.Tensor, tau: float) -> None:
    """Move ``target`` the share ``tau`` of the way to ``online``; 1 copies it bit for bit."""
    if tau == 1.0:
        target.copy_(online)
    else:
        target.lerp_(online, tau)


def not_finite(loss: float, norm: float) -> NonFiniteError:
    """Return the error of a step that was not made."""
    return NonFiniteError(f"loss is {loss:g} and its gradient's norm {norm:g}; the update was not applied")


class FlatAdam:
    """Adam with clipping by global norm, on all trainable parameters of a module at once.

    Parameters, gradients and moments are one vector each, so that norm, clipping and step touch single tensors.
    It calls the fused kernel behind ``torch.optim.Adam(fused=True)`` directly: for small networks, the Python
    around that kernel would cost several times as much as the kernel itself.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        lr: float,
        eps: float = 1e-8,
        betas: tuple[float, float] = (0.9, 0.999),
        max_grad_norm: float | None = None,
    ) -> None:
        self.lr, self.eps, self.max_grad_norm = lr, eps, max_grad_norm
        self.initial_lr = lr
        self.betas = betas
        self.flat = flatten_parameters(module)
        self.parameters = _trainable(module)
        """What is trained, as views of ``flat``."""
        self.grad = torch.zeros_like(self.flat)
        """Where a gradient that was found without autograd is to be written, before ``apply``."""
        self._exp_avg = torch.zeros_like(self.flat)
        self._exp_avg_sq = torch.zeros_like(self.flat)
        self._step = torch.zeros((), dtype=torch.float32, device=self.flat.device)

    def grad_views(self) -> list[torch.Tensor]:
        """Return ``grad`` in the shapes of the parameters."""
        return _views(self.grad, [parameter.detach() for parameter in self.parameters])

    def step(self, loss: torch.Tensor) -> torch.Tensor:
        """Descend once along the gradient of ``loss``; return the gradient's norm before clipping."""
        return self.step_through([loss], None, loss.detach())

    def step_through(
        self, outputs: Sequence[torch.Tensor], slopes: Sequence[torch.Tensor] | None, loss: torch.Tensor
    ) -> torch.Tensor:
        """Descend once along the gradient of a loss whose slopes by ``outputs`` of the module are known."""
        # A user's network may have parameters that have no part in this loss: their gradient is zero.
        grads = torch.autograd.grad(
            outputs, self.parameters, slopes, allow_unused=True, materialize_grads=True
        )
        torch.cat([grad.reshape(-1) for grad in grads], out=self.grad)
        return self.apply(loss)

    def apply(self, loss: torch.Tensor) -> torch.Tensor:
        """Descend once along ``grad``; return its norm before clipping.

        A loss or gradient that is not finite raises before any weight is touched.
        """
        norm: torch.Tensor = torch.linalg.vector_norm(self.grad)
        loss_value, norm_value = float(loss), float(norm)
        if not math.isfinite(loss_value + norm_value):
            raise not_finite(loss_value, norm_value)
        if self.max_grad_norm is not None and norm_value > self.max_grad_norm:
            self.grad.mul_(self.max_grad_norm / (norm_value + 1e-6))
        self._step += 1
        torch._fused_adam_(
            [self.flat],
            [self.grad],
            [self._exp_avg],
            [self._exp_avg_sq],
            [],
            [self._step],
            lr=self.lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=0.0,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the number of steps."""
        return {"exp_avg": self._exp_avg, "exp_avg_sq": self._exp_avg_sq, "step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the moments of an optimizer of the same size."""
        own = self.state_dict()
        require_like(state, own, "optimizer")
        for name, tensor in own.items():
            tensor.copy_(state[name])

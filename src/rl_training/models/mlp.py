"""A multilayer perceptron whose whole backward pass is one autograd node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
# Activation in place, and its gradient from what came out of it: (grad, output) -> grad.
Activation = tuple[
    Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
]
_FUSED: dict[str, Activation] = {
    "relu": (torch.relu_, lambda grad, out: torch.ops.aten.threshold_backward(grad, out, 0)),
    "tanh": (torch.tanh_, lambda grad, out: torch.ops.aten.tanh_backward(grad, out)),
}


class MLP(nn.Module):
    """Linear layers with an activation between them, from [B, in] to [B, out].

    For small networks, most of an update is the overhead of some thirty small operations and their autograd
    nodes. Where the activation's gradient follows from its output (``fused``), forward and backward are
    therefore each written as one function; other activations go through torch's own modules.
    """

    def __init__(self, sizes: Sequence[int], activation: str = "relu") -> None:
        super().__init__()
        self.activation = activation
        self.fused = activation in _FUSED
        self.linears = nn.ModuleList(nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes))
        self._activate = ACTIVATIONS[activation]()
        self._flat = tuple(self.linears.parameters())  # weight, bias, weight, bias, ...

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last layer's output [B, out]."""
        if self.fused:
            if torch.is_grad_enabled():
                return _MLPFunction.apply(x, self.activation, *self._flat)  # type: ignore[no-any-return,no-untyped-call]
            return self.layers(x)[-1]
        for linear in list(self.linears)[:-1]:
            x = self._activate(linear(x))
        out: torch.Tensor = self.linears[-1](x)
        return out

    def layers(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the input and every layer's output, without a graph; only for ``fused`` activations."""
        return _layers(x, self.activation, self._flat)

    def gradients(
        self, layers: Sequence[torch.Tensor], grad: torch.Tensor, out: Sequence[torch.Tensor]
    ) -> None:
        """Write the gradients of the parameters into ``out``, given that of the output of ``layers``."""
        _backward(layers, self.activation, self._flat, grad, out)


def _layers(x: torch.Tensor, activation: str, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    activate, _ = _FUSED[activation]
    outputs = [x]
    last = len(parameters) - 2
    for i in range(0, len(parameters), 2):
        x = nn.functional.linear(x, parameters[i], parameters[i + 1])
        outputs.append(x if i == last else activate(x))
    return outputs


def _backward(
    layers: Sequence[torch.Tensor],
    activation: str,
    parameters: Sequence[torch.Tensor],
    grad: torch.Tensor,
    out: Sequence[torch.Tensor | None],
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return the gradients of the parameters, written into ``out`` where given, and of the first layer's sum."""
    _, through_activation = _FUSED[activation]
    grads: list[torch.Tensor] = []
    for i in range(len(parameters) - 2, -1, -2):
        below = layers[i // 2]
        grads.append(torch.sum(grad, 0, out=out[i + 1]))
        grads.append(torch.mm(grad.t(), below, out=out[i]))
        if i > 0:
            grad = through_activation(torch.mm(grad, parameters[i]), below)
    return grads[::-1], grad


class _MLPFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, activation: str, *parameters: torch.Tensor) -> torch.Tensor:
        outputs = _layers(x, activation, parameters)
        ctx.activation = activation
        ctx.save_for_backward(*outputs[:-1], *parameters)
        return outputs[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        count = len(ctx.saved_tensors) // 3  # of layers: each saved its input, weight and bias
        layers, parameters = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        nowhere = [None] * len(parameters)
        grads, first = _backward(layers, ctx.activation, parameters, grad, nowhere)
        of_input = torch.mm(first, parameters[0]) if ctx.needs_input_grad[0] else None
        return (of_input, None, *grads)

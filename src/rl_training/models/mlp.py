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
    nodes. Where the activation's gradient follows from its output, forward and backward are therefore each
    written as one function, which halves that; other activations go through torch's own modules.
    """

    def __init__(self, sizes: Sequence[int], activation: str = "relu") -> None:
        super().__init__()
        self.activation = activation
        self.linears = nn.ModuleList(nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes))
        self._activate = None if activation in _FUSED else ACTIVATIONS[activation]()
        self._flat = tuple(self.linears.parameters())  # weight, bias, weight, bias, ...

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last layer's output [B, out]."""
        if self._activate is None:
            if torch.is_grad_enabled():
                return _MLPFunction.apply(x, self.activation, *self._flat)  # type: ignore[no-any-return,no-untyped-call]
            return _layers(x, self.activation, self._flat)[-1]
        for linear in list(self.linears)[:-1]:
            x = self._activate(linear(x))
        out: torch.Tensor = self.linears[-1](x)
        return out


def _layers(x: torch.Tensor, activation: str, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the input and every layer's output, activations applied."""
    activate, _ = _FUSED[activation]
    outputs = [x]
    last = len(parameters) - 2
    for i in range(0, len(parameters), 2):
        x = nn.functional.linear(x, parameters[i], parameters[i + 1])
        outputs.append(x if i == last else activate(x))
    return outputs


class _MLPFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, activation: str, *parameters: torch.Tensor) -> torch.Tensor:
        outputs = _layers(x, activation, parameters)
        ctx.activation = activation
        # Kept as plain attributes: save_for_backward would cost more than it guards against here, where the
        # weights are only ever changed by the optimizer, after the backward pass.
        ctx.inputs, ctx.weights = outputs[:-1], parameters[::2]
        return outputs[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        inputs, weights = ctx.inputs, ctx.weights
        _, through_activation = _FUSED[ctx.activation]
        grads: list[torch.Tensor | None] = []
        for i in range(len(weights) - 1, -1, -1):
            grads += [grad.sum(0), torch.mm(grad.t(), inputs[i])]
            if i > 0:
                grad = through_activation(torch.mm(grad, weights[i]), inputs[i])
        of_input = torch.mm(grad, weights[0]) if ctx.needs_input_grad[0] else None
        return (of_input, None, *reversed(grads))

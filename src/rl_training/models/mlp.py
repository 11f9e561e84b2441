"""A multilayer perceptron whose whole backward pass is one autograd node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from rl_training.models.noisy import NoisyLinear
from rl_training.models.wide_product import wide_product

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
# Activation in place, and its gradient from what came out of it, in place, too: (grad, output) -> grad.
Activation = tuple[
    Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
]
_FUSED: dict[str, Activation] = {
    "relu": (
        torch.relu_,
        lambda grad, out: torch.ops.aten.threshold_backward.grad_input(grad, out, 0, grad_input=grad),
    ),
    "tanh": (
        torch.tanh_,
        lambda grad, out: torch.ops.aten.tanh_backward.grad_input(grad, out, grad_input=grad),
    ),
}

THIN = 8
"""A product of matrices is thin if one of its three sizes is no larger than this."""
NARROW = 64
"""Columns up to which gradients of weights are computed transposed."""
WIDE = 512
"""Inputs from which on products go through ``wide_product``: those behind an encoder of images."""
MAX_PRODUCTS = 2**18
"""Multiplications in one product above which OpenBLAS, behind NumPy, would wake up threads of its own."""


class MLP(nn.Module):
    """Linear layers with an activation between them, from [B, in] to [B, out].

    For small networks, most of an update is the overhead of some thirty small operations and their autograd
    nodes. Where the activation's gradient follows from its output (``fused``), forward and backward are
    therefore each written as one function; other activations go through torch's own modules.

    With ``layer_norm``, the sums of every hidden layer are normalised before they are activated (Ba et al. 2016).
    With ``dropout``, that share of the sums of hidden layers is dropped before (Hiraoka et al. 2022), in training mode.
    With ``noisy_sigma``, the layers from ``noisy_from`` on are noisy, and the last one in any case.

    The fused function can be differentiated once. Second derivatives, as in products with a Fisher matrix, need
    ``fused=False``, which goes through torch's own modules.
    """

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        sizes: Sequence[int],
        activation: str = "relu",
        *,
        layer_norm: bool = False,
        noisy_sigma: float | None = None,
        noisy_from: int = 1,
        fused: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.sizes, self.activation = tuple(sizes), activation
        pairs = list(pairwise(sizes))
        plain = len(pairs) if noisy_sigma is None else min(noisy_from, len(pairs) - 1)
        self._layers: list[nn.Linear | NoisyLinear] = [
            nn.Linear(*pair) if i < plain else NoisyLinear(*pair, sigma=noisy_sigma or 0.0)
            for i, pair in enumerate(pairs)
        ]
        self.linears = nn.ModuleList(self._layers)
        self.noisy = plain < len(pairs)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for size in sizes[1:-1] if layer_norm)
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.fused = fused and activation in _FUSED and not self.norms and self.dropout is None
        self.wide = sizes[0] >= WIDE
        self._activate = ACTIVATIONS[activation]()
        self.flat: tuple[torch.Tensor, ...] = tuple(
            p for layer in self._layers for p in (layer.weight, layer.bias)
        )
        """Weight, bias, weight, bias, ... of the layers, without their noise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last layer's output [B, out]."""
        if self.fused and not self._differs_by_sample():
            parameters = self._effective() if self.noisy else self.flat
            if torch.is_grad_enabled():
                return _MLPFunction.apply(x, self.activation, self.wide, *parameters)  # type: ignore[no-any-return,no-untyped-call]
            return forward_layers(x, self.activation, parameters, wide=self.wide)[-1]
        for i, layer in enumerate(self._layers[:-1]):
            x = layer(x)
            if self.dropout is not None:
                x = self.dropout(x)
            x = self._activate(self.norms[i](x) if self.norms else x)
        out: torch.Tensor = self._layers[-1](x)
        return out

    def _effective(self) -> list[torch.Tensor]:
        pairs = (
            layer.effective() if isinstance(layer, NoisyLinear) else (layer.weight, layer.bias)
            for layer in self._layers
        )
        return [parameter for pair in pairs for parameter in pair]

    def _differs_by_sample(self) -> bool:
        last = self._layers[-1]
        return isinstance(last, NoisyLinear) and last.noise is not None and len(last.noise[0]) > 1


def forward_layers(
    x: torch.Tensor, activation: str, parameters: Sequence[torch.Tensor], *, wide: bool = False
) -> list[torch.Tensor]:
    """Return the inputs, the activated sums of every hidden layer, and the outputs, without a graph."""
    activate, _ = _FUSED[activation]
    outputs = [x]
    last = len(parameters) - 2
    for i in range(0, len(parameters), 2):
        x = _linear(x, parameters[i], parameters[i + 1], wide=wide)
        outputs.append(x if i == last else activate(x))
    return outputs


def _backward(
    layers: Sequence[torch.Tensor],
    activation: str,
    parameters: Sequence[torch.Tensor],
    grad: torch.Tensor,
    *,
    weights: bool = True,
    wide: bool = False,
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return the gradients of the parameters, none without ``weights``, and of the first layer's sum."""
    grads: list[torch.Tensor] = []
    for i in range(len(parameters) - 2, -1, -2):
        below = layers[i // 2]
        if weights:
            grads.append(grad.sum(0))
            grads.append(_product(grad.t(), below, wide=wide))
        if i > 0:
            grad = through_activation(_product(grad, parameters[i], wide=wide), below, activation)
    return grads[::-1], grad


def through_activation(grad: torch.Tensor, out: torch.Tensor, activation: str) -> torch.Tensor:
    """Return the gradient by the sums of a layer, in place of that by what came out of its activation."""
    return _FUSED[activation][1](grad, out)


def thin_product(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
    """Write a @ b to ``out``; with few columns, MKL is faster the other way round."""
    if b.shape[1] > NARROW:
        torch.mm(a, b, out=out)
    elif min(*a.shape, b.shape[1]) <= THIN:
        out.copy_(_product(a, b))
    else:
        out.copy_(torch.mm(b.t(), a.t()).t())


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, wide: bool = False) -> torch.Tensor:
    if wide and (out := wide_product(x, weight.t(), bias)) is not None:
        return out
    if x.ndim == 2 and len(weight) <= THIN and _is_numpys(x, weight, x.shape[0] * weight.numel()):
        return torch.from_numpy(np.dot(x.detach().numpy(), weight.detach().numpy().T)).add_(bias)
    return nn.functional.linear(x, weight, bias)


def _product(a: torch.Tensor, b: torch.Tensor, *, wide: bool = False) -> torch.Tensor:
    """Return a @ b without a graph, for thin ones by NumPy: there, its BLAS takes a fraction of MKL's time."""
    if wide and (out := wide_product(a, b)) is not None:
        return out
    (rows, inner), columns = a.shape, b.shape[1]
    if min(rows, inner, columns) > THIN or not _is_numpys(a, b, rows * inner * columns):
        return torch.mm(a, b)
    return torch.from_numpy(np.dot(a.numpy(), b.detach().numpy()))


def _is_numpys(a: torch.Tensor, b: torch.Tensor, products: int) -> bool:
    """Say whether NumPy may do it: on the CPU, and not while torch only looks on to export what is done."""
    if type(a) is not torch.Tensor or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        return False
    return products <= MAX_PRODUCTS and a.dtype is b.dtype is torch.float32 and a.device.type == "cpu"


class _MLPFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, activation: str, wide: bool, *parameters: torch.Tensor
    ) -> torch.Tensor:
        outputs = forward_layers(x, activation, parameters, wide=wide)
        ctx.activation, ctx.wide = activation, wide
        ctx.save_for_backward(*outputs[:-1], *parameters)
        return outputs[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        count = len(ctx.saved_tensors) // 3  # of layers: each saved its input, weight and bias
        layers, parameters = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        # A critic that only shows its actor the way has no use for gradients of its own weights.
        frozen = not any(ctx.needs_input_grad[3:])
        wide = ctx.wide
        grads, first = _backward(layers, ctx.activation, parameters, grad, weights=not frozen, wide=wide)
        of_input = None
        if ctx.needs_input_grad[0]:
            of_input = _product(first, parameters[0], wide=True) if wide else torch.mm(first, parameters[0])
        return (of_input, None, None, *(grads if grads else [None] * len(parameters)))

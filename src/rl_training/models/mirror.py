"""Acting on few observations without torch's overhead: a NumPy view of a small network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from rl_training.models.mlp_q_network import MLPQNetwork
from rl_training.spaces import Array

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "tanh": lambda x: np.tanh(x, out=x),
}
MAX_BATCH = 16
"""Above this many observations torch is the faster one."""


def numpy_mirror(network: nn.Module) -> Callable[[Array], Array] | None:
    """Return a function from observations [N, *obs] to Q-values [N, A], or none if the network has no mirror.

    The arrays share memory with the parameters, so the function follows every in-place update for free. It
    must be made after the parameters have found their final place.
    """
    if not isinstance(network, MLPQNetwork) or type(network).forward is not MLPQNetwork.forward:
        return None
    activate = _ACTIVATIONS.get(network.activation)
    linears = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
    if (
        activate is None
        or network.normalizer is not None
        or any(p.device.type != "cpu" for p in network.parameters())
    ):
        return None
    weights = [(_shared(layer.weight).T, _shared(layer.bias)) for layer in linears]

    def q_values(obs: Array) -> Array:
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        if obs.dtype == np.uint8:
            x = x / np.float32(255.0)
        for weight, bias in weights[:-1]:
            x = x @ weight
            x += bias
            x = activate(x)
        weight, bias = weights[-1]
        out = x @ weight + bias
        if network.dueling:
            advantage = out[:, 1:]
            return np.asarray(out[:, :1] + advantage - advantage.mean(1, keepdims=True))
        return np.asarray(out)

    return q_values


def _shared(parameter: torch.Tensor) -> Array:
    return parameter.detach().numpy()

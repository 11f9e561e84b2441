"""Acting on few observations without torch's overhead: a NumPy view of a small network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import nn

from rl_training.models.mlp import MAX_PRODUCTS
from rl_training.models.mlp_c51_q_network import MLPC51QNetwork
from rl_training.models.mlp_q_network import ActionMLP, MLPQNetwork
from rl_training.models.mlp_qr_q_network import MLPQRQNetwork
from rl_training.models.noisy import NoisyLinear, draw_noise
from rl_training.spaces import Array

_ZERO = np.float32(0.0)  # a Python 0.0 would be converted anew at every call
_FLOAT32 = np.dtype(np.float32)
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, _ZERO, out=x),
    "tanh": lambda x: np.tanh(x, out=x),
}
MAX_BATCH = 16
"""Above this many observations torch is the faster one."""


class NumpyNorm:
    """A layer that normalises [..., size], in place; it shares memory with torch's own, too."""

    def __init__(self, norm: nn.Module) -> None:
        assert isinstance(norm, nn.LayerNorm)
        self._scale, self._shift = norm.weight.detach().numpy(), norm.bias.detach().numpy()
        self._share, self._eps = np.float32(1 / len(self._scale)), np.float32(norm.eps)

    def __call__(self, x: Array) -> Array:
        """Return x, normalised, scaled and shifted."""
        x -= np.add.reduce(x, -1, keepdims=True) * self._share
        x /= np.sqrt(np.add.reduce(x * x, -1, keepdims=True) * self._share + self._eps)
        x *= self._scale
        x += self._shift
        return x


class NumpyMirror:
    """Computes what a network gives for observations [N, *obs], for N up to ``max_batch``.

    Its arrays share memory with the parameters, so it follows every in-place update for free. It has to be
    made after the parameters have found their final place.
    """

    def __init__(self, network: ActionMLP) -> None:
        self._activate = ACTIVATIONS[network.mlp.activation]
        self._dueling = network.dueling
        self._shape = (-1,) if isinstance(network, MLPQNetwork) else (-1, network.width)
        flat = [parameter.detach().numpy() for parameter in network.mlp.flat]
        self._layers = list(zip(flat[::2], flat[1::2], strict=True))
        self._norms = [NumpyNorm(norm) for norm in network.mlp.norms]
        self._sigmas = [
            (layer.weight_sigma.detach().numpy(), layer.bias_sigma.detach().numpy())
            if isinstance(layer, NoisyLinear)
            else None
            for layer in network.mlp.linears
        ]
        self.max_batch = min(MAX_BATCH, MAX_PRODUCTS // max(weight.size for weight, _ in self._layers))

    def __call__(self, obs: Array, rng: np.random.Generator | None = None) -> Array:
        """Return the network's output [N, A] or [N, A, width], under noise drawn for each if ``rng`` is given."""
        if obs.dtype is not _FLOAT32:
            obs = obs / np.float32(255.0) if obs.dtype == np.uint8 else obs.astype(np.float32)
        activate, last = self._activate, len(self._layers) - 1
        x = obs.ravel() if len(obs) == 1 else obs.reshape(len(obs), -1)
        for i, (weight, bias) in enumerate(self._layers):
            sigmas = self._sigmas[i]
            noisy = None if rng is None or sigmas is None else self._noise(x, len(obs), sigmas, rng)
            # A product with a vector is cheaper than with a matrix of one row.
            x = weight.dot(x) if x.ndim == 1 else x @ weight.T
            x += bias
            if noisy is not None:
                x += noisy
            if i < last:
                if self._norms:
                    self._norms[i](x)
                activate(x)
        out: Array = x.reshape(len(obs), *self._shape)
        if self._dueling:
            advantage = out[:, 1:]
            return np.asarray(out[:, :1] + advantage - advantage.mean(1, keepdims=True))
        return out

    @staticmethod
    def _noise(x: Array, rows: int, sigmas: tuple[Array, Array], rng: np.random.Generator) -> Array:
        weight, bias = sigmas
        inner, outer = draw_noise(rng, rows, weight.shape[1], weight.shape[0])
        if x.ndim == 1:
            return np.asarray(outer[0] * (weight.dot(x * inner[0]) + bias))
        return np.asarray(outer * ((x * inner) @ weight.T + bias))


def numpy_mirror(network: nn.Module) -> NumpyMirror | None:
    """Return the mirror of a network, or none if it is of another make, on another device, or too large."""
    if type(network) not in (MLPQNetwork, MLPQRQNetwork, MLPC51QNetwork):
        return None
    assert isinstance(network, ActionMLP)
    on_cpu = all(p.device.type == "cpu" for p in network.parameters())
    if network.mlp.activation not in ACTIVATIONS or network.features.normalizer is not None or not on_cpu:
        return None
    mirror = NumpyMirror(network)
    return mirror if mirror.max_batch else None

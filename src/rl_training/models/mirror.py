"""Acting on few observations without torch's overhead: NumPy views of small networks.

The arrays of a mirror share memory with the parameters, so it follows every in-place update for free. It has to be
made after the parameters have found their final place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from rl_training.models.features import Features
from rl_training.models.mlp import MAX_PRODUCTS, MLP
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_q_network import ActionMLP, MLPQNetwork
from rl_training.models.noisy import NoisyLinear, draw_noise
from rl_training.models.normalizer import numpy_normalizer
from rl_training.spaces import Array

_ZERO = np.float32(0.0)  # a Python 0.0 would be converted anew at every call
_FLOAT32 = np.dtype(np.float32)
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, _ZERO, out=x),
    "tanh": lambda x: np.tanh(x, out=x),
}
MAX_BATCH = 16
"""Above this many observations torch is the faster one."""


def max_batch(*weights: Array) -> int:
    """Return how many observations are worth computing here with these matrices; 0 if they are too large."""
    return min(MAX_BATCH, MAX_PRODUCTS // max(weight.size for weight in weights))


def on_cpu(network: nn.Module) -> bool:
    """Say whether all parameters can be looked at by NumPy."""
    return all(parameter.device.type == "cpu" for parameter in network.parameters())


def parameterless(features: nn.Module) -> Features:
    """Return features that have nothing to learn, which is all that is mirrored."""
    assert isinstance(features, Features)
    return features


class NumpyFeatures:
    """What ``Features`` makes of observations [N, *obs]: float vectors [N, size]."""

    def __init__(self, features: Features) -> None:
        normalizer = features.normalizer
        self._normalize = None if normalizer is None else numpy_normalizer(normalizer)
        self._parts = None if features.plain else features

    def __call__(self, obs: Array) -> Array:
        """Return the vectors, which may share memory with the observations."""
        if self._parts is not None:
            with torch.no_grad():
                return np.asarray(self._parts(torch.from_numpy(obs)).numpy())
        if self._normalize is not None:
            obs = self._normalize(obs)
        elif obs.dtype is not _FLOAT32:
            obs = obs / np.float32(255.0) if obs.dtype == np.uint8 else obs.astype(np.float32)
        return obs.reshape(len(obs), -1)


class NumpyNorm:
    """A layer that normalises [..., size], in place."""

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


class NumpyMLP:
    """What an ``MLP`` gives for one vector [in] or for several [N, in].

    With ``activate_last`` its output is activated, too, after ``last_norm`` if that is given.
    """

    def __init__(self, mlp: MLP, *, activate_last: bool = False, last_norm: nn.Module | None = None) -> None:
        flat = [parameter.detach().numpy() for parameter in mlp.flat]
        self._layers = list(zip(flat[::2], flat[1::2], strict=True))
        self.weights = [weight for weight, _ in self._layers]
        self._activate = ACTIVATIONS[mlp.activation]
        self._norms = [NumpyNorm(norm) for norm in (*mlp.norms, *([] if last_norm is None else [last_norm]))]
        self._activated = len(self._layers) - (not activate_last)
        self._sigmas = [
            (layer.weight_sigma.detach().numpy(), layer.bias_sigma.detach().numpy())
            if isinstance(layer, NoisyLinear)
            else None
            for layer in mlp.linears
        ]

    def __call__(self, x: Array, rng: np.random.Generator | None = None) -> Array:
        """Return the output, a new array [out] or [N, out], under noise drawn for each row if ``rng`` is given."""
        activate, activated = self._activate, self._activated
        for i, (weight, bias) in enumerate(self._layers):
            sigmas = self._sigmas[i]
            noisy = None if rng is None or sigmas is None else _noise(x, sigmas, rng)
            # A product with a vector is cheaper than with a matrix of one row.
            x = weight.dot(x) if x.ndim == 1 else x @ weight.T
            x += bias
            if noisy is not None:
                x += noisy
            if i < activated:
                if self._norms:
                    self._norms[i](x)
                activate(x)
        return x


def _noise(x: Array, sigmas: tuple[Array, Array], rng: np.random.Generator) -> Array:
    weight, bias = sigmas
    inner, outer = draw_noise(rng, 1 if x.ndim == 1 else len(x), weight.shape[1], weight.shape[0])
    if x.ndim == 1:
        return np.asarray(outer[0] * (weight.dot(x * inner[0]) + bias))
    return np.asarray(outer * ((x * inner) @ weight.T + bias))


def numpy_duel(out: Array) -> Array:
    """Combine value and advantages [N, 1 + A, ...] into values of the actions [N, A, ...]."""
    advantage = out[:, 1:]
    return np.asarray(out[:, :1] + advantage - advantage.mean(1, keepdims=True))


class NumpyMirror:
    """Computes what a network of the value-based family gives for observations [N, *obs], for N up to ``max_batch``."""

    def __init__(self, network: ActionMLP) -> None:
        self._features, self._mlp = NumpyFeatures(parameterless(network.features)), NumpyMLP(network.mlp)
        self._dueling = network.dueling
        self._shape = (-1,) if isinstance(network, MLPQNetwork) else (-1, network.width)
        self.max_batch = max_batch(*self._mlp.weights)

    def __call__(self, obs: Array, rng: np.random.Generator | None = None) -> Array:
        """Return the network's output [N, A] or [N, A, width], under noise drawn for each if ``rng`` is given."""
        x = (
            obs if obs.ndim == 2 and obs.dtype is _FLOAT32 else self._features(obs)
        )  # the common case without a call
        out: Array = self._mlp(x[0] if len(x) == 1 else x, rng).reshape(len(obs), *self._shape)
        return numpy_duel(out) if self._dueling else out


def numpy_mirror(network: nn.Module) -> NumpyMirror | None:
    """Return the mirror of a network, or none if it computes something else, on another device, or is too large."""
    if type(network).forward not in (ActionMLP.forward, MLPQNetwork.forward) or not on_cpu(network):
        return None
    assert isinstance(network, ActionMLP)
    if not isinstance(network.features, Features):
        return None
    if network.mlp.activation not in ACTIVATIONS or network.features.normalizer is not None:
        return None
    mirror = NumpyMirror(network)
    return mirror if mirror.max_batch else None


class PolicyMirror:
    """Computes the outputs of a policy [N, size] for observations [N, *obs], for N up to ``max_batch``."""

    def __init__(self, network: MLPActorCritic) -> None:
        self._features, self._actor = NumpyFeatures(parameterless(network.features)), NumpyMLP(network.actor)
        self._trunk: NumpyMLP | None = None
        if network.shared:
            assert isinstance(network.trunk, nn.Sequential)
            mlp, *rest = network.trunk
            assert isinstance(mlp, MLP)
            norm = next((part for part in rest if isinstance(part, nn.LayerNorm)), None)
            self._trunk = NumpyMLP(mlp, activate_last=True, last_norm=norm)
        weights = [*self._actor.weights, *([] if self._trunk is None else self._trunk.weights)]
        self.max_batch = max_batch(*weights)

    def __call__(self, obs: Array) -> Array:
        """Return the outputs."""
        x = self._features(obs)
        return self._actor(x if self._trunk is None else self._trunk(x))


def policy_mirror(network: nn.Module) -> PolicyMirror | None:
    """Return the mirror of a policy, or none if it computes something else, on another device, or is too large."""
    if not isinstance(network, MLPActorCritic) or type(network).policy is not MLPActorCritic.policy:
        return None
    if not isinstance(network.features, Features):
        return None
    if not on_cpu(network) or network.actor.activation not in ACTIVATIONS:
        return None
    mirror = PolicyMirror(network)
    return mirror if mirror.max_batch else None

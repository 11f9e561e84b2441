"""Acting on few observations without torch's overhead: a NumPy view of a small network with a memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from rl_training.models.mirror import ACTIVATIONS, MAX_BATCH, NumpyNorm
from rl_training.models.mlp import MAX_PRODUCTS, MLP
from rl_training.models.mlp_q_network import Features
from rl_training.models.normalizer import RunningNormalizer, numpy_normalizer
from rl_training.models.recurrent.lstm_q_network import LSTMQNetwork
from rl_training.spaces import Array

_HALF, _ONE = np.float32(0.5), np.float32(1.0)


class RecurrentMirror:
    """Computes what an ``LSTMQNetwork`` gives for one step of N environments, for N up to ``max_batch``.

    Its arrays share memory with the parameters, so it follows every in-place update for free. It has to be
    made after the parameters have found their final place.
    """

    def __init__(self, network: LSTMQNetwork, normalizer: RunningNormalizer | None, mlp: MLP | None) -> None:
        self._normalize = numpy_normalizer(normalizer) if normalizer is not None else None
        self._activate = ACTIVATIONS[mlp.activation] if mlp is not None else None
        flat = [parameter.detach().numpy() for parameter in mlp.flat] if mlp is not None else []
        self._layers = list(zip(flat[::2], flat[1::2], strict=True))
        norms = [module for module in network.encoder.modules() if isinstance(module, nn.LayerNorm)]
        self._norms = [NumpyNorm(norm) for norm in norms]
        # Each layer of the core: weights of the input, of the memory, and their biases.
        self._cells = [[_array(p) for p in parameters] for parameters in network.core.all_weights]
        self._head = (_array(network.head.weight), _array(network.head.bias))
        self._step = _lstm if isinstance(network.core, nn.LSTM) else _gru
        self._dueling = network.dueling
        self._one_hot = (
            np.eye(network.num_actions + 1, dtype=np.float32)[:, 1:] if network.prev_action else None
        )
        self._prev_reward = network.prev_reward
        weights = [w for w, _ in (*self._layers, self._head)] + [w for cell in self._cells for w in cell[:2]]
        self.max_batch = min(MAX_BATCH, MAX_PRODUCTS // max(weight.size for weight in weights))

    def __call__(self, obs: Array, carry: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        """Return Q-values [N, A] and the memory that includes the observations [N, *obs]."""
        if self._normalize is not None:
            x = self._normalize(obs)
        else:
            x = obs / np.float32(255.0) if obs.dtype == np.uint8 else obs.astype(np.float32, copy=False)
        x = x.reshape(len(obs), -1)
        for i, (weight, bias) in enumerate(self._layers):
            assert self._activate is not None
            x = x @ weight.T + bias
            x = self._activate(self._norms[i](x) if self._norms else x)
        x = self._with_past(x, carry)
        after = {**carry, "hidden": np.empty_like(carry["hidden"])}
        if "cell" in carry:
            after["cell"] = np.empty_like(carry["cell"])
        for layer, parameters in enumerate(self._cells):
            x = self._step(x, layer, parameters, carry, after)
        out = x @ self._head[0].T + self._head[1]
        if self._dueling:
            advantage = out[:, 1:]
            out = out[:, :1] + advantage - advantage.mean(1, keepdims=True)
        return out, after

    def _with_past(self, x: Array, carry: dict[str, Array]) -> Array:
        parts = [x]
        if self._one_hot is not None:
            parts.append(self._one_hot[carry["action"]])
        if self._prev_reward:
            parts.append(carry["reward"][:, None])
        return x if len(parts) == 1 else np.concatenate(parts, 1)


def _lstm(x: Array, layer: int, parameters: list[Array], carry: Any, after: Any) -> Array:
    of_x, of_h, bias_x, bias_h = parameters
    gates = x @ of_x.T
    gates += carry["hidden"][:, layer] @ of_h.T
    gates += bias_x
    gates += bias_h
    size = gates.shape[1] // 4
    new = np.tanh(gates[:, 2 * size : 3 * size])
    _sigmoid(gates)  # also of what is not a gate, because one call is cheaper than two
    cell = after["cell"][:, layer]
    np.multiply(gates[:, size : 2 * size], carry["cell"][:, layer], out=cell)
    new *= gates[:, :size]
    cell += new
    hidden = after["hidden"][:, layer]
    np.tanh(cell, out=hidden)
    hidden *= gates[:, 3 * size :]
    return np.asarray(hidden)


def _gru(x: Array, layer: int, parameters: list[Array], carry: Any, after: Any) -> Array:
    of_x, of_h, bias_x, bias_h = parameters
    before = carry["hidden"][:, layer]
    by_x, by_h = x @ of_x.T + bias_x, before @ of_h.T + bias_h
    size = by_x.shape[1] // 3
    gates = by_x[:, : 2 * size] + by_h[:, : 2 * size]
    _sigmoid(gates)
    new = np.tanh(by_x[:, 2 * size :] + gates[:, :size] * by_h[:, 2 * size :])
    keep = gates[:, size:]
    after["hidden"][:, layer] = hidden = (_ONE - keep) * new + keep * before
    return np.asarray(hidden)


def _sigmoid(x: Array) -> None:
    """Replace x by 1 / (1 + exp(-x)), by way of tanh, which cannot overflow."""
    x *= _HALF
    np.tanh(x, out=x)
    x *= _HALF
    x += _HALF


def _array(parameter: Any) -> Array:
    array: Array = parameter.detach().numpy()
    return array


def recurrent_mirror(network: nn.Module) -> RecurrentMirror | None:
    """Return the mirror of a network, or none if it is of another make, on another device, or too large."""
    if type(network) is not LSTMQNetwork or any(p.device.type != "cpu" for p in network.parameters()):
        return None
    if not network.packaged_encoder:
        return None
    assert isinstance(network.encoder, nn.Sequential)
    features, mlp = network.encoder[0], network.encoder[1] if len(network.encoder) > 1 else None
    assert isinstance(features, Features)
    assert mlp is None or isinstance(mlp, MLP)
    if mlp is not None and mlp.activation not in ACTIVATIONS:
        return None
    mirror = RecurrentMirror(network, features.normalizer, mlp)
    return mirror if mirror.max_batch else None

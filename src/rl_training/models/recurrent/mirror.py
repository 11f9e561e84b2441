"""Acting on few observations without torch's overhead: NumPy views of small networks with a memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from rl_training.models.features import Features
from rl_training.models.mirror import ACTIVATIONS, NumpyFeatures, NumpyMLP, max_batch, numpy_duel, on_cpu
from rl_training.models.mlp import MLP
from rl_training.models.recurrent.body import RecurrentBody
from rl_training.models.recurrent.lstm_actor_critic import CRITIC, LSTMActorCritic
from rl_training.models.recurrent.lstm_q_network import LSTMQNetwork
from rl_training.spaces import Array

_HALF, _ONE = np.float32(0.5), np.float32(1.0)


class BodyMirror:
    """Computes the features that a ``RecurrentBody`` gives for one step of N environments."""

    def __init__(self, body: RecurrentBody) -> None:
        assert isinstance(body.encoder, nn.Sequential)
        features, mlp = body.encoder[0], body.encoder[1] if len(body.encoder) > 1 else None
        assert isinstance(features, Features)
        assert mlp is None or isinstance(mlp, MLP)
        norm = next((part for part in body.encoder if isinstance(part, nn.LayerNorm)), None)
        self._features = NumpyFeatures(features)
        self._mlp = None if mlp is None else NumpyMLP(mlp, activate_last=True, last_norm=norm)
        # Each layer of the core: weights of the input, of the memory, and their biases.
        self._cells = [[_array(p) for p in parameters] for parameters in body.core.all_weights]
        self._step = _lstm if isinstance(body.core, nn.LSTM) else _gru
        self._one_hot = np.eye(body.num_actions + 1, dtype=np.float32)[:, 1:] if body.prev_action else None
        self._prev_reward = body.prev_reward
        self.weights = [w for cell in self._cells for w in cell[:2]]
        if self._mlp is not None:
            self.weights += self._mlp.weights

    def __call__(self, obs: Array, carry: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        """Return features [N, core_size] and the memory that includes the observations [N, *obs]."""
        x = self._features(obs)
        if self._mlp is not None:
            x = self._mlp(x)
        x = self._with_past(x, carry)
        after = {**carry, "hidden": np.empty_like(carry["hidden"])}
        if "cell" in carry:
            after["cell"] = np.empty_like(carry["cell"])
        for layer, parameters in enumerate(self._cells):
            x = self._step(x, layer, parameters, carry, after)
        return x, after

    def _with_past(self, x: Array, carry: dict[str, Array]) -> Array:
        parts = [x]
        if self._one_hot is not None:
            parts.append(self._one_hot[carry["action"]])
        if self._prev_reward:
            parts.append(carry["reward"][:, None])
        return x if len(parts) == 1 else np.concatenate(parts, 1)


class RecurrentMirror:
    """Computes what an ``LSTMQNetwork`` gives for one step of N environments, for N up to ``max_batch``."""

    def __init__(self, network: LSTMQNetwork) -> None:
        self._body, self._dueling = BodyMirror(network), network.dueling
        self._head = (_array(network.head.weight), _array(network.head.bias))
        self.max_batch = max_batch(self._head[0], *self._body.weights)

    def __call__(self, obs: Array, carry: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        """Return Q-values [N, A] and the memory that includes the observations [N, *obs]."""
        x, after = self._body(obs, carry)
        out = x @ self._head[0].T + self._head[1]
        return (numpy_duel(out) if self._dueling else out), after


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


def can_mirror(body: RecurrentBody) -> bool:
    """Say whether a body is one that ``BodyMirror`` computes: the packaged encoder, on the CPU."""
    if not body.packaged_encoder or not on_cpu(body):
        return False
    assert isinstance(body.encoder, nn.Sequential)
    if not isinstance(body.encoder[0], Features):
        return False
    mlps = [module for module in body.encoder.modules() if isinstance(module, MLP)]
    return all(mlp.activation in ACTIVATIONS for mlp in mlps)


def recurrent_mirror(network: nn.Module) -> RecurrentMirror | None:
    """Return the mirror of a network, or none if it is of another make, on another device, or too large."""
    if type(network) is not LSTMQNetwork or not can_mirror(network):
        return None
    mirror = RecurrentMirror(network)
    return mirror if mirror.max_batch else None


class ActorCriticMirror:
    """Computes the policy's outputs of an ``LSTMActorCritic`` for one step of N environments, up to ``max_batch``."""

    def __init__(self, network: LSTMActorCritic) -> None:
        self._actor, self._head = BodyMirror(network.body), NumpyMLP(network.actor)
        self._critic = None if network.shared else BodyMirror(network.critic_body)
        self.max_batch = max_batch(*self._head.weights, *self._actor.weights)

    def __call__(self, obs: Array, carry: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        """Return outputs [N, size] and the memory that includes the observations [N, *obs], the critic's, too."""
        own = {name: array for name, array in carry.items() if not name.startswith(CRITIC)}
        x, after = self._actor(obs, own)
        if self._critic is not None:
            memory = {name.removeprefix(CRITIC): a for name, a in carry.items() if name.startswith(CRITIC)}
            _, remembered = self._critic(obs, {**own, **memory})
            after = {**after, **{CRITIC + name: remembered[name] for name in memory}}
        return self._head(x), after


def actor_critic_mirror(network: nn.Module) -> ActorCriticMirror | None:
    """Return the mirror of a network, or none if it is of another make, on another device, or too large."""
    if type(network) is not LSTMActorCritic or not can_mirror(network.body):
        return None
    if network.actor.activation not in ACTIVATIONS:
        return None
    mirror = ActorCriticMirror(network)
    return mirror if mirror.max_batch else None

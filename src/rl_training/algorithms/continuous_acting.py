"""Actions of a model for continuous control, without torch's overhead where the networks are small."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rl_training.models.actors import LOG_STD_MAX, LOG_STD_MIN, DeterministicActor, SquashedGaussianActor
from rl_training.models.continuous import ContinuousModel
from rl_training.models.features import Features
from rl_training.models.mirror import ACTIVATIONS, NumpyFeatures, NumpyMLP, max_batch, on_cpu
from rl_training.models.mlp import MLP
from rl_training.spaces import Array

AnyModel = ContinuousModel[Any, Any]


class ContinuousActing:
    """Turns observations [N, *obs] into actions [N, A] in [-1, 1].

    It looks at the parameters where they lie, so it has to be made after the optimizers.
    """

    def __init__(self, model: AnyModel, action_size: int, device: torch.device) -> None:
        self._model, self._size, self._device = model, action_size, device
        self._mlp: NumpyMLP | None = None
        self._most = 0
        net = getattr(model.actor, "net", None)
        features = model.features
        known = type(model.actor) in (DeterministicActor, SquashedGaussianActor)
        if not isinstance(features, Features):
            return
        if known and isinstance(net, MLP) and on_cpu(model) and net.activation in ACTIVATIONS:
            self._mlp = NumpyMLP(net)
            self._features = NumpyFeatures(features)
            self._most = max_batch(*self._mlp.weights)

    def outputs(self, obs: Array) -> Array | None:
        """Return what the actor's perceptron gives [N, out]; none if that has to be asked of torch."""
        if self._mlp is None or len(obs) > self._most:
            return None
        return self._mlp(self._features(obs))

    def mode(self, obs: Array) -> Array:
        """Return the actions that the actor takes for the best."""
        out = self.outputs(obs)
        if out is not None:
            return np.tanh(out[:, : self._size])
        with torch.no_grad():
            action = self._model.act(self._tensor(obs))
        return np.asarray(action.cpu().numpy())

    def sample(self, obs: Array, noise: Array) -> Array:
        """Return actions of a squashed Gaussian, made of standard normal ``noise`` [N, A]."""
        out = self.outputs(obs)
        if out is not None:
            std = np.exp(np.clip(out[:, self._size :], LOG_STD_MIN, LOG_STD_MAX))
            return np.asarray(np.tanh(out[:, : self._size] + std * noise))
        with torch.no_grad():
            action, _ = self._model.actor.sample(self._model.features(self._tensor(obs)), self._tensor(noise))
        return np.asarray(action.cpu().numpy())

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.as_tensor(array, device=self._device)

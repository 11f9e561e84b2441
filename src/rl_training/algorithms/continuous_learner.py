"""What the actor-critics for continuous actions on vectors share: optimizers, acting, and gradients written out."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch

from rl_training.algorithms.actor_critic import ActorCriticLearner, CriticLoss, squared_loss
from rl_training.algorithms.continuous_acting import ContinuousActing
from rl_training.algorithms.declared.actor_critic import ActorCriticConfig
from rl_training.algorithms.direct import DirectMLP, direct_critics, is_plain
from rl_training.data.transitions import Batch
from rl_training.models.actors import DeterministicActor, SquashedGaussianActor
from rl_training.models.continuous import ContinuousModel

Config = TypeVar("Config", bound=ActorCriticConfig)
Model = TypeVar("Model", bound=ContinuousModel[Any, Any])


class ContinuousLearner(ActorCriticLearner[Config, Model], Generic[Config, Model]):
    """An actor and critics with an optimizer each.

    ``_critics`` and ``_actor`` find gradients without autograd; they are none for networks that are left to it.
    """

    def __init__(self, model: Model, config: Config, **options: Any) -> None:
        super().__init__(model, config, **options)
        critic = self.optimizers["critic"] = self.adam(model.critic)
        actor = self.optimizers["actor"] = self._actor_adam(model.actor)
        self._acting = ContinuousActing(model, self._action_size, self.device)
        self._critics = direct_critics(model.critic, critic)
        self._actor: DirectMLP | None = None
        if self._critics is not None and type(model.actor) in (DeterministicActor, SquashedGaussianActor):
            self._actor = DirectMLP(model.actor.net, actor) if is_plain(model.actor.net) else None

    def _fit(self, batch: Batch, x: torch.Tensor, target: torch.Tensor) -> CriticLoss:
        """Return the critics' squared errors to targets [B], with a graph or with their gradient stored."""
        action = batch.action.reshape(len(batch.action), -1)
        if self._critics is not None:
            return self._critics.fit(x, action, target, batch.weight)
        with self.learning(self.network.critic):
            values = self.network.critic(x, action)[:, :, 0]
        return squared_loss(values, target, batch.weight)

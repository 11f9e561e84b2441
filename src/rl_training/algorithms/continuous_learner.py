"""What the actor-critics for continuous actions on vectors share: optimizers, acting, and gradients written out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from rl_training.algorithms.actor_critic import ActorCriticLearner, CriticLoss, squared_loss
from rl_training.algorithms.continuous_acting import ContinuousActing
from rl_training.algorithms.declared.actor_critic import ActorCriticConfig
from rl_training.algorithms.direct import Direct, DirectCritics, direct_critics, direct_mlp, missing_library
from rl_training.data.transitions import Batch
from rl_training.models.actors import DeterministicActor, OutputGaussianActor
from rl_training.models.continuous import ContinuousModel
from rl_training.models.scorer import Scorer, memoryless

Config = TypeVar("Config", bound=ActorCriticConfig)
Model = TypeVar("Model", bound=ContinuousModel[Any, Any])


class ContinuousLearner(ActorCriticLearner[Config, Model], Generic[Config, Model]):
    """An actor and critics with an optimizer each.

    ``_critics``, ``_slow_critics`` and ``_actor`` do without autograd; they are none for networks that are left to it.
    """

    target_critic: Any

    def __init__(self, model: Model, config: Config, **options: Any) -> None:
        super().__init__(model, config, **options)
        self._critic_flat = self._critic_adam()
        actor = self.optimizers["actor"] = self._actor_adam(model.actor)
        self._acting = ContinuousActing(model, self._action_size, self.device)
        # An encoder behind the critics is trained through them, which is left to autograd.
        learned = model.features.learned
        self._critics = None if learned else direct_critics(model.critic, self.optimizers["critic"])
        self._slow_critics: DirectCritics | None = None
        self._actor: Direct | None = None
        if isinstance(model.actor, (DeterministicActor, OutputGaussianActor)):
            self._actor = direct_mlp(model.actor.net, actor)

    def warnings(self, row: Mapping[str, float]) -> dict[str, str]:
        """Say so if only the missing library keeps updates from being compiled ones."""
        return missing_library(self.network)

    def scorer(self) -> Scorer:
        """Return what maps observations to actions."""
        return memoryless(self.network, "action", self.network.act)

    def _slow_copy(self, name: str, module: nn.Module, flat: torch.Tensor) -> Any:
        """Make a slow copy of a module, whose parameters lie in ``flat``, and take it into the state."""
        slow = super()._slow_copy(name, module, flat)
        if module is self.network.critic:
            self._slow_critics = direct_critics(slow)
        return slow

    def _slow_outputs(self, x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return what the slow critics say [C, B, K] of actions [B, A]."""
        if self._slow_critics is not None:
            return self._slow_critics.outputs(x, action)
        with self.learning(self.target_critic):
            outputs: torch.Tensor = self.target_critic(x, action)
        return outputs

    def _fit(self, batch: Batch, x: torch.Tensor, target: torch.Tensor) -> CriticLoss:
        """Return the critics' squared errors to targets [B], with a graph or with their gradient stored."""
        action = batch.action.reshape(len(batch.action), -1)
        if self._critics is not None:
            return self._critics.fit(x, action, target, batch.weight)
        with self.learning(self.network.critic):
            values = self.network.critic(x, action)[:, :, 0]
        return squared_loss(values, target, batch.weight)

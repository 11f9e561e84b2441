"""A deterministic actor that follows the gradient of a critic."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.learner import Learner
from rl_training.algorithms.optimizer import flatten_parameters, polyak
from rl_training.algorithms.protocol import Decision, Means, UpdateResult
from rl_training.data.transitions import Batch, Carry
from rl_training.spaces import Array
from rl_training_toys.declared import ActorCriticConfig


class ToyActorCritic(Learner[ActorCriticConfig, Batch]):
    """``actor`` maps observations to actions in [-1, 1], ``critic`` both together to a value [B, 1]."""

    counters: ClassVar[tuple[str, ...]] = ("actor_updates",)

    def __init__(
        self,
        features: nn.Module,
        actor: nn.Module,
        critic: nn.Module,
        config: ActorCriticConfig,
        *,
        action_shape: tuple[int, ...],
        **options: Any,
    ) -> None:
        super().__init__(config, **options)
        self.features = features
        self.actor, self.critic = self.own("actor", actor), self.own("critic", critic)
        self.target = self.own("target_critic", copy.deepcopy(critic))
        self.optimizers = {"actor": self.adam(actor), "critic": self.adam(critic)}
        self._flat_target = flatten_parameters(self.target)
        self._action_shape = action_shape
        self.actor_updates = 0
        self.advance(0)

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N, *action], when exploring with noise."""
        shape = (len(obs), *self._action_shape)
        if explore and self._env_steps < self.config.learning_starts:
            return Decision(self._rng.uniform(-1.0, 1.0, shape).astype(np.float32))
        with torch.no_grad():
            action = (
                self.actor(self.features(torch.as_tensor(obs, device=self.device)))
                .cpu()
                .numpy()
                .reshape(shape)
            )
        if explore:
            action = action + self.config.noise * self._rng.standard_normal(shape)
        return Decision(action.clip(-1.0, 1.0).astype(np.float32))

    def update(self, batch: Batch) -> UpdateResult:
        """Make one gradient step of the critic and one of the actor."""
        obs, next_obs = self.features(batch.obs), self.features(batch.next_obs)
        with torch.no_grad():
            ahead = torch.cat((next_obs, self.actor(next_obs)), 1)
            target = batch.reward + batch.discount * self.target(ahead)[:, 0]
        value = self.critic(torch.cat((obs, batch.action.flatten(1)), 1))[:, 0]
        critic_loss = (value - target).square().mean()
        self.optimizers["critic"].step(critic_loss)
        actor_loss = -self.critic(torch.cat((obs, self.actor(obs)), 1)).mean()
        self.optimizers["actor"].step(actor_loss)
        polyak(self._flat_target, self.optimizers["critic"].flat, self.config.tau)
        self.updates += 1
        self.actor_updates += 1
        return UpdateResult(
            Means(
                {
                    "critic_loss": critic_loss.detach(),
                    "actor_loss": actor_loss.detach(),
                    "value": value.detach(),
                }
            )
        )

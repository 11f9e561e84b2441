"""CrossQ (Bhatt et al. 2024): SAC without target networks, by batch-normalised critics."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from rl_training.algorithms.actor_critic import CriticLoss, smallest, squared_loss
from rl_training.algorithms.declared.crossq import CrossQConfig
from rl_training.algorithms.direct import critic_values
from rl_training.algorithms.sac import EntropyLearner
from rl_training.data.transitions import Batch
from rl_training.models.mlp_crossq import MLPCrossQModel


class CrossQ(EntropyLearner[CrossQConfig, MLPCrossQModel]):
    """The learner of CrossQ."""

    def __init__(self, model: MLPCrossQModel, config: CrossQConfig, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.advance(0)

    def _critic_loss(self, batch: Batch, x: torch.Tensor, following: torch.Tensor) -> CriticLoss:
        with torch.no_grad():  # the actor in evaluation mode: its statistics are not those of this batch
            action, log_prob = self._sample(following)
        # Both halves in one batch, so that they are normalised by the statistics of both.
        seen = torch.cat((x, following)), torch.cat((batch.action.reshape(len(batch.action), -1), action))
        if self._critics is not None:
            every = self._critics.look(*seen, learning=True)
            target = self._target(batch, critic_values(every)[:, len(x) :], log_prob)
            return self._critics.learn(every, target, batch.weight)
        with self.learning(self.network.critic):
            values, next_values = self.network.critic(*seen)[:, :, 0].chunk(2, dim=1)
        return squared_loss(values, self._target(batch, next_values.detach(), log_prob), batch.weight)

    def _target(self, batch: Batch, values: torch.Tensor, log_prob: torch.Tensor) -> torch.Tensor:
        """Return the targets [B], of the critics' values [C, B] of the next actions."""
        soft = smallest(values) - self.temperature() * log_prob
        target: torch.Tensor = batch.reward + batch.discount * soft
        return target

    def _critics_for_actor(self) -> Any:
        """Return evaluation mode: the actor's actions must not move the critics' statistics."""
        return nullcontext()

"""CrossQ (Bhatt et al. 2024): SAC without target networks, by batch-normalised critics."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from rl_training.algorithms.actor_critic import CriticLoss, smallest, squared_loss
from rl_training.algorithms.declared.crossq import CrossQConfig
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
            action, log_prob = self.network.actor.sample(following, self._normal(len(following)))
        # Both halves in one batch, so that they are normalised by the statistics of both.
        with self.learning(self.network.critic):
            both = self.network.critic(
                torch.cat((x, following)), torch.cat((batch.action.reshape(len(batch.action), -1), action))
            )[:, :, 0]
        values, next_values = both.chunk(2, dim=1)
        soft = smallest(next_values.detach()) - self.temperature() * log_prob
        return squared_loss(values, batch.reward + batch.discount * soft, batch.weight)

    def _critics_for_actor(self) -> Any:
        """Return evaluation mode: the actor's actions must not move the critics' statistics."""
        return nullcontext()

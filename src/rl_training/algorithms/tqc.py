"""TQC (Kuznetsov et al. 2020): SAC with quantiles, of which targets leave the largest out."""

from __future__ import annotations

from typing import Any

import torch

from rl_training.algorithms.actor_critic import CriticLoss
from rl_training.algorithms.declared.tqc import TQCConfig
from rl_training.algorithms.qr_dqn import quantile_huber_loss
from rl_training.algorithms.sac import SAC
from rl_training.data.transitions import Batch
from rl_training.models.mlp_iqn_q_network import midpoints
from rl_training.models.mlp_sac import MLPSACModel


def truncated(quantiles: torch.Tensor, drop: int) -> torch.Tensor:
    """Return all critics' quantiles [C, B, K] of a sample in one row [B, C * (K - drop)], without the largest."""
    count, rows, width = quantiles.shape
    pooled = quantiles.permute(1, 0, 2).reshape(rows, count * width)
    return pooled.sort(1).values[:, : count * (width - drop)]


class TQC(SAC):
    """The learner of TQC; its critics give quantiles."""

    config: TQCConfig

    def __init__(self, model: MLPSACModel, config: TQCConfig, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.fractions = midpoints(config.num_quantiles).to(self.device)

    def _critic_loss(self, batch: Batch, x: torch.Tensor, following: torch.Tensor) -> CriticLoss:
        with torch.no_grad():
            quantiles, log_prob = self._next_outputs(following)
            soft = truncated(quantiles, self.config.drop_quantiles) - (self.temperature() * log_prob)[:, None]
            target = batch.reward[:, None] + batch.discount[:, None] * soft
        with self.learning(self.network.critic):
            outputs = self.network.critic(x, batch.action.reshape(len(batch.action), -1))
        each = torch.stack([quantile_huber_loss(own, target, self.fractions) for own in outputs])
        loss = (each if batch.weight is None else each * batch.weight).mean(1).sum()
        return CriticLoss(loss, outputs.detach().mean(2), target.mean(1), each.detach().mean(0))

    def _actors_value(self, values: torch.Tensor) -> torch.Tensor:
        """Return the mean of all critics' quantiles."""
        return values.mean((0, 2))

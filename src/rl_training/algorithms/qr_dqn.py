"""QR-DQN (Dabney et al. 2018): the return's distribution by its quantiles at fixed fractions."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from rl_training.algorithms.declared.qr_dqn import QRDQNConfig
from rl_training.algorithms.declared.value_based import QuantileConfig
from rl_training.algorithms.q_learning import QLearner
from rl_training.algorithms.value_learner import HeadLoss
from rl_training.data.transitions import Batch
from rl_training.models.mlp_iqn_q_network import midpoints

Config = TypeVar("Config", bound=QuantileConfig)


def quantile_huber_loss(
    quantiles: torch.Tensor, targets: torch.Tensor, fractions: torch.Tensor, kappa: float = 1.0
) -> torch.Tensor:
    """Return the loss of each sample [B].

    ``quantiles`` [B, N] are estimates at ``fractions`` [N] or [B, N], ``targets`` [B, M] samples of what they
    estimate: summed over the estimates, averaged over the targets.
    """
    each: torch.Tensor = _QuantileHuber.apply(quantiles, targets.detach(), fractions, kappa)  # type: ignore[no-untyped-call]
    return each


class _QuantileHuber(torch.autograd.Function):
    """The loss with its gradient, found on the way: half as many walks over [B, N, M] as a graph would take."""

    @staticmethod
    def forward(
        ctx: Any, quantiles: torch.Tensor, targets: torch.Tensor, fractions: torch.Tensor, kappa: float
    ) -> torch.Tensor:
        count = targets.shape[1]
        error = quantiles[:, :, None] - targets[:, None, :]
        slope = (error / kappa).clamp_(-1.0, 1.0)  # of Huber's loss divided by kappa
        fraction = fractions[..., None]
        # Errors below zero weigh as much as the fraction, those above as the rest of it to one.
        tilted = (slope * fraction).addcmul_(slope.clamp(min=0.0), 1.0 - 2.0 * fraction)
        ctx.save_for_backward(tilted.sum(2).div_(count))
        # That loss is slope * (error - kappa / 2 * slope), within kappa and beyond it.
        rest = error.sub_(slope, alpha=0.5 * kappa)
        return tilted.mul_(rest).sum((1, 2)).div_(count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return grad[:, None] * ctx.saved_tensors[0], None, None, None


def qr_dqn_loss(
    chosen: torch.Tensor, following: torch.Tensor, batch: Batch, fractions: torch.Tensor, kappa: float = 1.0
) -> HeadLoss:
    """Return the loss between quantiles ``chosen`` [B, N] and targets made of those that ``follow`` [B, M]."""
    target = batch.reward[:, None] + batch.discount[:, None] * following
    each = quantile_huber_loss(chosen, target, fractions, kappa)
    value, target_value = chosen.detach().mean(1), target.mean(1)
    return HeadLoss(each, value, target_value, value - target_value, priority=each.detach())


class QuantileLearner(QLearner[Config]):
    """What QR-DQN and IQN share: outputs are quantiles [B, A, N]."""

    fractions: torch.Tensor
    """Where the quantiles that are learned lie, [N] or [B, N]; IQN draws them anew for each update."""

    def expected(self, out: torch.Tensor) -> torch.Tensor:
        """Return the means over the quantiles."""
        return out.mean(2)

    def head_loss(self, chosen: torch.Tensor, following: torch.Tensor, batch: Batch) -> HeadLoss:
        """Return the quantile Huber loss."""
        return qr_dqn_loss(chosen, following, batch, self.fractions, self.config.kappa)


class QRDQN(QuantileLearner[QRDQNConfig]):
    """The learner of QR-DQN; ``network`` maps observations [B, *obs] to quantiles [B, A, num_quantiles]."""

    def __init__(self, network: nn.Module, num_actions: int, config: QRDQNConfig, **options: Any) -> None:
        super().__init__(network, num_actions, config, **options)
        self.fractions = midpoints(config.num_quantiles).to(self.device)

"""DQN (Mnih et al. 2015), with Double (van Hasselt et al. 2016) and Dueling (Wang et al. 2016) as options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from rl_training import native
from rl_training.algorithms.compiled_dqn import compiled_gradient, is_plain
from rl_training.algorithms.declared.dqn import DQNConfig
from rl_training.algorithms.protocol import Means, UpdateResult
from rl_training.algorithms.q_learning import QLearner, pick
from rl_training.algorithms.value_learner import HeadLoss, greedy
from rl_training.data.transitions import Batch
from rl_training.spaces import Array

LossName = Literal["huber", "mse"]
_LOSSES: dict[LossName, Callable[..., torch.Tensor]] = {"huber": F.huber_loss, "mse": F.mse_loss}


def dqn_loss(
    q: torch.Tensor,
    next_q_target: torch.Tensor,
    next_q_online: torch.Tensor | None,
    batch: Batch,
    loss_name: LossName = "huber",
) -> tuple[torch.Tensor, torch.Tensor, Means]:
    """Return the scalar loss, the TD errors [B], and named metrics.

    ``q``, ``next_q_target`` and ``next_q_online`` are [B, A]: Q-values of ``obs`` by the online network, and of
    ``next_obs`` by the target and, for Double DQN, the online network. The gradient flows through ``q`` only.
    """
    assert q.ndim == 2, q.shape
    assert q.shape == next_q_target.shape, (q.shape, next_q_target.shape)
    # Double: the online network chooses, the target network values.
    choosing = next_q_target if next_q_online is None else next_q_online
    following = pick(next_q_target, greedy(choosing, batch.next_mask)).detach()
    head = td_loss(pick(q, batch.action), following, batch.reward, batch.discount, loss_name)
    loss = (head.each if batch.weight is None else head.each * batch.weight).mean()
    metrics = {
        "loss": loss.detach(),
        "q_value_mean": head.value,
        "target_mean": head.target,
        "td_error_mean": head.priority,
    }
    return loss, head.error, Means(metrics)


def td_loss(
    chosen: torch.Tensor,
    following: torch.Tensor,
    reward: torch.Tensor,
    discount: torch.Tensor,
    loss_name: LossName,
) -> HeadLoss:
    """Return the loss between values ``chosen`` and targets made of those that follow them, all [B]."""
    target = reward + discount * following
    each = _LOSSES[loss_name](chosen, target, reduction="none")
    value = chosen.detach()
    error = value - target
    return HeadLoss(each, value, target, error, priority=error.abs())


class DQN(QLearner[DQNConfig]):
    """The learner of DQN; ``network`` maps observations [B, *obs] to Q-values [B, A]."""

    def __init__(self, network: nn.Module, num_actions: int, config: DQNConfig, **options: Any) -> None:
        super().__init__(network, num_actions, config, **options)
        self._compiled = compiled_gradient(
            self.online,
            self.target,
            self.optimizer.flat,
            self._flat_target,
            self.optimizer.grad,
            double=config.double,
            huber=config.loss == "huber",
        )

    def expected(self, out: torch.Tensor) -> torch.Tensor:
        """Q-values are expected values already."""
        return out

    def head_loss(self, chosen: torch.Tensor, following: torch.Tensor, batch: Batch) -> HeadLoss:
        """Return the TD loss."""
        return td_loss(chosen, following, batch.reward, batch.discount, self.config.loss)

    def q_values(self, obs: Array, *, noisy: bool = False) -> Array:
        """Return the online network's Q-values [N, A] of raw observations [N, *obs]; ``noisy`` draws for each."""
        if self._mirror is not None and not self._online_noise and len(obs) <= self._mirror.max_batch:
            return self._mirror(obs)
        return super().q_values(obs, noisy=noisy)

    def warnings(self, row: Mapping[str, float]) -> dict[str, str]:
        """Say so if only the missing library keeps updates from being compiled ones."""
        return native.warning() if is_plain(self.online, self.optimizer.flat) else {}

    def update(self, batch: Batch, weight: torch.Tensor | None = None) -> UpdateResult:
        """Make one gradient step on a batch, its samples weighted by ``weight`` [B] if given."""
        if self._compiled is None or len(batch.reward) > self._compiled.max_rows:
            return super().update(batch, weight)
        if weight is not None:
            batch = dataclasses.replace(batch, weight=weight)
        with torch.no_grad():
            head = self._compiled(batch)
            norm = self.optimizer.apply(head.each.mean())
            return self._report(head.each, head, norm)


PrioritizedDQN = DQN
"""Priorities (Schaul et al. 2016) live in the experience: the learner gives them, and takes the weights."""

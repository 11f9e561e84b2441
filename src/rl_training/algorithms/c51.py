"""C51 (Bellemare et al. 2017): the return's distribution as a categorical one over a fixed support."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from rl_training.algorithms.declared.c51 import C51Config
from rl_training.algorithms.q_learning import QLearner
from rl_training.algorithms.value_learner import HeadLoss
from rl_training.data.transitions import Batch

OUTSIDE_SHARE = 0.05
"""Share of targets with a mean outside the support that is worth a warning."""
MARGIN = 5e-4
"""What counts as rounding rather than as a return that does not fit, as a share of the support's width."""


def project(
    probabilities: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor, support: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Put the distribution of ``reward + discount * Z`` back on the support.

    ``probabilities`` [B, N] are those of Z on ``support`` [N], evenly spaced; ``reward`` and ``discount`` are [B].
    Returns the projected probabilities [B, N] and the share of mass [B] that lay outside and was moved to an end.
    """
    count, low, high = len(support), support[0], support[-1]
    moved = reward[:, None] + discount[:, None] * support
    inside = moved.clamp(low, high)
    position = ((inside - low) * ((count - 1) / (high - low))).clamp(0, count - 1)
    below = position.floor()
    upper_share = position - below  # 0 where the position is an atom itself: all its mass stays there
    lower = below.long()
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, lower, probabilities * (1.0 - upper_share))
    projected.scatter_add_(1, (lower + 1).clamp(max=count - 1), probabilities * upper_share)
    return projected, (probabilities * _outside(moved, support)).sum(1)


def _outside(value: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    low, high = support[0], support[-1]
    margin = MARGIN * (high - low)
    return (value < low - margin) | (value > high + margin)


def c51_loss(chosen: torch.Tensor, following: torch.Tensor, batch: Batch, support: torch.Tensor) -> HeadLoss:
    """Return the cross-entropy between the logits ``chosen`` [B, N] and the projected target of ``following``."""
    with torch.no_grad():
        ahead = following.softmax(1)
        target, clipped = project(ahead, batch.reward, batch.discount, support)
        value, target_value = chosen.softmax(1) @ support, target @ support
        beyond = _outside(batch.reward + batch.discount * (ahead @ support), support)
    each = -(target * chosen.log_softmax(1)).sum(1)
    return HeadLoss(
        each,
        value,
        target_value,
        value - target_value,
        priority=each.detach(),
        extra={
            "clipped_mass": clipped,
            "targets_outside": beyond.float(),
            "end_targets_outside": (beyond & (batch.discount == 0.0)).float(),
        },
    )


class C51(QLearner[C51Config]):
    """The learner of C51; ``network`` maps observations [B, *obs] to logits [B, A, num_atoms]."""

    def __init__(self, network: nn.Module, num_actions: int, config: C51Config, **options: Any) -> None:
        super().__init__(network, num_actions, config, **options)
        self.support = torch.linspace(config.v_min, config.v_max, config.num_atoms, device=self.device)

    def expected(self, out: torch.Tensor) -> torch.Tensor:
        """Return the means of the distributions."""
        return out.softmax(2) @ self.support

    def head_loss(self, chosen: torch.Tensor, following: torch.Tensor, batch: Batch) -> HeadLoss:
        """Return the cross-entropy with the projected target."""
        return c51_loss(chosen, following, batch, self.support)

    def warnings(self, row: Mapping[str, float]) -> dict[str, str]:
        """Say so if returns do not fit the support.

        At the end of an episode the target is what was really received, so that a single one outside is proof.
        Before, it is an estimate, and an untrained network's may stray: there, many have to lie outside.
        """
        proof = row.get("train/end_targets_outside", 0.0) > 0.0
        if not proof and row.get("train/targets_outside", 0.0) < OUTSIDE_SHARE:
            return {}
        low, high = self.config.v_min, self.config.v_max
        share = 100.0 * row.get("train/clipped_mass", 0.0)
        text = (
            f"returns do not fit the support [{low:g}, {high:g}]: {share:.3g} % of the targets' mass is clipped "
            "to its ends; widen algo_kwargs.v_min and v_max"
        )
        return {"clipped_mass": text}


Rainbow = C51
"""Rainbow (Hessel et al. 2018) is C51 with Double, Dueling, noise, n-step returns and priorities switched on."""

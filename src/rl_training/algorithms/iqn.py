"""IQN (Dabney et al. 2018): the return's whole quantile function, learned at fractions drawn anew each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.declared.iqn import IQNConfig
from rl_training.algorithms.q_learning import Role
from rl_training.algorithms.qr_dqn import QuantileLearner
from rl_training.models.features import rows
from rl_training.models.mlp_iqn_q_network import midpoints
from rl_training.models.scorer import Observed


class IQN(QuantileLearner[IQNConfig]):
    """The learner of IQN; ``network`` maps observations and fractions [B, T] to quantiles [B, A, T].

    What is learned and what it is learned from use draws of their own. Actions are chosen by the mean over
    evenly spaced fractions, the same each time, which is the integral that a draw would only estimate.
    """

    def __init__(self, network: nn.Module, num_actions: int, config: IQNConfig, **options: Any) -> None:
        super().__init__(network, num_actions, config, **options)
        self._policy = midpoints(config.num_policy_quantiles).to(self.device)

    def output(self, network: nn.Module, obs: Observed, role: Role) -> torch.Tensor:
        """Return the quantiles [B, A, T] at the fractions that fit the role."""
        if role == "policy":
            fractions = self._policy.expand(rows(obs), -1)
        elif role == "target":
            fractions = self._draw(rows(obs), self.config.num_target_quantiles)
        else:
            fractions = self.fractions = self._draw(rows(obs), self.config.num_quantiles)
        out: torch.Tensor = network(obs, fractions)
        return out

    def _choosing(self, next_obs: torch.Tensor, target_out: torch.Tensor) -> torch.Tensor:
        network = self.online if self.config.double else self.target
        return self._disturbed(network, next_obs, "policy")

    def _draw(self, batch: int, count: int) -> torch.Tensor:
        return torch.from_numpy(self._rng.random((batch, count), np.float32)).to(self.device)

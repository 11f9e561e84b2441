"""TD3 (Fujimoto et al. 2018): DDPG with twin critics, smoothed targets, and an actor that waits for its critics."""

from __future__ import annotations

import torch

from rl_training.algorithms.ddpg import DeterministicLearner
from rl_training.algorithms.declared.td3 import TD3Config
from rl_training.models.actors import with_noise


class TD3(DeterministicLearner[TD3Config]):
    """The learner of TD3."""

    def _next_action(self, following: torch.Tensor) -> torch.Tensor:
        """Return the target's actions [B, A] with noise of their own, clipped, and in [-1, 1]."""
        noise = self._normal(len(following)) * self.config.target_policy_noise
        return with_noise(super()._next_action(following), noise, self.config.target_noise_clip)

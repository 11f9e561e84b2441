"""The networks of Discrete SAC."""

from __future__ import annotations

from typing import ClassVar

import torch
from typing_extensions import Unpack

from rl_training.models.continuous import DEFAULTS, ActorCriticModel, PerceptronOptions, critics_of
from rl_training.models.critics import QEnsemble
from rl_training.models.encoders import encoder_of
from rl_training.models.features import Obs
from rl_training.models.mlp import MLP


def masked_logits(logits: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return logits [B, A] that give no probability to what ``mask`` [B, A] forbids."""
    return logits if mask is None else logits.masked_fill(~mask, -torch.inf)


class MLPDiscreteSACModel(ActorCriticModel[MLP, QEnsemble]):
    """Logits of the actions [B, A] by one perceptron, and their values by several."""

    has_modes: ClassVar[bool] = False

    def __init__(self, obs: Obs, num_actions: int, **options: Unpack[PerceptronOptions]) -> None:
        given: PerceptronOptions = {**DEFAULTS, "hidden_sizes": (64, 64), **options}
        features = encoder_of(obs, normalize=given["normalize_obs"], cnn=given["cnn"])
        sizes = (features.size, *given["hidden_sizes"], num_actions)
        super().__init__(
            features,
            MLP(sizes, given["activation"], layer_norm=given["layer_norm"]),
            critics_of(QEnsemble, features.size, num_actions, given),
        )

    def logits(self, obs: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits [B, A] of the policy."""
        return masked_logits(self.actor(self.features(obs)), mask)

    def act(self, obs: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the most likely actions [B] among those that ``mask`` [B, A] allows."""
        return self.logits(obs, mask).argmax(1)

    def sample(
        self, obs: torch.Tensor, uniform: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions [B] made of ``uniform`` numbers [B] from 0 to 1, and the logarithms of their probabilities."""
        log_prob = self.logits(obs, mask).log_softmax(1)
        total = log_prob.exp().cumsum(1)
        # Scaled to the last sum, which rounding may leave below one: else what is forbidden could be drawn.
        action = (total <= uniform[:, None] * total[:, -1:]).sum(1)
        return action, log_prob.gather(1, action[:, None])[:, 0]

    def values(self, obs: torch.Tensor) -> torch.Tensor:
        """Return every critic's values of all actions [C, B, A]."""
        value: torch.Tensor = self.critic(self.features(obs))
        return value

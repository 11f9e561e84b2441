"""The networks of SAC and TQC."""

from __future__ import annotations

import functools
from typing import ClassVar

import torch
from typing_extensions import Unpack

from rl_training.models.actors import GaussianActor, SquashedGaussianActor, StateDependentActor
from rl_training.models.continuous import PerceptronModel, PerceptronOptions
from rl_training.models.features import Obs


class MLPSACModel(PerceptronModel[GaussianActor]):
    """A squashed Gaussian and several critics, whose outputs are values or ``quantiles``.

    With ``sde_log_std`` the noise depends on the state (gSDE), and that is the logarithm of its first size.
    """

    has_modes: ClassVar[bool] = False

    def __init__(
        self,
        obs: Obs,
        action_size: int,
        quantiles: int = 1,
        sde_log_std: float | None = None,
        **options: Unpack[PerceptronOptions],
    ) -> None:
        actor = (
            SquashedGaussianActor
            if sde_log_std is None
            else functools.partial(StateDependentActor, log_std_init=sde_log_std)
        )
        super().__init__(obs, action_size, actor, outputs=quantiles, **options)

    def sample(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions [B, A] of standard normal ``noise`` [B, A], and the log of their density [B]."""
        return self.actor.sample(self.features(obs), noise)

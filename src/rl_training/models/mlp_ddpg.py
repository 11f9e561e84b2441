"""The networks of DDPG."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import Unpack

from rl_training.models.actors import DeterministicActor
from rl_training.models.continuous import DeterministicModel, PerceptronOptions
from rl_training.models.features import Obs


class MLPDDPGModel(DeterministicModel):
    """A deterministic actor, and one critic unless more are asked for."""

    has_modes: ClassVar[bool] = False

    def __init__(self, obs: Obs, action_size: int, **options: Unpack[PerceptronOptions]) -> None:
        options.setdefault("n_critics", 1)
        super().__init__(obs, action_size, DeterministicActor, **options)

"""The networks of TD3."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import Unpack

from rl_training.models.actors import DeterministicActor
from rl_training.models.continuous import DeterministicModel, PerceptronOptions
from rl_training.models.features import Obs


class MLPTD3Model(DeterministicModel):
    """A deterministic actor and two critics, unless another number of them is asked for."""

    has_modes: ClassVar[bool] = False

    def __init__(self, obs: Obs, action_size: int, **options: Unpack[PerceptronOptions]) -> None:
        super().__init__(obs, action_size, DeterministicActor, **options)

"""Rainbow, declared: C51 with everything else switched on."""

from __future__ import annotations

from dataclasses import replace

from rl_training.algorithms.declared import c51
from rl_training.config.schema import Fraction, PositiveFloat


class RainbowConfig(c51.C51Config):
    """Hyper-parameters of Rainbow."""

    adam_eps: PositiveFloat = 1.5e-4
    double: bool = True
    dueling: bool = True
    noisy: bool = True
    prioritized: bool = True
    alpha: Fraction = 0.5


SPEC = replace(
    c51.SPEC,
    name="rainbow",
    class_name="Rainbow",
    title="Rainbow",
    summary="C51 with Double, Dueling, noisy layers, 3-step returns and priorities",
    paper="Hessel et al. 2018, Rainbow: combining improvements in deep reinforcement learning",
    url="https://arxiv.org/abs/1710.02298",
    config=RainbowConfig,
)

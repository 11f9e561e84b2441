"""TD3, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rl_training.algorithms.building import replay_experience
from rl_training.algorithms.declared.actor_critic import (
    SMALLEST,
    NoiseSize,
    continuous_learner,
    model_options,
)
from rl_training.algorithms.declared.ddpg import DeterministicConfig
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import Count

if TYPE_CHECKING:
    from rl_training.algorithms.td3 import TD3


class TD3Config(DeterministicConfig):
    """Hyper-parameters of TD3."""

    aliases: ClassVar[dict[str, str]] = {
        "policy_noise": "target_policy_noise",
        "noise_clip": "target_noise_clip",
    }

    policy_delay: Count = 2
    """Updates of the critics for each update of the actor and of the target networks."""
    target_policy_noise: NoiseSize = 0.2
    """Standard deviation of the noise on the target policy's actions, which are in [-1, 1]."""
    target_noise_clip: NoiseSize = 0.5
    """Range to which this noise is clipped."""


def build_learner(context: BuildContext) -> TD3:
    """Build the learner."""
    from rl_training.algorithms.td3 import TD3
    from rl_training.models.mlp_td3 import MLPTD3Model

    return continuous_learner(context, TD3, MLPTD3Model, **model_options(context))


SPEC = AlgorithmSpec(
    name="td3",
    class_name="TD3",
    title="TD3",
    summary="DDPG with twin critics, smoothed targets and a delayed actor",
    paper="Fujimoto et al. 2018, Addressing function approximation error in actor-critic methods",
    url="https://arxiv.org/abs/1802.09477",
    config=TD3Config,
    learner="rl_training.algorithms.td3:TD3",
    build_learner=build_learner,
    build_experience=replay_experience,
    action_kinds=frozenset({"continuous"}),
    obs_kinds=EVERY_OBS,
    smallest=SMALLEST,
    classic=Task("Pendulum-v1", 20_000),
)

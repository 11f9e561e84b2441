"""DDPG, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.algorithms.building import replay_experience
from rl_training.algorithms.declared import actor_critic as shared
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task

if TYPE_CHECKING:
    from rl_training.algorithms.ddpg import DDPG


class DeterministicConfig(shared.ActionNoiseOptions, shared.ActorCriticConfig):
    """Hyper-parameters of DDPG and TD3."""


class DDPGConfig(DeterministicConfig):
    """Hyper-parameters of DDPG."""

    n_critics: shared.Critics = 1


def build_learner(context: BuildContext) -> DDPG:
    """Build the learner."""
    from rl_training.algorithms.ddpg import DDPG
    from rl_training.models.mlp_ddpg import MLPDDPGModel

    return shared.continuous_learner(context, DDPG, MLPDDPGModel, **shared.model_options(context))


SPEC = AlgorithmSpec(
    name="ddpg",
    class_name="DDPG",
    title="DDPG",
    summary="a deterministic policy that follows the gradient of its critic",
    paper="Lillicrap et al. 2016, Continuous control with deep reinforcement learning",
    url="https://arxiv.org/abs/1509.02971",
    config=DDPGConfig,
    learner="rl_training.algorithms.ddpg:DDPG",
    build_learner=build_learner,
    build_experience=replay_experience,
    action_kinds=frozenset({"continuous"}),
    obs_kinds=EVERY_OBS,
    smallest=shared.SMALLEST,
    classic=Task("Pendulum-v1", 20_000),
)

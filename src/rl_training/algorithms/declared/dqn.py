"""DQN, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rl_training.algorithms.building import replay_experience
from rl_training.algorithms.declared.value_based import SMALLEST, MemorylessConfig, q_learner
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import Count, PositiveFloat

if TYPE_CHECKING:
    from rl_training.algorithms.dqn import DQN


class DQNConfig(MemorylessConfig):
    """Hyper-parameters of DQN."""

    learning_rate: PositiveFloat = 2.5e-4
    batch_size: Count = 128
    loss: Literal["huber", "mse"] = "huber"
    """Huber loss, which is linear for errors above 1, or squared error."""


def build_learner(context: BuildContext) -> DQN:
    """Build the learner, which is that of prioritized DQN, too."""
    from rl_training.algorithms.dqn import DQN
    from rl_training.models.mlp_q_network import MLPQNetwork

    return q_learner(context, DQN, MLPQNetwork)


SPEC = AlgorithmSpec(
    name="dqn",
    class_name="DQN",
    title="DQN",
    summary="Q-learning with replay and a target network",
    paper="Mnih et al. 2015, Human-level control through deep reinforcement learning",
    url="https://doi.org/10.1038/nature14236",
    config=DQNConfig,
    learner="rl_training.algorithms.dqn:DQN",
    build_learner=build_learner,
    build_experience=replay_experience,
    obs_kinds=EVERY_OBS,
    smallest=SMALLEST,
    classic=Task("CartPole-v1", 50_000),
)

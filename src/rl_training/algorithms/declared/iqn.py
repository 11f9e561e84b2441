"""IQN, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rl_training.algorithms.building import replay_experience
from rl_training.algorithms.declared.value_based import SMALLEST, QuantileConfig, Quantiles, q_learner
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.algorithms.iqn import IQN


class IQNConfig(QuantileConfig):
    """Hyper-parameters of IQN."""

    fixed: ClassVar[tuple[str, ...]] = ("num_cosines",)

    num_quantiles: Quantiles = 16
    """Fractions drawn for the estimates of each sample."""
    num_target_quantiles: Quantiles = 16
    """Fractions drawn for the targets of each sample."""
    num_policy_quantiles: Quantiles = 32
    """Evenly spaced fractions over which values are averaged to choose an action."""
    num_cosines: Quantiles = 64
    """Cosines in the embedding of a fraction."""


def build_learner(context: BuildContext) -> IQN:
    """Build the learner."""
    from rl_training.algorithms.iqn import IQN
    from rl_training.models.mlp_iqn_q_network import MLPIQNQNetwork

    if not context.config.network.hidden_sizes:
        raise ConfigError("network.hidden_sizes: IQN needs at least one hidden layer")
    count = context.options.num_cosines
    return q_learner(context, IQN, MLPIQNQNetwork, 3, fractions=3, num_cosines=count)


SPEC = AlgorithmSpec(
    name="iqn",
    class_name="IQN",
    title="IQN",
    summary="learns the distribution of returns by quantiles at random fractions",
    paper="Dabney et al. 2018, Implicit quantile networks for distributional reinforcement learning",
    url="https://arxiv.org/abs/1806.06923",
    config=IQNConfig,
    learner="rl_training.algorithms.iqn:IQN",
    build_learner=build_learner,
    build_experience=replay_experience,
    obs_kinds=EVERY_OBS,
    smallest={
        **SMALLEST,
        "algo_kwargs": {**SMALLEST["algo_kwargs"], "num_quantiles": 8, "num_target_quantiles": 8},
    },
    classic=Task("CartPole-v1", 50_000),
)

"""QR-DQN, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rl_training.algorithms.building import replay_experience
from rl_training.algorithms.declared.value_based import SMALLEST, QuantileConfig, Quantiles, q_learner
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task

if TYPE_CHECKING:
    from rl_training.algorithms.qr_dqn import QRDQN


class QRDQNConfig(QuantileConfig):
    """Hyper-parameters of QR-DQN."""

    fixed: ClassVar[tuple[str, ...]] = ("num_quantiles",)

    num_quantiles: Quantiles = 50


def build_learner(context: BuildContext) -> QRDQN:
    """Build the learner."""
    from rl_training.algorithms.qr_dqn import QRDQN
    from rl_training.models.mlp_qr_q_network import MLPQRQNetwork

    count = context.options.num_quantiles
    return q_learner(context, QRDQN, MLPQRQNetwork, count, num_quantiles=count)


SPEC = AlgorithmSpec(
    name="qr_dqn",
    class_name="QRDQN",
    title="QR-DQN",
    summary="learns the distribution of returns by a fixed number of quantiles",
    paper="Dabney et al. 2018, Distributional reinforcement learning with quantile regression",
    url="https://arxiv.org/abs/1710.10044",
    config=QRDQNConfig,
    learner="rl_training.algorithms.qr_dqn:QRDQN",
    build_learner=build_learner,
    build_experience=replay_experience,
    obs_kinds=EVERY_OBS,
    smallest={
        **SMALLEST,
        "algo_kwargs": {**SMALLEST["algo_kwargs"], "num_quantiles": 16, "learning_rate": 1e-2},
    },
    classic=Task("CartPole-v1", 50_000),
)

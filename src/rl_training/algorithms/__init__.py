"""Losses and update rules; they know tensors, not environments, files or loggers."""

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.algorithms.c51 import C51 as C51
    from rl_training.algorithms.c51 import Rainbow as Rainbow
    from rl_training.algorithms.dqn import DQN as DQN
    from rl_training.algorithms.dqn import PrioritizedDQN as PrioritizedDQN
    from rl_training.algorithms.dqn import dqn_loss as dqn_loss
    from rl_training.algorithms.drqn import DRQN as DRQN
    from rl_training.algorithms.drqn import R2D2 as R2D2
    from rl_training.algorithms.drqv2 import DrQv2 as DrQv2
    from rl_training.algorithms.iqn import IQN as IQN
    from rl_training.algorithms.protocol import Algorithm as Algorithm
    from rl_training.algorithms.protocol import Decision as Decision
    from rl_training.algorithms.protocol import UpdateResult as UpdateResult
    from rl_training.algorithms.q_learning import QLearner as QLearner
    from rl_training.algorithms.qr_dqn import QRDQN as QRDQN
    from rl_training.algorithms.spec import AlgorithmSpec as AlgorithmSpec
    from rl_training.algorithms.spec import BuildContext as BuildContext

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "C51": "rl_training.algorithms.c51",
        "DQN": "rl_training.algorithms.dqn",
        "dqn_loss": "rl_training.algorithms.dqn",
        "DRQN": "rl_training.algorithms.drqn",
        "R2D2": "rl_training.algorithms.drqn",
        "DrQv2": "rl_training.algorithms.drqv2",
        "IQN": "rl_training.algorithms.iqn",
        "PrioritizedDQN": "rl_training.algorithms.dqn",
        "QLearner": "rl_training.algorithms.q_learning",
        "QRDQN": "rl_training.algorithms.qr_dqn",
        "Rainbow": "rl_training.algorithms.c51",
        "Algorithm": "rl_training.algorithms.protocol",
        "Decision": "rl_training.algorithms.protocol",
        "UpdateResult": "rl_training.algorithms.protocol",
        "AlgorithmSpec": "rl_training.algorithms.spec",
        "BuildContext": "rl_training.algorithms.spec",
    },
)

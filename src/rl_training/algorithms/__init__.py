"""Losses and update rules; they know tensors, not environments, files or loggers.

The learner of every algorithm can be imported from here by its class name, such as ``DQN``.
"""

from typing import TYPE_CHECKING, Any

from rl_training.lazy import export

if TYPE_CHECKING:
    from rl_training.algorithms.dqn import dqn_loss as dqn_loss
    from rl_training.algorithms.learner import Learner as Learner
    from rl_training.algorithms.protocol import Algorithm as Algorithm
    from rl_training.algorithms.protocol import Decision as Decision
    from rl_training.algorithms.protocol import UpdateResult as UpdateResult
    from rl_training.algorithms.q_learning import QLearner as QLearner
    from rl_training.algorithms.spec import AlgorithmSpec as AlgorithmSpec
    from rl_training.algorithms.spec import BuildContext as BuildContext

_PLACES = {
    "Algorithm": "rl_training.algorithms.protocol",
    "AlgorithmSpec": "rl_training.algorithms.spec",
    "BuildContext": "rl_training.algorithms.spec",
    "Decision": "rl_training.algorithms.protocol",
    "Learner": "rl_training.algorithms.learner",
    "QLearner": "rl_training.algorithms.q_learning",
    "UpdateResult": "rl_training.algorithms.protocol",
    "dqn_loss": "rl_training.algorithms.dqn",
}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    if name not in _PLACES:
        from rl_training.algorithms.catalogue import by_class_name

        if (spec := by_class_name(name)) is not None:
            return spec.learner_class()
    return export(__name__, name, _PLACES)


def __dir__() -> list[str]:
    from rl_training.algorithms.catalogue import algorithms

    return sorted({*_PLACES, *(spec.class_name for spec in algorithms().values())})

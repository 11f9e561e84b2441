"""Deep reinforcement learning that trains, resumes, evaluates and predicts through one surface."""

from typing import TYPE_CHECKING

from rl_training.lazy import lazy_exports
from rl_training.version import __version__ as __version__

if TYPE_CHECKING:
    from rl_training.api import C51 as C51
    from rl_training.api import DQN as DQN
    from rl_training.api import DRQN as DRQN
    from rl_training.api import IQN as IQN
    from rl_training.api import QRDQN as QRDQN
    from rl_training.api import R2D2 as R2D2
    from rl_training.api import DrQv2 as DrQv2
    from rl_training.api import PrioritizedDQN as PrioritizedDQN
    from rl_training.api import Rainbow as Rainbow
    from rl_training.api import load as load
    from rl_training.experiment.configs import load_config as load_config
    from rl_training.experiment.manager import ExperimentManager as ExperimentManager
    from rl_training.runtime.callbacks import Callback as Callback

_exports = {
    **dict.fromkeys(
        ("C51", "DQN", "DRQN", "DrQv2", "IQN", "PrioritizedDQN", "QRDQN", "R2D2", "Rainbow"),
        "rl_training.api",
    ),
    "load": "rl_training.api",
    "load_config": "rl_training.experiment.configs",
    "ExperimentManager": "rl_training.experiment.manager",
    "Callback": "rl_training.runtime.callbacks",
}
__all__ = [
    "C51",
    "DQN",
    "DRQN",
    "IQN",
    "QRDQN",
    "R2D2",
    "Callback",
    "DrQv2",
    "ExperimentManager",
    "PrioritizedDQN",
    "Rainbow",
    "load",
    "load_config",
]
__getattr__, __dir__ = lazy_exports(__name__, _exports)

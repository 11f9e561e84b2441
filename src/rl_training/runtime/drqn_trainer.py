"""Training of the value-based algorithms with a memory."""

from rl_training.algorithms.declared.drqn import DRQNConfig
from rl_training.runtime.trainer import Trainer

train_drqn = Trainer("train_drqn", DRQNConfig)

"""Training of the value-based algorithms without a memory."""

from rl_training.algorithms.declared.value_based import MemorylessConfig
from rl_training.runtime.trainer import Trainer

train_dqn = Trainer("train_dqn", MemorylessConfig)

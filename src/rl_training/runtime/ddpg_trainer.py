"""Training of DDPG."""

from rl_training.algorithms.declared.ddpg import DDPGConfig
from rl_training.runtime.trainer import Trainer

train_ddpg = Trainer("train_ddpg", DDPGConfig)

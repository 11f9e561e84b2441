"""Training from pixels."""

from rl_training.algorithms.declared.drqv2 import DrQv2Config
from rl_training.runtime.trainer import Trainer

train_drqv2 = Trainer("train_drqv2", DrQv2Config)

"""Training of CrossQ."""

from rl_training.algorithms.declared.crossq import CrossQConfig
from rl_training.runtime.trainer import Trainer

train_crossq = Trainer("train_crossq", CrossQConfig)

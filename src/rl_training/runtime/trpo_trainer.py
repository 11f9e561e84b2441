"""Training of TRPO."""

from rl_training.algorithms.declared.trpo import TRPOConfig
from rl_training.runtime.trainer import Trainer

train_trpo = Trainer("train_trpo", TRPOConfig)

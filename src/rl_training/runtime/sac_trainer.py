"""Training of SAC."""

from rl_training.algorithms.declared.sac import SACConfig
from rl_training.runtime.trainer import Trainer

train_sac = Trainer("train_sac", SACConfig)

"""Training of Discrete SAC."""

from rl_training.algorithms.declared.discrete_sac import DiscreteSACConfig
from rl_training.runtime.trainer import Trainer

train_discrete_sac = Trainer("train_discrete_sac", DiscreteSACConfig)

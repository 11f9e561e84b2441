"""Training of TD3."""

from rl_training.algorithms.declared.td3 import TD3Config
from rl_training.runtime.trainer import Trainer

train_td3 = Trainer("train_td3", TD3Config)

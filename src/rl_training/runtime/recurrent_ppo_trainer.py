"""Training of recurrent PPO."""

from rl_training.algorithms.declared.recurrent_ppo import RecurrentPPOConfig
from rl_training.runtime.trainer import Trainer

train_recurrent_ppo = Trainer("train_recurrent_ppo", RecurrentPPOConfig)

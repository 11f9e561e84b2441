"""Training of PPO."""

from rl_training.algorithms.declared.ppo import PPOConfig
from rl_training.runtime.trainer import Trainer

train_ppo = Trainer("train_ppo", PPOConfig)

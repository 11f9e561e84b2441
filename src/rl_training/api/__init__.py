"""The managed API: one class per algorithm, from environment to prediction."""

from rl_training.api.algorithms import DQN, load
from rl_training.api.managed import ManagedAlgorithm

__all__ = ["DQN", "ManagedAlgorithm", "load"]

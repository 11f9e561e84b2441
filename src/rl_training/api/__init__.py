"""The managed API: one class per algorithm, from environment to prediction."""

from rl_training.api.algorithms import (
    C51,
    DQN,
    DRQN,
    IQN,
    QRDQN,
    R2D2,
    DrQv2,
    PrioritizedDQN,
    Rainbow,
    load,
)
from rl_training.api.managed import ManagedAlgorithm

__all__ = [
    "C51",
    "DQN",
    "DRQN",
    "IQN",
    "QRDQN",
    "R2D2",
    "DrQv2",
    "ManagedAlgorithm",
    "PrioritizedDQN",
    "Rainbow",
    "load",
]

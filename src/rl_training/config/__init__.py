"""The experiment config: what can be set, its defaults, and how YAML and overrides become one frozen value."""

from rl_training.config.algorithms import (
    C51Config,
    DQNConfig,
    IQNConfig,
    PrioritizedDQNConfig,
    QLearningConfig,
    QRDQNConfig,
    RainbowConfig,
)
from rl_training.config.schema import (
    AlgorithmConfig,
    CheckpointConfig,
    EnvConfig,
    EvaluationConfig,
    ExperimentConfig,
    LoggingConfig,
    NetworkConfig,
    WrapperConfig,
)

__all__ = [
    "AlgorithmConfig",
    "C51Config",
    "CheckpointConfig",
    "DQNConfig",
    "EnvConfig",
    "EvaluationConfig",
    "ExperimentConfig",
    "IQNConfig",
    "LoggingConfig",
    "NetworkConfig",
    "PrioritizedDQNConfig",
    "QLearningConfig",
    "QRDQNConfig",
    "RainbowConfig",
    "WrapperConfig",
]

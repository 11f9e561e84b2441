"""The experiment config: what can be set, its defaults, and how YAML and overrides become one frozen value."""

from rl_training.config.algorithms import (
    C51Config,
    DQNConfig,
    DRQNConfig,
    DrQv2Config,
    IQNConfig,
    MemorylessConfig,
    PrioritizedDQNConfig,
    QLearningConfig,
    QRDQNConfig,
    R2D2Config,
    RainbowConfig,
    ReplayConfig,
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
    "DRQNConfig",
    "DrQv2Config",
    "EnvConfig",
    "EvaluationConfig",
    "ExperimentConfig",
    "IQNConfig",
    "LoggingConfig",
    "MemorylessConfig",
    "NetworkConfig",
    "PrioritizedDQNConfig",
    "QLearningConfig",
    "QRDQNConfig",
    "R2D2Config",
    "RainbowConfig",
    "ReplayConfig",
    "WrapperConfig",
]

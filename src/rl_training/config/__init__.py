"""The experiment config: what can be set, its defaults, and how YAML and overrides become one frozen value."""

from rl_training.config.schema import (
    AlgorithmConfig,
    CheckpointConfig,
    EnvConfig,
    EvaluationConfig,
    EvaluationEnvConfig,
    ExperimentConfig,
    LoggingConfig,
    NetworkConfig,
    WrapperConfig,
)

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "EnvConfig",
    "EvaluationConfig",
    "EvaluationEnvConfig",
    "ExperimentConfig",
    "LoggingConfig",
    "NetworkConfig",
    "WrapperConfig",
]

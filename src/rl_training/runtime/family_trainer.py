"""Training of one of the algorithms that share a kind of options."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.specs import SPECS
from rl_training.config import AlgorithmConfig, ExperimentConfig
from rl_training.errors import ConfigError
from rl_training.runtime.session import TrainResult
from rl_training.runtime.workflows import start


def train_one_of(
    family: type[AlgorithmConfig], trainer: str, config: ExperimentConfig[Any], **options: Any
) -> TrainResult:
    """Train what ``config.algo`` names, if its options are of that family; ``trainer`` is who was asked to."""
    specs = {spec.name: spec for spec in SPECS if issubclass(spec.config, family)}
    if config.algo not in specs:
        raise ConfigError(f"algo: '{config.algo}' is not trained by {trainer}; it trains {', '.join(specs)}")
    return start(config, specs[config.algo], **options)

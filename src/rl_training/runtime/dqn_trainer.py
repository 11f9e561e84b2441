"""Training of the value-based algorithms without a memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.algorithms.specs import SPECS
from rl_training.config import ExperimentConfig, MemorylessConfig
from rl_training.errors import ConfigError
from rl_training.runtime.callbacks import CallbackLike
from rl_training.runtime.session import TrainResult
from rl_training.runtime.workflows import start

_SPECS = {spec.name: spec for spec in SPECS if issubclass(spec.config, MemorylessConfig)}


def train_dqn(
    config: ExperimentConfig[Any],
    *,
    run_dir: Path | None = None,
    callback: CallbackLike = None,
    console: bool = True,
) -> TrainResult:
    """Train the algorithm of the DQN family that ``config.algo`` names.

    Returns the last metrics, the final evaluation, the run folder and the newest checkpoint in it.
    """
    if config.algo not in _SPECS:
        raise ConfigError(f"algo: '{config.algo}' is not trained by train_dqn; it trains {', '.join(_SPECS)}")
    return start(config, _SPECS[config.algo], run_dir=run_dir, callback=callback, console=console)

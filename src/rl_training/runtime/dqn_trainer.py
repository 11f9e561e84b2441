"""Training of the value-based algorithms without a memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.config import ExperimentConfig, MemorylessConfig
from rl_training.runtime.callbacks import CallbackLike
from rl_training.runtime.family_trainer import train_one_of
from rl_training.runtime.session import TrainResult


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
    options = {"run_dir": run_dir, "callback": callback, "console": console}
    return train_one_of(MemorylessConfig, "train_dqn", config, **options)

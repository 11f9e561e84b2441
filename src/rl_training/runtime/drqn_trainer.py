"""Training of the value-based algorithms with a memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.config import DRQNConfig, ExperimentConfig
from rl_training.runtime.callbacks import CallbackLike
from rl_training.runtime.family_trainer import train_one_of
from rl_training.runtime.session import TrainResult


def train_drqn(
    config: ExperimentConfig[Any],
    *,
    run_dir: Path | None = None,
    callback: CallbackLike = None,
    console: bool = True,
) -> TrainResult:
    """Train DRQN, or what else with a memory ``config.algo`` names.

    Returns the last metrics, the final evaluation, the run folder and the newest checkpoint in it.
    """
    options = {"run_dir": run_dir, "callback": callback, "console": console}
    return train_one_of(DRQNConfig, "train_drqn", config, **options)

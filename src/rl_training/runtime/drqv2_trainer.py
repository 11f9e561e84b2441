"""Training from pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.config import DrQv2Config, ExperimentConfig
from rl_training.runtime.callbacks import CallbackLike
from rl_training.runtime.family_trainer import train_one_of
from rl_training.runtime.session import TrainResult


def train_drqv2(
    config: ExperimentConfig[Any],
    *,
    run_dir: Path | None = None,
    callback: CallbackLike = None,
    console: bool = True,
) -> TrainResult:
    """Train DrQ-v2, or what else learns from images ``config.algo`` names.

    Returns the last metrics, the final evaluation, the run folder and the newest checkpoint in it.
    """
    options = {"run_dir": run_dir, "callback": callback, "console": console}
    return train_one_of(DrQv2Config, "train_drqv2", config, **options)

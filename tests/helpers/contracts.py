"""Every algorithm that is registered, by its own smallest settings."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.catalogue import PACKAGED
from rl_training.config import ExperimentConfig
from rl_training.experiment import registry
from rl_training.experiment.configs import load_config
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run

TOYS = ("toy_policy_gradient", "toy_actor_critic")
"""Of the example package, which is installed with what tests need."""
ALGORITHMS = (*PACKAGED, *TOYS)


def small_config(algo: str, **overrides: Any) -> ExperimentConfig[Any]:
    """Return the smallest config of an algorithm, quiet; keys of overrides have ``__`` for points."""
    quiet = {
        "evaluation": {"frequency": 0, "final_episodes": 0},
        "logging": {"csv": False, "tensorboard": False},
    }
    settings = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_config({"algo": algo, **registry.get(algo).smallest, **quiet}, settings)


def trained_run(algo: str, seed: int = 0) -> Run:
    run = Run(small_config(algo, seed=seed))
    for _ in train(run):
        pass
    return run

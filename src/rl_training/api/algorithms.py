"""The classes users start with; everything they do is in ``ManagedAlgorithm``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.api.managed import ManagedAlgorithm
from rl_training.experiment import registry
from rl_training.runtime.workflows import checkpoint_config, load_checkpoint


class DQN(ManagedAlgorithm):
    """Deep Q-learning for discrete actions, with Double, Dueling and n-step returns as options."""

    algo_name = "dqn"


CLASSES: dict[str, type[ManagedAlgorithm]] = {cls.algo_name: cls for cls in (DQN,)}


def load(path: str | Path, **options: Any) -> ManagedAlgorithm:
    """Load an agent of any algorithm from a run folder or a checkpoint; options as in ``ManagedAlgorithm.load``."""
    algo = checkpoint_config(load_checkpoint(Path(path)), registry.get).algo
    known: type[ManagedAlgorithm] | None = CLASSES.get(algo)
    if known is None:  # an algorithm of somebody else's

        class Registered(ManagedAlgorithm):
            algo_name = algo

        known = Registered
    return known.load(path, **options)

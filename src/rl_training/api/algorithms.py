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


class PrioritizedDQN(ManagedAlgorithm):
    """DQN that replays transitions in proportion to how much there is to learn from them."""

    algo_name = "prioritized_dqn"


class C51(ManagedAlgorithm):
    """Q-learning of the return's distribution, as a categorical one on a fixed support."""

    algo_name = "c51"


class QRDQN(ManagedAlgorithm):
    """Q-learning of the return's distribution, by quantiles at fixed fractions."""

    algo_name = "qr_dqn"


class IQN(ManagedAlgorithm):
    """Q-learning of the return's distribution, by its whole quantile function."""

    algo_name = "iqn"


class Rainbow(ManagedAlgorithm):
    """C51 with Double, Dueling, noisy layers, n-step returns and priorities."""

    algo_name = "rainbow"


class DRQN(ManagedAlgorithm):
    """DQN with a memory, for environments that do not show everything at once."""

    algo_name = "drqn"


class R2D2(ManagedAlgorithm):
    """DRQN with burn-in, priorities over sequences, n-step returns and rescaled values."""

    algo_name = "r2d2"


class DrQv2(ManagedAlgorithm):
    """Deterministic policy gradients from randomly shifted images, for continuous actions."""

    algo_name = "drqv2"


CLASSES: dict[str, type[ManagedAlgorithm]] = {
    cls.algo_name: cls for cls in (DQN, PrioritizedDQN, C51, QRDQN, IQN, Rainbow, DRQN, R2D2, DrQv2)
}


def load(path: str | Path, **options: Any) -> ManagedAlgorithm:
    """Load an agent of any algorithm from a run folder or a checkpoint; options as in ``ManagedAlgorithm.load``."""
    algo = checkpoint_config(load_checkpoint(Path(path)), registry.get).algo
    known: type[ManagedAlgorithm] | None = CLASSES.get(algo)
    if known is None:  # an algorithm of somebody else's

        class Registered(ManagedAlgorithm):
            algo_name = algo

        known = Registered
    return known.load(path, **options)

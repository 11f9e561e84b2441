"""The managed API: one class per algorithm, from environment to prediction."""

from typing import TYPE_CHECKING

from rl_training.api import algorithms
from rl_training.api.algorithms import load as load
from rl_training.api.algorithms import managed_class as managed_class
from rl_training.api.managed import ManagedAlgorithm as ManagedAlgorithm

if TYPE_CHECKING:
    from rl_training.api.algorithms import *  # noqa: F403
else:

    def __getattr__(name):
        if name == "__all__":
            return __dir__()
        try:
            return getattr(algorithms, name)
        except AttributeError:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'") from None


def __dir__() -> list[str]:
    return [*dir(algorithms), "ManagedAlgorithm"]

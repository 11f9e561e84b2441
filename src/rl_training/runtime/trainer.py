"""Training of one of the algorithms that share a kind of options."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms import catalogue
from rl_training.config import AlgorithmConfig, ExperimentConfig
from rl_training.errors import ConfigError
from rl_training.runtime.report import TrainResult
from rl_training.runtime.workflows import start


class Trainer:
    """Trains what ``config.algo`` names, if its options are of the trainer's family; others' algorithms included."""

    def __init__(self, name: str, family: type[AlgorithmConfig]) -> None:
        self.__name__ = name
        self._family = family

    def __repr__(self) -> str:
        return f"<trainer {self.__name__} of {self._family.__name__}>"

    def __call__(self, config: ExperimentConfig[Any], **options: Any) -> TrainResult:
        """Train from scratch; options as in ``workflows.start``.

        Returns the last metrics, the final evaluation, the run folder and the newest checkpoint in it.
        """
        specs = catalogue.algorithms().values()
        names = [spec.name for spec in specs if issubclass(spec.config, self._family)]
        if config.algo not in names:
            raise ConfigError(
                f"algo: '{config.algo}' is not trained by {self.__name__}; it trains {', '.join(names)}"
            )
        return start(config, **options)

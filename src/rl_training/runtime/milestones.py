"""When something is due that happens every so many env steps."""

from __future__ import annotations

from typing import Any

from rl_training.config import ExperimentConfig
from rl_training.runtime.clock import Every


class Milestones:
    """What is due after a step: a row of the log, an evaluation, a checkpoint."""

    def __init__(self, config: ExperimentConfig[Any], steps: int) -> None:
        self.log = Every(config.logging.frequency, steps)
        self.evaluation = Every(config.evaluation.frequency, steps)
        self.checkpoint = Every(config.checkpoint.frequency, steps)

    @property
    def next(self) -> float:
        """The env step at which the first of them is due."""
        return min(self.log.next, self.evaluation.next, self.checkpoint.next)

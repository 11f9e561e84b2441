"""The only training loop. It never asks which algorithm it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.protocol import UpdateResult
from rl_training.runtime.clock import Clock
from rl_training.runtime.run import Run


def train(run: Run) -> Iterator[Clock]:
    """Advance a run, yielding after every step of its environments; what is done then is the caller's choice."""
    clock, collector, experience = run.clock, run.collector, run.experience
    algorithm, metrics, lap = run.algorithm, run.metrics, run.timer.lap
    while not clock.finished:
        step, episodes = collector.step(algorithm)
        if len(collector.lost):
            experience.interrupt(collector.lost)
        experience.add(step)
        lap("replay")
        clock.steps += len(step)
        if episodes:
            clock.episodes += len(episodes)
            metrics.record_episodes(episodes)
        algorithm.advance(clock.steps)
        for batch in experience.batches(clock.steps):
            lap("replay")
            result = _quietly(algorithm.update, batch)
            lap("learning")
            experience.feedback(batch, result)
            metrics.record(result.metrics)
            clock.updates += result.gradient_steps
        yield clock


def _quietly(update: Callable[[Any], UpdateResult], batch: Any) -> UpdateResult:
    """Update with denormal numbers taken for zero, and without NumPy's warnings of numbers that are not finite.

    The optimizer's moments of units that have died decay into denormals, and CPUs treat them very slowly. What is
    not finite is refused by the optimizer, in one line. Both hold for the update only: an environment's own
    arithmetic is none of our business.
    """
    torch.set_flush_denormal(True)
    try:
        with np.errstate(all="ignore"):
            return update(batch)
    finally:
        torch.set_flush_denormal(False)

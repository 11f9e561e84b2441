"""The only training loop. It never asks which algorithm it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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
        experience.add(step)
        clock.steps += len(step)
        if episodes:
            clock.episodes += len(episodes)
            metrics.record_episodes(episodes)
        algorithm.advance(clock.steps)
        for batch in experience.batches(clock.steps):
            lap("other")
            result = _without_denormals(algorithm.update, batch)
            experience.feedback(batch, result.priorities)
            metrics.record(result.metrics)
            clock.updates += 1
            lap("learning")
        yield clock


def _without_denormals(update: Callable[[Any], UpdateResult], batch: Any) -> UpdateResult:
    """Update with denormal numbers taken for zero.

    The optimizer's moments of units that have died decay into them, and CPUs treat them very slowly. The mode
    holds for the update only: an environment's own arithmetic is none of our business.
    """
    torch.set_flush_denormal(True)
    try:
        return update(batch)
    finally:
        torch.set_flush_denormal(False)

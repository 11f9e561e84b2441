"""The only training loop. It never asks which algorithm it runs."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from rl_training.runtime.clock import Clock
from rl_training.runtime.run import Run


def train(run: Run) -> Iterator[Clock]:
    """Advance a run, yielding after every step of its environments; what is done then is the caller's choice."""
    clock, collector, experience = run.clock, run.collector, run.experience
    algorithm, metrics, lap = run.algorithm, run.metrics, run.timer.lap
    # The optimizer's moments of units that have died decay into denormal numbers, which CPUs treat very slowly.
    torch.set_flush_denormal(True)
    try:
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
                result = algorithm.update(batch)
                experience.feedback(batch, result.priorities)
                metrics.record(result.metrics)
                clock.updates += 1
                lap("learning")
            yield clock
    finally:
        torch.set_flush_denormal(False)

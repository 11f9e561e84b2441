"""Sides that take turns at the same job, so that whatever else the machine does hits all of them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from context import Context
from job_kinds import AnyJob, Job, OnPolicyJob
from worker import Worker, WorkerDied

TOLERANCE = 0.02
"""Share by which a side's updates per step may differ from those of the job."""
NATIVE_TOLERANCE = 0.06
"""The same where a native vector environment spends a step of an environment on every reset, which counts as none:
one in 22 while CartPole is played at random."""


@dataclass
class Times:
    """What the turns of one side took."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    steps: int = 0
    updates: int = 0
    peak_rss: int = 0
    turn_steps: list[int] = field(default_factory=list)
    """Steps of each turn, which may go on a little to end with a round."""

    @property
    def speed(self) -> float:
        return self.steps / sum(self.seconds)

    @property
    def updates_per_step(self) -> float:
        return self.updates / self.steps

    @property
    def seconds_per_step(self) -> list[float]:
        """Return what a step took in each turn."""
        each = self.turn_steps or [self.steps // len(self.seconds)] * len(self.seconds)
        return [spent / steps for spent, steps in zip(self.seconds, each, strict=True)]


@dataclass(frozen=True)
class Entrant:
    """One who takes turns: a name, the side whose worker it is, and its job."""

    name: str
    side: str
    job: AnyJob


def take_turns(
    context: Context, where: str, entrants: list[Entrant], *, turn: int, warm_up: int, learns: bool = True
) -> dict[str, Times]:
    """Return what the turns took of those that got through all of them; the others are reported as failures.

    Without ``learns`` runs end before their first update.
    """
    played = warm_up + (context.turns + 1) * turn
    times: dict[str, Times] = {}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for entrant in entrants:
            job, budget = entrant.job, played
            if isinstance(job, Job):
                if not learns:
                    budget = 2 * played  # only the first half is played
                    job = replace(job, learning_starts=played)
                # Exploration ends with the warm-up, so that all turns are alike.
                job = replace(job, exploration_fraction=warm_up / budget)
            elif isinstance(job, OnPolicyJob):  # every turn may go on to the end of a rollout
                budget += (context.turns + 1) * job.rollout
            try:
                worker = stack.enter_context(context.start(entrant.side, f"{where}-{entrant.name}"))
                worker.ask(mode="speed", job=asdict(job), total=budget, warm_up=warm_up)
                workers[entrant.name], times[entrant.name] = worker, Times()
            except WorkerDied as error:
                context.report.fail(f"{where}, {entrant.name}", str(error))
        for number in range(context.turns):
            around = list(workers.items())
            first = number % max(len(around), 1)  # nobody is always the one after a slow one
            for name, worker in around[first:] + around[:first]:
                try:
                    answer = worker.ask(steps=turn)
                except WorkerDied as error:
                    context.report.fail(f"{where}, {name}", str(error))
                    del workers[name], times[name]
                    continue
                times[name].seconds.append(answer["seconds"])
                times[name].cpu.append(answer["cpu"])
                times[name].steps += answer["steps"]
                times[name].turn_steps.append(answer["steps"])
                times[name].updates += answer["updates"]
                times[name].peak_rss = answer["peak_rss"]
    for entrant in entrants:
        if entrant.name in times:
            entered = f"{where}, {entrant.name}"
            _check_updates(context, entered, entrant.job, times[entrant.name], learns=learns)
    return times


def _check_updates(context: Context, where: str, job: AnyJob, times: Times, *, learns: bool = True) -> None:
    wanted, made = job.updates_per_step if learns else 0.0, times.updates_per_step
    native = isinstance(job, OnPolicyJob) and job.native
    if abs(made - wanted) > (NATIVE_TOLERANCE if native else TOLERANCE) * wanted:
        context.report.fail(where, f"{made:.4f} updates a step, the job has {wanted:.4f}")


def ratios(ours: Times, theirs: Times) -> dict[str, float]:
    """Return how many times faster we are, in all and over the middle 80 % of the turns."""
    low, high = np.percentile(np.divide(theirs.seconds_per_step, ours.seconds_per_step), [10, 90])
    return {
        "wall": ours.speed / theirs.speed,
        "low": float(low),
        "high": float(high),
        "cpu": (sum(theirs.cpu) / theirs.steps) / (sum(ours.cpu) / ours.steps),
    }

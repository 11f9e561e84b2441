"""rl_training as a worker."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jobs
import tasks
from job_kinds import AnyJob, OnPolicyJob, read_job
from protocol import Channel, Handler, peak_rss, serve

from rl_training import Callback, load_config
from rl_training.experiment.registry import train
from workers.our_configs import experiment, image_experiment

if TYPE_CHECKING:
    from rl_training.runtime.evaluator import Evaluation
    from rl_training.runtime.session import Session

SILENT = {
    "evaluation": {"frequency": 0, "final_episodes": 0},
    "checkpoint": {"frequency": 0},
    "logging": {"tensorboard": False, "csv": False, "frequency": 2**40},  # the peers write no log either
}


class Run(Callback):
    """A run in a folder that is thrown away; one in ``rollouts`` owes updates from their first step to their last."""

    def __init__(self, config: Mapping[str, Any], *, rollouts: bool = False) -> None:
        self._config = load_config({**config, **SILENT})
        self._rollouts, self._seen = rollouts, 0
        self._hook: Callable[[], None] = lambda: None
        self._training: Session | None = None

    def run(self, hook: Callable[[], None]) -> None:
        self._hook = hook
        with tempfile.TemporaryDirectory() as folder:
            train(self._config, run_dir=Path(folder) / "run", callback=self, console=False)

    def on_start(self, training: Session) -> None:
        self._training = training

    def on_step(self, training: Session) -> None:
        updates = training.run.clock.updates
        if not self._rollouts or updates > self._seen:
            self._seen = updates
            self._hook()

    @property
    def steps(self) -> int:
        return self._training.run.clock.steps if self._training else 0

    @property
    def updates(self) -> int:
        return self._training.run.clock.updates if self._training else 0


def build(job: AnyJob, total: int, seed: int) -> Run:
    return Run(experiment(job, total, seed), rollouts=isinstance(job, OnPolicyJob))


def curve(channel: Channel, request: dict[str, Any]) -> None:
    """Train as ``rl-training train`` does, which evaluates and writes the folder itself."""
    config = load_config(
        {
            **experiment(read_job(request["job"]), request["total"], request["seed"]),
            "evaluation": {
                "frequency": request["every"],
                "episodes": jobs.CURVE_EPISODES,
                "final_episodes": jobs.FINAL_EPISODES,
                "num_envs": jobs.EVALUATION_ENVS,
            },
        }
    )
    train(config, run_dir=Path(request["folder"]), console=False)
    channel.write(done=True)


class Bar(Callback):
    """Ends a run once an evaluation reaches the bar."""

    def __init__(self, bar: float) -> None:
        self._bar = bar
        self.reached, self.steps, self.best = False, 0, 0.0

    def on_evaluation(self, training: Session, evaluation: Evaluation) -> None:
        self.best = max(self.best, evaluation.mean)
        if evaluation.mean >= self._bar:
            self.reached = True
            raise tasks.Finished  # the clock stops here, as it does for the peers

    def on_step(self, training: Session) -> None:
        self.steps = training.steps


def time_to_bar(channel: Channel, request: dict[str, Any]) -> None:
    """Train the packaged config as it is, logs and checkpoints included, evaluated as the peers are."""
    overrides = {
        "seed": request["seed"],
        "total_timesteps": min(load_config(request["config"]).total_timesteps, request["total"]),
        "evaluation.frequency": request["every"],
        "evaluation.episodes": request["episodes"],
        "evaluation.final_episodes": 0,
        "evaluation.num_envs": jobs.EVALUATION_ENVS,
    }
    config = load_config(request["config"], overrides)
    watch = Bar(request["bar"])
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(tasks.Finished):
            train(config, run_dir=Path(folder) / "run", callback=watch, console=False)
        channel.write(reached=watch.reached, steps=watch.steps, best=watch.best)


def images(channel: Channel, request: dict[str, Any]) -> None:
    """Fill a replay, which counts frames and keeps each one once."""
    imported = peak_rss()
    tasks.measure_memory(channel, Run(image_experiment(request)), imported)


def after_imports(handle: Handler) -> Handler:
    """Import what computes before a mode in which imports do not count."""

    def prepared(channel: Channel, request: dict[str, Any]) -> None:
        import rl_training.runtime.workflows  # noqa: F401

        handle(channel, request)

    return prepared


if __name__ == "__main__":
    modes: dict[str, Any] = {
        "speed": after_imports(tasks.speed(build)),
        "memory": after_imports(tasks.memory(build)),
        "curve": curve,
        "time-to-bar": time_to_bar,
        "images": after_imports(images),
    }
    serve(("rl_training", "torch", "numpy", "gymnasium"), modes, optional=("ale-py",))

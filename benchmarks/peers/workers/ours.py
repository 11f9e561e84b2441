"""rl_training as a worker."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jobs
import tasks
import torch
from images import STACK
from jobs import Job, read_job
from protocol import Channel, peak_rss, serve

from rl_training.experiment.configs import load_config
from rl_training.experiment.registry import train
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.evaluator import Evaluation
from rl_training.runtime.session import Session

SILENT = {
    "evaluation": {"frequency": 0, "final_episodes": 0},
    "checkpoint": {"frequency": 0},
    "logging": {"tensorboard": False, "csv": False, "frequency": 2**40},  # the peers write no log either
}


def experiment(job: Job, total: int, seed: int) -> dict[str, Any]:
    """Return the config of a job."""
    return {
        "algo": job.algo,
        "env": {"id": job.env, "num_envs": job.num_envs},
        "seed": seed,
        "total_timesteps": total,
        "network": {"hidden_sizes": list(job.hidden)},
        "algo_kwargs": {
            "learning_rate": job.learning_rate,
            "adam_eps": job.adam_eps,
            "max_grad_norm": job.max_grad_norm,
            "buffer_size": job.buffer_size,
            "learning_starts": job.learning_starts,
            "batch_size": job.batch_size,
            "gamma": job.gamma,
            "train_freq": job.train_freq,
            "gradient_steps": job.gradient_steps,
            "target_update_interval": job.target_update_interval,
            "exploration_fraction": job.exploration_fraction,
            "exploration_initial_eps": job.exploration_initial_eps,
            "exploration_final_eps": job.exploration_final_eps,
            "double": False,
            **_own_options(job),
        },
    }


def _own_options(job: Job) -> dict[str, Any]:
    if job.algo == "qr_dqn":
        return {"num_quantiles": job.num_quantiles}
    if job.algo == "prioritized_dqn":
        return {"loss": job.loss, "alpha": job.alpha, "beta": job.beta, "beta_final": job.beta}
    return {"loss": job.loss}


class Run(Callback):
    """A run in a folder that is thrown away."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = load_config({**config, **SILENT})
        self._hook: Callable[[], None] = lambda: None
        self._training: Session | None = None

    def run(self, hook: Callable[[], None]) -> None:
        self._hook = hook
        with tempfile.TemporaryDirectory() as folder:
            train(self._config, run_dir=Path(folder) / "run", callback=self, console=False)

    def on_start(self, training: Session) -> None:
        self._training = training

    def on_step(self, training: Session) -> None:
        self._hook()

    @property
    def steps(self) -> int:
        return self._training.run.clock.steps if self._training else 0

    @property
    def updates(self) -> int:
        return self._training.run.clock.updates if self._training else 0


def build(job: Job, total: int, seed: int) -> Run:
    return Run(experiment(job, total, seed))


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
        "total_timesteps": min(load_config(jobs.OUR_CONFIG).total_timesteps, request["total"]),
        "evaluation.frequency": request["every"],
        "evaluation.episodes": request["episodes"],
        "evaluation.final_episodes": 0,
        "evaluation.num_envs": jobs.EVALUATION_ENVS,
    }
    config = load_config(jobs.OUR_CONFIG, overrides)
    watch = Bar(request["bar"])
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(tasks.Finished):
            train(config, run_dir=Path(folder) / "run", callback=watch, console=False)
        channel.write(reached=watch.reached, steps=watch.steps, best=watch.best)


def images(channel: Channel, request: dict[str, Any]) -> None:
    """Fill the replay of DrQ-v2, which counts frames and keeps each one once."""
    imported, observations = peak_rss(), request["observations"]
    total = observations + request["updates"]
    config = {
        "algo": "drqv2",
        "env": {
            "id": "images:RandomImages",
            "wrappers": [{"id": "FrameStackObservation", "kwargs": {"stack_size": STACK}}],
        },
        "total_timesteps": total,
        "network": {"hidden_sizes": [256, 256]},
        "algo_kwargs": {
            "buffer_size": observations,
            "learning_starts": observations,
            "batch_size": request["batch_size"],
            "n_step_return": 1,
            "train_freq": 1,
        },
    }
    tasks.measure_memory(channel, Run(config), imported)


if __name__ == "__main__":
    torch.set_num_threads(1)
    modes: dict[str, Any] = {
        "speed": tasks.speed(build),
        "memory": tasks.memory(build),
        "curve": curve,
        "time-to-bar": time_to_bar,
        "images": images,
    }
    serve(("rl_training", "torch", "numpy", "gymnasium"), modes)

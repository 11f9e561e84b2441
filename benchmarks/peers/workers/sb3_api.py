"""What Stable-Baselines3, sb3-contrib and SBX have in common: the names of the options and ``learn``."""

# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobs import Job
from stable_baselines3.common.callbacks import BaseCallback
from tasks import Array


def options(job: Job) -> dict[str, Any]:
    """Return the options that all of them know by the same names."""
    if job.algo == "prioritized_dqn":
        raise SystemExit("algo: there is no prioritized replay here")
    if job.loss != "huber" and job.algo == "dqn":
        raise SystemExit(f"loss: '{job.loss}' is not to be had here, only huber")
    return {
        "learning_rate": job.learning_rate,
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
    }


class _Hook(BaseCallback):
    """Calls back before every rollout, which is after the updates of the one before."""

    def __init__(self, hook: Callable[[], None]) -> None:
        super().__init__()
        self._hook = hook

    def _on_rollout_start(self) -> None:
        self._hook()

    def _on_step(self) -> bool:
        return True


class ModelRun:
    """A run of a model that has ``learn`` and ``predict``."""

    def __init__(self, model: Any, total: int) -> None:
        self._model, self._total = model, total

    def run(self, hook: Callable[[], None]) -> None:
        self._model.learn(self._total, callback=_Hook(hook), log_interval=None)

    @property
    def steps(self) -> int:
        return int(self._model.num_timesteps)

    @property
    def updates(self) -> int:
        return int(self._model._n_updates)

    def act(self, obs: Array) -> Array:
        actions: Array = self._model.predict(obs, deterministic=True)[0]
        return actions

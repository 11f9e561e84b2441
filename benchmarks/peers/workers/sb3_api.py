"""What Stable-Baselines3, sb3-contrib and SBX have in common: the names of the options and ``learn``."""

# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from job_kinds import ActorCriticJob, AtariJob, Job, OnPolicyJob
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecFrameStack
from tasks import Array


def options(job: Job) -> dict[str, Any]:
    """Return the options that all of them know by the same names."""
    if job.algo == "prioritized_dqn":
        raise SystemExit("algo: there is no prioritized replay here")
    if job.loss != "huber" and job.algo == "dqn":
        raise SystemExit(f"loss: '{job.loss}' is not to be had here, only huber")
    train_freq, gradient_steps = job.train_freq, job.gradient_steps
    if isinstance(job, AtariJob):  # a step of all environments counts as one here
        train_freq, gradient_steps = 1, job.updates_per_vector_step
    return {
        "learning_rate": job.learning_rate,
        "buffer_size": job.buffer_size,
        "learning_starts": job.learning_starts,
        "batch_size": job.batch_size,
        "gamma": job.gamma,
        "train_freq": train_freq,
        "gradient_steps": gradient_steps,
        "target_update_interval": job.target_update_interval,
        "exploration_fraction": job.exploration_fraction,
        "exploration_initial_eps": job.exploration_initial_eps,
        "exploration_final_eps": job.exploration_final_eps,
    }


def actor_critic_options(job: ActorCriticJob) -> dict[str, Any]:
    """Return the options of DDPG, TD3, SAC and CrossQ, in torch or in JAX."""
    names = (
        "batch_size",
        "train_freq",
        "gradient_steps",
        "learning_rate",
        "buffer_size",
        "learning_starts",
        "gamma",
    )
    found = {name: getattr(job, name) for name in names}
    if job.algo != "crossq":
        found["tau"] = job.tau
    if job.algo in ("td3", "crossq"):
        found["policy_delay"] = job.policy_delay
    if job.algo in ("td3", "ddpg"):
        size = gym.make(job.env).action_space.shape or (1,)
        found["action_noise"] = NormalActionNoise(np.zeros(size), 0.1 * np.ones(size))
    return found


def on_policy_options(job: OnPolicyJob) -> dict[str, Any]:
    """Return the options that PPO, recurrent PPO and TRPO know by the same names."""
    return {
        "learning_rate": _linear(job.learning_rate) if job.anneal else job.learning_rate,
        "n_steps": job.n_steps,
        "batch_size": job.batch_size,
        "gamma": job.gamma,
        "gae_lambda": job.gae_lambda,
    }


def ppo_options(job: OnPolicyJob) -> dict[str, Any]:
    """Return the options of PPO, recurrent or not, in torch or in JAX."""
    return {
        **on_policy_options(job),
        "n_epochs": job.n_epochs,
        "clip_range": _linear(job.clip_range) if job.anneal else job.clip_range,
        "ent_coef": job.ent_coef,
        "vf_coef": job.vf_coef,
        "max_grad_norm": job.max_grad_norm,
    }


def _linear(start: float) -> Callable[[float], float]:
    return lambda remaining: remaining * start


def environments(job: OnPolicyJob, seed: int) -> Any:
    """Return the environments of a job, stepped in turn."""
    return make_vec_env(job.env, job.num_envs, seed)


def atari_environments(job: AtariJob, seed: int) -> Any:
    """Return the games of a job, stepped in turn, with the preprocessing of Stable-Baselines3."""
    import ale_py

    gym.register_envs(ale_py)
    wrapper = {"noop_max": job.noop_max, "frame_skip": job.frame_skip, "screen_size": job.image_size}
    games = make_atari_env(
        job.env,
        n_envs=job.num_envs,
        seed=seed,
        wrapper_kwargs=wrapper,
        # The wrapper skips frames itself.
        env_kwargs={"frameskip": 1, "repeat_action_probability": 0.0},
    )
    return VecFrameStack(games, job.frame_stack)


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
    """A run of a model that has ``learn`` and ``predict``, and counts ``counted`` gradient steps as one update."""

    def __init__(self, model: Any, total: int, counted: int = 1) -> None:
        self._model, self._total, self._counted = model, total, counted

    def run(self, hook: Callable[[], None]) -> None:
        self._model.learn(self._total, callback=_Hook(hook), log_interval=None)

    @property
    def steps(self) -> int:
        return int(self._model.num_timesteps)

    @property
    def updates(self) -> int:
        return int(self._model._n_updates) * self._counted

    def act(self, obs: Array) -> Array:
        actions: Array = self._model.predict(obs, deterministic=True)[0]
        return actions

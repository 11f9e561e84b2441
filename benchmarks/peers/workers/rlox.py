"""rlox, with environments and advantages in Rust, as a worker."""

# mypy: allow-subclassing-any, disable-error-code="import-not-found"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import tasks
import torch
from job_kinds import AnyJob, OnPolicyJob
from protocol import serve
from rlox.algorithms.ppo import PPO
from rlox.callbacks import Callback
from rlox.policies import DiscretePolicy

ADAM_EPS = 1e-5
"""Its own, for which it has no option."""


class _Hook(Callback):
    """Counts rollouts and calls back after the updates of each."""

    def __init__(self) -> None:
        self.rollouts = 0
        self.hook: Callable[[], None] = lambda: None

    def on_step(self, **_: Any) -> bool:
        self.rollouts += 1
        self.hook()
        return True


class Run:
    """A run of PPO by its own trainer."""

    def __init__(self, job: OnPolicyJob, total: int, seed: int) -> None:
        torch.manual_seed(seed)
        self._total, self._rollout, self._callback = total, job.rollout, _Hook()
        env = gym.make(job.env)
        assert env.observation_space.shape is not None
        assert isinstance(env.action_space, gym.spaces.Discrete)
        policy = DiscretePolicy(env.observation_space.shape[0], int(env.action_space.n), job.hidden[0])
        self._ppo = PPO(
            job.env,
            n_envs=job.num_envs,
            seed=seed,
            policy=policy,
            callbacks=[self._callback],
            n_steps=job.n_steps,
            n_epochs=job.n_epochs,
            batch_size=job.batch_size,
            learning_rate=job.learning_rate,
            clip_eps=job.clip_range,
            vf_coef=2.0 * job.vf_coef,  # its value loss is half the mean square
            ent_coef=job.ent_coef,
            max_grad_norm=job.max_grad_norm,
            gamma=job.gamma,
            gae_lambda=job.gae_lambda,
            normalize_advantages=True,
            clip_vloss=False,
            anneal_lr=False,
        )

    def run(self, hook: Callable[[], None]) -> None:
        self._callback.hook = hook
        self._ppo.train(self._total)

    @property
    def steps(self) -> int:
        return self._callback.rollouts * self._rollout

    @property
    def updates(self) -> int:
        return int(self._ppo._global_step)

    def act(self, obs: tasks.Array) -> tasks.Array:
        actions: tasks.Array = self._ppo.predict(obs).numpy()
        return actions


def build(job: AnyJob, total: int, seed: int) -> Run:
    if not isinstance(job, OnPolicyJob) or job.algo != "ppo":
        raise SystemExit(f"algo: '{job.algo}' is not measured here")
    if len(job.hidden) != 2 or job.hidden[0] != job.hidden[1] or job.adam_eps != ADAM_EPS or job.anneal:
        raise SystemExit(
            "job: two hidden layers of one size, Adam's epsilon 1e-5, and no annealed clip range"
        )
    return Run(job, total, seed)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(("rlox", "torch", "numpy", "gymnasium"), tasks.handlers(build))

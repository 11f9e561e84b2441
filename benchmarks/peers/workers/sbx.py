"""SBX, Stable-Baselines3 in JAX, as a worker."""

# mypy: allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import tasks
import torch
from job_kinds import ActorCriticJob, AnyJob, OnPolicyJob
from protocol import serve
from sbx import DDPG, DQN, PPO, SAC, TD3, CrossQ
from sbx.common.type_aliases import RLTrainState
from sbx.dqn.policies import DQNPolicy

from workers.sb3_api import ModelRun, actor_critic_options, environments, options, ppo_options

ACTOR_CRITICS = {"sac": SAC, "td3": TD3, "ddpg": DDPG, "crossq": CrossQ}


def linear(inputs: int, outputs: int) -> Any:
    """Return a layer that begins as torch's do, weights and biases uniform; by its own, job A diverges."""
    bound = 1 / math.sqrt(inputs)

    def uniform(key: Any, shape: Any, dtype: Any = jnp.float32) -> Any:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return nn.Dense(outputs, kernel_init=uniform, bias_init=uniform)


class QNetwork(nn.Module):
    """Like SBX's own, whose hidden layers are two of the same size."""

    hidden: tuple[int, ...]
    num_actions: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for size in self.hidden:
            x = nn.relu(linear(x.shape[-1], size)(x))
        return linear(x.shape[-1], self.num_actions)(x)


class Policy(DQNPolicy):
    """SBX's own with any hidden sizes."""

    def __init__(self, *args: Any, net_arch: list[int], **kwargs: Any) -> None:
        super().__init__(*args, net_arch=net_arch, **kwargs)
        self._hidden = tuple(net_arch)

    def build(self, key: Any, lr_schedule: Any) -> Any:
        key, own = jax.random.split(key, 2)
        obs = jnp.array([self.observation_space.sample()])
        self.qf = QNetwork(self._hidden, int(self.action_space.n))
        self.qf_state = RLTrainState.create(
            apply_fn=self.qf.apply,
            params=self.qf.init({"params": own}, obs),
            target_params=self.qf.init({"params": own}, obs),
            tx=self.optimizer_class(learning_rate=lr_schedule(1), **self.optimizer_kwargs),
        )
        self.qf.apply = jax.jit(self.qf.apply)
        return key


def clipped_adam(learning_rate: float, eps: float, max_grad_norm: float) -> Any:
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.adam(learning_rate, eps=eps))


def build(job: AnyJob, total: int, seed: int) -> ModelRun:
    if isinstance(job, ActorCriticJob) and job.algo in ACTOR_CRITICS:
        arch = {"net_arch": {"pi": list(job.hidden), "qf": list(job.hidden)}}
        learner: Any = ACTOR_CRITICS[job.algo]
        found = learner("MlpPolicy", job.env, seed=seed, policy_kwargs=arch, **actor_critic_options(job))
        return ModelRun(found, total)
    if isinstance(job, ActorCriticJob) or job.algo not in ("dqn", "ppo"):
        raise SystemExit(f"algo: '{job.algo}' is not to be had here")
    if isinstance(job, OnPolicyJob):
        # Layers of any size, tanh and gradient clipping are its own here.
        small = {"net_arch": list(job.hidden), "ortho_init": True, "optimizer_kwargs": {"eps": job.adam_eps}}
        model = PPO("MlpPolicy", environments(job, seed), seed=seed, policy_kwargs=small, **ppo_options(job))
        return ModelRun(model, total, job.minibatches)
    policy = {
        "net_arch": list(job.hidden),
        "optimizer_class": clipped_adam,
        "optimizer_kwargs": {"eps": job.adam_eps, "max_grad_norm": job.max_grad_norm},
    }
    return ModelRun(DQN(Policy, job.env, seed=seed, policy_kwargs=policy, **options(job)), total)


if __name__ == "__main__":
    torch.set_num_threads(1)  # the replay is that of Stable-Baselines3
    names = ("sbx-rl", "stable_baselines3", "jax", "jaxlib", "flax", "optax", "torch", "numpy", "gymnasium")
    serve(names, tasks.handlers(build))

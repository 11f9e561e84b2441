"""What tests of the on-policy learners share: learners as a run builds them, and rollouts of made-up environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rl_training.algorithms.spec import BuildContext
from rl_training.data.rollout_buffer import Rollout, RolloutBuffer
from rl_training.data.transitions import Transitions, carry_on
from rl_training.experiment.configs import load_config
from rl_training.experiment.registry import get
from rl_training.observations import ObsSpec
from rl_training.runtime.streams import Streams
from rl_training.spaces import ActionSpec, ContinuousActions, DiscreteActions

BOX = ContinuousActions(np.full(2, -2.0, np.float32), np.full(2, 2.0, np.float32))


def make_learner(
    algo: str = "ppo",
    actions: ActionSpec | None = None,
    *,
    num_envs: int = 2,
    hidden: tuple[int, ...] = (8,),
    obs_size: int = 3,
    total: int = 10_000,
    seed: int = 0,
    activation: str = "tanh",
    normalize_obs: bool = False,
    **options: Any,
) -> Any:
    """Build a learner as a run does; ``options`` are its hyper-parameters."""
    config = load_config(
        {
            "algo": algo,
            "env": {"id": "CartPole-v1", "num_envs": num_envs},
            "total_timesteps": total,
            "algo_kwargs": {"n_steps": 8, **options},
            "network": {
                "hidden_sizes": list(hidden),
                "activation": activation,
                "normalize_obs": normalize_obs,
            },
        }
    )
    torch.manual_seed(seed)
    spaces = ObsSpec((obs_size,), np.dtype(np.float32)), actions or DiscreteActions(3)
    context = BuildContext(config, *spaces, Streams(seed), torch.device("cpu"))
    learner: Any = get(algo).build_learner(context)
    learner.experience = get(algo).build_experience(context)
    return learner


def collect(
    learner: Any,
    count: int = 1,
    *,
    seed: int = 0,
    ends: float = 0.2,
    masked: bool = False,
    scale: float = 1.0,
) -> list[Rollout]:
    """Let a learner act among random observations, and return what its experience deals out."""
    buffer: RolloutBuffer = learner.experience
    rng, envs = np.random.default_rng(seed), buffer.num_envs
    obs_size = buffer._obs.shape[2]
    obs = scale * rng.normal(size=(envs, obs_size)).astype(np.float32)
    carry = learner.initial_carry(envs)
    dealt: list[Rollout] = []
    while len(dealt) < count:
        mask = None
        if masked:
            mask = rng.random((envs, learner.head.size)) < 0.6
            mask[:, 0] = True
        decision = learner.act(obs, carry, explore=True, mask=mask)
        terminated, truncated = rng.random((2, envs)) < ends / 2
        next_obs = scale * rng.normal(size=obs.shape).astype(np.float32)
        reward = rng.normal(size=envs)
        buffer.add(
            Transitions(
                np.arange(envs),
                obs,
                decision.action,
                reward,
                next_obs,
                terminated,
                truncated,
                None,
                carry,
                mask,
            )
        )
        done = terminated | truncated
        carry = None if carry is None else carry_on(decision.carry, reward, done)
        obs = np.where(done[:, None], scale * rng.normal(size=obs.shape), next_obs).astype(np.float32)
        dealt += list(buffer.batches(0))
    return dealt


def parameters_of(learner: Any) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1).clone() for p in learner.network.parameters()])

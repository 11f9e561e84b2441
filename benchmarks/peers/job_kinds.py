"""What a job can be: a run of DQN's family, of PPO's, or of an actor-critic; standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """A run of the DQN family on a vector environment; every frequency counts env steps."""

    algo: str = "dqn"
    """``dqn``, ``qr_dqn`` or ``prioritized_dqn``."""
    env: str = "CartPole-v1"
    num_envs: int = 1
    hidden: tuple[int, ...] = (120, 84)
    batch_size: int = 128
    train_freq: int = 10
    gradient_steps: int = 1
    learning_rate: float = 2.5e-4
    adam_eps: float = 1e-8
    max_grad_norm: float = 10.0
    buffer_size: int = 10_000
    learning_starts: int = 1_000
    target_update_interval: int = 500
    gamma: float = 0.99
    exploration_fraction: float = 0.1
    exploration_initial_eps: float = 1.0
    exploration_final_eps: float = 0.05
    loss: str = "huber"
    """Of ``dqn`` and ``prioritized_dqn``: ``huber`` or ``mse``."""
    num_quantiles: int = 51
    alpha: float = 0.6
    beta: float = 0.4

    @property
    def updates_per_step(self) -> float:
        return self.gradient_steps / self.train_freq

    def epsilon(self, steps: int, total: int) -> float:
        """Return the share of random actions after ``steps`` of a run of ``total``."""
        progress = min(steps / (self.exploration_fraction * total), 1.0)
        return self.exploration_initial_eps + progress * (
            self.exploration_final_eps - self.exploration_initial_eps
        )


@dataclass(frozen=True)
class OnPolicyJob:
    """A run of the PPO family on a vector environment, in rollouts of ``n_steps`` steps of each environment."""

    algo: str = "ppo"
    """``ppo``, ``recurrent_ppo`` or ``trpo``."""
    env: str = "CartPole-v1"
    num_envs: int = 8
    native: bool = False
    """Ours steps the vector environment that the id registers; the peers step single ones in turn."""
    hidden: tuple[int, ...] = (64, 64)
    """Of actor and critic each, with tanh; of ``recurrent_ppo`` behind the LSTM that they share."""
    lstm: int = 64
    n_steps: int = 32
    batch_size: int = 256
    n_epochs: int = 20
    """Passes over a rollout; of ``trpo`` those of the critic."""
    learning_rate: float = 1e-3
    adam_eps: float = 1e-5
    max_grad_norm: float | None = 0.5
    gamma: float = 0.98
    gae_lambda: float = 0.8
    clip_range: float = 0.2
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    anneal: bool = False
    """Take learning rate and clip range linearly to 0."""
    target_kl: float = 0.01
    cg_max_steps: int = 15
    cg_damping: float = 1e-3

    @property
    def rollout(self) -> int:
        return self.n_steps * self.num_envs

    @property
    def minibatches(self) -> int:
        return math.ceil(self.rollout / self.batch_size)

    @property
    def updates_per_rollout(self) -> int:
        """Return the gradient steps of a rollout; the policy's own step of ``trpo`` is one more."""
        return self.n_epochs * self.minibatches + (self.algo == "trpo")

    @property
    def updates_per_step(self) -> float:
        return self.updates_per_rollout / self.rollout


@dataclass(frozen=True)
class ActorCriticJob:
    """A run of an actor-critic with replay on a vector environment; every frequency counts env steps."""

    algo: str = "sac"
    """``ddpg``, ``td3``, ``sac``, ``crossq`` or ``discrete_sac``."""
    env: str = "Pendulum-v1"
    num_envs: int = 1
    hidden: tuple[int, ...] = (256, 256)
    """Of actor and critics each, with ReLU."""
    batch_size: int = 256
    train_freq: int = 1
    gradient_steps: int = 1
    learning_rate: float = 3e-4
    buffer_size: int = 100_000
    learning_starts: int = 1_000
    gamma: float = 0.99
    tau: float = 0.005
    policy_delay: int = 1
    """Of ``td3`` and ``crossq``."""
    ent_coef: float | None = None
    """Of ``discrete_sac``: a fixed temperature; none learns it."""
    threads: int = 1
    """Of ours; the peers take what they take."""

    @property
    def updates_per_step(self) -> float:
        return self.gradient_steps / self.train_freq


@dataclass(frozen=True)
class AtariJob(Job):
    """A run of DQN on an Atari game as Mnih et al. 2015 preprocess it, with their convolutions.

    The defaults are the settings of the RL-Zoo, as ``dqn/pong`` has them.
    """

    env: str = "ALE/Pong-v5"
    num_envs: int = 8
    hidden: tuple[int, ...] = (512,)
    """Behind the convolutions."""
    batch_size: int = 32
    train_freq: int = 4
    learning_rate: float = 1e-4
    buffer_size: int = 100_000
    learning_starts: int = 100_000
    target_update_interval: int = 1_000
    exploration_final_eps: float = 0.01
    frame_skip: int = 4
    frame_stack: int = 4
    image_size: int = 84
    noop_max: int = 30

    @property
    def updates_per_vector_step(self) -> int:
        """Return the updates that one step of all environments earns; Stable-Baselines3 counts in those."""
        updates, rest = divmod(self.num_envs * self.gradient_steps, self.train_freq)
        if rest:
            raise ValueError(
                f"num_envs: {self.num_envs} environments with an update every {self.train_freq} steps earn no whole "
                "number of updates in a step of all of them"
            )
        return updates


AnyJob = Job | OnPolicyJob | ActorCriticJob


def read_job(data: Mapping[str, Any]) -> AnyJob:
    """Return the job that ``dataclasses.asdict`` made this of."""
    kinds: dict[str, type[AnyJob]] = {"n_steps": OnPolicyJob, "tau": ActorCriticJob, "frame_stack": AtariJob}
    kind: type[AnyJob] = next((kind for key, kind in kinds.items() if key in data), Job)
    return kind(**{**data, "hidden": tuple(data["hidden"])})

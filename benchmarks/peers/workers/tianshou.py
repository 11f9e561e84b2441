"""Tianshou as a worker, by its trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import tasks
import torch
from job_kinds import ActorCriticJob, AnyJob, Job, OnPolicyJob
from protocol import serve
from tianshou.algorithm.modelfree.discrete_sac import DiscreteSAC, DiscreteSACPolicy
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.qrdqn import QRDQN, QRDQNPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, PrioritizedReplayBuffer, ReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic


class _Clipped:
    """Lets a Q-learning algorithm cut its gradients, for which it has no option."""

    max_grad_norm: float

    def _create_policy_optimizer(self, optim: Any) -> Any:
        this: Any = self
        return this._create_optimizer(this.policy, optim, max_grad_norm=self.max_grad_norm)


def algorithm(job: Job, env: gym.Env[Any, Any]) -> Any:
    base: Any = QRDQN if job.algo == "qr_dqn" else DQN
    policy_class: Any = QRDQNPolicy if job.algo == "qr_dqn" else DiscreteQLearningPolicy
    assert isinstance(env.action_space, gym.spaces.Discrete)
    network = Net(
        state_shape=env.observation_space.shape,
        action_shape=int(env.action_space.n),
        hidden_sizes=list(job.hidden),
        **({"num_atoms": job.num_quantiles} if job.algo == "qr_dqn" else {}),
    )
    if job.algo == "qr_dqn":
        own: dict[str, Any] = {"num_quantiles": job.num_quantiles}
    else:
        own = {"is_double": False, "huber_loss_delta": 1.0 if job.loss == "huber" else None}
    clipped = type("Clipped", (_Clipped, base), {"max_grad_norm": job.max_grad_norm})
    return clipped(
        policy=policy_class(
            model=network, action_space=env.action_space, observation_space=env.observation_space
        ),
        optim=AdamOptimizerFactory(lr=job.learning_rate, eps=job.adam_eps),
        gamma=job.gamma,
        target_update_freq=round(job.target_update_interval * job.updates_per_step),  # it counts updates
        **own,
    )


def discrete_sac(job: ActorCriticJob, env: gym.Env[Any, Any]) -> Any:
    assert isinstance(env.action_space, gym.spaces.Discrete)
    count = int(env.action_space.n)

    def body() -> Net:
        return Net(state_shape=env.observation_space.shape, hidden_sizes=list(job.hidden))

    optim = AdamOptimizerFactory(lr=job.learning_rate)
    actor = DiscreteActor(preprocess_net=body(), action_shape=count, softmax_output=False)
    assert job.ent_coef is not None
    return DiscreteSAC(
        policy=DiscreteSACPolicy(actor=actor, action_space=env.action_space),
        policy_optim=optim,
        critic=DiscreteCritic(preprocess_net=body(), last_size=count),
        critic_optim=optim,
        critic2=DiscreteCritic(preprocess_net=body(), last_size=count),
        critic2_optim=optim,
        tau=job.tau,
        gamma=job.gamma,
        alpha=job.ent_coef,
    )


class TrainerRun:
    """A run of the trainer: random steps first, then rounds of ``train_freq`` steps and their updates."""

    def __init__(self, job: Job | ActorCriticJob, total: int, seed: int) -> None:
        np.random.seed(seed)
        torch.manual_seed(seed)
        self._job, self._total = job, total
        env = gym.make(job.env)
        self._algorithm: Any = algorithm(job, env) if isinstance(job, Job) else discrete_sac(job, env)
        self._updates, update = 0, self._algorithm._update_with_batch

        def counted(batch: Any) -> Any:  # not all algorithms count themselves
            self._updates += 1
            return update(batch)

        self._algorithm._update_with_batch = counted
        self._envs = DummyVectorEnv([lambda: gym.make(job.env)])
        self._envs.seed(seed)
        self._buffer: Any = (
            PrioritizedReplayBuffer(job.buffer_size, alpha=job.alpha, beta=job.beta)
            if isinstance(job, Job) and job.algo == "prioritized_dqn"
            else ReplayBuffer(job.buffer_size)
        )
        self._steps = 0

    def run(self, hook: Callable[[], None]) -> None:
        job = self._job
        collector: Any = Collector(self._algorithm, self._envs, self._buffer, exploration_noise=True)
        collector.reset()
        collector.collect(n_step=job.learning_starts, random=True)

        def between_rounds(epoch: int, steps: int) -> None:
            self._steps = job.learning_starts + steps
            if isinstance(job, Job):
                self._algorithm.policy.set_eps_training(job.epsilon(self._steps, self._total))
            hook()

        self._algorithm.run_training(
            OffPolicyTrainerParams(
                training_collector=collector,
                training_fn=between_rounds,
                max_epochs=1,
                epoch_num_steps=self._total - job.learning_starts,
                collection_step_num_env_steps=job.train_freq,
                batch_size=job.batch_size,
                update_step_num_gradient_steps_per_sample=job.updates_per_step,
                verbose=False,
                show_progress=False,
            )
        )
        self._steps = self._total

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def updates(self) -> int:
        return self._updates

    def act(self, obs: tasks.Array) -> tasks.Array:
        with torch.no_grad():
            actions: tasks.Array = self._algorithm.policy(Batch(obs=obs, info={})).act
        return actions


def build(job: AnyJob, total: int, seed: int) -> TrainerRun:
    if isinstance(job, OnPolicyJob) or (isinstance(job, ActorCriticJob) and job.algo != "discrete_sac"):
        raise SystemExit(f"algo: '{job.algo}' is not measured here")
    if isinstance(job, Job) and job.algo == "prioritized_dqn" and job.loss == "huber":
        raise SystemExit("loss: with huber, the weights of prioritized replay are left out; take mse")
    return TrainerRun(job, total, seed)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(("tianshou", "torch", "numpy", "numba", "gymnasium"), tasks.handlers(build))

"""Stable-Baselines3 and sb3-contrib as a worker."""

from __future__ import annotations

from typing import Any

import tasks
import torch
from images import stacked_channels, stacked_grey
from job_kinds import ActorCriticJob, AnyJob, AtariJob, OnPolicyJob
from protocol import Channel, peak_rss, serve
from sb3_contrib import QRDQN, TRPO, CrossQ, RecurrentPPO
from stable_baselines3 import DDPG, DQN, PPO, SAC, TD3

from workers.sb3_api import (
    ModelRun,
    actor_critic_options,
    atari_environments,
    environments,
    on_policy_options,
    options,
    ppo_options,
)

ACTOR_CRITICS = {"sac": SAC, "td3": TD3, "ddpg": DDPG, "crossq": CrossQ}


def build(job: AnyJob, total: int, seed: int) -> ModelRun:
    if isinstance(job, OnPolicyJob):
        return on_policy(job, total, seed)
    if isinstance(job, ActorCriticJob):
        arch = {"net_arch": {"pi": list(job.hidden), "qf": list(job.hidden)}}
        learner: Any = ACTOR_CRITICS[job.algo]
        found = learner(
            "MlpPolicy", job.env, seed=seed, device="cpu", policy_kwargs=arch, **actor_critic_options(job)
        )
        return ModelRun(found, total)
    policy: dict[str, Any] = {
        "net_arch": list(job.hidden),
        "optimizer_class": torch.optim.Adam,
        "optimizer_kwargs": {"eps": job.adam_eps},
    }
    model: type[Any] = DQN
    if job.algo == "qr_dqn":
        model, policy["n_quantiles"] = QRDQN, job.num_quantiles
    settings = {**options(job), "max_grad_norm": job.max_grad_norm, "policy_kwargs": policy}
    if isinstance(job, AtariJob):
        # The first hidden layer belongs to what comes behind the convolutions there.
        policy.update(
            net_arch=list(job.hidden[1:]), features_extractor_kwargs={"features_dim": job.hidden[0]}
        )
        games = atari_environments(job, seed)
        return ModelRun(model("CnnPolicy", games, seed=seed, device="cpu", **settings), total)
    return ModelRun(model("MlpPolicy", job.env, seed=seed, device="cpu", **settings), total)


def on_policy(job: OnPolicyJob, total: int, seed: int) -> ModelRun:
    policy: dict[str, Any] = {
        "net_arch": list(job.hidden),
        "activation_fn": torch.nn.Tanh,
        "optimizer_kwargs": {"eps": job.adam_eps},
    }
    common = {"env": environments(job, seed), "seed": seed, "device": "cpu", "policy_kwargs": policy}
    if job.algo == "trpo":
        own = {
            "n_critic_updates": job.n_epochs,
            "target_kl": job.target_kl,
            "cg_max_steps": job.cg_max_steps,
            "cg_damping": job.cg_damping,
        }
        # It counts rollouts, the others epochs.
        return ModelRun(
            TRPO("MlpPolicy", **common, **on_policy_options(job), **own), total, job.updates_per_rollout
        )
    model, name = PPO, "MlpPolicy"
    if job.algo == "recurrent_ppo":
        model, name = RecurrentPPO, "MlpLstmPolicy"
        policy.update(lstm_hidden_size=job.lstm, shared_lstm=True, enable_critic_lstm=False)
    return ModelRun(model(name, **common, **ppo_options(job)), total, job.minibatches)


def images(channel: Channel, request: dict[str, Any]) -> None:
    """Fill the replay of DQN or TD3; ``shared`` asks it to keep every observation once, not also as the next one."""
    imported, observations = peak_rss(), request["observations"]
    total = observations + request["updates"]
    shared: dict[str, Any] = {
        "optimize_memory_usage": True,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    }
    learner: type[Any] = DQN if request["algo"] == "dqn" else TD3
    model = learner(
        "CnnPolicy",
        stacked_grey() if request["algo"] == "dqn" else stacked_channels(),
        buffer_size=observations,
        learning_starts=observations,
        batch_size=request["batch_size"],
        train_freq=1,
        gradient_steps=1,
        device="cpu",
        **(shared if request["shared"] else {}),
    )
    tasks.measure_memory(channel, ModelRun(model, total), imported)


if __name__ == "__main__":
    torch.set_num_threads(1)
    names = ("stable_baselines3", "sb3_contrib", "torch", "numpy", "gymnasium")
    atari = ("ale-py", "opencv-python-headless")
    serve(names, {**tasks.handlers(build), "images": images}, optional=atari)

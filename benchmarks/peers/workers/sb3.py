"""Stable-Baselines3 and sb3-contrib as a worker."""

from __future__ import annotations

from typing import Any

import tasks
import torch
from images import stacked_channels
from jobs import Job
from protocol import Channel, peak_rss, serve
from sb3_contrib import QRDQN
from stable_baselines3 import DQN, TD3

from workers.sb3_api import ModelRun, options


def build(job: Job, total: int, seed: int) -> ModelRun:
    policy: dict[str, Any] = {
        "net_arch": list(job.hidden),
        "optimizer_class": torch.optim.Adam,
        "optimizer_kwargs": {"eps": job.adam_eps},
    }
    model: type[Any] = DQN
    if job.algo == "qr_dqn":
        model, policy["n_quantiles"] = QRDQN, job.num_quantiles
    settings = {**options(job), "max_grad_norm": job.max_grad_norm, "policy_kwargs": policy}
    return ModelRun(model("MlpPolicy", job.env, seed=seed, device="cpu", **settings), total)


def images(channel: Channel, request: dict[str, Any]) -> None:
    """Fill the replay of TD3; ``shared`` asks it to keep every observation once, not also as the next one."""
    imported, observations = peak_rss(), request["observations"]
    total = observations + request["updates"]
    shared: dict[str, Any] = {
        "optimize_memory_usage": True,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    }
    model = TD3(
        "CnnPolicy",
        stacked_channels(),
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
    serve(names, {**tasks.handlers(build), "images": images})

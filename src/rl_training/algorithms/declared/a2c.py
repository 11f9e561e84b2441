"""A2C, declared: PPO with one step on each rollout, where the surrogate is nothing but the policy gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from rl_training.algorithms.declared import ppo
from rl_training.config.schema import Count, Fraction, PositiveFloat


class A2CConfig(ppo.PPOConfig):
    """Hyper-parameters of A2C."""

    learning_rate: PositiveFloat = 7e-4
    n_steps: Count = 5
    batch_size: None = None
    n_epochs: Literal[1] = 1
    gae_lambda: Fraction = 1.0
    normalize_advantage: bool = False


SPEC = replace(
    ppo.SPEC,
    name="a2c",
    class_name="A2C",
    title="A2C",
    summary="advantage actor-critic: one gradient step per rollout, by Adam",
    paper="Mnih et al. 2016, Asynchronous methods for deep reinforcement learning",
    url="https://arxiv.org/abs/1602.01783",
    config=A2CConfig,
    smallest={**ppo.SMALLEST, "algo_kwargs": {"learning_rate": 1e-2}},
)

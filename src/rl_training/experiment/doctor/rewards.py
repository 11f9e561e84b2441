"""What the rewards of an environment are like."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.algorithms.declared.c51 import C51Config
from rl_training.config import ExperimentConfig
from rl_training.experiment.doctor.findings import Section
from rl_training.experiment.doctor.sampling import Sample
from rl_training.spaces import Array

LARGE_REWARD, SMALL_REWARD = 100.0, 1e-3
"""Sizes beyond which values are slow to learn."""


def check_rewards(config: ExperimentConfig[Any], sample: Sample, section: Section) -> None:
    """Add what a sample says of the size and the sign of rewards, and of the support of a categorical critic."""
    _size(config, sample, section)
    _sign(config, sample, section)


def _size(config: ExperimentConfig[Any], sample: Sample, section: Section) -> None:
    reward = sample.reward
    paid = reward[reward != 0.0]
    if not len(paid):
        section.add(
            "note",
            "rewards",
            f"random actions earned none in {len(reward)} steps: finding the first one takes exploration",
        )
        return
    size = float(np.sqrt((paid**2).mean()))
    share = len(paid) / len(reward)
    told = f"from {float(reward.min()):.3g} to {float(reward.max()):.3g}, {share:.0%} of the steps have one"
    options: Any = config.algo_kwargs
    scaled = any(getattr(options, name, False) for name in ("normalize_reward", "value_rescaling"))
    scaled = scaled or getattr(options, "reward_scale", 1.0) != 1.0 or isinstance(options, C51Config)
    if not scaled and not SMALL_REWARD <= size <= LARGE_REWARD:
        remedy = (
            "algo_kwargs.normalize_reward=true"
            if hasattr(options, "normalize_reward")
            else "the wrapper TransformReward, or a smaller unit in the environment"
        )
        section.add(
            "warning",
            "rewards",
            f"{told}; {size:.3g} in size, which makes values that are slow to learn",
            remedy,
            "reward_scale",
        )
    else:
        section.add("ok", "rewards", told)
    _support(config, sample, section)


def _support(config: ExperimentConfig[Any], sample: Sample, section: Section) -> None:
    options: Any = config.algo_kwargs
    if not isinstance(options, C51Config):
        return
    returns = discounted(sample, options.gamma)
    if not len(returns):
        return
    low, high = float(returns.min()), float(returns.max())
    width = options.v_max - options.v_min
    told = (
        f"discounted returns of random actions are {low:.3g} to {high:.3g}, the support is "
        f"{options.v_min:g} to {options.v_max:g}"
    )
    if low < options.v_min - 0.01 * width or high > options.v_max + 0.01 * width:
        section.add(
            "problem",
            "support",
            told,
            "widen algo_kwargs.v_min and v_max; those of a good policy are further out still",
            "support",
        )
    elif max(abs(low), abs(high)) < 0.002 * width:
        section.add(
            "warning",
            "support",
            f"{told}: they lie between two or three atoms",
            "narrow algo_kwargs.v_min and v_max",
            "support",
        )
    else:
        section.add("ok", "support", told)


def discounted(sample: Sample, gamma: float) -> Array:
    """Return the discounted return from every step of the finished episodes."""
    found = []
    for episode in sample.episodes():
        value = 0.0
        for reward in sample.reward[episode][::-1]:
            value = float(reward) + gamma * value
            found.append(value)
    return np.array(found)


def _sign(config: ExperimentConfig[Any], sample: Sample, section: Section) -> None:
    """Look for rewards of the wrong sign, where the environment says what counts as solved."""
    threshold = _threshold(config)
    if threshold is None or not len(sample.episodes()):
        return
    best, worst = float(sample.reward.max()), float(sample.reward.min())
    returns = np.array([sample.reward[episode].sum() for episode in sample.episodes()])
    if threshold > 0.0 and best <= 0.0 and worst < 0.0:
        text = (
            f"no reward was above {best:g}, but the environment counts as solved at a return of {threshold:g}"
        )
    elif threshold < 0.0 and worst >= 0.0 and best > 0.0:
        text = (
            f"no reward was below {worst:g}, but the environment counts as solved at a return of "
            f"{threshold:g}, which a random policy beats with {returns.mean():.3g}"
        )
    else:
        return
    section.add(
        "problem",
        "sign of rewards",
        text,
        "check the sign of the reward, also in wrappers: returns are maximised",
        "sign",
    )


def _threshold(config: ExperimentConfig[Any]) -> float | None:
    spec = gym.registry.get(config.env.id.rpartition(":")[2])
    found = None if spec is None else spec.reward_threshold
    return None if found is None else float(found)

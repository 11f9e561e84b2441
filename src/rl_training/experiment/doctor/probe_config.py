"""A user's config made small enough for a probe: budgets and sizes shrink, settings that decide how it learns stay."""

from __future__ import annotations

import math
from typing import Any

from rl_training.algorithms.catalogue import experiment, find
from rl_training.algorithms.declared.c51 import C51Config
from rl_training.algorithms.declared.ppo import ClippedConfig
from rl_training.algorithms.declared.sac import TemperatureOptions
from rl_training.algorithms.options import MemoryOptions, ReplayOptions, RolloutOptions
from rl_training.config import ExperimentConfig
from rl_training.experiment.doctor.probe_env import Rewards

UPDATES = 600
"""Gradient steps of a probe at the usual learning rates; smaller rates get more of them."""
_MAX_UNITS = 256
_MAX_BATCH = 64
_MAX_SEQUENCES = 16
"""Also of images, for algorithms that take nothing else."""
_MAX_UNITS_OF_IMAGES = 64
_MAX_ROLLOUT = 256
_MAX_ENVS = 8
_SYNCS = 30
"""Target updates, or time constants of a slow target, that are enough for a probe."""


def updates_for(config: ExperimentConfig[Any], *, acting: bool = False) -> int:
    """Return how many gradient steps a probe may take; where it is about ``acting``, the actor may need more."""
    patience = min(max(5e-4 / config.algo_kwargs.learning_rate, 1.0), 4.0)
    if acting:
        patience *= 1.5 * min(getattr(config.algo_kwargs, "policy_delay", 1), 3)
    return int(UPDATES * patience)


def updates_of_run(config: ExperimentConfig[Any]) -> float:
    """Return about how many gradient steps the whole run takes."""
    options: Any = config.algo_kwargs
    if isinstance(options, ReplayOptions):
        learning = max(config.total_timesteps - options.learning_starts, 0)
        return learning / options.train_freq * options.gradient_steps
    if isinstance(options, RolloutOptions):
        rollout = options.n_steps * config.env.num_envs
        size = min(getattr(options, "batch_size", None) or rollout, rollout)
        passes = getattr(options, "n_epochs", getattr(options, "n_critic_updates", 1))
        return config.total_timesteps / rollout * passes * math.ceil(rollout / size)
    return math.inf


def rewards_for(config: ExperimentConfig[Any]) -> Rewards:
    """Return rewards of 1 and 0, larger ones beside a bonus for entropy, or such that a fixed support can express."""
    options: Any = config.algo_kwargs
    if not isinstance(options, C51Config):
        return Rewards(max(1.0, 4.0 * _temperature(options)))
    furthest = options.v_max if options.v_max >= -options.v_min else options.v_min
    mark = 0.7 * furthest
    zero = min(max(0.0, options.v_min), options.v_max)
    return Rewards(mark, zero) if mark > zero else Rewards(zero, mark)


def _temperature(options: Any) -> float:
    """Return the weight of the entropy at the start, beside which rewards should not be small."""
    if not isinstance(options, TemperatureOptions):
        return 0.0
    return options.ent_coef_init if options.ent_coef == "auto" else options.ent_coef


def chain_length(config: ExperimentConfig[Any]) -> int:
    """Return the steps of an episode over which values have to be bootstrapped."""
    return int(getattr(config.algo_kwargs, "n_step_return", 2)) + 1


def probe_config(config: ExperimentConfig[Any], updates: int) -> ExperimentConfig[Any]:
    """Return a config for a run of about so many gradient steps."""
    data = config.model_dump(mode="json")
    options: Any = config.algo_kwargs
    envs = min(config.env.num_envs, _MAX_ENVS)
    changed: dict[str, Any] = {}
    if isinstance(options, ReplayOptions):
        total = _shrink_replay(config, options, updates, envs, changed)
    elif isinstance(options, RolloutOptions):
        total = _shrink_rollouts(options, updates, envs, changed)
    else:
        total = config.total_timesteps
    data["algo_kwargs"].update(changed)
    data.update(
        env={"id": "probe", "num_envs": envs},
        total_timesteps=-(-total // envs) * envs,
        schedule_timesteps=None,
        device="cpu",
        threads=1,
        evaluation={},
        checkpoint={},
        logging={},
    )
    _shrink_network(data["network"], _MAX_UNITS_OF_IMAGES if _images_only(config) else _MAX_UNITS)
    return experiment(data)


def _shrink_replay(
    config: ExperimentConfig[Any], options: ReplayOptions, updates: int, envs: int, changed: dict[str, Any]
) -> int:
    heavy = isinstance(config.algo_kwargs, MemoryOptions) or _images_only(config)
    batch = min(options.batch_size, _MAX_SEQUENCES if heavy else _MAX_BATCH)
    per_step = max(options.gradient_steps / options.train_freq, 0.25)
    every = max(1, min(options.train_freq, round(16 / per_step), 16))
    gradient_steps = max(1, round(every * per_step))
    starts = min(options.learning_starts, 200)
    total = starts + math.ceil(updates / gradient_steps) * every + every
    room = 4 * getattr(options, "sequence_length", 1) * envs + 2_000
    changed.update(
        batch_size=batch,
        train_freq=every,
        gradient_steps=gradient_steps,
        learning_starts=starts,
        buffer_size=min(options.buffer_size, max(total + room, batch)),
    )
    share = (updates / max(updates_of_run(config), 1.0)) if config.total_timesteps else 1.0
    if (interval := getattr(options, "target_update_interval", None)) is not None and share < 1.0:
        # As many target updates as the run has, but no more than a probe needs.
        changed["target_update_interval"] = max(
            1, min(interval, max(total // _SYNCS, round(interval * share)))
        )
    whole = interval is not None and options.tau == 1.0
    if not whole and options.tau * updates < _SYNCS and "tau" not in getattr(options, "absent", ()):
        changed["tau"] = min(1.0, max(options.tau, min(options.tau / max(share, 1e-9), _SYNCS / updates)))
    if (duration := getattr(options, "std_duration", None)) is not None:
        changed["std_duration"] = max(1, min(duration, round(duration * total / config.total_timesteps)))
    return total


def _shrink_rollouts(options: RolloutOptions, updates: int, envs: int, changed: dict[str, Any]) -> int:
    steps = max(1, min(options.n_steps, _MAX_ROLLOUT // envs))
    rollout = steps * envs
    size = getattr(options, "batch_size", None)
    changed["n_steps"] = steps
    if size is not None:
        size = changed["batch_size"] = max(1, min(size, _MAX_BATCH, rollout))
    passes = getattr(options, "n_epochs", 1)
    each = passes * math.ceil(rollout / (size or rollout)) if isinstance(options, ClippedConfig) else 4
    return max(rollout * math.ceil(updates / each), 4 * rollout)


def _images_only(config: ExperimentConfig[Any]) -> bool:
    """Say whether an algorithm takes nothing but images, whose convolutions take most of the time."""
    return find(config.algo).obs_kinds == {"image"}


def _shrink_network(network: dict[str, Any], most: int) -> None:
    for name in ("hidden_sizes", "critic_hidden_sizes"):
        if network[name] is not None:
            network[name] = [min(units, most) for units in network[name]]


def scaled(config: ExperimentConfig[Any], small: ExperimentConfig[Any]) -> list[str]:
    """Return which settings a probe has made smaller, each with the value that it took."""
    before, after = config.model_dump(mode="json"), small.model_dump(mode="json")
    said = []
    for section in ("algo_kwargs", "network"):
        for name, value in after[section].items():
            if value != before[section][name]:
                said.append(f"{name} {_short(before[section][name])} as {_short(value)}")
    return said


def _short(value: Any) -> str:
    return (
        f"{value:g}"
        if isinstance(value, float)
        else "x".join(map(str, value))
        if isinstance(value, list)
        else str(value)
    )

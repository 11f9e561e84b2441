"""Settings that are far from what works, seen in the config alone: nothing is run."""

from __future__ import annotations

import math
from typing import Any

from rl_training.algorithms.declared.actor_critic import ActionNoiseOptions
from rl_training.algorithms.declared.on_policy import OnPolicyConfig
from rl_training.algorithms.options import EpsilonOptions, OptimizerOptions, ReplayOptions
from rl_training.config import ExperimentConfig
from rl_training.experiment.doctor.findings import Level, Section
from rl_training.experiment.doctor.probe_config import updates_of_run

_LARGE_RATE, _SMALL_RATE = 0.02, 1e-6
_SYNCS = 5
"""Target updates, or time constants of a slow target, that a run should have at least."""
_MOST_UPDATES, _FEWEST_SAMPLES = 40.0, 0.2
"""Updates per env step, and samples drawn per env step, beyond which nothing here was ever found to work."""


def check_settings(config: ExperimentConfig[Any], section: Section, episode: float | None = None) -> None:
    """Add what the settings say; ``episode`` is the usual length of an episode in steps, if that is known."""
    before = len(section.findings)
    options = config.algo_kwargs
    if isinstance(options, OptimizerOptions):
        _learning_rate(config, options, section)
    _discount(options, section, episode)
    if isinstance(options, ReplayOptions):
        _targets(config, options, section)
        _replay(config, options, section)
    _exploration(config, section)
    if len(section.findings) == before:
        section.add(
            "ok",
            "settings",
            "learning rate, discount, targets, replay and exploration are in the usual range",
        )


def _learning_rate(config: ExperimentConfig[Any], options: OptimizerOptions, section: Section) -> None:
    rate = options.learning_rate
    if rate > _LARGE_RATE:
        section.add(
            "problem",
            "learning rate",
            f"{rate:g}; Adam moves every weight by about that much at each update",
            "algo_kwargs.learning_rate=3e-4 is a beginning; 1e-5 to 5e-3 are usual",
            "learning_rate",
        )
    elif rate < _SMALL_RATE or rate * updates_of_run(config) < 0.01:
        moved = rate * updates_of_run(config)
        section.add(
            "problem",
            "learning rate",
            f"{rate:g}: in the whole run a weight can move by about {moved:.2g}",
            "algo_kwargs.learning_rate=3e-4 is a beginning; 1e-5 to 5e-3 are usual",
            "learning_rate",
        )


def _discount(options: Any, section: Section, episode: float | None) -> None:
    gamma = getattr(options, "gamma", None)
    if gamma is None:
        return
    horizon = math.inf if gamma >= 1.0 else 1.0 / (1.0 - gamma)
    if horizon < 5.0 and (episode is None or episode > 3.0 * horizon):
        of = "" if episode is None else f" of the {episode:.0f} of an episode"
        level: Level = "problem" if horizon < 2.5 else "warning"
        section.add(
            level,
            "discount",
            f"gamma {gamma:g} looks about {horizon:.1f} steps ahead{of}; what comes later counts for nothing",
            "algo_kwargs.gamma=0.99 is a beginning",
            "gamma",
        )
    elif gamma == 1.0 and episode is None and isinstance(options, ReplayOptions):
        section.add("note", "discount", "gamma 1: values only stay finite if every episode ends by itself")


def _targets(config: ExperimentConfig[Any], options: ReplayOptions, section: Section) -> None:
    absent = getattr(options, "absent", ())
    if "tau" in absent:
        return
    updates = updates_of_run(config)
    interval = getattr(options, "target_update_interval", None)
    if interval is not None:
        times = (
            (config.total_timesteps - options.learning_starts)
            / interval
            * min(-math.log1p(-min(options.tau, 0.999999)), 1.0)
        )
        how = f"target_update_interval {interval:,}, tau {options.tau:g}"
        remedy = "a smaller algo_kwargs.target_update_interval, or a larger tau"
    else:
        times, how = updates * options.tau, f"tau {options.tau:g}"
        remedy = "algo_kwargs.tau=0.005 is usual"
    if times < _SYNCS:
        section.add(
            "problem" if times < 1 else "warning",
            "target network",
            f"{how}: in the whole run it is renewed {times:.2g} times, so values never reach back "
            f"beyond the last steps",
            remedy,
            "target",
        )


def _replay(config: ExperimentConfig[Any], options: ReplayOptions, section: Section) -> None:
    ratio = options.gradient_steps / options.train_freq
    samples = ratio * options.batch_size
    if ratio > _MOST_UPDATES:
        section.add(
            "warning",
            "replay ratio",
            f"{ratio:g} updates per env step; usual are 0.25 to 1, and 20 with ensembles or resets",
            "a smaller algo_kwargs.gradient_steps, or a larger train_freq",
            "replay_ratio",
        )
    elif samples < _FEWEST_SAMPLES:
        section.add(
            "warning",
            "replay ratio",
            f"{samples:.2g} samples are drawn per env step, so most steps are never learned from",
            "a smaller algo_kwargs.train_freq",
            "replay_ratio",
        )
    if options.learning_starts > 0.5 * config.total_timesteps:
        section.add(
            "warning",
            "learning starts",
            f"after {options.learning_starts:,} of {config.total_timesteps:,} steps",
            "a smaller algo_kwargs.learning_starts, or a longer run",
            "learning_starts",
        )
    if options.buffer_size < min(config.total_timesteps / 50, 1_000):
        section.add(
            "warning",
            "replay",
            f"holds {options.buffer_size:,} steps of {config.total_timesteps:,}: what it learned from a "
            f"little while ago is forgotten",
            "a larger algo_kwargs.buffer_size",
            "buffer_size",
        )


def _exploration(config: ExperimentConfig[Any], section: Section) -> None:
    options: Any = config.algo_kwargs
    what = remedy = None
    if isinstance(options, EpsilonOptions) and not getattr(options, "noisy", False):
        highest = max(options.exploration_initial_eps, options.exploration_final_eps)
        if highest < 0.01 and getattr(options, "learning_starts", 0) < 0.05 * config.total_timesteps:
            what = f"epsilon is never above {highest:g}: at most {highest:.1%} of the actions are tried at random"
            remedy = "algo_kwargs.exploration_initial_eps=1, exploration_final_eps=0.05"
    elif isinstance(options, ActionNoiseOptions) and (
        options.action_noise == "none" or options.action_noise_std < 0.005
    ):
        what = "a deterministic policy acts without noise, so that it only ever sees what it already does"
        remedy = "algo_kwargs.action_noise=normal, action_noise_std=0.1"
    elif isinstance(options, OnPolicyConfig) and options.log_std_init < -5.0:
        what = (
            f"log_std_init {options.log_std_init:g} is a standard deviation of "
            f"{math.exp(options.log_std_init):.2g}, of actions from -1 to 1"
        )
        remedy = "algo_kwargs.log_std_init=0"
    if what is not None and remedy is not None:
        section.add("problem", "exploration", what, remedy, "exploration")

"""Rules about policies and exploration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rl_training.algorithms.declared.on_policy import OnPolicyConfig
from rl_training.algorithms.declared.ppo import ClippedConfig
from rl_training.algorithms.declared.sac import EntropyConfig, TemperatureOptions
from rl_training.algorithms.options import EpsilonOptions
from rl_training.config import ExperimentConfig
from rl_training.experiment.doctor.findings import Section
from rl_training.experiment.doctor.log import Log, ends, median

_SATURATED = 0.95
_NARROW, _WIDE = 0.02, 2.0
"""Standard deviations of actions from -1 to 1."""


def entropy(log: Log, section: Section) -> None:
    """A policy that became certain, or stayed random, without getting better."""
    series = log.series("train/entropy")
    if len(series.values) < 4 or isinstance(log.config.algo_kwargs, TemperatureOptions):
        return
    first, last = ends(series.values)
    deviation = log.series("train/std")
    if len(deviation.values) > 3:  # continuous actions
        start, end = ends(deviation.values)
        told = f"the standard deviation of actions from -1 to 1 went from {start:.3g} to {end:.3g}"
        if end > max(_WIDE, 1.5 * start):
            beyond = math.erfc(1.0 / (end * math.sqrt(2.0)))
            section.add(
                "problem" if end > 2 * _WIDE else "warning",
                "entropy",
                f"it ran away: {told}; some {beyond:.0%} of the actions are cut off at the bounds",
                "algo_kwargs.ent_coef=0: entropy beyond the bounds is free; or action_distribution=tanh_gaussian",
                "entropy",
            )
        elif end < _NARROW and not log.learned:
            section.add(
                "warning",
                "entropy",
                f"it collapsed: {told}, and returns did not rise",
                "a smaller learning rate, more algo_kwargs.ent_coef, or a larger log_std_init",
                "entropy",
            )
        else:
            section.add("ok", "entropy", told)
        return
    told = f"it went from {first:.3g} to {last:.3g}"
    half = np.interp(0.5 * log.last_step, series.steps, series.values)
    if half < 0.03 * first and not log.learned:
        section.add(
            "warning",
            "entropy",
            f"it collapsed: {told}, and returns did not rise: the policy is certain of what is not good",
            "more algo_kwargs.ent_coef (0.01), or a smaller learning rate",
            "entropy",
        )
    elif last > 0.995 * first and not log.learned:
        section.add(
            "warning",
            "entropy",
            f"it stays that of a random policy: {told}, and returns did not rise",
            "a larger learning rate, less algo_kwargs.ent_coef, rewards of about 1 (normalize_reward=true)",
            "entropy",
        )
    else:
        section.add("ok", "entropy", told)


def temperature(log: Log, section: Section) -> None:
    """A temperature that grows because the entropy it aims at is out of reach, or a policy far below it."""
    options = log.config.algo_kwargs
    weight, found = log.series("train/ent_coef"), log.series("train/entropy")
    if not isinstance(options, TemperatureOptions) or options.ent_coef != "auto" or len(weight.values) < 4:
        return
    first, last = float(weight.values[0]), float(np.mean(weight.values[-2:]))
    told = (
        f"ent_coef {float(weight.values[0]):.3g} to {last:.3g}, entropy "
        f"{median(log.late('train/entropy')):.3g} in the second half"
    )
    growing = last > 3.0 * max(first, options.ent_coef_init) and last > 1.2 * float(
        weight.values[len(weight.values) // 2]
    )
    if growing:
        section.add(
            "warning",
            "temperature",
            f"it keeps growing: {told}",
            "a lower target (algo_kwargs.target_entropy, target_entropy_ratio), or larger rewards",
            "entropy",
        )
    elif (
        isinstance(options, EntropyConfig)
        and options.target_entropy != "auto"
        and len(found.values)
        and median(log.late("train/entropy")) < 3.0 * options.target_entropy - 3.0
    ):
        section.add(
            "warning",
            "temperature",
            f"the policy is far below its target entropy {options.target_entropy:g}: {told}",
            "a larger learning rate of the temperature (actor_learning_rate)",
            "entropy",
        )
    else:
        section.add("ok", "temperature", told)


def exploration(log: Log, section: Section) -> None:
    """Random actions that were over before anything could be found, or never end."""
    options = log.config.algo_kwargs
    rate = log.series("train/exploration_rate")
    if not isinstance(options, EpsilonOptions) or getattr(options, "noisy", False) or len(rate.values) < 3:
        return
    told = f"epsilon {float(rate.values[0]):.3g} to {float(rate.values[-1]):.3g}"
    share = explored(log.config, options)
    if float(rate.values.max()) < 0.05 and share < 0.02:
        section.add(
            "problem",
            "exploration",
            f"epsilon was {float(rate.values.max()):.3g} at most from step {int(rate.steps[0]):,} on, and only the "
            f"first {share:.1%} of the run was explored at random",
            "algo_kwargs.exploration_initial_eps=1 and a larger exploration_fraction or learning_starts",
            "exploration",
        )
    elif float(rate.values[-1]) > 0.5 and log.last_step >= log.config.total_timesteps:
        section.add(
            "warning",
            "exploration",
            f"epsilon is still {float(rate.values[-1]):.3g} at the end",
            "a smaller algo_kwargs.exploration_fraction or exploration_final_eps",
            "exploration",
        )
    else:
        section.add("ok", "exploration", told)


def explored(config: ExperimentConfig[Any], options: EpsilonOptions) -> float:
    """Return the share of a run in which many actions are random: before learning starts, and while epsilon falls."""
    starts = getattr(options, "learning_starts", 0)
    fade = options.exploration_fraction * config.schedule_length
    return float(
        max(starts, fade if options.exploration_initial_eps >= 0.2 else 0.0) / config.total_timesteps
    )


def action_bounds(log: Log, section: Section) -> None:
    """Actions of a deterministic policy that are all at their bounds."""
    late = log.late("train/action_saturation")
    if len(late) < 3:
        return
    share = median(late)
    if share > _SATURATED and not log.learned:
        section.add(
            "warning",
            "actions",
            f"{share:.0%} of them are at their bounds in the second half, and returns did not rise: "
            f"there, the actor has no gradient",
            "a smaller actor_learning_rate, rewards of about 1, network.normalize_obs=true, or sac",
            "saturation",
        )
    else:
        section.add("ok", "actions", f"{share:.0%} of them are at their bounds in the second half")


def divergence(log: Log, section: Section) -> None:
    """Updates of PPO that end too early, or go too far."""
    options = log.config.algo_kwargs
    if not isinstance(options, ClippedConfig) or options.n_epochs < 2:
        return
    epochs, moved, cut = (log.late(f"train/{name}") for name in ("epochs", "approx_kl", "clip_fraction"))
    if len(epochs) < 3:
        return
    told = (
        f"{median(epochs):.3g} of {options.n_epochs} epochs, KL {median(moved):.2g}, "
        f"{median(cut):.0%} clipped (medians of the second half)"
    )
    if options.target_kl is not None and median(epochs) <= 1.1:
        section.add(
            "warning",
            "policy steps",
            f"updates stop in the first epoch: {told}; target_kl is {options.target_kl:g}",
            "a smaller algo_kwargs.learning_rate, larger batches, or a larger target_kl",
            "kl_stop",
        )
    elif median(moved) > 0.2 or median(cut) > 0.6:
        section.add(
            "warning",
            "policy steps",
            f"the policy moves too far at each update: {told}",
            "a smaller algo_kwargs.learning_rate, fewer n_epochs, or a target_kl of 0.02",
            "kl",
        )
    elif median(moved) < 1e-6 and median(cut) == 0.0 and not log.learned:
        section.add(
            "warning",
            "policy steps",
            f"the policy hardly moves: {told}",
            "a larger algo_kwargs.learning_rate; and check that rewards differ",
            "kl",
        )
    else:
        section.add("ok", "policy steps", told)


def line_search(log: Log, section: Section) -> None:
    """Steps of TRPO that are given up."""
    late = log.late("train/line_search_success")
    if len(late) < 3 or not isinstance(log.config.algo_kwargs, OnPolicyConfig):
        return
    share = float(np.mean(late))
    if share < 0.5:
        section.add(
            "warning",
            "line search",
            f"only {share:.0%} of the steps of the second half were made",
            "more algo_kwargs.cg_damping, or a larger n_steps",
            "line_search",
        )
    else:
        section.add("ok", "line search", f"{share:.0%} of the steps of the second half were made")

"""What an environment is like, before anything is trained on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.config import ExperimentConfig
from rl_training.experiment.doctor.findings import Section
from rl_training.experiment.doctor.rewards import check_rewards
from rl_training.experiment.doctor.sampling import Sample
from rl_training.spaces import DiscreteActions

LARGE_OBS = 50.0
"""Root mean square of an entry of observations from which on networks learn badly from it."""
LARGE_RATIO = 1e3
"""The same relative to the entry that varies least, for entries above 10."""


def check_environment(config: ExperimentConfig[Any], sample: Sample, section: Section) -> None:
    """Add what a sample says of spaces, seeds, rewards, observations and the ends of episodes."""
    _spaces(sample, section)
    _determinism(sample, section)
    _observations(config, sample, section)
    check_rewards(config, sample, section)
    _ends(sample, section)
    _speed(config, sample, section)


def _spaces(sample: Sample, section: Section) -> None:
    actions = sample.actions_spec
    many = (
        f"{actions.n} actions"
        if isinstance(actions, DiscreteActions)
        else f"{actions.kind} actions {actions.shape}"
    )
    section.add("ok", "spaces", f"{sample.obs_spec.describe()}; {many}")
    space = sample.observation_space
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if sample.obs_spec.plain and low is not None and high is not None and sample.obs.dtype.kind == "f":
        beyond = (sample.obs < low - 1e-4 - 1e-3 * np.abs(low)) | (
            sample.obs > high + 1e-4 + 1e-3 * np.abs(high)
        )
        if beyond.any():
            worst = float(np.abs(sample.obs[beyond]).max())
            section.add(
                "note",
                "spaces",
                f"{beyond.mean():.1%} of the entries of observations lie outside their space, up to {worst:.3g}",
            )


def _determinism(sample: Sample, section: Section) -> None:
    if sample.differs_at is not None:
        when = "the reset itself" if sample.differs_at == 0 else f"step {sample.differs_at}"
        section.add(
            "problem",
            "determinism",
            f"the same seed and the same actions led elsewhere at {when}: {sample.difference}",
            "draw every random number from self.np_random, which reset(seed=...) seeds; otherwise runs cannot be "
            "repeated, resumed exactly or compared on the same episodes",
            "determinism",
        )
        return
    section.add("ok", "determinism", "the same seed and actions lead to the same steps")
    starts = sample.starts.reshape(len(sample.starts), -1)
    if len(starts) > 2 and (starts == starts[0]).all():
        section.add("note", "seeding", f"all of {len(starts)} episodes began alike, whatever their seed")


def _observations(config: ExperimentConfig[Any], sample: Sample, section: Section) -> None:
    if not sample.obs_spec.plain or sample.obs.dtype.kind != "f" or sample.obs.ndim > 2:
        return
    flat = sample.obs.reshape(len(sample.obs), -1).astype(np.float64)
    size, spread = np.sqrt((flat**2).mean(0)), flat.std(0)
    largest, moving = float(size.max()), spread[spread > 1e-9]
    told = f"entries are {float(size.min()):.2g} to {largest:.3g} in size (root mean square)"
    if config.network.normalize_obs or config.network.layer_norm:
        section.add("ok", "observations", f"{told}, and are normalised")
        return
    if not len(moving):
        section.add(
            "warning",
            "observations",
            f"nothing in them changed in {len(flat)} steps",
            "check what the environment returns",
            "observations",
        )
    elif largest > LARGE_OBS or (
        largest > 1.0 and largest > LARGE_RATIO * float(moving.min()) and largest > 10.0
    ):
        at = int(size.argmax())
        section.add(
            "problem" if largest > 10 * LARGE_OBS else "warning",
            "observations",
            f"entry {at} is {largest:.3g} in size, while the smallest one varies by "
            f"{float(moving.min()):.2g}; networks "
            "learn well from numbers of about 1",
            "network.normalize_obs=true, or scale them in the environment",
            "observations",
        )
    else:
        section.add("ok", "observations", told)


def _ends(sample: Sample, section: Section) -> None:
    episodes = sample.episodes()
    if sample.limit_terminates:
        section.add(
            "problem",
            "ends of episodes",
            f"the limit of {sample.limit} steps is passed off as terminated",
            "return truncated=True there, and terminated=False: after a termination no value follows, so agents learn "
            "that the future ends at a moment that they cannot see",
            "termination",
        )
        return
    lengths = np.array([episode.stop - episode.start for episode in episodes])
    dead = np.array([sample.terminated[episode.stop - 1] for episode in episodes], bool)
    if len(lengths) >= 3 and dead.all() and lengths[0] > 1 and (lengths == lengths[0]).all():
        section.add(
            "problem",
            "ends of episodes",
            f"all of {len(lengths)} episodes under random actions were terminated after exactly "
            f"{lengths[0]} steps, as by a time limit",
            "return truncated=True at a time limit, and terminated=False; if every task really has this many steps, "
            "show in the observation how many are left",
            "termination",
        )
        return
    told = (
        f"{int(dead.sum())} terminated, {int((~dead).sum())} truncated"
        if len(lengths)
        else f"none ended within {len(sample.reward)} steps"
    )
    if len(lengths):
        told += f"; {int(lengths.min())} to {int(lengths.max())} steps long"
    elif sample.limit is None:
        told += ", and no wrapper limits them"
    section.add("ok", "ends of episodes", told)


def _speed(config: ExperimentConfig[Any], sample: Sample, section: Section) -> None:
    rate = len(sample.reward) / max(sample.seconds, 1e-9)
    hours = config.total_timesteps / rate / 3600
    whole = (
        f"{hours:.1f} hours"
        if hours >= 1
        else f"{60 * hours:.1f} minutes"
        if hours > 1 / 60
        else f"{3600 * hours:.0f} s"
    )
    section.add(
        "ok",
        "speed",
        f"{rate:,.0f} steps/s of one copy: {config.total_timesteps:,} take {whole} without learning",
    )

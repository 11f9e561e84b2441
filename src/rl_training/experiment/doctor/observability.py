"""Whether an observation tells all that matters, or what was seen before would tell more."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.algorithms.options import MemoryOptions
from rl_training.config import EnvConfig, ExperimentConfig
from rl_training.experiment.doctor.findings import Section
from rl_training.experiment.doctor.sampling import Sample
from rl_training.spaces import Array

_KNOWN = ("NoVelocity", "TMaze", "MiniGrid-Memory", "popgym")
_WRAPPERS = ("rl_training.envs.partial:SelectObservation",)
_MAX_INPUTS = 40
"""Numbers in an observation for which the next one can be predicted from so few steps."""
_UNPREDICTED, _PREDICTED, _FEWER = 0.8, 0.9, 10.0
"""Shares of the variance of changes explained by the last observation alone and by the last two, and how much less
has to be left unexplained."""


def check_memory(config: ExperimentConfig[Any], sample: Sample | None, section: Section) -> None:
    """Name an agent without a memory on a task that needs one."""
    reason = known_partial(config.env) or (None if sample is None else hidden(sample))
    remembers = isinstance(config.algo_kwargs, MemoryOptions)
    if reason is None:
        return
    if remembers:
        section.add("ok", "memory", f"{reason}; {config.algo} has a memory")
        return
    section.add(
        "problem",
        "memory",
        f"{reason}, but {config.algo} has no memory and acts on the last observation alone",
        "take recurrent_ppo, drqn or r2d2, or stack observations (wrapper FrameStackObservation, then "
        "FlattenObservation)",
        "memory",
    )


def known_partial(env: EnvConfig) -> str | None:
    """Return why an environment is known to hide something; what stacks frames brings some of it back."""
    wrappers = [wrapper.id for wrapper in env.wrappers]
    if "FrameStackObservation" in wrappers:
        return None
    if any(name in env.id for name in _KNOWN):
        return f"{env.id} does not show everything at once"
    if any(name in wrappers for name in _WRAPPERS):
        return "a wrapper hides a part of the observations"
    return None


def hidden(sample: Sample) -> str | None:
    """Return what says that observations hide something, if anything does."""
    if sample.obs_spec.packed or sample.obs.dtype.kind != "f" or sample.obs[0].size > _MAX_INPUTS:
        return None
    return _by_prediction(sample) or _by_first_observation(sample)


def _by_prediction(sample: Sample) -> str | None:
    """Compare how well changes are predicted by one observation and by two, each with the action."""
    inner = np.flatnonzero(~sample.done[:-1]) + 1  # steps with one before them in the same episode
    if len(inner) < 300:
        return None
    flat = sample.obs.reshape(len(sample.obs), -1).astype(np.float64)
    after = sample.next_obs.reshape(len(sample.obs), -1).astype(np.float64)
    action = _as_inputs(sample)
    change = (after - flat)[inner]
    moving = change.std(0) > 1e-8
    if not moving.any():
        return None
    one = np.concatenate([_squares(flat[inner]), action[inner]], 1)
    two = np.concatenate([one, flat[inner] - flat[inner - 1], action[inner - 1]], 1)
    alone, both = (_explained(x, change[:, moving]) for x in (one, two))
    worst = int((both - alone).argmax())
    fewer = (1.0 - alone[worst]) > _FEWER * (1.0 - both[worst])
    if alone[worst] < _UNPREDICTED and both[worst] > _PREDICTED and fewer:
        return (
            f"how entry {int(np.flatnonzero(moving)[worst])} of the observation changes is hardly told by an "
            f"observation (R2 {max(alone[worst], 0.0):.2f}), but by two in a row (R2 {both[worst]:.2f})"
        )
    return None


def _by_first_observation(sample: Sample) -> str | None:
    """Look for steps that are alike, whose reward follows the first observation of their episode."""
    groups: dict[tuple[bytes, bytes], list[tuple[bytes, float]]] = {}
    for episode in sample.episodes():
        first = sample.obs[episode.start].tobytes()
        for step in range(episode.start + 1, episode.stop):
            key = sample.obs[step].tobytes(), sample.action[step].tobytes()
            groups.setdefault(key, []).append((first, float(sample.reward[step])))
    for pairs in groups.values():
        rewards = np.array([reward for _, reward in pairs])
        if len(pairs) < 8 or rewards.std() < 1e-6:
            continue
        by_first: dict[bytes, list[float]] = {}
        for first, reward in pairs:
            by_first.setdefault(first, []).append(reward)
        several = [np.array(own) for own in by_first.values() if len(own) > 1]
        if len(several) > 1 and sum(map(len, several)) >= 8 and max(own.std() for own in several) < 1e-6:
            return (
                f"the same observation and action brought rewards from {rewards.min():g} to {rewards.max():g}, "
                "according to how the episode began"
            )
    return None


def _as_inputs(sample: Sample) -> Array:
    action = sample.action.reshape(len(sample.action), -1)
    if sample.actions_spec.kind in ("continuous", "unbounded"):
        return action.astype(np.float64)
    values = np.unique(action)
    return np.concatenate([action == value for value in values[:16]], 1).astype(np.float64)


def _squares(x: Array) -> Array:
    """Return numbers [S, D] with their products by each other, as far as there are not too many."""
    if x.shape[1] > 8:
        return np.concatenate([x, x**2], 1)
    rows, columns = np.triu_indices(x.shape[1])
    return np.concatenate([x, x[:, rows] * x[:, columns]], 1)


def _explained(x: Array, y: Array) -> Array:
    """Return the share of the variance of each column of y [S, D] that a linear fit explains on held-out rows."""
    x = np.concatenate([(x - x.mean(0)) / (x.std(0) + 1e-9), np.ones((len(x), 1))], 1)
    train = np.arange(len(x)) % 2 == 0
    weights = np.linalg.lstsq(
        x[train].T @ x[train] + 1e-6 * np.eye(x.shape[1]), x[train].T @ y[train], rcond=None
    )[0]
    left = y[~train] - x[~train] @ weights
    return np.asarray(1.0 - left.var(0) / (y[~train].var(0) + 1e-12))

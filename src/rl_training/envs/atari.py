"""Which Atari game an ``ALE/...`` id names, and what its vector environment may be told in ``env.kwargs``."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from rl_training.config import EnvConfig
from rl_training.envs.atari_vector import AtariVector
from rl_training.envs.extras import import_by_prefix
from rl_training.envs.journal import EpisodeSeeds
from rl_training.errors import ConfigError, did_you_mean

PREFIX = "ALE/"
_OLDEST = (0, 12, 1)
"""Before this version a reset of some of the environments never came back."""
_OURS = {
    "game": "the id says which game",
    "num_envs": "use env.num_envs",
    "batch_size": "all environments are stepped together",
    "autoreset_mode": "resets belong to this package",
    "life_loss_info": "use episodic_life, which ends episodes but not games",
}
_RANGES = {
    "frameskip": (1, 1000),
    "stack_num": (1, 64),
    "img_height": (1, 1024),
    "img_width": (1, 1024),
    "noop_max": (0, 10_000),
    "max_num_frames_per_episode": (1, 10_000_000),
    "num_threads": (0, 1024),
    "thread_affinity_offset": (-1, 1024),
    "repeat_action_probability": (0.0, 1.0),
    "continuous_action_threshold": (0.0, 1.0),
}
"""ALE checks next to nothing itself: an image without pixels ends the process."""


def serves(config: EnvConfig) -> bool:
    """Say whether these environments are games that ALE's own vector environment plays."""
    return config.vectorization == "native" and config.id.startswith(PREFIX)


def make(config: EnvConfig, seeds: Sequence[EpisodeSeeds]) -> AtariVector:
    """Make the vector environment of a game, one copy for each stream of episode seeds."""
    if config.wrappers:
        raise ConfigError(
            "env.wrappers: wrappers of single environments do not go with vectorization 'native'; "
            "env.kwargs say how games are shown"
        )
    options = _options(config)
    episodic = bool(options.pop("episodic_life"))
    if not options["num_threads"]:
        options["num_threads"] = min(len(seeds), _cores())
    # Lost lives are only reported: ALE's own episodic_life would begin a new game, and no agent ever saw a second life.
    from ale_py.vector_env import AtariVectorEnv

    games = AtariVectorEnv(
        num_envs=len(seeds),
        autoreset_mode="NextStep",
        life_loss_info=episodic,
        episodic_life=False,
        **options,
    )
    longest = math.ceil(options["max_num_frames_per_episode"] / options["frameskip"])
    return AtariVector(games, seeds, longest, options["frameskip"], episodic=episodic)


def bounded(config: EnvConfig, steps: int) -> EnvConfig:
    """Return the config of the same games, cut after so many steps if not before."""
    options = _options(config)
    limit = min(options["max_num_frames_per_episode"], steps * options["frameskip"])
    return config.model_copy(update={"kwargs": {**config.kwargs, "max_num_frames_per_episode": limit}})


def _options(config: EnvConfig) -> dict[str, Any]:
    """Return all arguments of ALE's vector environment: those of the config, of the id, and its own defaults."""
    import_by_prefix(config.id)
    _check_version(config.id)
    spec = gym.registry.get(config.id)
    if spec is None or spec.vector_entry_point is None:
        games = [known for known in gym.registry if known.startswith(PREFIX)]
        raise ConfigError(f"env.id: '{config.id}' is not registered" + did_you_mean(config.id, games))
    parameters = inspect.signature(importlib.import_module("ale_py.vector_env").AtariVectorEnv).parameters
    defaults = {name: p.default for name, p in parameters.items() if name not in _OURS}
    _check(config.kwargs, defaults)
    return {**defaults, **spec.kwargs, **config.kwargs}


def _check(kwargs: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    for name, value in kwargs.items():
        key = f"env.kwargs.{name}"
        if name in _OURS:
            raise ConfigError(f"{key}: cannot be set with vectorization 'native': {_OURS[name]}")
        if name not in defaults:
            hint = did_you_mean(name, defaults) or f"; known keys: {', '.join(defaults)}"
            raise ConfigError(f"{key}: unknown key of ALE's vector environment{hint}")
        if isinstance(defaults[name], bool):
            if not isinstance(value, bool):
                raise ConfigError(f"{key}: {value!r} is not allowed: should be true or false")
            continue
        low, high = _RANGES.get(name, (-math.inf, math.inf))
        whole = isinstance(defaults[name], int)
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            what = "a whole number" if whole else "a number"
            raise ConfigError(f"{key}: {value!r} is not allowed: should be {what} from {low} to {high}")


def _check_version(env_id: str) -> None:
    installed = importlib.metadata.version("ale-py")
    digits = tuple(int(part) for part in installed.split(".")[:3] if part.isdigit())
    if digits < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise ConfigError(
            f"env.id: '{env_id}' with vectorization 'native' needs ale-py {oldest} or newer, not {installed}: "
            'pip install "rl_training[atari]"'
        )


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

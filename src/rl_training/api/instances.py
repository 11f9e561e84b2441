"""An environment that was made already, as a section of a config: copies of it are made by its id and its wrappers."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym

from rl_training.config import ExperimentConfig
from rl_training.envs import EnvFactory, make_env
from rl_training.errors import ConfigError
from rl_training.runtime.console import notice
from rl_training.runtime.trust import check_names

_COUNTED_ANYWAY = ("stable_baselines3.common.monitor:Monitor",)
"""Wrappers that only count what is counted here without them."""


def section_of(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Return the section ``env`` of a config by which environments like this one are made."""
    spec = env.spec
    name = type(env.unwrapped).__name__
    if spec is None or spec.id not in gym.registry:
        raise ConfigError(
            f"env: this {name} was not made by gymnasium.make, so it cannot be made again; give what makes it: "
            f"{name}, or lambda: {name}(...)"
        )
    kwargs = dict(spec.kwargs)
    if kwargs.get("render_mode") == "human":
        del kwargs["render_mode"]
        notice(
            "env: without render_mode='human', as training opens no windows; agent.record('agent.mp4') films"
        )
    if spec.max_episode_steps != gym.registry[spec.id].max_episode_steps:
        kwargs["max_episode_steps"] = -1 if spec.max_episode_steps is None else spec.max_episode_steps
    section: dict[str, Any] = {"id": spec.id, "kwargs": _plain(kwargs, f"'{spec.id}'")}
    wrappers = [
        {"id": _wrapper_name(wrapper), "kwargs": _plain(wrapper.kwargs, f"its wrapper {wrapper.name}")}
        for wrapper in spec.additional_wrappers
        if wrapper.entry_point not in _COUNTED_ANYWAY
    ]
    return {**section, "wrappers": wrappers}


def spaces_of(
    config: ExperimentConfig[Any], env: EnvFactory | None, *, trust: bool
) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return the spaces of an environment, by making one and asking it."""
    check_names(config, trust, env=env is None, network=False)
    asked = make_env(config.env, env)
    spaces = asked.observation_space, asked.action_space
    asked.close()
    return spaces


def _wrapper_name(wrapper: gym.envs.registration.WrapperSpec) -> str:
    # By its short name, Gymnasium's gets tuples again where a config has lists.
    own = getattr(gym.wrappers, wrapper.name, None) if wrapper.name in gym.wrappers.__all__ else None
    return wrapper.name if own is not None and own.__module__ in wrapper.entry_point else wrapper.entry_point


def _plain(kwargs: Any, whose: str) -> dict[str, Any]:
    """Return arguments as a config can hold them, or refuse those that it cannot."""
    try:
        if kwargs is None:
            raise TypeError
        plain: dict[str, Any] = json.loads(json.dumps(kwargs, allow_nan=False))
    except (TypeError, ValueError):
        raise ConfigError(
            f"env: the arguments of {whose} cannot be written into a config, so it cannot be made again; "
            "give a callable that makes it: lambda: ..."
        ) from None
    return plain

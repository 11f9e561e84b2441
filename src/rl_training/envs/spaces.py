"""From Gymnasium's spaces to the plain specs that learners are built from."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.errors import ConfigError
from rl_training.spaces import (
    ActionSpec,
    ContinuousActions,
    DiscreteActions,
    MultiBinaryActions,
    MultiDiscreteActions,
    ObsSpec,
    UnboundedActions,
)


def describe_spaces(obs_space: gym.Space[Any], action_space: gym.Space[Any]) -> tuple[ObsSpec, ActionSpec]:
    """Return the specs of one environment's spaces, or say which wrapper would help."""
    if isinstance(obs_space, (gym.spaces.Box, gym.spaces.MultiBinary, gym.spaces.MultiDiscrete)):
        assert obs_space.dtype is not None
        obs = ObsSpec(tuple(obs_space.shape), np.dtype(obs_space.dtype))
    else:
        raise ConfigError(
            f"env: {type(obs_space).__name__} observations are not supported; "
            "add 'FlattenObservation' to env.wrappers to make them one vector"
        )
    if isinstance(action_space, gym.spaces.Discrete):
        return obs, DiscreteActions(int(action_space.n), int(action_space.start))
    if isinstance(action_space, gym.spaces.Box):
        if not np.issubdtype(action_space.dtype, np.floating):
            raise ConfigError(
                f"env: actions of {action_space} are whole numbers, which no algorithm takes as a Box; make them "
                "Discrete or MultiDiscrete with a wrapper of your own"
            )
        bounded = action_space.is_bounded("both")
        kind = ContinuousActions if bounded else UnboundedActions
        return obs, kind(action_space.low, action_space.high)
    if isinstance(action_space, gym.spaces.MultiDiscrete) and len(action_space.shape) == 1:
        counts, starts = action_space.nvec.tolist(), action_space.start.tolist()
        return obs, MultiDiscreteActions(tuple(counts), tuple(starts))
    if isinstance(action_space, gym.spaces.MultiBinary) and len(action_space.shape) == 1:
        return obs, MultiBinaryActions(action_space.shape[0])
    raise ConfigError(
        f"env: actions of {action_space} are not supported; make them Discrete, Box, MultiDiscrete or MultiBinary, "
        "flat, with a wrapper of your own"
    )

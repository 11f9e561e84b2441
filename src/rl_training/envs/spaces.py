"""From Gymnasium's spaces to the plain specs that learners are built from."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.errors import ConfigError
from rl_training.observations import MAX_ONE_HOT, ObsPart, ObsSpec, Path, array_part, packed_spec
from rl_training.spaces import (
    ActionSpec,
    ContinuousActions,
    DiscreteActions,
    MultiBinaryActions,
    MultiDiscreteActions,
    UnboundedActions,
)


class DescribedSpace(gym.spaces.Box):
    """The arrays that observations have become, with what is known about them."""

    def __init__(self, spec: ObsSpec) -> None:
        kind = np.iinfo(spec.dtype) if spec.dtype.kind in "iu" else np.finfo(np.float32)
        low, high = (0, 1) if spec.dtype.kind == "b" else (kind.min, kind.max)
        super().__init__(low, high, spec.shape, spec.dtype.type)
        self.spec = spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DescribedSpace) and self.spec == other.spec

    __hash__ = None  # type: ignore[assignment]


def describe_spaces(obs_space: gym.Space[Any], action_space: gym.Space[Any]) -> tuple[ObsSpec, ActionSpec]:
    """Return the specs of one environment's spaces, or say which wrapper would help."""
    return describe_observations(obs_space), describe_actions(action_space)


def describe_observations(space: gym.Space[Any]) -> ObsSpec:
    """Return what observations of a space are made of; a part that cannot be encoded is named."""
    if isinstance(space, DescribedSpace):
        return space.spec
    parts = _parts(space, ())
    if not any(part.size for part in parts):
        raise ConfigError(f"env: observations of {space} are empty")
    if len(parts) > 1 or parts[0].path:
        return packed_spec(parts)
    part = parts[0]
    return ObsSpec(part.shape, part.dtype, (part,))


def _parts(space: gym.Space[Any], path: Path) -> list[ObsPart]:
    if isinstance(space, gym.spaces.Dict):
        for key in space.spaces:
            if not isinstance(key, str):
                raise ConfigError(
                    f"env: observations: {key!r} is no name of a part; keys of a Dict should be text"
                )
        return [part for key, inner in space.spaces.items() for part in _parts(inner, (*path, key))]
    if isinstance(space, gym.spaces.Tuple):
        return [part for i, inner in enumerate(space.spaces) for part in _parts(inner, (*path, i))]
    if isinstance(space, gym.spaces.Discrete):
        part = _discrete(path, (1,), (int(space.n),), (int(space.start),))
        return [dataclasses.replace(part, scalar=True)]
    if isinstance(space, gym.spaces.MultiDiscrete):
        counts, starts = space.nvec.ravel().tolist(), space.start.ravel().tolist()
        return [_discrete(path, tuple(space.shape), tuple(counts), tuple(starts))]
    if isinstance(space, gym.spaces.MultiBinary):
        return [ObsPart(path, "binary", tuple(space.shape), np.dtype(np.int8))]
    if isinstance(space, gym.spaces.Box):
        high = float(space.high.max()) if space.high.size and space.high.dtype == np.uint8 else None
        return [array_part(path, tuple(space.shape), np.dtype(space.dtype), high)]
    where = f"the part '{'.'.join(map(str, path))}' of observations is" if path else "observations are"
    raise ConfigError(
        f"env: {where} of {type(space).__name__}, which no encoder takes; {_advice(space, path)}"
    )


def _advice(space: gym.Space[Any], path: Path) -> str:
    if type(space).__module__.startswith("minigrid."):
        return (
            "env.wrappers: ['minigrid.wrappers:ImgObsWrapper'] leaves it out, and minigrid.wrappers:FlatObsWrapper "
            "makes numbers of it"
        )
    others = "make it a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple with a wrapper of your own"
    if path and isinstance(path[0], str):
        return f"leave it out with the wrapper FilterObservation, or {others}"
    return others


def _discrete(
    path: Path, shape: tuple[int, ...], counts: tuple[int, ...], starts: tuple[int, ...]
) -> ObsPart:
    part = ObsPart(path, "discrete", shape, np.dtype(np.int64), counts=counts, starts=starts)
    if part.size > MAX_ONE_HOT:
        where = f"part '{part.name}' of observations" if path else "observations"
        raise ConfigError(
            f"env: {where}: {part.size} discrete values are too many for one-hot inputs ({MAX_ONE_HOT} at most); make "
            "them a Box with a wrapper"
        )
    return part


def frames_stacked(env: gym.Env[Any, Any]) -> int:
    """Return how many frames Gymnasium's wrapper stacks in what an environment gives; 1 if there is none."""
    space = env.observation_space
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.FrameStackObservation) and env.observation_space == space:
            return int(env.stack_size)
        env = env.env
    return 1


def require_known_stack(env: gym.Env[Any, Any]) -> None:
    """Refuse arrays of four dimensions that are not the frames of Gymnasium's wrapper, whatever else they may be."""
    space = env.observation_space
    if isinstance(space, gym.spaces.Box) and len(space.shape) == 4 and frames_stacked(env) != space.shape[0]:
        raise ConfigError(
            f"env: observations of shape {space.shape}: four dimensions are taken from the wrapper "
            "FrameStackObservation only, as the last one that changes observations; put several images into a Dict, or "
            "flatten them with the wrapper FlattenObservation"
        )


def describe_actions(action_space: gym.Space[Any]) -> ActionSpec:
    """Return the spec of an action space."""
    if isinstance(action_space, gym.spaces.Discrete):
        return DiscreteActions(int(action_space.n), int(action_space.start))
    if isinstance(action_space, gym.spaces.Box):
        if not np.issubdtype(action_space.dtype, np.floating):
            raise ConfigError(
                f"env: actions of {action_space} are whole numbers, which no algorithm takes as a Box; make them "
                "Discrete or MultiDiscrete with a wrapper of your own"
            )
        bounded = action_space.is_bounded("both")
        kind = ContinuousActions if bounded else UnboundedActions
        return kind(action_space.low, action_space.high)
    if isinstance(action_space, gym.spaces.MultiDiscrete) and len(action_space.shape) == 1:
        counts, starts = action_space.nvec.tolist(), action_space.start.tolist()
        return MultiDiscreteActions(tuple(counts), tuple(starts))
    if isinstance(action_space, gym.spaces.MultiBinary) and len(action_space.shape) == 1:
        return MultiBinaryActions(action_space.shape[0])
    raise ConfigError(
        f"env: actions of {action_space} are not supported; make them Discrete, Box, MultiDiscrete or MultiBinary, "
        "flat, with a wrapper of your own"
    )

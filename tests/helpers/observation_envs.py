"""Environments that show the same little task through observations of every kind."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

SPACES: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "double": spaces.Box(-1.0, 1.0, (3,), np.float64),
    "scalar": spaces.Box(-1.0, 1.0, (), np.float32),
    "matrix": spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    "bytes": spaces.Box(0, 255, (6,), np.uint8),
    "discrete": spaces.Discrete(7, start=-2),
    "multi_discrete": spaces.MultiDiscrete([3, 4]),
    "one_of_many": spaces.MultiDiscrete([5], start=[2]),
    "multi_binary": spaces.MultiBinary(5),
    "grey_image": spaces.Box(0, 255, (12, 12), np.uint8),
    "image_first": spaces.Box(0, 255, (3, 12, 14), np.uint8),
    "image_last": spaces.Box(0, 255, (12, 14, 3), np.uint8),
    "small_bool_image": spaces.Box(0, 1, (10, 10, 4), np.bool_),
    "nature_image": spaces.Box(0, 255, (1, 36, 36), np.uint8),
    "dict": spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (10, 10, 3), np.uint8),
            "gear": spaces.Discrete(3, start=1),
            "gears": spaces.MultiDiscrete([4]),
            "speed": spaces.Box(-1.0, 1.0, (2,), np.float32),
        }
    ),
    "dict_of_vectors": spaces.Dict(
        {"goal": spaces.Box(-1.0, 1.0, (2,), np.float64), "state": spaces.Box(-1.0, 1.0, (3,), np.float32)}
    ),
    "nested": spaces.Tuple(
        (
            spaces.MultiBinary(3),
            spaces.Dict({"inner": spaces.Tuple((spaces.Discrete(4), spaces.Box(0, 255, (5,), np.uint8)))}),
        )
    ),
}


def drawn(space: spaces.Space[Any], rng: np.random.Generator, place: int) -> Any:
    """Return an observation that shows ``place`` (0 to 9) and some noise."""
    if isinstance(space, spaces.Dict):
        return {name: drawn(inner, rng, place) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(drawn(inner, rng, place) for inner in space.spaces)
    if isinstance(space, spaces.Discrete):
        return int(space.start) + place % int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return (space.start + place % space.nvec).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return ((place >> np.arange(space.shape[0])) & 1).astype(np.int8)
    assert isinstance(space, spaces.Box)
    if space.dtype == np.bool_:
        return rng.random(space.shape) < place / 10
    if space.dtype == np.uint8:
        return (rng.integers(0, 26, space.shape) + 25 * place).astype(np.uint8)
    return (rng.uniform(-0.1, 0.1, space.shape) + place / 10 - 0.5).astype(space.dtype)


class Shown(gym.Env[Any, Any]):
    """A walk along ten places; the nearer to the right end, the better."""

    def __init__(self, kind: str = "vector", continuous: bool = False) -> None:
        self.observation_space = SPACES[kind]
        self._continuous = continuous
        low = np.array([-1.0, -2.0], np.float32)
        self.action_space = spaces.Box(low, -low) if continuous else spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(0, 10)), 0
        return drawn(self.observation_space, self.np_random, self.place), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = int(np.sign(action[0])) if self._continuous else int(action) - 1
        self.place, self.steps = int(np.clip(self.place + move, 0, 9)), self.steps + 1
        seen = drawn(self.observation_space, self.np_random, self.place)
        return seen, self.place / 10, self.place == 0, self.steps >= 9, {}


class ShownMasked(Shown):
    """The same where a step to the left is forbidden at every second place."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        return obs, self._allowed()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *result, _ = super().step(action)
        return (*result, self._allowed())

    def _allowed(self) -> dict[str, Any]:
        return {"action_mask": np.array([self.place % 2 == 0, True, True])}

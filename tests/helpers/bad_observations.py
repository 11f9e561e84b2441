"""Environments whose observations cannot be learned from, or turn into something else on the way."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Odd(spaces.Space[Any]):
    """A space that says neither shape nor dtype."""

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return 0

    def contains(self, x: Any) -> bool:
        return True


BYTES = spaces.Box(0, 255, (12, 12, 3), np.uint8)
BAD: dict[str, Any] = {
    "float_image": spaces.Box(0.0, 1.0, (12, 12, 3), np.float32),
    "int_image": spaces.Box(0, 255, (12, 12, 3), np.int64),
    "five_dimensions": spaces.Box(0, 255, (2, 2, 12, 12, 3), np.uint8),
    "small_image": spaces.Box(0, 255, (4, 12, 3), np.uint8),
    "text": spaces.Text(10),
    "sequence": spaces.Sequence(spaces.Box(0, 1, (2,), np.float32)),
    "odd": Odd(),
    "none": None,
    "nothing": spaces.Dict({}),
    "empty": spaces.Box(0.0, 1.0, (0,), np.float32),
    "dict_with_text": spaces.Dict({"goal": spaces.Dict({"words": spaces.Text(5)}), "camera": BYTES}),
    "dict_with_float_image": spaces.Dict({"camera": spaces.Box(0.0, 1.0, (12, 12, 3), np.float32)}),
    "dict_with_small_image": spaces.Dict({"camera": spaces.Box(0, 255, (12, 4, 3), np.uint8)}),
    "tuple_with_odd": spaces.Tuple((spaces.Discrete(3), Odd())),
    "many_values": spaces.Discrete(10**9),
}


class Bad(gym.Env[Any, Any]):
    """Has such a space."""

    action_space = spaces.Discrete(2)

    def __init__(self, kind: str) -> None:
        self.observation_space = BAD[kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


class Changing(gym.Env[Any, Any]):
    """Shows after ten steps what it said it would not."""

    action_space = spaces.Discrete(2)
    later: dict[str, tuple[Any, Any]] = {  # noqa: RUF012
        "image": (BYTES, np.zeros((12, 10, 3), np.uint8)),
        "image_dtype": (BYTES, np.zeros((12, 12, 3), np.float32)),
        "part": (
            spaces.Dict({"camera": BYTES, "gear": spaces.Discrete(3)}),
            {"camera": BYTES.low[1:], "gear": 0},
        ),
        "part_missing": (spaces.Dict({"camera": BYTES, "gear": spaces.Discrete(3)}), {"camera": BYTES.low}),
        "part_outside": (
            spaces.Dict({"camera": BYTES, "gear": spaces.Discrete(3)}),
            {"camera": BYTES.low, "gear": 3},
        ),
        "number": (spaces.Discrete(3), 1.5),
    }

    def __init__(self, kind: str) -> None:
        self.observation_space, self.wrong = self.later[kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        obs = self.wrong if self.steps == 10 else self.observation_space.sample()
        return obs, 0.0, False, False, {}

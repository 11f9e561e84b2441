"""Small environments with every kind of actions, and one that forbids some of them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

SPACES: dict[str, gym.Space[Any]] = {
    "MultiDiscrete": MultiDiscrete([3, 2], start=[1, -1]),
    "MultiBinary": MultiBinary(3),
    "Bounded": Box(np.array([-0.5, 0.0], np.float32), np.array([1.0, 4.0], np.float32)),
    "Unbounded": Box(-np.inf, np.inf, (2,), np.float32),
    "HalfBounded": Box(0.0, np.inf, (2,), np.float32),
    "Matrix": Box(-1.0, 1.0, (2, 2), np.float32),
    "Nothing": Dict({"left": Discrete(2), "right": Discrete(2)}),
    "Pair": Tuple((Discrete(2), Discrete(2))),
    "Grid": MultiDiscrete(np.full((2, 2), 2)),
}


class Signs(gym.Env[Any, Any]):
    """Shows two signs at every step, and pays from 0 to 1 for the action that they ask for.

    An episode has ten steps; then it is cut, or by the toss of a coin terminated. What is no action raises.
    """

    observation_space = Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, kind: str) -> None:
        self.kind, self.action_space = kind, SPACES[kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        reward = self.reward(action)
        self.steps += 1
        over, coin = self.steps == 10, bool(self.np_random.integers(2))
        return self.show(), reward, over and coin, over and not coin, {}

    def show(self) -> Any:
        self.signs = self.np_random.choice([-1.0, 1.0], 2).astype(np.float32)
        return self.signs

    def reward(self, action: Any) -> float:
        first, second = self.signs
        if self.kind == "MultiDiscrete":
            return float(np.mean(action == [1 if first < 0 else 3, -1 if second < 0 else 0]))
        if self.kind == "MultiBinary":
            return float(np.mean(action == [first > 0, second > 0, first < 0]))
        wanted = np.maximum(self.signs, 0.0) if self.kind in ("Bounded", "HalfBounded") else self.signs
        return float(np.mean(np.exp(-np.abs(action - wanted))))


class Forbidding(gym.Env[Any, Any]):
    """Allows some of five actions at every step, at every fourth all without a word, and raises at any other.

    ``allowed`` is how many there are to choose from. The lowest of them pays.
    """

    observation_space = Box(-np.inf, np.inf, (6,), np.float32)
    action_space = Discrete(5, start=3)

    def __init__(self, allowed: int = 2) -> None:
        self.allowed = allowed

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.show()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.mask[action - 3]:
            raise ValueError(f"action {action} is forbidden")
        reward = float(action - 3 == self.mask.argmax())
        self.steps += 1
        over, coin = self.steps == 9, bool(self.np_random.integers(2))
        obs, info = self.show()
        return obs, reward, over and coin, over and not coin, info

    def show(self) -> tuple[Any, dict[str, Any]]:
        self.mask = np.zeros(5, bool)
        self.mask[self.np_random.choice(5, self.allowed, replace=False)] = True
        silent = self.steps % 4 == 3 and self.allowed > 1
        if silent:
            self.mask[:] = True
        obs = np.append(self.mask, self.steps).astype(np.float32)
        return obs, {} if silent else {"action_mask": self.mask.copy()}


for name in SPACES:
    gym.register(f"{name}Signs-v0", Signs, kwargs={"kind": name})  # type: ignore[arg-type]
gym.register("Forbidding-v0", Forbidding)  # type: ignore[arg-type]

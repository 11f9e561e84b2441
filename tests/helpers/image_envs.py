"""Small environments that show themselves as images."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

FRAMES = {"id": "FrameStackObservation", "kwargs": {"stack_size": 2}}


class Track(gym.Env[Any, Any]):
    """A point on a track, drawn as a bright bar; the nearer to the middle, the better.

    Actions have bounds of unequal size. The episode terminates at the ends of the track, and is cut after 20 steps.
    """

    observation_space = gym.spaces.Box(0, 255, (3, 16, 16), np.uint8)
    action_space = gym.spaces.Box(np.array([-0.5, 0.0], np.float32), np.array([1.0, 2.0], np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.uniform(-0.8, 0.8)), 0
        return self.image(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.steps += 1
        self.place += 0.2 * float(action[0] - 0.25) + 0.02 * float(self.np_random.normal())
        return self.image(), -abs(self.place), abs(self.place) > 1, self.steps >= 20, {}

    def image(self) -> Any:
        image = np.full((3, 16, 16), 20, np.uint8)
        column = int(np.clip((self.place + 1) * 8, 0, 15))
        image[0, :, column] = 255
        image[1, self.steps % 16] = 128
        return image


class Numbers(Track):
    """The same with images of floats."""

    observation_space = gym.spaces.Box(0, 1, (3, 16, 16), np.float32)

    def image(self) -> Any:
        return (super().image() / 255).astype(np.float32)


class ChannelLast(Track):
    """The same the way most cameras have it."""

    observation_space = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)

    def image(self) -> Any:
        return np.ascontiguousarray(super().image().transpose(1, 2, 0))


class Free(Track):
    """The same with actions that know no bounds."""

    action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

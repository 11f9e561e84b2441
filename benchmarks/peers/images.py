"""An environment of random images that costs next to nothing."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation, ReshapeObservation
from numpy.typing import NDArray

SIZE, STACK, GREY_STACK, ACTIONS = 84, 3, 4, 6
EPISODE = 1_000


class RandomImages(gym.Env[NDArray[np.uint8], Any]):
    """Shows one of a few images, uint8, whatever is done.

    They are [3, 84, 84] and actions have six numbers; ``grey`` ones are [84, 84] and actions are one of six.
    """

    def __init__(self, *, grey: bool = False) -> None:
        shape = (SIZE, SIZE) if grey else (3, SIZE, SIZE)
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = (
            gym.spaces.Discrete(ACTIONS) if grey else gym.spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
        )
        self._pool = np.random.default_rng(0).integers(0, 256, (64, *shape), np.uint8)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._image(), {}

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self._image(), 0.0, False, self._steps >= EPISODE, {}

    def _image(self) -> NDArray[np.uint8]:
        image: NDArray[np.uint8] = self._pool[self.np_random.integers(len(self._pool))].copy()
        return image


def stacked_channels() -> gym.Env[Any, Any]:
    """Return the environment with the frames of a stack as channels, uint8 [9, 84, 84]."""
    return ReshapeObservation(FrameStackObservation(RandomImages(), STACK), (3 * STACK, SIZE, SIZE))


def stacked_grey() -> gym.Env[Any, Any]:
    """Return the environment of discrete actions with stacks of grey frames, uint8 [4, 84, 84]."""
    return FrameStackObservation(RandomImages(grey=True), GREY_STACK)

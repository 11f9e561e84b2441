"""The wrapper that keeps pictures of everything that happens, for a video."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from rl_training.envs.pixels import checked_image
from rl_training.spaces import Array


class FilmedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Renders after every reset and every step; ``take_frames`` hands the pictures over."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._frames: list[Array] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset, and take a picture."""
        result = self.env.reset(seed=seed, options=options)
        self._take()
        return result

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and take a picture."""
        result = self.env.step(action)
        self._take()
        return result

    def take_frames(self) -> list[Array]:
        """Return the pictures [H, W, 3] since the last call."""
        frames, self._frames = self._frames, []
        return frames

    def _take(self) -> None:
        self._frames.append(checked_image(self.env.render()).copy())

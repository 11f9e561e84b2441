"""Observations that are images, from environments that can draw themselves.

Wrappers for ``env.wrappers``, in this order: ``rl_training.envs.pixels:ActionRepeat``,
``rl_training.envs.pixels:PixelObservation``, and Gymnasium's own ``FrameStackObservation``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from PIL import Image

from rl_training.errors import EnvError
from rl_training.spaces import Array


class PixelObservation(gym.ObservationWrapper[Array, Any, Any]):
    """Shows what the environment renders, uint8 [3, height, width], instead of its own observation.

    ``size`` is [height, width], or one number for both. A picture of another size is stretched to it by Pillow's box
    filter, which averages the pixels that fall into one. Of a picture with a wide margin, ``crop`` takes that share of
    the height and the width from the middle. The environment is made with ``render_mode="rgb_array"``.
    """

    def __init__(self, env: gym.Env[Any, Any], size: int | Sequence[int] = 84, crop: float = 1.0) -> None:
        super().__init__(env)
        self._height, self._width = _checked_size(size)
        self._crop = _checked_share(crop)
        _check_render_mode(env)
        self.observation_space = gym.spaces.Box(0, 255, (3, self._height, self._width), np.uint8)

    def observation(self, observation: Any) -> Array:
        """Return the picture of the current state, in an array of its own."""
        frame = _middle(checked_image(self.env.render()), self._crop)
        if frame.shape[:2] != (self._height, self._width):
            image = Image.fromarray(np.ascontiguousarray(frame))
            frame = np.asarray(image.resize((self._width, self._height), Image.Resampling.BOX))
        return np.array(frame.transpose(2, 0, 1), order="C")


class ActionRepeat(gym.Wrapper[Any, Any, Any, Any]):
    """Does every action ``repeat`` times, or until the episode ends, and sums the rewards."""

    def __init__(self, env: gym.Env[Any, Any], repeat: int = 2) -> None:
        super().__init__(env)
        if not _is_count(repeat):
            raise ValueError(f"repeat: expected a whole number of at least 1, got {repeat!r}")
        self._repeat = repeat
        fps = env.metadata.get("render_fps")
        if isinstance(fps, int | float):
            self.metadata = {**env.metadata, "render_fps": fps / repeat}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step up to ``repeat`` times; observation and infos are those of the last step."""
        total = 0.0
        for _ in range(self._repeat):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


def checked_image(frame: Any) -> Array:
    """Return what ``render()`` gave, if it is one image."""
    if not isinstance(frame, np.ndarray):
        raise EnvError(f"render(): expected an image, uint8 [H, W, 3], got {type(frame).__name__}")
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
        raise EnvError(f"render(): expected an image, uint8 [H, W, 3], got {frame.dtype} {frame.shape}")
    return frame


def _checked_size(size: Any) -> tuple[int, int]:
    both = [size, size] if isinstance(size, int) else size
    if not isinstance(both, list | tuple) or len(both) != 2 or not all(_is_count(n) for n in both):
        raise ValueError(f"size: expected a whole number of at least 1, or [height, width], got {size!r}")
    return both[0], both[1]


def _checked_share(crop: Any) -> float:
    if not isinstance(crop, int | float) or isinstance(crop, bool) or not 0.0 < crop <= 1.0:
        raise ValueError(f"crop: expected a share of the picture, above 0 and up to 1, got {crop!r}")
    return float(crop)


def _middle(frame: Array, share: float) -> Array:
    """Return the middle of an image [H, W, 3], at least one pixel of it."""
    height, width = (max(round(share * n), 1) for n in frame.shape[:2])
    top, left = (frame.shape[0] - height) // 2, (frame.shape[1] - width) // 2
    return frame[top : top + height, left : left + width]


def _check_render_mode(env: gym.Env[Any, Any]) -> None:
    if env.render_mode == "rgb_array":
        return
    modes = env.metadata.get("render_modes") or []
    if "rgb_array" not in modes:
        others = f"only {', '.join(map(str, modes))}" if modes else "nor any other"
        raise ValueError(f"needs an environment that renders images, but it has no 'rgb_array', {others}")
    raise ValueError(
        f"needs render_mode 'rgb_array', not {env.render_mode!r}: add env.kwargs: {{render_mode: rgb_array}}"
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1

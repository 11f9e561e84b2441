"""Random shifts of images (Kostrikov et al. 2020), in whole pixels and without leaving ``uint8``."""

from __future__ import annotations

import numpy as np
import torch

from rl_training.spaces import Array


def draw_shifts(rng: np.random.Generator, count: int, pad: int) -> Array:
    """Return a shift down and to the right, each from 0 to ``2 * pad``, for each of ``count`` images."""
    return rng.integers(0, 2 * pad + 1, (count, 2))


def shift_images(images: torch.Tensor, shifts: Array, pad: int) -> torch.Tensor:
    """Return each of the images [B, ..., H, W] as seen through a window of its size on a padded version of it.

    The padding of ``pad`` pixels on every side repeats the border, and ``shifts`` [B, 2] say where the window
    begins; at (pad, pad) it shows the image as it is. All channels and frames of one image move together.
    """
    height, width = images.shape[-2:]
    moved = torch.as_tensor(shifts - pad, device=images.device)
    rows = (torch.arange(height, device=images.device) + moved[:, :1]).clamp_(0, height - 1)
    columns = (torch.arange(width, device=images.device) + moved[:, 1:]).clamp_(0, width - 1)
    pixels = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)  # [B, H * W]
    flat = images.reshape(len(images), -1, height * width)
    return flat.gather(2, pixels[:, None].expand(-1, flat.shape[1], -1)).view_as(images)

"""DrQ-v2's update written down plainly, as a measure of what the package's own one computes, and how fast."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def grid_shift(images: torch.Tensor, shifts: Any, pad: int) -> torch.Tensor:
    """Shift float images [B, C, H, W] by bilinear sampling from a padded copy."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (pad,) * 4, mode="replicate")
    span = height + 2 * pad
    assert height == width
    line = torch.linspace(-1.0 + 1.0 / span, 1.0 - 1.0 / span, span)[:height]
    grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).expand(count, -1, -1, -1)
    # From (down, right) in pixels to (x, y) in units of half the padded image.
    moves = torch.as_tensor(shifts[:, ::-1].copy(), dtype=torch.float32) * (2.0 / span)
    return functional.grid_sample(
        padded, grid + moves[:, None, None], padding_mode="zeros", align_corners=False
    )


class PlainDrQv2:
    """Three Adams, ordinary layouts, one operation after the other."""

    def __init__(self, network: Any, config: Any, rng: np.random.Generator, std: float) -> None:
        self.network, self.config, self.rng, self.std = copy.deepcopy(network), config, rng, std
        self.target = copy.deepcopy(self.network.critic)
        parts = (self.network.encoder, self.network.critic, self.network.actor)
        self.optimizers = [torch.optim.Adam(part.parameters(), lr=config.learning_rate) for part in parts]

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        pixels = images.flatten(1, -3).float()
        pad = self.config.shift_pad
        shifts = self.rng.integers(0, 2 * pad + 1, (len(images), 2))
        features: torch.Tensor = self.network.encoder.convs(grid_shift(pixels, shifts, pad) / 255.0 - 0.5)
        return features.reshape(len(images), -1)

    def noisy(self, mean: torch.Tensor) -> torch.Tensor:
        draw = self.rng.standard_normal(tuple(mean.shape), dtype=np.float32) * np.float32(self.std)
        noise = torch.from_numpy(draw).clamp(-self.config.std_clip, self.config.std_clip)
        action = mean + noise
        return action - action.detach() + action.clamp(-1.0, 1.0).detach()

    def update(self, batch: Any) -> tuple[float, float]:
        """Return the losses of critic and actor."""
        network, (encoder, critic, actor) = self.network, self.optimizers
        features = self.encode(batch.obs)
        with torch.no_grad():
            following = self.encode(batch.next_obs)
            values = self.target(following, self.noisy(network.actor(following)))
            target = batch.reward + batch.discount * torch.minimum(*values)
        first, second = network.critic(features, batch.action)
        loss = functional.mse_loss(first, target) + functional.mse_loss(second, target)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        critic.step()
        encoder.step()
        still = features.detach()
        actor_loss = -torch.minimum(*network.critic(still, self.noisy(network.actor(still)))).mean()
        actor.zero_grad(set_to_none=True)
        actor_loss.backward()  # type: ignore[no-untyped-call]
        actor.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), network.critic.parameters(), strict=True):
                slow.copy_(self.config.tau * fast + (1.0 - self.config.tau) * slow)
        return float(loss.detach()), float(actor_loss.detach())


def as_plain(network: Any) -> Any:
    """Return a copy whose activations are not in place."""
    plain = copy.deepcopy(network)
    for part in plain.modules():
        if isinstance(part, nn.ReLU):
            part.inplace = False
    return plain

"""The one place that turns an observation space into an encoder, for every algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import nn

from rl_training.errors import ConfigError
from rl_training.models.features import Features, Obs, split_all
from rl_training.observations import ObsPart, ObsSpec, Path, require_images

Cnn = Literal["auto", "nature", "small", "impala"]
NATURE_FROM = 36
"""Pixels that the Nature CNN needs."""
IMPALA_FROM = 8
STRIDES_FROM = 16
"""Pixels from which on the small CNN makes images smaller."""


def encoder_of(obs: Obs, *, normalize: bool = False, cnn: Cnn = "auto") -> Features | ImageEncoder:
    """Return what makes vectors [B, size] of observations: nothing to learn, unless there are images among them."""
    if isinstance(obs, ObsSpec):
        if normalize and not any(part.kind == "vector" for part in obs.parts):
            raise ConfigError(
                "network.normalize_obs: there are no vectors among the observations; images are scaled and discrete "
                "numbers become one-hot inputs without it"
            )
        if obs.images:
            return ImageEncoder(obs, normalize=normalize, cnn=cnn)
    if cnn != "auto":
        raise ConfigError(f"network.cnn: {cnn} has no effect, there are no images among the observations")
    return Features(obs, normalize=normalize)


class ImageEncoder(nn.Module):
    """Every image by convolutions of its own, whatever else there is as ``Features`` has it, side by side."""

    has_modes: ClassVar[bool] = False
    learned: ClassVar[bool] = True

    def __init__(self, spec: ObsSpec, *, normalize: bool = False, cnn: Cnn = "auto") -> None:
        super().__init__()
        require_images(spec.parts)
        self.spec = spec
        self._images = [part for part in spec.parts if part.kind == "image"]
        encoders = [Convolutions(part, cnn) for part in self._images]
        self.images = nn.ModuleList(encoders)
        rest = len(spec.parts) > len(encoders)
        self.features = Features(spec, normalize=normalize) if rest else None
        self.size = sum(encoder.size for encoder in encoders) + (self.features.size if self.features else 0)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return vectors [B, size] of observations [B, *obs]."""
        return self.encode(split_all(self.spec, obs))

    def encode(self, parts: Mapping[Path, torch.Tensor]) -> torch.Tensor:
        """Return the vectors of parts [B, *shape] that are apart already, as an exported network is given them."""
        pieces: list[torch.Tensor] = [
            encoder(parts[part.path]) for part, encoder in zip(self._images, self.images, strict=True)
        ]
        if self.features is not None:
            pieces.append(self.features.encode(parts))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)


class Convolutions(nn.Module):
    """Images [B, *shape] as vectors [B, size], by the Nature CNN, a small one, or IMPALA's.

    Values are scaled to [0, 1] here. Frames that are stacked count as channels.
    """

    has_modes: ClassVar[bool] = False

    def __init__(self, part: ObsPart, cnn: Cnn = "auto") -> None:
        super().__init__()
        channels, height, width = part.frame
        smallest = min(height, width)
        if cnn == "auto":
            cnn = "nature" if smallest >= NATURE_FROM else "small"
        least = {"nature": NATURE_FROM, "impala": IMPALA_FROM}.get(cnn, 0)
        if smallest < least:
            raise ConfigError(
                f"network.cnn: {cnn} needs images of at least {least} x {least} pixels, these have {height} x {width}"
            )
        self._part = part
        build = {"nature": _nature, "small": _small, "impala": _impala}[cnn]
        self.convs = build(channels, smallest)
        with torch.no_grad():
            self.size = self.convs(torch.zeros(1, channels, height, width)).numel()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the vectors."""
        if self._part.channels_last:
            images = images.movedim(-1, -3)
        images = images.flatten(1, -3) if images.ndim > 3 else images[:, None]
        x = images.float()
        if self._part.high != 1.0:
            x = x / self._part.high if x is images else x.mul_(1.0 / self._part.high)
        # The layout in which convolutions are fastest, on CPUs as on GPUs.
        x = x.contiguous(memory_format=torch.channels_last)
        features: torch.Tensor = self.convs(x)
        return features.permute(0, 2, 3, 1).flatten(1)


def _nature(channels: int, _: int) -> nn.Sequential:
    """Return the convolutions of Mnih et al. 2015."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 8, stride=4), nn.ReLU(inplace=True)),
        *(nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(inplace=True)),
        *(nn.Conv2d(64, 64, 3), nn.ReLU(inplace=True)),
    )


def _small(channels: int, pixels: int) -> nn.Sequential:
    """Return the convolution of Young and Tian 2019 for 10 x 10 pixels, and two with strides for larger images."""
    if pixels < STRIDES_FROM:
        return nn.Sequential(nn.Conv2d(channels, 16, 3), nn.ReLU(inplace=True))
    return nn.Sequential(
        *(nn.Conv2d(channels, 16, 3, stride=2), nn.ReLU(inplace=True)),
        *(nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(inplace=True)),
    )


def _impala(channels: int, _: int) -> nn.Sequential:
    """Return the residual network of Espeholt et al. 2018, its larger variant without the LSTM."""
    stages: list[nn.Module] = []
    for width in (16, 32, 32):
        stages += [
            nn.Conv2d(channels, width, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            *(Residual(width), Residual(width)),
        ]
        channels = width
    return nn.Sequential(*stages, nn.ReLU(inplace=True))


class Residual(nn.Module):
    """Two convolutions whose result is added to what they were given."""

    has_modes: ClassVar[bool] = False

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [B, C, H, W] as it came, and something added."""
        between: torch.Tensor = self.first(torch.relu(x))
        added: torch.Tensor = self.second(torch.relu(between))
        return x + added

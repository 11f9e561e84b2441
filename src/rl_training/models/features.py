"""From observations of any kind to float vectors, without anything to learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from rl_training.models.normalizer import RunningNormalizer
from rl_training.observations import ObsPart, ObsSpec, Path
from rl_training.spaces import Array

Obs = ObsSpec | tuple[int, ...]
"""What networks are told of observations: all there is to know, or the shape of vectors."""
Apart = Mapping[Path, torch.Tensor]
"""The parts [B, *shape] of observations, by the paths that lead to them, as exported networks are given them."""


def split(spec: ObsSpec, obs: torch.Tensor | Apart, part: ObsPart) -> torch.Tensor:
    """Return one part [B, *shape] of observations [B, *shape of the spec], or of ones that are apart already."""
    if isinstance(obs, Mapping):
        return obs[part.path]
    if not spec.packed:
        return obs
    raw = obs[:, part.offset : part.offset + part.nbytes].contiguous()
    dtype = torch.from_numpy(np.empty(0, part.dtype)).dtype
    return raw.view(dtype).reshape(obs.shape[0], *part.shape)


def rows(obs: torch.Tensor | Apart) -> int:
    """Return how many observations there are; unlike ``len`` it does not fix that number where torch exports."""
    return (next(iter(obs.values())) if isinstance(obs, Mapping) else obs).shape[0]


def split_all(spec: ObsSpec, obs: torch.Tensor | Apart) -> dict[Path, torch.Tensor]:
    """Return all parts [B, *shape] of observations [B, *shape of the spec], by the paths that lead to them."""
    return {part.path: split(spec, obs, part) for part in spec.parts}


class VectorParts:
    """Takes the vectors out of observations [N, *obs], for the statistics of a normaliser."""

    def __init__(self, spec: ObsSpec, parts: Iterable[ObsPart]) -> None:
        self._spec, self._parts = spec, tuple(parts)

    def __call__(self, obs: Array) -> Array:
        """Return them side by side [N, size]."""
        return np.concatenate([self._spec.take(obs, part).reshape(len(obs), -1) for part in self._parts], 1)


class Features(nn.Module):
    """Observations [B, *obs] as float vectors [B, size]; images are left to an encoder.

    Vectors are flattened, ``uint8`` ones scaled to [0, 1]; with ``normalize``, they are standardised by running
    statistics instead. Discrete numbers become one-hot vectors, bits zeros and ones. Of several parts, the
    vectors come first.
    """

    has_modes: ClassVar[bool] = False
    learned: ClassVar[bool] = False
    """Whether there are weights to learn between observations and features."""

    def __init__(self, obs: Obs, *, normalize: bool = False) -> None:
        super().__init__()
        self.spec = obs if isinstance(obs, ObsSpec) else None
        if self.spec is None or (self.spec.plain and not self.spec.images):
            shape = obs if isinstance(obs, tuple) else obs.shape
            self.plain, self.size = True, torch.Size(shape).numel()
            self.normalizer = RunningNormalizer(shape) if normalize else None
            return
        self.plain = False
        self.vectors = [part for part in self.spec.parts if part.kind == "vector"]
        self.others = [part for part in self.spec.parts if part.kind in ("binary", "discrete")]
        width = sum(part.size for part in self.vectors)
        self.size = width + sum(part.size for part in self.others)
        taken = VectorParts(self.spec, self.vectors)
        self.normalizer = RunningNormalizer((width,), of=taken) if normalize and width else None
        # Where the one-hot numbers of each discrete value begin.
        self._begins = {part.path: np.cumsum([0, *part.counts[:-1]]) for part in self.others if part.counts}

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the vectors."""
        if not self.plain:
            assert self.spec is not None
            return self.encode(split_all(self.spec, obs))
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        elif obs.dtype == torch.uint8:
            obs = obs.float() / 255.0
        if obs.ndim != 2:
            obs = obs.flatten(1) if obs.ndim > 1 else obs[:, None]
        return obs if obs.dtype == torch.float32 else obs.float()

    def encode(self, parts: Mapping[Path, torch.Tensor]) -> torch.Tensor:
        """Return the vectors of parts [B, *shape] that are apart already, as an exported network is given them."""
        pieces = self._vectors(parts) + [self._numbers(parts[part.path], part) for part in self.others]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)

    def _vectors(self, parts: Mapping[Path, torch.Tensor]) -> list[torch.Tensor]:
        if not self.vectors:
            return []
        raw = [parts[part.path].flatten(1) for part in self.vectors]
        if self.normalizer is not None:
            return [self.normalizer(torch.cat([piece.double() for piece in raw], 1))]
        return [piece.float() / 255.0 if piece.dtype == torch.uint8 else piece.float() for piece in raw]

    def _numbers(self, numbers: torch.Tensor, part: ObsPart) -> torch.Tensor:
        numbers = numbers.flatten(1)
        if part.kind == "binary":
            return numbers.float()
        places = numbers + torch.from_numpy(self._begins[part.path]).to(numbers.device)
        return torch.zeros(numbers.shape[0], part.size, device=numbers.device).scatter_(1, places, 1.0)

"""Standardising of observations by running statistics that are part of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from rl_training.spaces import Array


class RunningNormalizer(nn.Module):
    """Maps observations to (obs - mean) / std, clipped; statistics move only by ``observe``.

    They are float64 buffers of the module: saved with it, and the same for acting, learning, evaluation and
    ``predict``, which all take raw observations.
    """

    has_modes: ClassVar[bool] = False
    mean: torch.Tensor
    var: torch.Tensor
    count: torch.Tensor

    def __init__(
        self,
        shape: tuple[int, ...],
        clip: float = 10.0,
        eps: float = 1e-8,
        of: Callable[[Array], Array] | None = None,
    ) -> None:
        """``of`` takes out of observations what is normalised, if that is only a part of them."""
        super().__init__()
        self.clip, self.eps = clip, eps
        self._of = of
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def observe(self, obs: Array) -> None:
        """Merge a batch [N, *shape] into the statistics (Chan et al.), as if all were seen in one pass."""
        if self._of is not None:
            obs = self._of(obs)
        batch = torch.as_tensor(obs, dtype=torch.float64, device=self.mean.device)
        count = batch.shape[0]
        delta = batch.mean(0) - self.mean
        total = self.count + count
        # Sums of squares: own + batch's + what the distance of the two means adds.
        squares = (
            self.var * self.count + batch.var(0, correction=0) * count + delta**2 * self.count * count / total
        )
        self.mean += delta * count / total
        self.var.copy_(squares / total)
        self.count += count

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Normalise a batch [B, *shape]; the result is float32."""
        scaled = (obs - self.mean) / torch.sqrt(self.var + self.eps)
        return scaled.clamp(-self.clip, self.clip).float()


def numpy_normalizer(normalizer: RunningNormalizer) -> Callable[[Array], Array]:
    """Return a function that does what ``normalizer`` does to arrays [N, *shape]; it follows its statistics."""
    mean, var = normalizer.mean.numpy(), normalizer.var.numpy()
    clip, eps = normalizer.clip, normalizer.eps

    def normalize(obs: Array) -> Array:
        scaled: Array = (obs - mean) / np.sqrt(var + eps)
        return scaled.clip(-clip, clip).astype(np.float32)

    return normalize


def share_normalizers(owner: nn.Module, copy: nn.Module) -> None:
    """Let a copy of a network use its owner's normalisers, so that both always see the same statistics."""
    for name, module in list(owner.named_modules()):
        if isinstance(module, RunningNormalizer):
            parent, _, attribute = name.rpartition(".")
            setattr(copy.get_submodule(parent), attribute, module)

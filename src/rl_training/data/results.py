"""What comes back from an update: metrics, and what the experience needs to hear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch


class Means(Mapping[str, torch.Tensor]):
    """Named metrics given per sample [B] or as scalars; the mean of a batch is only taken when it is looked at.

    Most updates are never looked at one by one: the log shows means over many.
    """

    def __init__(self, samples: dict[str, torch.Tensor]) -> None:
        self.samples = samples

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.samples[name].mean()

    def __iter__(self) -> Iterator[str]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(slots=True)
class UpdateResult:
    """What an update reports: metrics that stay tensors until logged, and a priority per sample."""

    metrics: Means
    priorities: torch.Tensor | None = None
    gradient_steps: int = 1
    """How many optimizer steps it made: one on a replayed batch, many on a rollout."""

"""What is measured between two rows of the log; tensors are not read before a row is made."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.protocol import Means
from rl_training.runtime.collector import Episode

_FOLD = 256
"""Values kept of each metric before they are summed up, so that memory stays flat however rarely is logged."""


class _Kept:
    """The newest values of one metric, copied into one block of memory.

    Were the tensors themselves kept, they would lie scattered between the large ones of updates to come, and the
    heap would grow by those with every update.
    """

    def __init__(self, like: torch.Tensor) -> None:
        self.block = torch.empty((_FOLD, *like.shape), dtype=like.dtype, device=like.device)
        self._rows = list(self.block)
        self._shape = like.shape
        self.count = 0

    def add(self, value: torch.Tensor) -> None:
        self._rows[self.count].copy_(value.detach())
        self.count += 1

    def fits(self, value: torch.Tensor) -> bool:
        """Say whether a value can be added: batches may differ in size."""
        return value.shape == self._shape and value.dtype is self.block.dtype

    def take_means(self) -> list[float]:
        """Return the mean of each value, oldest first, and forget them."""
        count, self.count = self.count, 0
        means: list[float] = self.block[:count].double().reshape(count, -1).mean(1).tolist()
        return means


class Metrics:
    """Means of the update metrics since the last row, and of the last episodes."""

    def __init__(self, window: int) -> None:
        self._kept: dict[str, _Kept] = {}
        self._sums: dict[str, tuple[float, int]] = {}
        self._episodes: deque[Episode] = deque(maxlen=window)

    def record(self, metrics: Means) -> None:
        """Remember the metrics of one update."""
        for name, value in metrics.samples.items():
            kept = self._kept.get(name)
            if kept is None or not kept.fits(value):
                self._fold(name)
                kept = self._kept[name] = _Kept(value)
            kept.add(value)
            if kept.count >= _FOLD:
                self._fold(name)

    def record_episodes(self, episodes: list[Episode]) -> None:
        """Remember finished episodes."""
        self._episodes.extend(episodes)

    @property
    def mean_return(self) -> float | None:
        """Mean return of the episodes in the window, none before the first."""
        return float(np.mean([e[0] for e in self._episodes])) if self._episodes else None

    def row(self) -> dict[str, float]:
        """Return the means and start anew (the window of episodes stays)."""
        row: dict[str, float] = {}
        if self._episodes:
            row["rollout/ep_rew_mean"] = float(np.mean([e[0] for e in self._episodes]))
            row["rollout/ep_len_mean"] = float(np.mean([e[1] for e in self._episodes]))
        for name in self._kept:
            self._fold(name)
        for name, (total, count) in self._sums.items():
            row[f"train/{name}"] = total / count
        self._sums.clear()
        return row

    def _fold(self, name: str) -> None:
        kept = self._kept.get(name)
        if kept is None or not kept.count:
            return
        total, count = self._sums.get(name, (0.0, 0))
        means = kept.take_means()
        # Added one by one, so that it makes no difference into which portions a checkpoint cuts them.
        for mean in means:
            total += mean
        self._sums[name] = (total, count + len(means))

    def state_dict(self) -> dict[str, Any]:
        """Return what the next row will be made of."""
        for name in self._kept:
            self._fold(name)
        return {
            "sums": {name: list(pair) for name, pair in self._sums.items()},
            "episodes": [list(episode) for episode in self._episodes],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self._kept.clear()
        self._sums = {name: (float(total), int(count)) for name, (total, count) in state["sums"].items()}
        if any(not 0 < count <= 2**53 for _, count in self._sums.values()):
            raise ValueError("metrics: a mean of no values")
        episodes = [(float(r), int(length)) for r, length in state["episodes"]]
        if any(not 0 <= length <= 2**53 for _, length in episodes):
            raise ValueError("metrics: an episode of impossible length")
        self._episodes.clear()
        self._episodes.extend(episodes)

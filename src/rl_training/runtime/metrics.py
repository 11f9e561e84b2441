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
"""Tensors kept per metric before they are summed up, so that memory stays flat however rarely is logged."""


class Metrics:
    """Means of the update metrics since the last row, and of the last episodes."""

    def __init__(self, window: int) -> None:
        self._values: dict[str, list[torch.Tensor]] = {}
        self._sums: dict[str, tuple[float, int]] = {}
        self._episodes: deque[Episode] = deque(maxlen=window)

    def record(self, metrics: Means) -> None:
        """Remember the metrics of one update."""
        for name, value in metrics.samples.items():
            values = self._values.setdefault(name, [])
            values.append(value)
            if len(values) >= _FOLD:
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
        for name in self._values:
            self._fold(name)
        for name, (total, count) in self._sums.items():
            row[f"train/{name}"] = total / count
        self._values.clear()
        self._sums.clear()
        return row

    def _fold(self, name: str) -> None:
        values = self._values[name]
        total, count = self._sums.get(name, (0.0, 0))
        if values:
            # Added one by one, so that it makes no difference into which portions a checkpoint cuts them.
            for mean in _means(values):
                total += mean
        self._sums[name] = (total, count + len(values))
        values.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return what the next row will be made of."""
        for name in self._values:
            self._fold(name)
        return {
            "sums": {name: list(pair) for name, pair in self._sums.items()},
            "episodes": [list(episode) for episode in self._episodes],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self._values.clear()
        self._sums = {name: (float(total), int(count)) for name, (total, count) in state["sums"].items()}
        self._episodes.clear()
        self._episodes.extend((float(r), int(length)) for r, length in state["episodes"])


def _means(values: list[torch.Tensor]) -> list[float]:
    if len({value.shape for value in values}) > 1:  # batches of different sizes
        return [float(value.double().mean()) for value in values]
    means: list[float] = torch.stack(values).double().reshape(len(values), -1).mean(1).tolist()
    return means

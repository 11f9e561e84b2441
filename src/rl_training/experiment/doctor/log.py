"""The metrics of a run, with the questions that rules ask of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.config import ExperimentConfig
from rl_training.runtime.curves import EVAL_MEAN, TRAIN_RETURN, Series, extract_series
from rl_training.spaces import Array

FEW = 6
"""Rows of training below which nothing can be said."""


@dataclass(frozen=True)
class Log:
    """What a run has logged."""

    config: ExperimentConfig[Any]
    records: Sequence[dict[str, Any]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of training, without those of evaluations."""
        return [row for row in self.records if "train/n_updates" in row]

    def series(self, name: str) -> Series:
        """Return a metric over the steps."""
        return extract_series(self.records, name)

    def late(self, name: str) -> Array:
        """Return the values of a metric in the second half of the run."""
        series = self.series(name)
        return np.asarray(series.values[series.steps > 0.5 * self.last_step])

    @property
    def last_step(self) -> int:
        """The last step of the log."""
        return max((int(row["step"]) for row in self.records), default=0)

    def returns(self) -> Series:
        """Return evaluation returns if there are enough of them, else those of training."""
        evaluation = self.series(EVAL_MEAN)
        return evaluation if len(evaluation.steps) >= FEW else self.series(TRAIN_RETURN)

    @property
    def learned(self) -> bool:
        """Whether returns rose from the first fifth of the run to the last, clearly beyond their noise."""
        values = self.returns().values
        if len(values) < FEW:
            return False
        first, last = ends(values)
        noise = float(np.abs(np.diff(values)).mean()) if len(values) > 1 else 0.0
        return last - first > max(0.5 * noise, 0.05 * abs(first), 1e-9)

    def largest_value(self) -> float:
        """Return about the largest value that the rewards of this run can add up to, discounted."""
        gamma = float(getattr(self.config.algo_kwargs, "gamma", 1.0))
        returns, lengths = self.series(TRAIN_RETURN), self.series("rollout/ep_len_mean")
        whole = [*np.abs(returns.values), *np.abs(self.series(EVAL_MEAN).values), 1.0]
        if not len(lengths.values) or gamma >= 1.0:
            return float(max(whole))
        each = np.abs(returns.values) / np.maximum(lengths.values, 1.0)
        entropy = np.abs(self.series("train/entropy").values)
        weight = np.abs(self.series("train/ent_coef").values)
        bonus = float((weight * entropy).max()) if len(weight) and len(weight) == len(entropy) else 0.0
        scale = float(getattr(self.config.algo_kwargs, "reward_scale", 1.0))
        return float(max([*whole, *(each / (1.0 - gamma))])) * max(scale, 1e-9) + bonus / (1.0 - gamma)


def ends(values: Array) -> tuple[float, float]:
    """Return the means of the first and of the last fifth of values."""
    fifth = max(1, len(values) // 5)
    return float(np.mean(values[:fifth])), float(np.mean(values[-fifth:]))


def median(values: Array) -> float:
    """Return the median, NaN of nothing."""
    return float(np.median(values)) if len(values) else math.nan

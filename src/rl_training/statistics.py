"""Few-run statistics after Agarwal et al. 2021, "Deep RL at the Edge of the Statistical Precipice"."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
_MAX_DIVISIONS = 200_000


class Statistic(Protocol):
    """A function that reduces one axis, as ``iqm``, ``np.mean`` and ``np.median`` do."""

    def __call__(self, scores: FloatArray, /, *, axis: int) -> Any:
        """Return ``scores`` with ``axis`` reduced."""


@overload
def iqm(scores: ArrayLike, *, axis: None = None) -> float: ...
@overload
def iqm(scores: ArrayLike, *, axis: int) -> FloatArray: ...
def iqm(scores: ArrayLike, *, axis: int | None = None) -> float | FloatArray:
    """Return the interquartile mean: the mean after dropping ``floor(n / 4)`` scores from each end.

    Fewer than four scores lose none, so theirs is the plain mean; five lose the best and the worst.
    Without ``axis`` all scores are pooled, with it only that axis is reduced.
    """
    values = _checked(scores, "scores")
    if axis is None:
        return float(_trimmed_mean(values.reshape(-1)))
    return _trimmed_mean(np.moveaxis(values, axis, -1))


def bootstrap_interval(
    scores: ArrayLike,
    statistic: Statistic = iqm,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic of the pooled scores.

    ``scores`` is [runs] or [runs, tasks]; runs are redrawn within each task, each task on its own.
    """
    values = _checked(scores, "scores")
    if values.ndim > 2:
        raise ValueError(f"scores: expected [runs] or [runs, tasks], got shape {values.shape}")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence: expected a number between 0 and 1, got {confidence}")
    if resamples < 1:
        raise ValueError(f"resamples: expected at least 1, got {resamples}")
    values = values.reshape(len(values), -1)
    runs, tasks = values.shape
    drawn = np.random.default_rng(seed).integers(runs, size=(resamples, runs, tasks))
    pooled = values[drawn, np.arange(tasks)].reshape(resamples, runs * tasks)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(statistic(pooled, axis=-1), [tail, 1.0 - tail])
    return float(low), float(high)


def probability_of_improvement(x: ArrayLike, y: ArrayLike) -> float:
    """Return how often a score of ``x`` [n] beats one of ``y`` [m], ties counting one half: U / (n m)."""
    first, second = _checked(x, "x"), _checked(y, "y")
    if first.ndim != 1 or second.ndim != 1:
        raise ValueError(f"x, y: expected one axis each, got shapes {first.shape} and {second.shape}")
    wins = first[:, None] > second
    ties = first[:, None] == second
    return float(np.mean(wins + 0.5 * ties))


def improvement_interval(
    x: ArrayLike, y: ArrayLike, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of ``probability_of_improvement``, both sides redrawn."""
    first, second = _checked(x, "x"), _checked(y, "y")
    rng = np.random.default_rng(seed)
    drawn = [values[rng.integers(len(values), size=(resamples, len(values)))] for values in (first, second)]
    above = drawn[0][:, :, None] > drawn[1][:, None, :]
    ties = drawn[0][:, :, None] == drawn[1][:, None, :]
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile((above + 0.5 * ties).mean(axis=(1, 2)), [tail, 1.0 - tail])
    return float(low), float(high)


def rank_test(x: ArrayLike, y: ArrayLike, *, seed: int = 0) -> float:
    """Return how likely scores as unlike as these are if both sides are alike: the p-value of a rank test.

    Two-sided Mann-Whitney test by permutation, exact with ties as long as there are at most 200,000 ways to
    divide the scores, and from 20,000 random ones beyond that. Unlike a bootstrap interval it does not call a
    difference certain that three seeds happen to show: with 3 and 3 it never falls below 0.1.
    """
    first, second = _checked(x, "x"), _checked(y, "y")
    pooled = np.concatenate((first, second))
    # Twice the mid-ranks, which are whole numbers, so that equal sums are found equal.
    ranks = (pooled[:, None] > pooled).sum(1) + (pooled[:, None] >= pooled).sum(1) + 1
    size, count = len(first), len(pooled)
    centre = size * (count + 1)
    seen = abs(int(ranks[:size].sum()) - centre)
    if math.comb(count, size) <= _MAX_DIVISIONS:
        chosen = np.array(list(itertools.combinations(range(count), size)))
        return float(np.mean(np.abs(ranks[chosen].sum(1) - centre) >= seen))
    rng = np.random.default_rng(seed)
    far = sum(
        int(abs(rng.permutation(ranks)[:size].sum() - centre) >= seen) for _ in range(_MAX_DIVISIONS // 10)
    )
    return (far + 1) / (_MAX_DIVISIONS // 10 + 1)


def smallest_p(n: int, m: int) -> float:
    """Return the least p-value that ``rank_test`` can give for ``n`` and ``m`` scores."""
    return min(1.0, 2.0 / math.comb(n + m, n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for there being several of them, after Holm, in the order given."""
    count, adjusted, so_far = len(p_values), [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        so_far = max(so_far, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = so_far
    return adjusted


def _trimmed_mean(values: FloatArray) -> FloatArray:
    """Return the 25 % trimmed mean over the last axis."""
    count = values.shape[-1]
    cut = count // 4
    kept = np.sort(values, axis=-1)[..., cut : count - cut]
    return np.asarray(kept.mean(axis=-1))


def _checked(scores: ArrayLike, name: str) -> FloatArray:
    """Return the scores as an array of at least one axis, or refuse what has no meaningful statistic."""
    values = np.atleast_1d(np.asarray(scores, dtype=np.float64))
    if values.size == 0:
        raise ValueError(f"{name}: expected at least one score, got none")
    # Sorting would put a NaN in the trimmed tail, where it would silently count as a good score.
    bad = values.size - np.count_nonzero(np.isfinite(values))
    if bad:
        raise ValueError(f"{name}: expected finite scores, got {bad} of {values.size} NaN or infinite")
    return values

"""A curve of any number of points in bounded memory, of which no peak is lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rl_training.runtime.curves import Series

BUCKETS = 500
_PENDING = 8_192


class Envelope:
    """Of each bucket of steps the lowest and the highest value; a curve of up to two for each is kept as it is.

    All buckets are equally wide, and as wide as a power of two, so that wider ones are made of whole narrow ones.
    """

    def __init__(self, buckets: int = BUCKETS) -> None:
        self._buckets = buckets
        self._steps = np.empty(0, np.int64)
        self._values = np.empty(0)
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        self._waits = 0

    def add(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Take finite values over steps [N]. A step that was there before goes back to it: the later walk counts."""
        if not steps.size:
            return
        last = self._waiting[-1][0][-1] if self._waiting else self._steps[-1] if self._steps.size else -1
        if steps[0] <= last or (np.diff(steps) <= 0).any():
            steps, values = self._gone_back(steps, values)
        self._waiting.append((steps, values))
        self._waits += len(steps)
        if self._waits > _PENDING:
            self._compress()

    def series(self) -> Series:
        """Return what is kept."""
        self._compress()
        return Series(self._steps.astype(np.float64), self._values)

    def _gone_back(
        self, steps: NDArray[np.int64], values: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Forget what comes after steps that are walked again; return what is left of the new points."""
        self._compress()
        ahead = np.minimum.accumulate(steps[::-1])[::-1]
        kept = self._steps < ahead[0]
        self._steps, self._values = self._steps[kept], self._values[kept]
        alive = np.append(steps[:-1] < ahead[1:], True)
        return steps[alive], values[alive]

    def _compress(self) -> None:
        if self._waiting:
            self._steps = np.concatenate([self._steps, *(steps for steps, _ in self._waiting)])
            self._values = np.concatenate([self._values, *(values for _, values in self._waiting)])
            self._waiting, self._waits = [], 0
        kept = thinned(self._steps, self._values, self._buckets)
        self._steps, self._values = self._steps[kept], self._values[kept]


def thin(series: Series, buckets: int) -> Series:
    """Return a curve with at most two points for each bucket, and its ends."""
    kept = thinned(series.steps.astype(np.int64), series.values, buckets)
    return Series(series.steps[kept], series.values[kept])


def thinned(steps: NDArray[np.int64], values: NDArray[np.float64], buckets: int) -> NDArray[np.int64]:
    """Return the places of what is kept of a curve: the first, the last, and two of each bucket."""
    size = len(steps)
    if size <= 2 * buckets:
        return np.arange(size)
    width = 1
    while steps[-1] // width - steps[0] // width >= buckets:
        width *= 2
    bucket = steps // width
    starts = np.flatnonzero(np.diff(bucket, prepend=bucket[0] - 1))
    number = np.repeat(np.arange(len(starts)), np.diff(starts, append=size))
    kept = [np.array([0, size - 1])]
    for extreme in (np.minimum, np.maximum):
        places = np.flatnonzero(values == extreme.reduceat(values, starts)[number])
        kept.append(places[np.diff(number[places], prepend=-1) > 0])
    return np.unique(np.concatenate(kept))

"""Axes: from values to places along them, and what is written beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LOG_FROM = 1_000.0
"""A range of positive values whose ends differ by this factor is drawn on a logarithmic axis."""
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Scale:
    """An axis from ``low`` to ``high``; places on it are shares from 0 to 1."""

    low: float
    high: float
    log: bool = False

    def place(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where values lie."""
        low, high = self._shown(self.low), self._shown(self.high)
        shown = np.log10(np.maximum(values, 1e-300)) if self.log else values
        # Halved, as the range itself may be larger than any number.
        return (shown / 2 - low / 2) / (high / 2 - low / 2)

    def ticks(self, count: int = 6) -> list[float]:
        """Return round values along the axis, about as many as asked for."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, -(-(last - first + 1) // (count + 1)))
            return [10.0**power for power in range(first, last + 1, every)]
        step = round_step(self.high / count - self.low / count)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)] if last - first < 100 else []

    def _shown(self, value: float) -> float:
        return math.log10(value) if self.log else value


def round_step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least ``least``."""
    if not math.isfinite(least) or least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next((size * power for size in (1, 2, 5) if size * power >= least * 0.999), 10 * power)


def value_scale(low: float, high: float) -> Scale:
    """Return an axis that shows all values from ``low`` to ``high`` with a little air around them."""
    if low > 0 and high / low >= _LOG_FROM:
        return Scale(low / 1.2, high * 1.2, log=True)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-12):
        room = max(abs(low) * 0.1, 1e-3 if low else 1.0)
        return Scale(low - room, high + room)
    if 0 < low < 0.35 * high:
        low = 0.0
    if low < high < 0 and high > 0.35 * low:
        high = 0.0
    room = 0.05 * (high - low) if math.isfinite(high - low) else 0.0
    return Scale(low if low == 0 else low - room, high if high == 0 else high + room)


def step_scale(last: float) -> Scale:
    """Return an axis of environment steps."""
    return Scale(0.0, max(1.0, last))


def short(value: float, precision: int = 4, thousands: float = 10.0) -> str:
    """Return a number as it stands in a table: 12.5k, 0.003, -1.2M, 3.00e-5; k is used from ``thousands`` on."""
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-4:
        return f"{value:.{max(precision - 2, 0)}e}".replace("e-0", "e-").replace("e+", "e")
    for factor, prefix in _PREFIXES:
        if size >= factor * (thousands if prefix == "k" else 1):
            return f"{value / factor:.{precision}g}{prefix}"
    if size < 1_000:
        return f"{value:.{precision}g}"
    places = max(0, precision - 4)
    return f"{value:.{places}f}".rstrip("0").rstrip(".") if places else f"{value:.0f}"


def tick_labels(ticks: list[float]) -> list[str]:
    """Return labels that differ from each other."""
    thousands = 1.0 if all(not tick or abs(tick) >= 1_000 for tick in ticks) else 10.0
    for precision in range(3, 12):
        labels = [short(tick, precision, thousands) for tick in ticks]
        if len(set(labels)) == len(labels):
            return labels
    return [repr(tick) for tick in ticks]


def duration(seconds: float) -> str:
    """Return a time for people: 42 s, 3 min 20 s, 5 h 12 min, 3 d 4 h."""
    whole = round(seconds)
    for size, unit, inner, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // inner
            return f"{whole // size:,} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{seconds:.1f} s" if 0 < seconds < 9.95 else f"{whole} s"

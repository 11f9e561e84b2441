"""A tree of sums over the slots of a ring: drawing a slot by its share takes a few steps, and so does changing it."""

from __future__ import annotations

import numpy as np

from rl_training.spaces import Array

FAN_OUT = 8
"""Children per node: eight float64 are one cache line. Of 4, 8, 16 and 32 it did best at 10k to 10M slots."""

MAX_VALUE = 1e290
"""The largest value of a slot; even 1e18 of them have a finite sum."""

_CACHE_LINE = 64


class SumTree:
    """Values >= 0 of ``capacity`` slots, all 0 at first, and the sums of them by eights, and of those, and so on.

    A sum is always taken anew from its eight children, never corrected by a difference, so that no error adds
    up and the inner nodes follow from the leaves alone. The work is done in ``kernels.py``; numba is
    imported with the first tree and not before.
    """

    BYTES_PER_SLOT = 8 * FAN_OUT / (FAN_OUT - 1)

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        from rl_training.data import kernels

        self.capacity = capacity
        self._update, self._fill = kernels.update, kernels.fill
        self._find = kernels.find
        self._levels = _levels(capacity)
        self._nodes = _aligned_zeros(int(self._levels[-1]) + 1)

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._nodes[-1])

    @property
    def values(self) -> Array:
        """The values of all slots [capacity], as a view that must not be written to."""
        return self._nodes[: self.capacity]

    @property
    def nbytes(self) -> int:
        """The memory that the values and all sums take."""
        return int(self._nodes.nbytes)

    def update(self, slots: Array, values: Array) -> None:
        """Set the values [N] of slots [N]; of a slot that comes twice, the last value counts."""
        slots, values = _contiguous(slots, np.int64), _contiguous(values, np.float64)
        if slots.shape != values.shape:
            raise ValueError(f"slots and values differ in shape: {slots.shape} and {values.shape}")
        bad = self._update(self._nodes, self._levels, self.capacity, MAX_VALUE, slots, values)
        if bad >= 0:
            raise ValueError(
                f"slot {slots[bad]} with value {values[bad]} (number {bad} of the batch): slots are below "
                f"{self.capacity}, values from 0 to {MAX_VALUE:g}"
            )

    def fill(self, start: int, stop: int, value: float) -> None:
        """Give all slots from ``start`` to before ``stop`` the same value."""
        if not (0 <= start <= stop <= self.capacity and 0.0 <= value <= MAX_VALUE):
            raise ValueError(f"slots {start} to {stop} of {self.capacity} cannot be given the value {value}")
        if start < stop:
            self._fill(self._nodes, self._levels, start, stop, value)

    def find(self, targets: Array) -> Array:
        """Return for each target in [0, total) the first slot up to which the values sum to more than it.

        A slot is found in proportion to its value, and one without a value never, whatever the rounding.
        """
        rest = np.array(targets, np.float64)
        slots = np.empty(len(rest), np.int64)
        bad = self._find(self._nodes, self._levels, rest, slots)
        if bad >= 0:
            raise ValueError(f"target {targets[bad]} (number {bad} of the batch) is not in [0, {self.total})")
        return slots


def _levels(capacity: int) -> Array:
    """Return where each level begins in one long array: the leaves at 0, the root at the end."""
    starts, width = [0], capacity
    while width > 1:
        nodes = -(-width // FAN_OUT)
        starts.append(starts[-1] + nodes * FAN_OUT)
        width = nodes
    return np.array(starts, np.int64)


def _aligned_zeros(count: int) -> Array:
    """Return zeros of which the first begins a cache line, so that eight children are one line and not two."""
    size = np.dtype(np.float64).itemsize
    raw = np.zeros(count + _CACHE_LINE // size)
    skipped = -raw.ctypes.data % _CACHE_LINE // size
    return raw[skipped : skipped + count]


def _contiguous(array: Array, dtype: type) -> Array:
    return np.ascontiguousarray(array, dtype)

"""Action masks beside the rows of a ring, which only take memory once an environment gives some."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.data.memory import require_memory
from rl_training.errors import CheckpointError
from rl_training.spaces import Array


class MaskColumn:
    """One mask [A] of bools for each of ``capacity`` rows; a row that was written without one allows everything."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._masks: Array | None = None  # [capacity, A], made when the first mask comes
        self.used = False

    def write(self, where: Any, masks: Array | None) -> None:
        """Store masks [N, A] in the rows ``where``; none allows every action."""
        if self._masks is None:
            if masks is None:
                return
            self._masks, self.used = self._allocate(masks.shape[1]), True
        self._masks[where] = True if masks is None else masks

    def reserve(self, num_actions: int | None) -> None:
        """Allow everything in all rows, as if masks [A] had been written; none: as if there never were any."""
        self._masks = None if num_actions is None else self._allocate(num_actions)
        self.used = num_actions is not None

    @property
    def num_actions(self) -> int | None:
        """How many actions a mask is for; none if there never were masks."""
        return None if self._masks is None else self._masks.shape[1]

    @property
    def nbytes(self) -> int:
        """The bytes that the masks take."""
        return 0 if self._masks is None else self._masks.nbytes

    def fits(self, masks: Array | None) -> bool:
        """Say whether masks [N, A] are for as many actions as those that are kept; none fit always."""
        return masks is None or masks.shape[1] == self.num_actions

    def view(self, where: Any) -> Array | None:
        """Return the masks of these rows, as a view for a slice; none if there never were any."""
        return None if self._masks is None else self._masks[where]

    def take(self, slots: Array) -> Array | None:
        """Return the masks [B, A] of these rows, none if there never were any."""
        return None if self._masks is None else self._masks.take(slots, 0)

    def first(self, size: int) -> Array | None:
        """Return a view of the first ``size`` masks, none if there never were any."""
        return self.view(slice(size))

    def check(self, given: Any, size: int) -> Array | None:
        """Return saved masks of ``size`` rows as an array, or refuse them."""
        if given is None:
            return None
        masks: Array = np.asarray(given)
        if masks.dtype != bool or masks.ndim != 2 or len(masks) != size:
            raise CheckpointError(f"replay: masks are {masks.dtype}{masks.shape}, not bool with {size} rows")
        return masks

    def restore(self, masks: Array | None) -> None:
        """Take over checked masks of the first rows."""
        self._masks, self.used = None, masks is not None
        if masks is not None:
            self._masks = self._allocate(masks.shape[1])
            self._masks[: len(masks)] = masks

    def _allocate(self, num_actions: int) -> Array:
        require_memory(self._capacity, num_actions, "algo_kwargs.buffer_size")
        return np.ones((self._capacity, num_actions), bool)

"""Action spaces as plain values, so that learners need to know no environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class DiscreteActions:
    """``n`` actions; learners count them from 0, the environment from ``start``."""

    n: int
    start: int = 0
    kind = "discrete"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype in which learners and buffers hold an action."""
        return np.dtype(np.int64)

    def to_env(self, action: Array) -> Array:
        """Map a learner's actions to what the environment takes."""
        return action + self.start if self.start else action

    def from_env(self, action: Array) -> Array:
        """Map an environment's actions to what learners use."""
        return action - self.start if self.start else action

    def hold(self, action: Array) -> bool:
        """Say whether these can all have been a learner's actions."""
        return bool(((action >= 0) & (action < self.n)).all())


@dataclass(frozen=True, eq=False)
class _Box:
    """Actions between ``low`` and ``high``, in each dimension."""

    low: Array
    high: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return self.low.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype in which learners and buffers hold an action."""
        return np.dtype(np.float32)

    def hold(self, action: Array) -> bool:
        """Say whether these can all have been a learner's actions."""
        return bool(np.isfinite(action).all())


@dataclass(frozen=True, eq=False)
class ContinuousActions(_Box):
    """Actions in a box; learners use [-1, 1] in every dimension, the environment ``low`` to ``high``."""

    kind = "continuous"

    def to_env(self, action: Array) -> Array:
        """Map [-1, 1] to [low, high] per dimension; -1 and 1 give the bounds exactly."""
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        # A weighted mean of the bounds, unlike low + share * (high - low), cannot round past a bound.
        share = (np.clip(action, -1.0, 1.0).astype(np.float64) + 1.0) / 2.0
        return np.clip(low * (1.0 - share) + high * share, low, high).astype(self.low.dtype)

    def from_env(self, action: Array) -> Array:
        """Map [low, high] to [-1, 1] per dimension."""
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        return (2.0 * (action - low) / (high - low) - 1.0).astype(np.float32)


@dataclass(frozen=True, eq=False)
class UnboundedActions(_Box):
    """Actions in a box without bounds in some dimension; learners use the environment's own units."""

    kind = "unbounded"

    def to_env(self, action: Array) -> Array:
        """Cut actions off at the bounds that there are."""
        bounded: Array = np.clip(action, self.low, self.high).astype(self.low.dtype)
        return bounded


@dataclass(frozen=True)
class MultiDiscreteActions:
    """Several discrete actions at once; learners count each from 0, the environment from ``starts``."""

    counts: tuple[int, ...]
    starts: tuple[int, ...]
    kind = "multi_discrete"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return (len(self.counts),)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype in which learners and buffers hold an action."""
        return np.dtype(np.int64)

    def to_env(self, action: Array) -> Array:
        """Map a learner's actions to what the environment takes."""
        return action + np.array(self.starts) if any(self.starts) else action

    def hold(self, action: Array) -> bool:
        """Say whether these can all have been a learner's actions."""
        return bool(((action >= 0) & (action < np.array(self.counts))).all())


@dataclass(frozen=True)
class MultiBinaryActions:
    """``n`` zeros or ones at once."""

    n: int
    kind = "multi_binary"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return (self.n,)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype in which learners and buffers hold an action."""
        return np.dtype(np.int8)

    def to_env(self, action: Array) -> Array:
        """Return actions as they are."""
        return action

    def hold(self, action: Array) -> bool:
        """Say whether these can all have been a learner's actions."""
        return bool(((action >= 0) & (action <= 1)).all())


ActionSpec = (
    DiscreteActions | ContinuousActions | UnboundedActions | MultiDiscreteActions | MultiBinaryActions
)

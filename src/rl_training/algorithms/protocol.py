"""What the loop expects of an algorithm and of its experience."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rl_training.data.results import Means, UpdateResult
from rl_training.data.transitions import Carry, Transitions
from rl_training.spaces import Array

__all__ = ["Algorithm", "Decision", "Experience", "Means", "UpdateResult"]

B = TypeVar("B")
B_contra = TypeVar("B_contra", contravariant=True)
"""What an update learns from: what the experience of the same algorithm deals out."""


@dataclass(slots=True)
class Decision:
    """Actions for N observations, and the memory to hand in with the next ones (none if memoryless)."""

    action: Array
    carry: Carry | None = None
    played: Array | None = None
    """What the environments are given, in the learner's units, where that is not the action that is learned from."""

    @property
    def to_play(self) -> Array:
        """What the environments are given."""
        return self.action if self.played is None else self.played


class Algorithm(Protocol[B_contra]):
    """A learner: it decides, it updates, and it lists its whole state. ``Learner`` has most of this already."""

    def initial_carry(self, count: int) -> Carry | None:
        """Return the memory of ``count`` episodes that are about to begin; none if the learner is memoryless."""
        ...

    def exploration_carry(self, count: int) -> Carry | None:
        """Return the same where it is explored: what noise remembers is carried along, too."""
        ...

    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N, *action] for observations [N, *obs], in the learner's own units.

        ``carry`` is the memory of the last decision after ``carry_on``, or none at the beginning. ``mask`` [N, A]
        is only given where the environment says which of its discrete actions it allows.
        """
        ...

    def observe(self, obs: Array) -> None:
        """Take note of observations [N, *obs] that training acts on, for running statistics."""
        ...

    def update(self, batch: B_contra) -> UpdateResult:
        """Learn from one batch; raise ``NonFiniteError`` before a NaN reaches the weights."""
        ...

    def advance(self, env_steps: int) -> None:
        """Move everything that is scheduled in env steps to this point of the run."""
        ...

    def status(self) -> dict[str, float]:
        """Return scheduled values worth logging."""
        ...

    def warnings(self, row: Mapping[str, float]) -> dict[str, str]:
        """Return what a user should be told about a row of the log, by names; each name is shown once a run."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all state, in the sections ``model``, ``optimizer`` and ``counters``."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of the same shape."""
        ...


class Experience(Protocol[B]):
    """What is kept of the transitions, and when and how it is dealt out again."""

    def actions(self) -> Iterator[Array]:
        """Yield all actions that are kept, in arrays [..., *action]: those of a checkpoint are looked at."""
        ...

    def add(self, step: Transitions) -> None:
        """Store one step of the environments."""
        ...

    def batches(self, env_steps: int) -> Iterator[B]:
        """Yield the batches that are due."""
        ...

    def feedback(self, batch: B, result: UpdateResult) -> None:
        """Hear what the update found out about its batch."""
        ...

    def begin_at(self, env_steps: int) -> None:
        """Go on empty at this point of a run, whose checkpoint was saved without what was kept."""
        ...

    def interrupt(self, envs: Array | None = None) -> None:
        """Give up the episodes of these environments, or of all, which will not go on."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all state."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of the same shape."""
        ...

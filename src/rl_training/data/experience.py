"""Replay with a cadence: when there is something to learn from, and how much of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from rl_training.data.n_step import NStepFolder
from rl_training.data.results import UpdateResult
from rl_training.data.transitions import Batch, SequenceBatch, Transitions
from rl_training.errors import CheckpointError
from rl_training.spaces import Array

MOST_OWED = 10_000
"""Rounds of updates that can have been due before the first sequence was complete."""

B = TypeVar("B", Batch, SequenceBatch)


class PacedReplay(ABC, Generic[B]):
    """Deals out batches of a buffer: ``gradient_steps`` per ``train_freq`` env steps, after ``learning_starts``."""

    def __init__(
        self, buffer: Any, *, batch_size: int, learning_starts: int, train_freq: int, gradient_steps: int
    ) -> None:
        self.buffer = buffer
        self._batch_size = batch_size
        self._learning_starts = learning_starts
        self._train_freq = train_freq
        self._gradient_steps = gradient_steps
        self._env_steps = 0
        self._owed = 0  # batches that env steps have earned while there was nothing to sample from yet
        self._refilled_from = 0  # the env step at which a run went on with an empty buffer

    @abstractmethod
    def add(self, step: Transitions) -> None:
        """Store one step of the environments."""

    @abstractmethod
    def interrupt(self, envs: Array | None = None) -> None:
        """Give up the episodes of these environments, or of all, which will not go on."""

    def batches(self, env_steps: int) -> Iterator[B]:
        """Return the batches that are due after ``env_steps`` environment steps, each drawn when it is asked for."""
        # Rounds are counted from step to step, so that a resumed run with another cadence owes nothing of old.
        rounds = self._rounds(env_steps) - self._rounds(self._env_steps)
        self._env_steps = env_steps
        if rounds <= 0 and not self._owed:
            return iter(())
        self._owed += rounds * self._gradient_steps
        if not len(self.buffer):
            return iter(())
        due, self._owed = self._owed, 0
        return (self._sample() for _ in range(due))

    def _sample(self) -> B:
        batch: B = self.buffer.sample(self._batch_size)
        return batch

    def begin_at(self, env_steps: int) -> None:
        """Go on empty at this point of a run; the next update is due ``learning_starts`` steps later."""
        self._env_steps = self._refilled_from = env_steps

    def _rounds(self, env_steps: int) -> int:
        after = env_steps - self._refilled_from - self._learning_starts
        return after // self._train_freq if after > 0 else 0

    def actions(self) -> Iterator[Array]:
        """Yield the actions in the buffer."""
        yield from self.buffer.actions()

    def feedback(self, batch: B, result: UpdateResult) -> None:
        """Do nothing: uniform replay has no use for what an update found out about its batch."""
        return

    def state_dict(self) -> dict[str, Any]:
        """Return buffer and cadence."""
        state = {"buffer": self.buffer.state_dict(), "env_steps": self._env_steps, "owed": self._owed}
        return {**state, "refilled_from": self._refilled_from} if self._refilled_from else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.buffer.load_state_dict(state["buffer"])
        env_steps, owed = state["env_steps"], state["owed"]
        # What is owed was due before there was anything to learn from.
        most = 0 if len(self.buffer) else MOST_OWED * self._gradient_steps
        if type(env_steps) is not int or type(owed) is not int or env_steps < 0 or not 0 <= owed <= most:
            raise CheckpointError(
                f"replay: {owed!r:.30} updates owed at step {env_steps!r:.30} are impossible"
            )
        refilled_from = state.get("refilled_from", 0)  # not there if the buffer was never emptied
        if type(refilled_from) is not int or not 0 <= refilled_from <= env_steps:
            raise CheckpointError(f"replay: {refilled_from!r:.30} is no step at which it was emptied")
        self._env_steps, self._owed, self._refilled_from = env_steps, owed, refilled_from


class ReplayExperience(PacedReplay[Batch]):
    """Folds steps into the transitions of a ``ReplayBuffer``."""

    def __init__(self, buffer: Any, folder: NStepFolder, **cadence: int) -> None:
        super().__init__(buffer, **cadence)
        self._folder = folder

    def add(self, step: Transitions) -> None:
        """Store one step of the environments."""
        folded = self._folder.fold(step)
        if len(folded[2]):
            self.buffer.add(*folded)

    def actions(self) -> Iterator[Array]:
        """Yield the actions in the buffer and in open windows."""
        yield from super().actions()
        yield self._folder.actions

    def interrupt(self, envs: Array | None = None) -> None:
        """Forget unfinished windows: the episodes they belong to will not go on."""
        self._folder.forget(envs)

    def state_dict(self) -> dict[str, Any]:
        """Return buffer, open windows and cadence."""
        return {**super().state_dict(), "n_step": self._folder.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._folder.load_state_dict(state["n_step"])


class SequenceExperience(PacedReplay[B]):
    """Hands steps to a buffer that itself knows which episodes they belong to, such as one of sequences or images."""

    def add(self, step: Transitions) -> None:
        """Store one step of the environments."""
        self.buffer.add(step)

    def interrupt(self, envs: Array | None = None) -> None:
        """End the episodes of these environments, or of all, where they are."""
        self.buffer.interrupt(envs)


class ByPriority(PacedReplay[B]):
    """Draws from a buffer by priorities that the updates feed back.

    The exponent of the weights moves in a straight line from ``beta`` at the first env step to ``beta_final``
    at ``total_timesteps``: a function of the env steps, so there is nothing of it to save.
    """

    def __init__(
        self, *buffer: Any, beta: float, beta_final: float, total_timesteps: int, **cadence: int
    ) -> None:
        super().__init__(*buffer, **cadence)
        for name, value in (("beta", beta), ("beta_final", beta_final)):
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must be from 0 to 1, got {value}")
        self._beta, self._beta_final, self._total_timesteps = beta, beta_final, total_timesteps

    @property
    def beta(self) -> float:
        """The exponent of the weights at this point of the run."""
        if self._env_steps >= self._total_timesteps:
            return self._beta_final
        return self._beta + (self._beta_final - self._beta) * (self._env_steps / self._total_timesteps)

    def _sample(self) -> B:
        batch: B = self.buffer.sample(self._batch_size, self.beta)
        return batch

    def feedback(self, batch: B, result: UpdateResult) -> None:
        """Give what a batch was made of the priorities [B] that the update found."""
        if batch.indices is None or result.priorities is None:
            raise ValueError("prioritized replay needs a priority per sample from every update")
        self.buffer.update_priorities(batch.indices, result.priorities)


class PrioritizedExperience(ByPriority[Batch], ReplayExperience):
    """Transitions by priority."""


class PrioritizedSequenceExperience(ByPriority[B], SequenceExperience[B]):
    """Sequences or images by priority."""

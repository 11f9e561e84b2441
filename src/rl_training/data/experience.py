"""Replay with a cadence: when there is something to learn from, and how much of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rl_training.data.n_step import NStepFolder
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.transitions import Batch, Transitions


class ReplayExperience:
    """Folds steps into a replay buffer and deals out batches: ``gradient_steps`` per ``train_freq`` env steps."""

    def __init__(
        self,
        buffer: ReplayBuffer,
        folder: NStepFolder,
        *,
        batch_size: int,
        learning_starts: int,
        train_freq: int,
        gradient_steps: int,
    ) -> None:
        self.buffer = buffer
        self._folder = folder
        self._batch_size = batch_size
        self._learning_starts = learning_starts
        self._train_freq = train_freq
        self._gradient_steps = gradient_steps
        self._rounds = 0  # rounds of updates that env steps have earned and that were dealt out

    def add(self, step: Transitions) -> None:
        """Store one step of the environments."""
        folded = self._folder.fold(step)
        if len(folded[2]):
            self.buffer.add(*folded)

    def batches(self, env_steps: int) -> Iterator[Batch]:
        """Yield the batches that are due after ``env_steps`` environment steps."""
        earned = max(env_steps - self._learning_starts, 0) // self._train_freq
        if earned <= self._rounds or not len(self.buffer):
            return
        due = (earned - self._rounds) * self._gradient_steps
        self._rounds = earned
        for _ in range(due):
            yield self.buffer.sample(self._batch_size)

    def feedback(self, batch: Batch, priorities: Any) -> None:
        """Uniform replay has no use for what an update found out about its batch."""

    def interrupt(self) -> None:
        """Forget unfinished windows: the episodes they belong to will not go on."""
        self._folder.forget()

    def state_dict(self) -> dict[str, Any]:
        """Return buffer, open windows and cadence."""
        return {
            "buffer": self.buffer.state_dict(),
            "n_step": self._folder.state_dict(),
            "rounds": self._rounds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.buffer.load_state_dict(state["buffer"])
        self._folder.load_state_dict(state["n_step"])
        self._rounds = int(state["rounds"])

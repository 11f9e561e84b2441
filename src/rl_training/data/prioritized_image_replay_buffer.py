"""Prioritized replay of images (Schaul et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rl_training.data.chunk_checks import of_each_env
from rl_training.data.frame_rings import STEP
from rl_training.data.image_replay_buffer import ImageReplayBuffer
from rl_training.data.priorities import Priorities, as_array, whole_numbers
from rl_training.data.sum_tree import MAX_VALUE, SumTree
from rl_training.data.transitions import Batch, Transitions
from rl_training.errors import CheckpointError
from rl_training.spaces import Array


class PrioritizedImageReplayBuffer(ImageReplayBuffer):
    """Transitions drawn by priorities: P(i) = p_i**alpha / sum_k p_k**alpha, p_i = |delta_i| + eps.

    A transition gets the largest priority as soon as it can be drawn, and 0 when it no longer can. The one from
    row k of environment e is known by the number ``k * num_envs + e``, which no other ever has:
    ``Batch.indices`` holds these numbers. A priority for a transition that is gone is ignored.
    """

    _extra_bytes = SumTree.BYTES_PER_SLOT

    def __init__(self, *args: Any, alpha: float = 0.6, eps: float = 1e-6, **options: Any) -> None:
        super().__init__(*args, **options)
        # The slot of a transition is the place of its row.
        self.priorities = Priorities(self.num_envs * self._ring, alpha, eps)

    @property
    def nbytes(self) -> int:
        """The bytes of all that is kept, whether it has been written to yet or not."""
        return super().nbytes + self.priorities.tree.nbytes

    # Writing

    def add(self, step: Transitions) -> None:
        """Take one step of the environments; what can be drawn now is as likely to be as any ever was."""
        before = self._ready.copy()
        super().add(step)
        self._give(before, self._ready, self.priorities.largest)

    def interrupt(self, envs: Array | None = None) -> None:
        """End the episodes of these environments, or of all, here, as a truncation would."""
        before = self._ready.copy()
        super().interrupt(envs)
        self._give(before, self._ready, self.priorities.largest)

    def _drop_lost(self, env: int, row: int) -> None:
        before = self._first.copy()
        super()._drop_lost(env, row)
        self._give(before, self._first, 0.0)

    def _give(self, start: Array, stop: Array, value: float) -> None:
        """Give a value to the steps from number ``start`` to before ``stop`` of each environment."""
        counts = stop - start
        total = int(counts.sum())
        if total:
            envs = np.repeat(np.arange(self.num_envs), counts)
            numbers = np.arange(total) + np.repeat(start - (np.cumsum(counts) - counts), counts)
            slots = self._rings.places(envs, self._heads[envs, numbers % self._ring])
            self.priorities.tree.update(slots, np.full(total, value))

    # Reading

    def sample(self, batch_size: int, beta: float = 0.4) -> Batch:
        """Draw ``batch_size`` transitions by their priorities, with the weights that correct for it.

        The field ``weight`` is (N P(i))**-beta, divided by the largest of the batch.
        """
        if not len(self):
            raise ValueError("the replay buffer is empty")
        slots = self.priorities.draw(batch_size, self._rng)
        envs, places = slots // self._ring, slots % self._ring
        newest = self._head[envs] - 1  # no step was made from a newer row
        batch = self.gather(envs, newest - (newest - places) % self._ring)
        weight = torch.from_numpy(self.priorities.weights(slots, beta))
        batch.weight = weight.to(self.device)
        return batch

    def gather(self, envs: Array, heads: Array) -> Batch:
        """Return the transitions that begin in these rows, with their numbers as ``indices``."""
        batch = super().gather(envs, heads)
        batch.indices = heads * self.num_envs + envs
        return batch

    def probabilities(self, indices: Array) -> Array:
        """Return P(i) of the transitions with these numbers; 0 for those that are gone."""
        slots, there = self._slots(whole_numbers(indices))
        tree = self.priorities.tree
        return np.where(there, tree.values.take(slots) / tree.total, 0.0)

    def update_priorities(self, indices: Array | torch.Tensor, priorities: Array | torch.Tensor) -> None:
        """Give the transitions with these numbers the priorities |delta| [N], to which eps is added.

        Those that are gone are ignored. Of a number that comes twice, the last priority counts.
        """
        numbers, errors = whole_numbers(indices), as_array(priorities).astype(np.float64)
        if errors.shape != numbers.shape:
            raise ValueError(f"{numbers.shape} indices and {errors.shape} priorities do not belong together")
        slots, there = self._slots(numbers)
        fine = (errors >= 0.0) & (errors <= MAX_VALUE)
        if not fine.all():
            bad = int(fine.argmin())
            raise ValueError(
                f"priority {errors[bad]} of transition {numbers[bad]} (number {bad} of the batch): "
                f"must be from 0 to {MAX_VALUE:g}"
            )
        self.priorities.set(slots[there], errors[there])

    def _slots(self, numbers: Array) -> tuple[Array, Array]:
        """Return the slots of transitions, and whether each is still there; refuse those that never were."""
        envs, heads = numbers % self.num_envs, numbers // self.num_envs
        slots = self._rings.places(envs, heads)
        kept = heads >= self._bounds(self._first)[envs]
        stepped = self._rings.rows["flags"][slots] & STEP > 0
        known = (numbers >= 0) & (heads < self._bounds(self._ready)[envs]) & (stepped | ~kept)
        if not known.all():
            raise ValueError(f"index {numbers[known.argmin()]}: no transition ever had it")
        return slots, kept

    def _bounds(self, numbers: Array) -> Array:
        """Return for each environment the row of the step with this number, or beyond if there is none yet."""
        rows = self._heads[np.arange(self.num_envs), numbers % self._ring]
        return np.where(numbers < self._made, rows, self._head)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return the parent's state, the priorities of all rows and the largest of all times."""
        return {
            **super().state_dict(),
            "priorities": {str(env): values for env, values in enumerate(self._written())},
            "largest_priority": self.priorities.largest,
        }

    def _written(self) -> Array:
        """Return the values of the rows that were ever written to, for each environment."""
        written = min(int(self._head.max()) + 1, self._ring)
        return self.priorities.tree.values.reshape(self.num_envs, self._ring)[:, :written]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of a prioritized buffer with the same capacity, shapes and environments, bit for bit."""
        if "priorities" not in state:
            raise CheckpointError("replay: the checkpoint is of uniform replay and holds no priorities")
        largest = float(state["largest_priority"])
        super().load_state_dict(state)
        shape = self._written().shape[1:]
        saved = of_each_env(state["priorities"], self.num_envs, "priorities", np.float64, shape)
        values = np.zeros((self.num_envs, self._ring))
        drawable = np.zeros(values.shape, np.bool_)
        for env, own in enumerate(saved):
            values[env, : len(own)] = self.priorities.check(own, len(own), largest)
            numbers = np.arange(self._first[env], self._ready[env])
            drawable[env, self._heads[env, numbers % self._ring] % self._ring] = True
        if values[~drawable].any():
            raise CheckpointError("replay: there are priorities without a transition")
        self.priorities.restore(values.ravel(), largest)

"""Prioritized replay: transitions that taught more are drawn more often (Schaul et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rl_training.data.priorities import Priorities, as_array, whole_numbers
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.sum_tree import MAX_VALUE, SumTree
from rl_training.data.transitions import Batch
from rl_training.errors import CheckpointError
from rl_training.spaces import Array


class PrioritizedReplayBuffer(ReplayBuffer):
    """A ring whose transitions are drawn by priorities: P(i) = p_i**alpha / sum_k p_k**alpha, p_i = |delta_i| + eps.

    Outside, a transition is known by its insertion number: the k-th one ever added, counted from 0, is k, and
    lies in slot ``k % capacity``. ``Batch.indices`` holds these numbers. A number says by itself whether its
    transition is still there (the newest ``capacity`` are), so a priority that comes too late for one that was
    overwritten in the meantime is recognised, and ignored, without a stamp in memory for each slot.
    """

    _extra_bytes = SumTree.BYTES_PER_SLOT

    def __init__(
        self, capacity: int, *fields: Any, alpha: float = 0.6, eps: float = 1e-6, **options: Any
    ) -> None:
        super().__init__(capacity, *fields, **options)
        self.priorities = Priorities(capacity, alpha, eps)
        from rl_training.data import kernels

        self._admit = kernels.admit
        self._added = 0

    def add(self, obs: Array, action: Array, reward: Array, *rest: Any, **masks: Any) -> None:
        """Append N transitions, overwriting the oldest, each as likely to be drawn as any ever was."""
        super().add(obs, action, reward, *rest, **masks)
        count, tree, largest = len(reward), self.priorities.tree, self.priorities.largest
        self._added += count
        start = self._next - min(count, self.capacity)
        if start < 0:
            tree.fill(start + self.capacity, self.capacity, largest)
        tree.fill(max(start, 0), self._next, largest)

    def sample(self, batch_size: int, beta: float = 0.4) -> Batch:
        """Draw ``batch_size`` transitions by their priorities, with the weights that correct for it.

        All come in one batch, which can be handed to an update as it is; its field
        ``weight`` is (N P(i))**-beta, divided by the largest of the batch; ``indices`` are insertion numbers.
        """
        if self._size == 0:
            raise ValueError("the replay buffer is empty")
        slots = self.priorities.draw(batch_size, self._rng)
        batch = self.gather(slots)
        weight = torch.from_numpy(self.priorities.weights(slots, beta))
        batch.weight = weight if self._on_cpu else weight.to(self.device)
        return batch

    def gather(self, slots: Array) -> Batch:
        """Return the transitions in these slots, with their insertion numbers as ``indices``."""
        batch = super().gather(slots)
        newest = self._added - 1
        batch.indices = newest - (newest - slots) % self.capacity
        return batch

    def probabilities(self, indices: Array) -> Array:
        """Return P(i) of the transitions with these insertion numbers; 0 for those that are gone."""
        numbers, tree = whole_numbers(indices), self.priorities.tree
        self._check_known(numbers)
        values = tree.values.take(numbers % self.capacity) / tree.total
        return np.where(numbers >= self._added - self.capacity, values, 0.0)

    def update_priorities(self, indices: Array | torch.Tensor, priorities: Array | torch.Tensor) -> None:
        """Give the transitions with these insertion numbers the priorities |delta| [N], to which eps is added.

        Those that were overwritten since are ignored. Of a number that comes twice, the last priority counts.
        """
        numbers, errors = whole_numbers(indices), as_array(priorities).astype(np.float64)
        if errors.shape != numbers.shape:
            raise ValueError(f"{numbers.shape} indices and {errors.shape} priorities do not belong together")
        kept = self._admit(self._added, self.capacity, MAX_VALUE, numbers, errors)
        if kept < 0:
            bad = -1 - kept
            self._check_known(numbers[bad : bad + 1])
            raise ValueError(
                f"priority {errors[bad]} of transition {numbers[bad]} (number {bad} of the batch): "
                f"must be from 0 to {MAX_VALUE:g}"
            )
        self.priorities.set(numbers[:kept], errors[:kept])

    def _check_known(self, numbers: Array) -> None:
        """Refuse numbers that no transition ever had."""
        known = (numbers >= 0) & (numbers < self._added)
        if not known.all():
            bad = numbers[known.argmin()]
            raise ValueError(f"index {bad}: only {self._added} transitions were ever added")

    def state_dict(self) -> dict[str, Any]:
        """Return the parent's state, the leaves in use, the largest of all times and the insertion count."""
        return {
            **super().state_dict(),
            "priorities": self.priorities.tree.values[: self._size],
            "largest_priority": self.priorities.largest,
            "added": self._added,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of a prioritized buffer with the same capacity and fields, bit for bit."""
        if "priorities" not in state:
            raise CheckpointError("replay: the checkpoint is of uniform replay and holds no priorities")
        size, added = len(state["rows"]), int(state["added"])
        if size != min(added, self.capacity) or int(state["next"]) != added % self.capacity:
            raise CheckpointError(
                f"replay: {size} rows and position {state['next']} cannot come from {added} transitions"
            )
        largest = float(state["largest_priority"])
        values = self.priorities.check(state["priorities"], size, largest)
        super().load_state_dict(state)
        self.priorities.restore(values, largest)
        self._added = added

"""Prioritized replay: transitions that taught more are drawn more often (Schaul et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from math import nextafter
from typing import Any

import numpy as np
import torch

from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.sum_tree import MAX_VALUE, SumTree
from rl_training.data.transitions import Batch
from rl_training.errors import CheckpointError
from rl_training.spaces import Array


class PrioritizedReplayBuffer(ReplayBuffer):
    """A ring whose transition i is drawn with P(i) = p_i**alpha / sum_k p_k**alpha, where p_i = |delta_i| + eps.

    A new transition gets the largest p**alpha that was ever given, 1.0 at first. Drawing is stratified: one
    target in each of ``batch_size`` equal parts of the sum.

    Outside, a transition is known by its insertion number: the k-th one ever added, counted from 0, is k, and
    lies in slot ``k % capacity``. ``Batch.indices`` holds these numbers. A number says by itself whether its
    transition is still there (the newest ``capacity`` are), so a priority that comes too late for one that was
    overwritten in the meantime is recognised, and ignored, without a stamp in memory for each slot.
    """

    _extra_bytes = SumTree.BYTES_PER_SLOT

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        obs_dtype: np.dtype[Any] | type = np.float32,
        action_shape: tuple[int, ...] = (),
        action_dtype: np.dtype[Any] | type = np.int64,
        *,
        alpha: float = 0.6,
        eps: float = 1e-6,
        rng: np.random.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"alpha must be from 0 to 1, got {alpha}")
        if not 0.0 <= eps < np.inf:
            raise ValueError(f"eps must be a finite number of at least 0, got {eps}")
        super().__init__(capacity, obs_shape, obs_dtype, action_shape, action_dtype, rng=rng, device=device)
        self.alpha, self.eps = alpha, eps
        from rl_training.data import kernels

        self._stratify, self._weigh, self._admit = kernels.stratify, kernels.weigh, kernels.admit
        self._tree = SumTree(capacity)
        self._largest = 1.0  # p**alpha, over the whole history
        self._added = 0

    def add(
        self,
        obs: Array,
        action: Array,
        reward: Array,
        discount: Array,
        next_obs: Array,
        next_mask: Array | None = None,
    ) -> None:
        """Append N transitions, overwriting the oldest, each as likely to be drawn as any ever was."""
        super().add(obs, action, reward, discount, next_obs, next_mask)
        count = len(reward)
        self._added += count
        start = self._next - min(count, self.capacity)
        if start < 0:
            self._tree.fill(start + self.capacity, self.capacity, self._largest)
        self._tree.fill(max(start, 0), self._next, self._largest)

    def sample(self, batch_size: int, beta: float = 0.4) -> Batch:
        """Draw ``batch_size`` transitions by their priorities, with the weights that correct for it.

        All come in one batch, which can be handed to an update as it is; its field
        ``weight`` is (N P(i))**-beta, divided by the largest of the batch; ``indices`` are insertion numbers.
        """
        if self._size == 0:
            raise ValueError("the replay buffer is empty")
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must be from 0 to 1, got {beta}")
        slots = self._tree.find(self._targets(batch_size))
        batch = self.gather(slots)
        weight = np.empty(batch_size, np.float32)
        # N and the total cancel against the largest weight, which is that of the smallest priority.
        self._weigh(self._tree.values, slots, beta, weight)
        batch.weight = torch.from_numpy(weight) if self._on_cpu else torch.from_numpy(weight).to(self.device)
        return batch

    def _targets(self, batch_size: int) -> Array:
        total = self._tree.total
        if total == 0.0:
            raise ValueError("every transition has priority 0; eps > 0 keeps them from that")
        targets = self._rng.random(batch_size)
        # The very last number can be rounded up to the total, which is in nobody's part.
        self._stratify(targets, total, nextafter(total, 0.0))
        return targets

    def gather(self, slots: Array) -> Batch:
        """Return the transitions in these slots, with their insertion numbers as ``indices``."""
        batch = super().gather(slots)
        newest = self._added - 1
        batch.indices = newest - (newest - slots) % self.capacity
        return batch

    def probabilities(self, indices: Array) -> Array:
        """Return P(i) of the transitions with these insertion numbers; 0 for those that are gone."""
        numbers = _whole(indices)
        self._check_known(numbers)
        values = self._tree.values.take(numbers % self.capacity) / self._tree.total
        return np.where(numbers >= self._added - self.capacity, values, 0.0)

    def update_priorities(self, indices: Array | torch.Tensor, priorities: Array | torch.Tensor) -> None:
        """Give the transitions with these insertion numbers the priorities |delta| [N], to which eps is added.

        Those that were overwritten since are ignored. Of a number that comes twice, the last priority counts.
        """
        numbers, errors = _whole(indices), _as_array(priorities).astype(np.float64)
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
        values = (errors[:kept] + self.eps) ** self.alpha
        self._tree.update(numbers[:kept], values)
        self._largest = max(self._largest, float(values.max(initial=0.0)))

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
            "priorities": self._tree.values[: self._size],
            "largest_priority": self._largest,
            "added": self._added,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of a prioritized buffer with the same capacity and fields, bit for bit."""
        if "priorities" not in state:
            raise CheckpointError("replay: the checkpoint is of uniform replay and holds no priorities")
        values, size = np.asarray(state["priorities"]), len(state["rows"])
        largest, added = float(state["largest_priority"]), int(state["added"])
        if values.dtype != np.float64 or values.shape != (size,):
            raise CheckpointError(
                f"replay: priorities are {values.dtype}{values.shape}, not float64({size},)"
            )
        if not (0.0 < largest <= MAX_VALUE and ((values >= 0.0) & (values <= largest)).all()):
            raise CheckpointError(f"replay: priorities are not from 0 to the largest one, {largest}")
        if size != min(added, self.capacity) or int(state["next"]) != added % self.capacity:
            raise CheckpointError(
                f"replay: {size} rows and position {state['next']} cannot come from {added} transitions"
            )
        super().load_state_dict(state)
        self._tree.fill(0, self.capacity, 0.0)
        self._tree.update(np.arange(size), values)
        self._largest, self._added = largest, added


def _as_array(values: Array | torch.Tensor) -> Array:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def _whole(indices: Array | torch.Tensor) -> Array:
    """Return insertion numbers as a new array of int64 [N]."""
    numbers = _as_array(indices)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise ValueError(f"indices must be whole numbers [N], got {numbers.dtype}{numbers.shape}")
    return numbers.astype(np.int64)

"""Prioritized replay of sequences (Kapturowski et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rl_training.data.priorities import Priorities, as_array, whole_numbers
from rl_training.data.recurrent_replay_buffer import RecurrentReplayBuffer
from rl_training.data.sum_tree import MAX_VALUE, SumTree
from rl_training.data.transitions import SequenceBatch
from rl_training.errors import CheckpointError
from rl_training.spaces import Array


class PrioritizedRecurrentReplayBuffer(RecurrentReplayBuffer):
    """Sequences drawn by priorities; all else as in the parent.

    A chunk is known by a number that no other ever had: ``SequenceBatch.indices`` holds these. A priority for a
    chunk that is gone is ignored.
    """

    _extra_bytes = SumTree.BYTES_PER_SLOT + 8

    def __init__(self, *args: Any, alpha: float = 0.9, eps: float = 1e-6, **options: Any) -> None:
        super().__init__(*args, **options)
        self.priorities = Priorities(self.slots, alpha, eps)
        self._serial = np.zeros(self.slots, np.int64)  # how many chunks were complete before that of a slot
        self._finished = 0

    def _finish(self, env: int, steps: int) -> int:
        slot = super()._finish(env, steps)
        self._serial[slot] = self._finished
        self._finished += 1
        self.priorities.tree.fill(slot, slot + 1, self.priorities.largest)
        return slot

    def _release(self, slot: int) -> None:
        super()._release(slot)
        self.priorities.tree.fill(slot, slot + 1, 0.0)

    def gather(self, slots: Array) -> SequenceBatch:
        """Return the chunks in these slots, with their numbers as ``indices``."""
        batch = super().gather(slots)
        batch.indices = self._serial[slots] * self.slots + slots
        return batch

    def sample(self, batch_size: int, beta: float = 0.6) -> SequenceBatch:
        """Draw ``batch_size`` chunks by their priorities, with the weights that correct for it."""
        if not len(self):
            raise ValueError("the replay buffer holds no complete chunk")
        slots = self.priorities.draw(batch_size, self._rng)
        batch = self.gather(slots)
        batch.weight = self._tensor(self.priorities.weights(slots, beta))
        return batch

    def update_priorities(self, indices: Array | torch.Tensor, priorities: Array | torch.Tensor) -> None:
        """Give chunks the priorities [N] that an update found; eps is added. Those that are gone are ignored."""
        numbers, errors = whole_numbers(indices), as_array(priorities).astype(np.float64)
        if errors.shape != numbers.shape:
            raise ValueError(f"{numbers.shape} indices and {errors.shape} priorities do not belong together")
        fine = (errors >= 0.0) & (errors <= MAX_VALUE)
        if not fine.all():
            bad = int(fine.argmin())
            raise ValueError(
                f"priority {errors[bad]} (number {bad} of the batch): must be from 0 to {MAX_VALUE:g}"
            )
        serials, slots = numbers // self.slots, numbers % self.slots
        known = (serials >= 0) & (serials < self._finished)
        if not known.all():
            raise ValueError(f"index {numbers[known.argmin()]}: no chunk ever had it")
        kept = (self._serial[slots] == serials) & (self._steps[slots] > 0)
        self.priorities.set(slots[kept], errors[kept])

    def state_dict(self) -> dict[str, Any]:
        """Return the parent's state, the priorities and the numbers of the chunks."""
        return {
            **super().state_dict(),
            "priorities": self.priorities.tree.values[: self._used],
            "largest_priority": self.priorities.largest,
            "serial": self._serial[: self._used],
            "finished": self._finished,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of a prioritized buffer with the same capacity, environments, fields and chunks."""
        if "priorities" not in state:
            raise CheckpointError("replay: the checkpoint is of uniform replay and holds no priorities")
        used, largest, finished = len(state["env"]), float(state["largest_priority"]), int(state["finished"])
        serial: Array = np.asarray(state["serial"])
        if serial.dtype != np.int64 or serial.shape != (used,):
            raise CheckpointError(f"replay: serial is {serial.dtype}{serial.shape}, not int64({used},)")
        if finished >= 2**63 // self.slots or ((serial < 0) | (serial >= max(finished, 1))).any():
            raise CheckpointError(f"replay: {finished} chunks cannot have had these numbers")
        values = self.priorities.check(state["priorities"], used, largest)
        steps: Array = np.asarray(state["steps"])
        if steps.shape == (used,) and values[steps == 0].any():
            raise CheckpointError("replay: there are priorities without a chunk")
        super().load_state_dict(state)
        self.priorities.restore(values, largest)
        self._serial[used:] = 0
        self._serial[:used], self._finished = serial, finished

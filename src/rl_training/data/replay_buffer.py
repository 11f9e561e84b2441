"""Uniform replay: a ring of packed transitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rl_training.data.memory import require_memory
from rl_training.data.transitions import Batch
from rl_training.errors import CheckpointError
from rl_training.spaces import Array


class ReplayBuffer:
    """Keeps the newest ``capacity`` transitions and samples them uniformly, with replacement.

    Each transition is one packed row of a byte tensor, so that sampling is a single gather whatever the
    number of fields; observations keep their own dtype (``uint8`` images stay ``uint8``).
    """

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        obs_dtype: np.dtype[Any] | type = np.float32,
        action_shape: tuple[int, ...] = (),
        action_dtype: np.dtype[Any] | type = np.int64,
        *,
        rng: np.random.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        fields: list[tuple[str, Any, tuple[int, ...]]] = [
            ("obs", obs_dtype, obs_shape),
            ("next_obs", obs_dtype, obs_shape),
            ("action", action_dtype, action_shape),
            ("reward", np.float32, ()),
            ("discount", np.float32, ()),
        ]
        # Widest first, so that alignment wastes at most a few bytes at the end of a row.
        fields.sort(key=lambda field: -np.dtype(field[1]).itemsize)
        row = np.dtype(fields, align=True)
        require_memory(capacity, row.itemsize, "algo_kwargs.buffer_size")
        self.capacity = capacity
        self.device = torch.device(device)
        self.bytes_per_transition = row.itemsize
        self._rng = rng if rng is not None else np.random.default_rng()
        self._rows = np.zeros(capacity, row)  # pages are only taken once written
        self._fields: dict[str, Array] = {name: self._rows[name] for name, _, _ in fields}
        self._next = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def storage(self) -> torch.Tensor:
        """The ring as a tensor [capacity, bytes per transition] that shares its memory."""
        return torch.from_numpy(self._rows.view(np.uint8).reshape(self.capacity, -1))

    def add(self, obs: Array, action: Array, reward: Array, discount: Array, next_obs: Array) -> None:
        """Append N transitions given as arrays with a leading dimension N, overwriting the oldest."""
        count = len(reward)
        if count > self.capacity:
            keep = slice(count - self.capacity, None)
            obs, action, reward, discount, next_obs = (
                obs[keep],
                action[keep],
                reward[keep],
                discount[keep],
                next_obs[keep],
            )
            count = self.capacity
        end = self._next + count
        where: Any = (
            slice(self._next, end) if end <= self.capacity else np.arange(self._next, end) % self.capacity
        )
        fields = self._fields
        fields["obs"][where] = obs
        fields["next_obs"][where] = next_obs
        fields["action"][where] = action
        fields["reward"][where] = reward
        fields["discount"][where] = discount
        self._next = end % self.capacity
        self._size = min(self._size + count, self.capacity)

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions uniformly, as tensors on the buffer's device."""
        if self._size == 0:
            raise ValueError("the replay buffer is empty")
        return self.gather(self._rng.integers(0, self._size, batch_size))

    def gather(self, indices: Array) -> Batch:
        """Return the transitions at ``indices`` as tensors on the buffer's device."""
        rows = self._rows.take(indices)
        fields = {name: torch.from_numpy(rows[name]) for name in self._fields}
        if self.device.type != "cpu":
            fields = {name: value.to(self.device) for name, value in fields.items()}
        return Batch(**fields, indices=indices)

    def state_dict(self) -> dict[str, Any]:
        """Return the written rows and the position of the ring (the random stream belongs to its owner)."""
        return {"rows": self.storage[: self._size], "next": self._next, "capacity": self.capacity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of a buffer with the same capacity and fields."""
        rows, position = state["rows"], int(state["next"])
        if state["capacity"] != self.capacity:
            raise CheckpointError(f"replay: capacity is {state['capacity']}, the config says {self.capacity}")
        if rows.dtype != torch.uint8 or rows.ndim != 2 or rows.shape[1] != self.bytes_per_transition:
            raise CheckpointError(
                f"replay: rows of {self.bytes_per_transition} bytes expected, got {tuple(rows.shape)}"
            )
        size = rows.shape[0]
        if size > self.capacity or position != (
            size % self.capacity if size < self.capacity else position % self.capacity
        ):
            raise CheckpointError(
                f"replay: {size} rows and position {position} do not fit capacity {self.capacity}"
            )
        self.storage[:size] = rows
        self._size, self._next = size, position

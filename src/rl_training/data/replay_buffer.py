"""Uniform replay: a ring of packed transitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

import numpy as np
import torch

from rl_training.data.mask_column import MaskColumn
from rl_training.data.memory import require_memory
from rl_training.data.transitions import Batch
from rl_training.errors import CheckpointError
from rl_training.spaces import Array


class ReplayBuffer:
    """Keeps the newest ``capacity`` transitions and samples them uniformly, with replacement.

    Each transition is one packed row of a byte tensor, so that sampling is a single gather whatever the
    number of fields; observations keep their own dtype (``uint8`` images stay ``uint8``). Masks of the actions
    allowed in ``next_obs`` are kept if there are any; those of ``obs`` only with ``keep_masks``.
    """

    _extra_bytes = 0.0
    """What a subclass keeps beside each packed row."""

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        obs_dtype: np.dtype[Any] | type = np.float32,
        action_shape: tuple[int, ...] = (),
        action_dtype: np.dtype[Any] | type = np.int64,
        *,
        keep_masks: bool = False,
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
        require_memory(capacity, ceil(row.itemsize + self._extra_bytes), "algo_kwargs.buffer_size")
        self.capacity = capacity
        self.device = torch.device(device)
        self._on_cpu = self.device.type == "cpu"
        self.bytes_per_transition = row.itemsize
        self._rng = rng if rng is not None else np.random.default_rng()
        self._rows = np.zeros(capacity, row)  # pages are only taken once written
        # Plain bytes are gathered faster than rows of fields.
        self._raw = self._rows.view(f"V{row.itemsize}")
        self._obs, self._next_obs = self._rows["obs"], self._rows["next_obs"]
        self._action, self._reward = self._rows["action"], self._rows["reward"]
        self._discount = self._rows["discount"]
        self._next_masks = MaskColumn(capacity)
        self._masks = MaskColumn(capacity) if keep_masks else None
        self._next = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def storage(self) -> torch.Tensor:
        """The ring as a tensor [capacity, bytes per transition] that shares its memory."""
        return torch.from_numpy(self._rows.view(np.uint8).reshape(self.capacity, -1))

    def add(
        self,
        obs: Array,
        action: Array,
        reward: Array,
        discount: Array,
        next_obs: Array,
        next_mask: Array | None = None,
        mask: Array | None = None,
    ) -> None:
        """Append N transitions given as arrays with a leading dimension N, overwriting the oldest.

        ``next_mask`` [N, A] says which actions are allowed in ``next_obs``, and ``mask`` in ``obs``; none means all.
        """
        capacity, count, start = self.capacity, len(reward), self._next
        if count > capacity:
            newest = slice(count - capacity, None)
            obs, action, reward, discount = obs[newest], action[newest], reward[newest], discount[newest]
            next_obs, next_mask = next_obs[newest], None if next_mask is None else next_mask[newest]
            mask = None if mask is None else mask[newest]
            # The k-th transition ever added lies at k % capacity, also where others were skipped.
            count, start = capacity, (start + count) % capacity
        end = start + count
        where: Any = slice(start, end) if end <= capacity else np.arange(start, end) % capacity
        self._obs[where] = obs
        self._next_obs[where] = next_obs
        self._action[where] = action
        self._reward[where] = reward
        self._discount[where] = discount
        if next_mask is not None or self._next_masks.used:
            self._next_masks.write(where, next_mask)
        if self._masks is not None:
            self._masks.write(where, mask)
        self._next = end if end < capacity else end - capacity
        if self._size < capacity:
            self._size = min(self._size + count, capacity)

    def actions(self) -> Iterator[Array]:
        """Yield the actions that are kept."""
        yield self._action[: self._size]

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions uniformly, as tensors on the buffer's device."""
        if self._size == 0:
            raise ValueError("the replay buffer is empty")
        return self.gather(self._rng.integers(0, self._size, batch_size))

    def gather(self, slots: Array) -> Batch:
        """Return the transitions in these slots as tensors on the buffer's device."""
        rows = self._raw.take(slots).view(self._rows.dtype)
        tensor = torch.from_numpy
        next_masks = self._next_masks.take(slots)
        masks = None if self._masks is None else self._masks.take(slots)
        batch = Batch(
            tensor(rows["obs"]),
            tensor(rows["action"]),
            tensor(rows["reward"]),
            tensor(rows["discount"]),
            tensor(rows["next_obs"]),
            None,
            slots,
            None if next_masks is None else tensor(next_masks),
            None if masks is None else tensor(masks),
        )
        return batch if self._on_cpu else self._moved(batch)

    def _moved(self, batch: Batch) -> Batch:
        """Bring the tensors of a batch to the buffer's device."""
        for name in ("obs", "action", "reward", "discount", "next_obs", "weight", "next_mask", "mask"):
            tensor = getattr(batch, name)
            if tensor is not None:
                setattr(batch, name, tensor.to(self.device))
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return the written rows and the position of the ring (the random stream belongs to its owner)."""
        state = {"rows": self.storage[: self._size], "next": self._next, "capacity": self.capacity}
        for name, column in self._mask_columns().items():
            if (masks := column.first(self._size)) is not None:
                state[name] = masks
        return state

    def _mask_columns(self) -> dict[str, MaskColumn]:
        return {"next_masks": self._next_masks, **({} if self._masks is None else {"masks": self._masks})}

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
        columns = self._mask_columns()
        masks = {name: column.check(state.get(name), size) for name, column in columns.items()}
        for name, column in columns.items():
            column.restore(masks[name])
        self.storage[:size] = rows
        self._size, self._next = size, position

"""Replay of sequences for learners with a memory: pieces of episodes, with the memory that came before each."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from math import ceil, prod
from typing import Any

import numpy as np
import torch

from rl_training.data.chunk_checks import checked, checked_memories, chunks_fit, of_each_env
from rl_training.data.chunk_returns import blanked, chunk_returns
from rl_training.data.frame_stacks import FrameStacks
from rl_training.data.memory import require_memory
from rl_training.data.transitions import SequenceBatch, Transitions
from rl_training.errors import CheckpointError, ConfigError
from rl_training.spaces import Array

_NEVER = np.iinfo(np.int64).max
StateSpec = Mapping[str, tuple[tuple[int, ...], np.dtype[Any] | type]]
"""Shape and dtype, without a batch dimension, of each array that a memory consists of."""


class RecurrentReplayBuffer:
    """Keeps the newest observations of every environment once, and hands out chunks of ``length`` steps of them.

    A chunk begins at an episode's first step and after every ``period`` steps (default: ``length``, no overlap),
    and ends with its episode at the latest. One that is wholly inside the one before it is left out. Of the
    memory, only what came before a chunk's first observation is kept.

    ``capacity`` counts observations, an episode of k steps having k + 1; each environment has an equal share.
    With ``stack`` = K > 1 observations are stacks [K, ...] of the last K frames, of which only the newest is kept
    (see ``FrameStacks``). A chunk is gone when a frame of its first stack is.
    """

    _extra_bytes = 0.0
    """What a subclass keeps for each chunk."""

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        *,
        length: int,
        state: StateSpec,
        obs_dtype: np.dtype[Any] | type = np.float32,
        action_shape: tuple[int, ...] = (),
        action_dtype: np.dtype[Any] | type = np.int64,
        stack: int = 1,
        period: int | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        num_envs: int = 1,
        rng: np.random.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if length < 2:
            raise ValueError(f"length must be at least 2, got {length}")
        period = length if period is None else period
        if not 1 <= period <= length:
            raise ValueError(f"period must be from 1 to length={length}, got {period}")
        if capacity // num_envs <= length:
            raise ValueError(
                f"capacity {capacity} for {num_envs} environments does not hold one chunk of {length} steps each"
            )
        self._stacks = FrameStacks(obs_shape, stack)
        if capacity // num_envs < length + stack:
            raise ConfigError(
                f"algo_kwargs.buffer_size: {capacity} for {num_envs} environments does not hold a sequence of {length} "
                f"steps and stacks of {stack} frames for each; the least is {num_envs * (length + stack)}"
            )
        fields: list[tuple[str, Any, tuple[int, ...]]] = [
            ("obs", obs_dtype, self._stacks.frame_shape),
            ("action", action_dtype, action_shape),
            ("reward", np.float32, ()),
            ("terminated", np.bool_, ()),
        ]
        # Widest first wastes no bytes on alignment.
        fields.sort(key=lambda field: -np.dtype(field[1]).itemsize)
        row = np.dtype(fields, align=True)
        # The most that short episodes can take: a chunk, with its memory, for every second observation.
        memory = sum(np.dtype(dtype).itemsize * prod(shape) for shape, dtype in state.values())
        per_chunk = memory + 3 * 8 + 1 + 8 * (stack > 1) + self._extra_bytes
        require_memory(
            capacity,
            row.itemsize + ceil(per_chunk / min(period, 2)),
            "algo_kwargs.buffer_size",
            "observations",
        )
        self.capacity, self.num_envs = capacity, num_envs
        self.length, self.period = length, period
        self.n_step, self.gamma = n_step, gamma
        self.bytes_per_observation = row.itemsize
        self.device = torch.device(device)
        self._rng = rng if rng is not None else np.random.default_rng()
        self._powers = gamma ** np.arange(n_step + 1, dtype=np.float64)

        # Each environment writes rows 0, 1, 2, ... of its own; row k lies at k modulo their number.
        self._share = capacity // num_envs
        self._rows = np.zeros((num_envs, self._share), row)
        # Plain bytes are gathered faster than rows of fields, and copied with what lies between the fields.
        self._raw = self._rows.view(f"V{row.itemsize}")
        self._masks: Array | None = None  # [N, share, A] bool, made when the first mask comes
        self._head = np.zeros(num_envs, np.int64)  # the row of the observation to act on next
        self._age = np.zeros(num_envs, np.int64)  # steps into the episode

        # A chunk occupies a slot; free slots are taken lowest first, so that memory is touched only as needed.
        slots = num_envs * (self._share // min(period, 2) + 2)
        self.slots = slots
        self._env = np.zeros(slots, np.int64)
        self._start = np.zeros(slots, np.int64)  # row of the first observation
        self._steps = np.zeros(slots, np.int64)  # 0: free, or not complete yet
        self._first = np.zeros(slots, np.bool_)  # begins an episode
        # Frames before the first row that its stack needs: pages that stay untouched without stacks.
        self._before = np.zeros(slots, np.int64)
        self._state = {name: np.zeros((slots, *shape), dtype) for name, (shape, dtype) in state.items()}
        self._open: list[deque[int]] = [deque() for _ in range(num_envs)]
        self._closed: list[deque[int]] = [deque() for _ in range(num_envs)]  # oldest first
        self._oldest = np.full(num_envs, _NEVER)  # the oldest row that the first of those needs
        self._used = 0  # slots that were ever taken: all below
        self._free: list[int] = []  # of those, a heap

    def __len__(self) -> int:
        """Return the number of chunks that can be drawn."""
        return int(np.count_nonzero(self._steps[: self._used]))

    @property
    def steps(self) -> int:
        """The number of steps in all chunks together, those in several counted several times."""
        return int(self._steps.sum())

    # Writing

    def add(self, step: Transitions) -> None:
        """Take one step of the environments; ``step.carry`` is the memory they acted by (none: it was empty)."""
        envs, head, age = step.env_ids, self._head[step.env_ids], self._age[step.env_ids]
        begins = age == 0
        self._stacks.check(step, begins)  # before anything is written
        newest = self._stacks.newest
        rows, here, there = self._rows, head % self._share, (head + 1) % self._share
        self._retire(envs, head + 1)
        if begins.any():
            rows["obs"][envs[begins], here[begins]] = newest(step.obs)[begins]
        rows["action"][envs, here] = step.action
        rows["reward"][envs, here] = step.reward
        rows["terminated"][envs, here] = step.terminated
        rows["obs"][envs, there] = newest(step.next_obs)
        if step.next_mask is not None or self._masks is not None:
            self._write_masks(envs, there, step.next_mask)
            self._write_masks(envs[begins], here[begins], None if step.mask is None else step.mask[begins])
        for i in np.flatnonzero(age % self.period == 0):
            self._begin(int(envs[i]), int(head[i]), int(age[i]), step.carry, int(i))
        age = age + 1
        self._head[envs], self._age[envs] = head + 1, age
        full = (age >= self.length) & ((age - self.length) % self.period == 0)
        for env in envs[full]:
            self._finish(int(env), self.length)
        for env in envs[step.terminated | step.truncated]:
            self._end_episode(int(env))

    def interrupt(self, envs: Array | None = None) -> None:
        """End the episodes of these environments, or of all, here, as a truncation would."""
        for env in np.flatnonzero(self._age) if envs is None else envs[self._age[envs] > 0]:
            self._end_episode(int(env))

    def _write_masks(self, envs: Array, rows: Array, masks: Array | None) -> None:
        if self._masks is None:
            assert masks is not None
            self._masks = self._make_masks(masks.shape[1])
        self._masks[envs, rows] = True if masks is None else masks

    def _make_masks(self, num_actions: int) -> Array:
        require_memory(self.capacity, num_actions, "algo_kwargs.buffer_size")
        return np.ones((self.num_envs, self._share, num_actions), bool)

    def _retire(self, envs: Array, newest: Array) -> None:
        """Let go of chunks whose first rows are overwritten once rows ``newest`` are written."""
        lost = newest - self._share
        for i in np.flatnonzero(self._oldest[envs] <= lost):
            queue = self._closed[envs[i]]
            while queue and self._needed(queue[0]) <= lost[i]:
                self._release(queue.popleft())
            self._oldest[envs[i]] = self._needed(queue[0]) if queue else _NEVER

    def _needed(self, slot: int) -> int:
        """Return the oldest row that a chunk needs."""
        return int(self._start[slot] - self._before[slot])

    def _begin(self, env: int, row: int, age: int, carry: Mapping[str, Array] | None, index: int) -> None:
        slot = heapq.heappop(self._free) if self._free else self._used
        self._used = max(self._used, slot + 1)
        self._env[slot], self._start[slot], self._first[slot] = env, row, age == 0
        if self._stacks.stack > 1:
            self._before[slot] = min(age, self._stacks.stack - 1)
        for name, array in self._state.items():
            array[slot] = 0 if carry is None else carry[name][index]
        self._open[env].append(slot)

    def _finish(self, env: int, steps: int) -> int:
        """Complete the oldest open chunk of an environment; return its slot."""
        slot = self._open[env].popleft()
        self._steps[slot] = steps
        self._closed[env].append(slot)
        self._oldest[env] = self._needed(self._closed[env][0])
        return slot

    def _end_episode(self, env: int) -> None:
        head = int(self._head[env])
        queue = self._open[env]
        while queue:
            slot = queue[0]
            start = int(self._start[slot])
            if self._first[slot] or head - (start - self.period) > self.length:
                self._finish(env, head - start)
            else:
                self._release(queue.popleft())
        self._head[env], self._age[env] = head + 1, 0

    def _release(self, slot: int) -> None:
        self._steps[slot] = 0
        heapq.heappush(self._free, slot)

    # Reading

    def actions(self) -> Iterator[Array]:
        """Yield the actions in the rows that were written, zeros where no step was made."""
        written = min(int(self._head.max()) + 1, self._share)
        yield self._rows["action"][:, :written]

    def _drawable(self) -> Array:
        return np.flatnonzero(self._steps[: self._used])

    def sample(self, batch_size: int) -> SequenceBatch:
        """Draw ``batch_size`` chunks uniformly, with replacement, as tensors (time, batch, ...)."""
        complete = self._drawable()
        if not len(complete):
            raise ValueError("the replay buffer holds no complete chunk")
        return self.gather(complete[self._rng.integers(0, len(complete), batch_size)])

    def gather(self, slots: Array) -> SequenceBatch:
        """Return the chunks in these slots."""
        time, steps = np.arange(self.length + 1)[:, None], self._steps[slots]
        shown = np.minimum(time, steps)
        base, row = self._env[slots] * self._share, self._start[slots] + shown
        where = base + row % self._share
        if self._stacks.stack == 1:
            rows = self._raw.reshape(-1).take(where).view(self._rows.dtype)
            obs = rows["obs"]
        else:
            ages = self._before[slots] + shown
            framed = base[:, None] + self._stacks.rows(row, ages) % self._share  # [T + 1, B, K]
            rows = self._raw.reshape(-1).take(framed).view(self._rows.dtype)
            obs, rows = rows["obs"], rows[..., -1]
            self._stacks.pad(obs, ages)
        mask = time[:-1] < steps
        reward = np.where(mask, rows["reward"][:-1], np.float32(0.0))
        terminated = rows["terminated"][steps - 1, np.arange(len(slots))]
        returns, discount, after = chunk_returns(reward, steps, terminated, self.n_step, self._powers)
        starts = np.zeros(mask.shape, np.bool_)
        starts[0] = self._first[slots]
        tensor = self._tensor
        return SequenceBatch(
            tensor(obs),
            tensor(blanked(rows["action"][:-1], mask)),
            tensor(reward),
            tensor(returns),
            tensor(discount),
            tensor(after),
            tensor(mask),
            tensor(starts),
            {name: tensor(array[slots]) for name, array in self._state.items()},
            None,
            slots,
            None if self._masks is None else tensor(self._masks.reshape(-1, self._masks.shape[2])[where]),
        )

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return the written rows, the chunks, complete or not, and where every environment stands.

        What is large is not copied: it changes with the buffer.
        """
        written = min(int(self._head.max()) + 1, self._share)
        used = slice(self._used)
        state = {
            "capacity": self.capacity,
            "rows": {str(i): self._raw[i, :written].view(np.uint8) for i in range(self.num_envs)},
            "head": self._head.copy(),
            "age": self._age.copy(),
            "free": np.array(sorted(self._free), np.int64),
            **{name: column[used] for name, column in self._columns().items()},
            "memory": {name: array[used] for name, array in self._state.items()},
            **self._stacks.state_dict(),
        }
        if self._masks is not None:
            state["masks"] = {str(i): self._masks[i, :written] for i in range(self.num_envs)}
        return state

    def _columns(self) -> dict[str, Array]:
        """Return what is known of the chunks, by slot."""
        columns = {"env": self._env, "start": self._start, "steps": self._steps, "first": self._first}
        return columns if self._stacks.stack == 1 else {**columns, "before": self._before}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of a buffer with the same capacity, environments, fields and chunks."""
        if state["capacity"] != self.capacity:
            raise CheckpointError(f"replay: capacity is {state['capacity']}, the config says {self.capacity}")
        head, age = checked(state, "head", self._head), checked(state, "age", self._age)
        free: Array = np.asarray(state["free"])
        used = len(state["env"])
        written = min(int(head.max(initial=0)) + 1, self._share)
        rows = of_each_env(
            state["rows"], self.num_envs, "rows", np.uint8, (written * self.bytes_per_observation,)
        )
        columns = self._columns()
        given = {name: checked(state, name, own[:used]) for name, own in columns.items()}
        memories = checked_memories(state["memory"], {name: own[:used] for name, own in self._state.items()})
        shape = self._share, self.length, self.period, self._stacks.stack
        if used > self.slots or not chunks_fit(given, free, head, age, *shape):
            raise CheckpointError("replay: the chunks do not fit the rows that are kept")
        masks = None
        if state.get("masks") is not None:
            count = np.asarray(state["masks"]["0"]).shape[-1:]
            masks = of_each_env(state["masks"], self.num_envs, "masks", np.bool_, (written, *count))
        self._stacks.load_state_dict(state)
        self._masks = None if masks is None else self._make_masks(masks[0].shape[1])
        for env, row in enumerate(rows):
            self._raw[env, :written] = np.ascontiguousarray(row).view(self._raw.dtype)
            if self._masks is not None and masks is not None:
                self._masks[env, :written] = masks[env]
        self._head[:], self._age[:] = head, age
        for name, own in columns.items():
            own[used : self._used] = 0
            own[:used] = given[name]
        for name, own in self._state.items():
            own[:used] = memories[name]
        self._used, self._free = used, sorted(free.tolist())
        self._queue_up(set(self._free))

    def _queue_up(self, free: set[int]) -> None:
        self._open = [deque() for _ in range(self.num_envs)]
        self._closed = [deque() for _ in range(self.num_envs)]
        for slot in np.argsort(self._start[: self._used], kind="stable"):
            if int(slot) not in free:
                queues = self._closed if self._steps[slot] else self._open
                queues[self._env[slot]].append(int(slot))
        self._oldest[:] = [self._needed(queue[0]) if queue else _NEVER for queue in self._closed]

"""Replay of images: every frame is kept once, and stacks are put together when they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod
from typing import Any

import numpy as np
import torch

from rl_training.data.memory import require_memory
from rl_training.data.transitions import Batch, Transitions
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.segment import Segment
from rl_training.spaces import Array

MAX_SEGMENT = 256
"""Frames: enough for few files, and few enough for what is not complete to be cheap to save."""
_STEP, _ENDED, _TERMINATED = 1, 2, 4


def segments_of(share: int) -> tuple[int, int]:
    """Return in portions of how many frames the share of one environment is kept, and in how many of them.

    There is one more than what is asked for, because that which is written to is not full.
    """
    rows = max(1, min(share // 64, MAX_SEGMENT))
    return rows, ceil(share / rows) + 1


class ImageReplayBuffer:
    """Keeps the newest frames of every environment and draws n-step transitions of them, uniformly.

    Observations are images [C, H, W], or stacks [K, C, H, W] with the newest frame last. Of a stack, only that
    frame is kept: the others are those of the steps before, and at an episode's beginning its first frame.

    ``capacity`` counts frames, an episode of k steps having k + 1, and each environment has an equal share. They
    come and go in segments of up to ``MAX_SEGMENT``, so that there may be a few more. A segment that is complete
    does not change any more, and a checkpoint need not write it again.
    """

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        action_shape: tuple[int, ...] = (),
        action_dtype: np.dtype[Any] | type = np.float32,
        *,
        num_envs: int = 1,
        n_step: int = 1,
        gamma: float = 0.99,
        rng: np.random.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if len(obs_shape) not in (3, 4):
            raise ValueError(f"observations [C, H, W] or [K, C, H, W] expected, got {obs_shape}")
        frame = obs_shape[-3:]
        row = np.dtype(
            [
                ("action", action_dtype, action_shape),
                ("reward", np.float32),
                ("age", np.int32),  # steps into the episode
                ("flags", np.uint8),
            ]
        )
        self.stack = 1 if len(obs_shape) == 3 else obs_shape[0]
        share = ceil(capacity / num_envs)
        if share < n_step + self.stack:
            raise ConfigError(
                f"algo_kwargs.buffer_size: {capacity} for {num_envs} environments is too little for returns of "
                f"{n_step} steps and stacks of {self.stack} frames; the least is {num_envs * (n_step + self.stack)}"
            )
        self._segment, self._slots = segments_of(share)
        self._ring = self._slots * self._segment
        self.bytes_per_frame = prod(frame) + row.itemsize + 8
        require_memory(
            capacity,
            self.bytes_per_frame,
            "algo_kwargs.buffer_size",
            "frames",
            lambda frames: num_envs * prod(segments_of(ceil(frames / num_envs))),
        )
        self.capacity, self.num_envs = capacity, num_envs
        self.n_step, self.gamma = n_step, gamma
        self.device = torch.device(device)
        self._obs_shape = obs_shape
        self._rng = rng if rng is not None else np.random.default_rng()
        self._powers = gamma ** np.arange(n_step + 1, dtype=np.float64)

        # Each environment writes rows 0, 1, 2, ... of its own; row k lies at k modulo the ring.
        self._frames = np.zeros((num_envs, self._ring, *frame), np.uint8)  # pages are only taken once written
        self._rows = np.zeros((num_envs, self._ring), row)
        self._head = np.zeros(num_envs, np.int64)  # the row of the observation to act on next
        self._age = np.zeros(num_envs, np.int64)
        # The rows of all steps in order: from _first on, they can be drawn; from _ready on, they cannot yet.
        self._heads = np.zeros((num_envs, self._ring), np.int64)
        self._first = np.zeros(num_envs, np.int64)
        self._ready = np.zeros(num_envs, np.int64)
        self._made = np.zeros(num_envs, np.int64)

    def __len__(self) -> int:
        """Return the number of transitions that can be drawn."""
        return int((self._ready - self._first).sum())

    # Writing

    def add(self, step: Transitions) -> None:
        """Take one step of the environments."""
        ended = step.terminated | step.truncated
        envs = step.env_ids.tolist()
        for i, env in enumerate(envs):  # all of them before the first is written
            self._check_stacks(env, step.obs[i], step.next_obs[i])
        for i, env in enumerate(envs):
            head, age = int(self._head[env]), int(self._age[env])
            if age == 0:
                self._write_frame(env, head, self._newest(step.obs[i]), 0)
            here = head % self._ring
            row = self._rows[env, here]
            row["action"], row["reward"] = step.action[i], step.reward[i]
            row["flags"] = _STEP | _ENDED * bool(ended[i]) | _TERMINATED * bool(step.terminated[i])
            self._write_frame(env, head + 1, self._newest(step.next_obs[i]), age + 1)
            made = int(self._made[env])
            self._heads[env, made % self._ring] = head
            self._head[env], self._age[env], self._made[env] = head + 1, age + 1, made + 1
            if ended[i]:
                self._end_episode(env)
            else:
                self._ready[env] = max(int(self._ready[env]), made + 2 - self.n_step)

    def interrupt(self) -> None:
        """End all episodes here, as a truncation would."""
        for env in np.flatnonzero(self._age).tolist():
            self._rows["flags"][env, (self._head[env] - 1) % self._ring] |= _ENDED
            self._end_episode(env)

    def _end_episode(self, env: int) -> None:
        self._ready[env] = self._made[env]
        self._head[env] += 1
        self._age[env] = 0

    def _write_frame(self, env: int, row: int, frame: Array, age: int) -> None:
        if row % self._segment == 0 and row >= self._ring:
            self._drop_lost(env, row)
        place = row % self._ring
        self._frames[env, place] = frame
        self._rows[env, place] = np.zeros((), self._rows.dtype)
        self._rows["age"][env, place] = age

    def _oldest(self, row: int) -> int:
        """Return the oldest row that is still there once ``row`` has been written."""
        return max(0, (row // self._segment - self._slots + 1) * self._segment)

    def _drop_lost(self, env: int, row: int) -> None:
        """Let go of the steps that need a frame of the segment that is about to be overwritten."""
        oldest = self._oldest(row)
        numbers = np.arange(self._first[env], self._made[env])
        heads = self._heads[env, numbers % self._ring]
        needed = heads - np.minimum(self._rows["age"][env, heads % self._ring], self.stack - 1)
        self._first[env] += int(np.searchsorted(needed, oldest))  # in order, as the steps are
        self._ready[env] = max(self._ready[env], self._first[env])

    def _newest(self, obs: Array) -> Array:
        frame: Array = obs if len(self._obs_shape) == 3 else obs[-1]
        return frame

    def _check_stacks(self, env: int, obs: Array, next_obs: Array) -> None:
        """Refuse observations that could not be put together again from their newest frames."""
        if len(self._obs_shape) == 3:
            return
        if self._age[env] == 0 and not all(np.array_equal(frame, obs[-1]) for frame in obs[:-1]):
            raise EnvError(
                f"env {env}: at an episode's beginning, all {self.stack} frames of a stack should be the first one; "
                "FrameStackObservation does that with padding_type: reset"
            )
        if not np.array_equal(next_obs[:-1], obs[1:]):
            raise EnvError(
                f"env {env}: observations of shape {self._obs_shape} are taken for {self.stack} stacked frames, the "
                "newest last, but the older ones are not those of the step before"
            )

    # Reading

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions uniformly, as tensors on the buffer's device."""
        ends = np.cumsum(self._ready - self._first)
        if not ends[-1]:
            raise ValueError("the replay buffer is empty")
        drawn = self._rng.integers(0, ends[-1], batch_size)
        envs = np.searchsorted(ends, drawn, side="right")
        numbers = self._ready[envs] - (ends[envs] - drawn)
        return self.gather(envs, self._heads[envs, numbers % self._ring])

    def gather(self, envs: Array, heads: Array) -> Batch:
        """Return the transitions of up to n steps that begin in these rows [B] of these environments [B]."""
        rows = self._rows[envs, heads % self._ring]
        reward = rows["reward"].astype(np.float64)
        steps, last = np.ones(len(envs), np.int64), rows["flags"]
        going = last & _ENDED == 0
        for k in range(1, self.n_step):
            if not going.any():
                break
            after = self._rows[envs, (heads + k) % self._ring]
            reward += np.where(going, self._powers[k] * after["reward"], 0.0)
            steps += going
            last = np.where(going, after["flags"], last)
            going = going & (last & _ENDED == 0)
        discount = self._powers[steps] * (last & _TERMINATED == 0)
        batch = Batch(
            self._observations(envs, heads, rows["age"]),
            torch.from_numpy(rows["action"].copy()),
            torch.from_numpy(reward.astype(np.float32)),
            torch.from_numpy(discount.astype(np.float32)),
            self._observations(envs, heads + steps, rows["age"] + steps),
        )
        return batch if self.device.type == "cpu" else self._moved(batch)

    def _observations(self, envs: Array, rows: Array, ages: Array) -> torch.Tensor:
        back = np.minimum(np.arange(self.stack - 1, -1, -1), ages[:, None])  # [B, K]
        places = envs[:, None] * self._ring + (rows[:, None] - back) % self._ring
        frames = self._frames.reshape(-1, *self._frames.shape[2:]).take(places.ravel(), 0)
        return torch.from_numpy(frames.reshape(len(rows), *self._obs_shape))

    def _moved(self, batch: Batch) -> Batch:
        for name in ("obs", "action", "reward", "discount", "next_obs"):
            setattr(batch, name, getattr(batch, name).to(self.device))
        return batch

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return all frames that are kept: complete segments as such, and what is written to beside them."""
        segments: dict[str, Segment] = {}
        newest: dict[str, Any] = {}
        for env in range(self.num_envs):
            first, complete, end = self._extent(env)
            for number in range(first, complete):
                segments[f"e{env}_{number}"] = self._as_segment(env, number)
            newest[f"e{env}"] = self._content(env, complete * self._segment, end)
        return {
            "capacity": self.capacity,
            "segment_frames": self._segment,
            "segments": segments,
            "newest": newest,
            "head": self._head.copy(),
            "age": self._age.copy(),
        }

    def _extent(self, env: int) -> tuple[int, int, int]:
        """Return the first segment that is kept, the first that may still change, and the end of the rows."""
        head, age = int(self._head[env]), int(self._age[env])
        end = head + (age > 0)  # an episode's first frame is only written with its first step
        first = self._oldest(max(end - 1, 0)) // self._segment
        # The last step made can still become the last of its episode, if that is interrupted.
        return first, max(first, (head - 1) // self._segment), end

    def _as_segment(self, env: int, number: int) -> Segment:
        start = number * self._segment
        return Segment(lambda: self._content(env, start, start + self._segment))

    def _content(self, env: int, start: int, end: int) -> dict[str, Any]:
        """Return views of rows, which must not be more than a ring apart; they may lie in two pieces."""
        places = np.arange(start, end) % self._ring
        whole = len(places) > 0 and places[-1] - places[0] == len(places) - 1
        where: Any = slice(places[0], places[-1] + 1) if whole else places
        raw = self._rows[env].view(np.uint8).reshape(self._ring, -1)
        return {"frames": self._frames[env, where], "rows": raw[where]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of a buffer with the same capacity, shapes and number of environments."""
        if state["capacity"] != self.capacity:
            raise CheckpointError(f"replay: capacity is {state['capacity']}, the config says {self.capacity}")
        if state["segment_frames"] != self._segment:
            raise CheckpointError(
                f"replay: saved in segments of {state['segment_frames']} frames, this version has {self._segment}"
            )
        head, age = np.asarray(state["head"]), np.asarray(state["age"])
        for name, given in (("head", head), ("age", age)):
            if given.shape != (self.num_envs,) or given.dtype != np.int64 or (given < 0).any():
                raise CheckpointError(f"replay: {name} does not fit {self.num_envs} environments")
        if (age > head).any():
            raise CheckpointError("replay: an episode is older than its rows")
        self._head[:], self._age[:] = head, age
        expected = set()
        for env in range(self.num_envs):
            first, complete, end = self._extent(env)
            for number in range(first, complete):
                expected.add(f"e{env}_{number}")
                part = _content_of(state["segments"], f"e{env}_{number}")
                self._put(env, number * self._segment, self._segment, part)
            newest = complete * self._segment
            self._put(env, newest, end - newest, state["newest"][f"e{env}"])
            self._index(env, first * self._segment, end)
        if set(state["segments"]) != expected:
            raise CheckpointError("replay: its segments are not those that its head says")

    def _put(self, env: int, start: int, count: int, part: Mapping[str, Any]) -> None:
        frames, raw = np.asarray(part["frames"]), np.asarray(part["rows"])
        expected = (count, *self._frames.shape[2:]), (count, self._rows.dtype.itemsize)
        if (frames.shape, raw.shape) != expected or frames.dtype != np.uint8 or raw.dtype != np.uint8:
            raise CheckpointError(
                f"replay: {count} frames of {self._frames.shape[2:]} expected, got {frames.dtype}{frames.shape}"
            )
        places = np.arange(start, start + count) % self._ring
        self._frames[env, places] = frames
        self._rows[env].view(np.uint8).reshape(self._ring, -1)[places] = raw

    def _index(self, env: int, start: int, end: int) -> None:
        """Find the steps in the rows of an environment again."""
        every = np.arange(start, end)
        rows = self._rows[env, every % self._ring]
        ages = rows["age"].astype(np.int64)
        if (ages < 0).any() or (ages > every).any() or (np.diff(ages)[ages[1:] > 0] != 1).any():
            raise CheckpointError("replay: its rows are not those of episodes")
        made = rows["flags"] & _STEP > 0
        heads = every[made]
        self._heads[env, : len(heads)] = heads
        needed = heads - np.minimum(ages[made], self.stack - 1)
        self._first[env] = int(np.searchsorted(needed, start))
        self._made[env] = len(heads)
        open_windows = min(self.n_step - 1, int(self._age[env]))
        self._ready[env] = max(int(self._first[env]), len(heads) - open_windows)


def _content_of(segments: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = segments[name]
    content: Mapping[str, Any] = part.arrays() if isinstance(part, Segment) else part
    return content

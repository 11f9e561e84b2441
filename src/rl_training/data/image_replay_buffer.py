"""Replay of images: every frame is kept once, and stacks are put together when they are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

import numpy as np
import torch

from rl_training.data.frame_rings import ENDED, MAX_SEGMENT, STEP, TERMINATED, FrameRings, segments_of
from rl_training.data.frame_stacks import RESET, FrameStacks
from rl_training.data.transitions import Batch, Transitions
from rl_training.errors import CheckpointError, ConfigError
from rl_training.segment import Segment
from rl_training.spaces import Array

__all__ = ["MAX_SEGMENT", "ImageReplayBuffer", "segments_of"]


class ImageReplayBuffer:
    """Keeps the newest observations of every environment once and draws n-step transitions of them, uniformly.

    Observations may have any shape and dtype. With ``stack`` = K > 1 they are stacks [K, ...] of the last K frames,
    the newest last, and only that frame is kept (see ``FrameStacks``). An observation is taken for the one that the
    step before led to, so ``obs`` itself is only written where an episode begins.

    ``capacity`` counts frames, an episode of k steps having k + 1, and each environment has an equal share. They
    come and go in segments of up to ``MAX_SEGMENT``, so that there may be a few more. A segment that is complete
    does not change any more, and a checkpoint need not write it again.

    Masks of the actions allowed in an observation are kept beside it if there are any. They are given as those of
    ``next_obs``; those of ``obs`` only with ``keep_masks``.
    """

    _extra_bytes = 0.0
    """What a subclass keeps for each frame."""

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        action_shape: tuple[int, ...] = (),
        action_dtype: np.dtype[Any] | type = np.float32,
        *,
        obs_dtype: np.dtype[Any] | type = np.uint8,
        stack: int = 1,
        num_envs: int = 1,
        n_step: int = 1,
        gamma: float = 0.99,
        keep_masks: bool = False,
        rng: np.random.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self._stacks = FrameStacks(obs_shape, stack)
        share = ceil(capacity / num_envs)
        if share < n_step + stack:
            raise ConfigError(
                f"algo_kwargs.buffer_size: {capacity} for {num_envs} environments is too little for returns of "
                f"{n_step} steps and stacks of {stack} frames; the least is {num_envs * (n_step + stack)}"
            )
        frame, extra = self._stacks.frame_shape, 8 + self._extra_bytes
        self._rings = FrameRings(capacity, num_envs, frame, obs_dtype, action_shape, action_dtype, extra)
        self._segment, self._ring = self._rings.segment, self._rings.size
        self.capacity, self.num_envs = capacity, num_envs
        self.n_step, self.gamma = n_step, gamma
        self.bytes_per_frame = self._rings.bytes_per_frame + extra
        self.device = torch.device(device)
        self._keep_masks = keep_masks
        self._rng = rng if rng is not None else np.random.default_rng()
        self._powers = gamma ** np.arange(n_step + 1, dtype=np.float64)

        self._head = np.zeros(num_envs, np.int64)  # the row of the observation to act on next
        self._age = np.zeros(num_envs, np.int64)  # steps into the episode
        # The rows of all steps in order: from _first on, they can be drawn; from _ready on, they cannot yet.
        self._heads = np.zeros((num_envs, self._ring), np.int64)
        self._first = np.zeros(num_envs, np.int64)
        self._ready = np.zeros(num_envs, np.int64)
        self._made = np.zeros(num_envs, np.int64)

    def __len__(self) -> int:
        """Return the number of transitions that can be drawn."""
        return int((self._ready - self._first).sum())

    @property
    def nbytes(self) -> int:
        """The bytes of all that is kept, whether it has been written to yet or not."""
        return self._rings.nbytes + self._heads.nbytes

    # Writing

    def add(self, step: Transitions) -> None:
        """Take one step of the environments."""
        if not len(step):
            return
        rings, stacks, envs = self._rings, self._stacks, step.env_ids
        head, age, made = self._head[envs], self._age[envs], self._made[envs]
        begins = age == 0
        stacks.check(step, begins)  # before anything is written
        if np.count_nonzero(begins):
            self._cross(envs[begins], head[begins])
            masks = None if step.mask is None else step.mask[begins]
            places = rings.places(envs[begins], head[begins])
            rings.write_frames(places, stacks.newest(step.obs)[begins], 0, masks)
        ended = step.terminated | step.truncated
        here, after, older = rings.places(envs, head), head + 1, age + 1
        rings.write_steps(here, step.action, step.reward, ended, step.terminated)
        self._cross(envs, after)
        there = rings.places(envs, after)
        rings.write_frames(there, stacks.newest(step.next_obs), older, step.next_mask)
        self._heads[envs, made % self._ring] = head
        made += 1
        self._head[envs], self._age[envs], self._made[envs] = after, older, made
        self._ready[envs] = np.maximum(self._ready[envs], made + (1 - self.n_step))
        if np.count_nonzero(ended):
            self._end_episodes(envs[ended])

    def interrupt(self, envs: Array | None = None) -> None:
        """End the episodes of these environments, or of all, here, as a truncation would."""
        envs = np.flatnonzero(self._age) if envs is None else envs[self._age[envs] > 0]
        self._rings.end(self._rings.places(envs, self._head[envs] - 1))
        self._end_episodes(envs)

    def _end_episodes(self, envs: Array) -> None:
        self._ready[envs] = self._made[envs]
        self._head[envs] += 1
        self._age[envs] = 0

    def _cross(self, envs: Array, rows: Array) -> None:
        """Let go of what is lost when these rows begin a segment in which something else lay."""
        crossing = rows % self._segment == 0
        if np.count_nonzero(crossing):
            for env, row in zip(envs[crossing].tolist(), rows[crossing].tolist(), strict=True):
                if row >= self._ring:
                    self._drop_lost(env, row)

    def _drop_lost(self, env: int, row: int) -> None:
        """Let go of the steps that need a frame of the segment that is about to be overwritten."""
        numbers = np.arange(self._first[env], self._made[env])
        heads = self._heads[env, numbers % self._ring]
        self._first[env] += self._count_lost(env, heads, self._rings.oldest(row))
        self._ready[env] = max(self._ready[env], self._first[env])

    def _count_lost(self, env: int, heads: Array, oldest: int) -> int:
        """Return how many of the steps from these rows need a frame before the row ``oldest``."""
        ages = self._rings.rows["age"][self._rings.base[env] + heads % self._ring]
        needed = heads - np.minimum(ages, self._stacks.stack - 1)
        return int(np.searchsorted(needed, oldest))  # in order, as the steps are

    # Reading

    def actions(self) -> Iterator[Array]:
        """Yield all rows' actions, zeros where no step was made."""
        yield self._rings.rows["action"]

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
        rings = self._rings
        here = rings.places(envs, heads)
        rows = rings.rows[here]
        reward = rows["reward"].astype(np.float64)
        steps, last = np.ones(len(envs), np.int64), rows["flags"]
        going = last & ENDED == 0
        for k in range(1, self.n_step):
            if not going.any():
                break
            after = rings.rows[rings.places(envs, heads + k)]
            reward += np.where(going, self._powers[k] * after["reward"], 0.0)
            steps += going
            last = np.where(going, after["flags"], last)
            going = going & (last & ENDED == 0)
        discount = self._powers[steps] * (last & TERMINATED == 0)
        next_mask = rings.masks.take(rings.places(envs, heads + steps))
        mask = rings.masks.take(here) if self._keep_masks else None
        batch = Batch(
            self._observations(envs, heads, rows["age"]),
            torch.from_numpy(rows["action"].copy()),
            torch.from_numpy(reward.astype(np.float32)),
            torch.from_numpy(discount.astype(np.float32)),
            self._observations(envs, heads + steps, rows["age"] + steps),
            next_mask=None if next_mask is None else torch.from_numpy(next_mask),
            mask=None if mask is None else torch.from_numpy(mask),
        )
        return batch if self.device.type == "cpu" else self._moved(batch)

    def _observations(self, envs: Array, rows: Array, ages: Array) -> torch.Tensor:
        stacks, rings = self._stacks, self._rings
        if stacks.stack == 1:
            return torch.from_numpy(rings.frames.take(rings.places(envs, rows), 0))
        places = rings.places(envs[:, None], stacks.rows(rows, ages))  # [B, K]
        obs = rings.frames.take(places, 0)
        stacks.pad(obs, ages)
        return torch.from_numpy(obs)

    def _moved(self, batch: Batch) -> Batch:
        for name in ("obs", "action", "reward", "discount", "next_obs", "next_mask", "mask"):
            tensor = getattr(batch, name)
            if tensor is not None:
                setattr(batch, name, tensor.to(self.device))
        return batch

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return all frames that are kept: complete segments as such, and what is written to beside them."""
        segments: dict[str, Segment] = {}
        newest: dict[str, Any] = {}
        for env in range(self.num_envs):
            first, complete, end = self._extent(env)
            for number in range(first, complete):
                segments[f"e{env}_{number}"] = self._rings.as_segment(env, number)
            newest[f"e{env}"] = self._rings.content(env, complete * self._segment, end)
        state = {
            "capacity": self.capacity,
            "segment_frames": self._segment,
            "segments": segments,
            "newest": newest,
            "head": self._head.copy(),
            "age": self._age.copy(),
            **self._stacks.state_dict(),
        }
        actions = self._rings.masks.num_actions
        return state if actions is None else {**state, "masked_actions": actions}

    def _extent(self, env: int) -> tuple[int, int, int]:
        """Return the first segment that is kept, the first that may still change, and the end of the rows."""
        head, age = int(self._head[env]), int(self._age[env])
        end = head + (age > 0)  # an episode's first frame is only written with its first step
        first = self._rings.oldest(max(end - 1, 0)) // self._segment
        # The last step made can still become the last of its episode, if that is interrupted.
        return first, max(first, (head - 1) // self._segment), end

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of a buffer with the same capacity, shapes and number of environments."""
        if "segments" not in state:
            raise CheckpointError(
                "replay: the checkpoint holds whole transitions, but images are kept once per step by this version"
            )
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
        actions = state.get("masked_actions")
        if actions is not None and not (isinstance(actions, int) and actions > 0):
            raise CheckpointError(f"replay: masks of {actions!r} actions")
        self._stacks.load_state_dict(state)
        self._rings.masks.reserve(actions)
        self._head[:], self._age[:] = head, age
        expected = set()
        for env in range(self.num_envs):
            first, complete, end = self._extent(env)
            for number in range(first, complete):
                expected.add(f"e{env}_{number}")
                part = _content_of(state["segments"], f"e{env}_{number}")
                self._rings.put(env, number * self._segment, self._segment, part)
            newest = complete * self._segment
            self._rings.put(env, newest, end - newest, state["newest"][f"e{env}"])
            self._index(env, first * self._segment, end)
        if set(state["segments"]) != expected:
            raise CheckpointError("replay: its segments are not those that its head says")

    def _index(self, env: int, start: int, end: int) -> None:
        """Find the steps in the rows of an environment again."""
        every = np.arange(start, end)
        places = self._rings.base[env] + every % self._ring
        rows = self._rings.rows[places]
        ages = rows["age"].astype(np.int64)
        if (ages < 0).any() or (ages > every).any() or (np.diff(ages)[ages[1:] > 0] != 1).any():
            raise CheckpointError("replay: its rows are not those of episodes")
        heads = every[rows["flags"] & STEP > 0]
        self._heads[env, : len(heads)] = heads
        self._first[env] = self._count_lost(env, heads, start)
        self._made[env] = len(heads)
        open_windows = min(self.n_step - 1, int(self._age[env]))
        self._ready[env] = max(int(self._first[env]), len(heads) - open_windows)
        undecided = self._stacks.stack > 1 and self._stacks.padding is None
        if undecided and any(self._rings.frames[place].any() for place in places[ages == 0]):
            self._stacks.padding = RESET  # older versions knew no other, and did not save it


def _content_of(segments: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = segments[name]
    content: Mapping[str, Any] = part.arrays() if isinstance(part, Segment) else part
    return content

"""Rings of observations and steps, one for each environment, that are saved in segments."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod
from typing import Any

import numpy as np

from rl_training.data.mask_column import MaskColumn
from rl_training.data.memory import require_memory
from rl_training.errors import CheckpointError
from rl_training.segment import Segment
from rl_training.spaces import Array

MAX_SEGMENT = 256
"""Frames: enough for few files, and few enough for what is not complete to be cheap to save."""
STEP, ENDED, TERMINATED, MASKED = 1, 2, 4, 8
"""Flags of a row: a step was made from it, which ended its episode, by termination; it was given a mask."""


def segments_of(share: int) -> tuple[int, int]:
    """Return in portions of how many frames the share of one environment is kept, and in how many of them.

    There is one more than what is asked for, because that which is written to is not full.
    """
    rows = max(1, min(share // 64, MAX_SEGMENT))
    return rows, ceil(share / rows) + 1


class FrameRings:
    """Environments write rows 0, 1, 2, ... of their own: a frame, what was done there, and what came of it.

    Row k lies at k modulo ``size`` in the ring of its environment. The rings follow each other in flat arrays,
    in which a row has its place. Masks only take memory once there are some.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        frame: tuple[int, ...],
        frame_dtype: np.dtype[Any] | type,
        action_shape: tuple[int, ...],
        action_dtype: np.dtype[Any] | type,
        extra_bytes: float = 0.0,
    ) -> None:
        row = np.dtype(
            [
                ("action", action_dtype, action_shape),
                ("reward", np.float32),
                ("age", np.int32),  # steps into the episode
                ("flags", np.uint8),
            ]
        )
        self.bytes_per_frame = prod(frame) * np.dtype(frame_dtype).itemsize + row.itemsize
        require_memory(
            capacity,
            ceil(self.bytes_per_frame + extra_bytes),
            "algo_kwargs.buffer_size",
            "frames",
            lambda frames: num_envs * prod(segments_of(ceil(frames / num_envs))),
        )
        self.segment, self.slots = segments_of(ceil(capacity / num_envs))
        self.size = self.slots * self.segment
        total = num_envs * self.size
        self.frames = np.zeros((total, *frame), frame_dtype)  # pages are only taken once written
        self.rows = np.zeros(total, row)
        self.masks = MaskColumn(total)
        self.base = np.arange(num_envs) * self.size  # the place of row 0 of each environment
        self._action, self._reward = self.rows["action"], self.rows["reward"]
        self._age, self._flags = self.rows["age"], self.rows["flags"]
        self._bytes = self.rows.view(np.uint8).reshape(total, -1)
        self._void = self.rows.view(f"V{row.itemsize}")
        self._blank = np.zeros(1, row).view(self._void.dtype)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return int(self.frames.nbytes + self.rows.nbytes + self.masks.nbytes)

    def places(self, envs: Array, rows: Array) -> Array:
        """Return where rows [N] of environments [N] lie."""
        places: Array = self.base[envs] + rows % self.size
        return places

    def oldest(self, row: int) -> int:
        """Return the oldest row of an environment that is still there once ``row`` has been written."""
        return max(0, (row // self.segment - self.slots + 1) * self.segment)

    # Writing

    def write_frames(self, places: Array, frames: Array, ages: Array | int, masks: Array | None) -> None:
        """Write observations [N] from which no step has been made yet, with the actions they allow (none: all)."""
        self.frames[places] = frames
        self._void[places] = self._blank
        self._age[places] = ages
        if masks is not None:
            self.masks.write(places, masks)
            self._flags[places] = MASKED
        elif self.masks.used:
            self.masks.write(places, None)

    def write_steps(
        self, places: Array, action: Array, reward: Array, ended: Array, terminated: Array
    ) -> None:
        """Write the steps [N] that were made from these observations."""
        self._action[places] = action
        self._reward[places] = reward
        flags: Any = STEP
        if np.count_nonzero(ended):
            flags = (STEP + ENDED * ended + TERMINATED * terminated).astype(np.uint8)
        if self.masks.used:
            flags = flags | (self._flags[places] & MASKED)
        self._flags[places] = flags

    def end(self, places: Array) -> None:
        """Let these steps be the last of their episodes."""
        self._flags[places] |= ENDED

    # Segments

    def as_segment(self, env: int, number: int) -> Segment:
        """Return a complete segment of an environment."""
        start = number * self.segment
        return Segment(lambda: self.content(env, start, start + self.segment))

    def content(self, env: int, start: int, end: int) -> dict[str, Any]:
        """Return views of rows, which must not be more than a ring apart; they may lie in two pieces."""
        where = self._where(env, start, end)
        content = {"frames": self.frames[where], "rows": self._bytes[where]}
        if (self._flags[where] & MASKED).any():
            # Others allow everything. So a segment that was complete before the first mask stays as it is.
            content["masks"] = self.masks.view(where)
        return content

    def _where(self, env: int, start: int, end: int) -> Any:
        places = np.arange(start, end) % self.size + env * self.size
        whole = len(places) > 0 and places[-1] - places[0] == len(places) - 1
        return slice(places[0], places[-1] + 1) if whole else places

    def put(self, env: int, start: int, count: int, part: Mapping[str, Any]) -> None:
        """Take over the content of ``count`` rows from ``start`` on."""
        frames, raw = np.asarray(part["frames"]), np.asarray(part["rows"])
        expected = (count, *self.frames.shape[1:]), (count, self.rows.dtype.itemsize)
        if (
            (frames.shape, raw.shape) != expected
            or frames.dtype != self.frames.dtype
            or raw.dtype != np.uint8
        ):
            raise CheckpointError(
                f"replay: {count} frames of {self.frames.dtype}{self.frames.shape[1:]} expected, "
                f"got {frames.dtype}{frames.shape}"
            )
        where = self._where(env, start, start + count)
        self.frames[where] = frames
        self._bytes[where] = raw
        masked = bool((self._flags[where] & MASKED).any())
        masks = self.masks.check(part.get("masks"), count)
        if masked != (masks is not None) or not self.masks.fits(masks):
            raise CheckpointError("replay: the masks are not those of its rows")
        if masks is not None:
            self.masks.write(where, masks)

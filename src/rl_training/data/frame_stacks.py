"""Stacks of frames of which only the newest is kept: what makes that possible, and how they are put together again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.data.transitions import Transitions
from rl_training.errors import CheckpointError, EnvError
from rl_training.spaces import Array

RESET, ZEROS = "reset", "zeros"


class FrameStacks:
    """Observations [K, ...] that are the last K frames of their episode, the newest last; K = 1 means no stack.

    An episode's first observation is padded: by its first frame repeated (``reset``, as by FrameStackObservation) or
    by zeros (``zeros``, as by ALE's vector environment). The first observation that tells them apart decides
    for all. Every step is checked in full, so that no stack that cannot be put together again is ever stored.
    """

    def __init__(self, obs_shape: tuple[int, ...], stack: int = 1) -> None:
        if stack < 1 or (stack > 1 and (len(obs_shape) < 2 or obs_shape[0] != stack)):
            raise ValueError(f"observations of shape {obs_shape} are no stacks of {stack} frames")
        self.stack = stack
        self.obs_shape = obs_shape
        self.frame_shape = obs_shape[1:] if stack > 1 else obs_shape
        self.padding: str | None = None
        self._offsets = np.arange(stack - 1, -1, -1)

    def newest(self, obs: Array) -> Array:
        """Return the newest frames [N, *frame] of observations [N, *obs]."""
        frames: Array = obs if self.stack == 1 else obs[:, -1]
        return frames

    # Writing

    def check(self, step: Transitions, begins: Array) -> None:
        """Refuse observations that could not be put together again; ``begins`` [N] says where episodes do."""
        if self.stack == 1:
            return
        same = self._words(step.next_obs)[:, :-1] == self._words(step.obs)[:, 1:]
        if not same.all():
            env = step.env_ids[same.all((1, 2)).argmin()]
            raise EnvError(
                f"env {env}: observations of shape {self.obs_shape} are taken for {self.stack} stacked frames, the "
                "newest last, but the older ones are not those of the step before"
            )
        if np.count_nonzero(begins):
            self._check_beginnings(step.env_ids[begins], step.obs[begins])

    def _words(self, obs: Array) -> Array:
        """Return the bytes of observations [N, K, ...], eight at a time if they go into frames of that size."""
        raw = np.ascontiguousarray(obs).reshape(len(obs), self.stack, -1).view(np.uint8)
        return raw if raw.shape[2] % 8 else raw.view(np.uint64)

    def _check_beginnings(self, envs: Array, obs: Array) -> None:
        padding = self.padding
        for env, stacked in zip(envs.tolist(), obs, strict=True):
            older, first = stacked[:-1], stacked[-1]
            zeros, repeated = not older.any(), bool((older == first).all())
            if zeros and repeated:
                continue  # the first frame is all zero, so both fit
            if not (zeros or repeated):
                raise EnvError(
                    f"env {env}: at an episode's beginning, the older of {self.stack} stacked frames should be "
                    "copies of the first one (FrameStackObservation with padding_type: reset) or all zero"
                )
            found = ZEROS if zeros else RESET
            if padding is None:
                padding = found
            elif found != padding:
                raise EnvError(
                    f"env {env}: the stack of {self.stack} frames at an episode's beginning is padded by "
                    f"{_described(found)}, but those of earlier episodes by {_described(padding)}"
                )
        self.padding = padding

    # Reading

    def rows(self, rows: Array, ages: Array) -> Array:
        """Return the rows [..., K] of the frames that make up the observations of these rows and ages [...]."""
        return rows[..., None] - np.minimum(self._offsets, ages[..., None])

    def pad(self, obs: Array, ages: Array) -> None:
        """Blank out the frames before an episode's beginning in observations [..., *obs] of these ages [...]."""
        if self.padding == ZEROS:
            missing = self._offsets > ages[..., None]
            if missing.any():
                obs[missing] = 0

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return how episodes begin, once that is known."""
        return {} if self.padding is None else {"padding": self.padding}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave; without it, nothing has decided yet."""
        padding = state.get("padding")
        if padding not in (None, RESET, ZEROS) or (padding is not None and self.stack == 1):
            raise CheckpointError(f"replay: frames are stacked with padding {padding!r}, which is not known")
        self.padding = padding


def _described(padding: str) -> str:
    return "zeros" if padding == ZEROS else "its first frame"

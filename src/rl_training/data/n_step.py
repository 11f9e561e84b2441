"""Folding of n-step returns at the writer, so that no learner ever sees gamma, n or a done flag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.data.transitions import Transitions
from rl_training.errors import CheckpointError
from rl_training.spaces import Array

Folded = tuple[Array, Array, Array, Array, Array, Array | None, Array | None]
"""obs, action, reward, discount, next_obs, next_mask, mask, each with one leading dimension; masks only if given."""


class NStepFolder:
    """Turns single transitions into n-step ones: every transition heads exactly one window.

    A window of m rewards gives ``sum_k gamma**k r_k`` and ``discount = gamma**m * (1 - terminated)``. Windows
    are cut short where an episode ends, by termination or truncation, so none reaches into the next episode.
    ``keep_masks`` also hands on which actions were allowed where a window begins.
    """

    def __init__(
        self,
        n: int,
        gamma: float,
        num_envs: int,
        obs_shape: tuple[int, ...],
        obs_dtype: np.dtype[Any] | type,
        action_shape: tuple[int, ...],
        action_dtype: np.dtype[Any] | type,
        *,
        keep_masks: bool = False,
    ) -> None:
        self.n, self.gamma = n, gamma
        # Open windows of each env, oldest first; row k of env e is open where k < _open[e].
        self._obs = np.zeros((num_envs, n, *obs_shape), obs_dtype)
        self._action = np.zeros((num_envs, n, *action_shape), action_dtype)
        self._reward = np.zeros((num_envs, n))
        self._keep_masks = keep_masks
        self._mask: Array | None = None  # [num_envs, n, A] bool, made when the first mask comes
        self._open = np.zeros(num_envs, np.int64)
        self._full = np.full(num_envs, gamma)
        self._powers = gamma ** np.arange(n + 1, dtype=np.float64)

    @property
    def actions(self) -> Array:
        """Actions of windows [num_envs, n, *action], zeros where none has begun yet."""
        return self._action

    def fold(self, step: Transitions) -> Folded:
        """Take one step and return the windows that it completes, possibly none."""
        if self.n == 1:
            dead = np.count_nonzero(step.terminated)
            discount = self.gamma * ~step.terminated if dead else self._full[: len(step)]
            mask = step.mask if self._keep_masks else None
            return step.obs, step.action, step.reward, discount, step.next_obs, step.next_mask, mask
        envs = step.env_ids
        newest = self._open[envs]
        self._obs[envs, newest] = step.obs
        self._action[envs, newest] = step.action
        self._reward[envs, newest] = 0.0
        if self._keep_masks:
            self._write_masks(envs, newest, step.mask)
        opened = newest + 1
        rank = np.arange(self.n)
        is_open = rank < opened[:, None]  # [N, n]
        ages = np.where(is_open, newest[:, None] - rank, 0)  # rewards already in each window
        self._reward[envs] += np.where(is_open, self._powers[ages] * step.reward[:, None], 0.0)

        ended = step.terminated | step.truncated
        closing = is_open & (ended[:, None] | (ages == self.n - 1))
        row, slot = np.nonzero(closing)  # env by env, oldest window first
        source = envs[row]
        discount = self._powers[ages[row, slot] + 1] * ~step.terminated[row]
        folded = (
            self._obs[source, slot],
            self._action[source, slot],
            self._reward[source, slot],
            discount,
            step.next_obs[row],
            None if step.next_mask is None else step.next_mask[row],
            None if self._mask is None else self._mask[source, slot],
        )
        self._drop_closed(envs, opened, ended)
        return folded

    def _drop_closed(self, envs: Array, opened: Array, ended: Array) -> None:
        self._open[envs] = np.where(ended, 0, opened)
        full = envs[(opened == self.n) & ~ended]
        for array in (self._obs, self._action, self._reward, self._mask):
            if array is not None:
                array[full, :-1] = array[full, 1:]
        self._open[full] -= 1

    def _write_masks(self, envs: Array, newest: Array, mask: Array | None) -> None:
        if self._mask is None:
            if mask is None:
                return
            self._mask = np.ones((*self._reward.shape, mask.shape[1]), np.bool_)
        self._mask[envs, newest] = True if mask is None else mask

    def forget(self, envs: Array | None = None) -> None:
        """Drop the open windows of these environments, or all, as when episodes are abandoned."""
        self._open[slice(None) if envs is None else envs] = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the open windows."""
        state = {name: getattr(self, f"_{name}").copy() for name in ("obs", "action", "reward", "open")}
        return state if self._mask is None else {**state, "mask": self._mask.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the open windows of a folder with the same shapes."""
        for name in ("obs", "action", "reward", "open"):
            own, given = getattr(self, f"_{name}"), np.asarray(state[name])
            if given.shape != own.shape or given.dtype != own.dtype:
                raise CheckpointError(
                    f"replay: n-step {name} is {given.dtype}{given.shape}, not {own.dtype}{own.shape}"
                )
            own[...] = given
        mask = np.asarray(state["mask"]) if "mask" in state else None
        if mask is not None and (mask.dtype != bool or mask.shape[:-1] != self._reward.shape):
            raise CheckpointError(f"replay: n-step mask is {mask.dtype}{mask.shape}")
        self._mask = None if mask is None else mask.copy()
        if not ((self._open >= 0) & (self._open < max(self.n, 2))).all():
            raise CheckpointError("replay: n-step windows out of range")

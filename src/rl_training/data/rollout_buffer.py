"""A rollout: what all environments did under one policy, dealt out once and then forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ctypes import c_double, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.data.memory import require_memory
from rl_training.data.results import UpdateResult
from rl_training.data.transitions import Carry, Transitions
from rl_training.errors import CheckpointError
from rl_training.native import library
from rl_training.spaces import Array

_FLAGS = ("terminated", "truncated", "valid")


@dataclass(slots=True)
class Rollout:
    """T steps of N environments. Where ``valid`` is false, an environment made no step: it was being reset.

    ``extra_obs`` holds the observations that no later row has, but whose values are needed: those with which an
    episode was truncated, and those after the last row of each environment. ``after`` [T, N] says where the value of
    what follows a row is found: in row t + 1 (-1), nowhere because the episode has terminated (-2), or in
    ``extra_obs``.
    """

    obs: Array  # [T, N, *obs]
    action: Array  # [T, N, *action]
    reward: Array  # [T, N] float32
    terminated: Array  # [T, N] bool
    truncated: Array  # [T, N] bool
    valid: Array  # [T, N] bool
    starts: Array  # [T, N] bool, true where obs began an episode
    after: Array  # [T, N] int64
    extra_obs: Array  # [E, *obs]
    mask: Array | None = None  # [T, N, A] bool, the actions allowed in obs
    carry: Carry | None = None  # each [T, N, ...], the memory before obs

    @property
    def done(self) -> Array:
        """Where an episode ended [T, N]."""
        ended: Array = self.terminated | self.truncated
        return ended


def next_values(rollout: Rollout, values: Array, extra: Array) -> Array:
    """Return the values [T, N] of what follows each row: ``values`` [T, N] are of obs, ``extra`` [E] of extra_obs."""
    following = np.zeros_like(values)
    following[:-1] = values[1:]
    beyond = rollout.after >= 0
    following[beyond] = extra[rollout.after[beyond]]
    following[rollout.after == -2] = 0.0
    return following


def advantages(
    reward: Array, values: Array, following: Array, done: Array, valid: Array, gamma: float, lam: float
) -> Array:
    """Return generalised advantage estimates (Schulman et al. 2016) [T, N].

    ``following`` [T, N] are the values of what comes after each row: 0 after a termination, and after a truncation that
    of the episode's last observation. Sums end where ``done`` says that an episode did.
    """
    native = library()
    estimate = np.empty(reward.shape, np.float32)
    if native is not None:
        floats = [np.ascontiguousarray(array, np.float32) for array in (reward, values, following)]
        flags = [np.ascontiguousarray(array, np.bool_) for array in (done, valid)]
        addresses = [c_void_p(array.ctypes.data) for array in (*floats, *flags)]
        sizes, rates = map(c_int64, reward.shape), map(c_double, (gamma, lam))
        native.advantages(*sizes, *addresses, *rates, c_void_p(estimate.ctypes.data))
        return estimate
    delta = reward.astype(np.float64) + gamma * following - values
    ahead = np.zeros(delta.shape[1])
    going_on = (gamma * lam) * ~done
    for t in range(len(delta) - 1, -1, -1):
        ahead = np.where(valid[t], delta[t] + going_on[t] * ahead, ahead)
        estimate[t] = ahead
    return estimate


class RolloutBuffer:
    """Collects ``n_steps`` steps of every environment in one block, then deals them out as one batch.

    The last rollout of a budget is as long as the budget allows. A step in which ``NEXT_STEP`` autoreset resets some
    environments counts for the others.
    """

    def __init__(
        self,
        n_steps: int,
        num_envs: int,
        obs_shape: tuple[int, ...],
        obs_dtype: np.dtype[Any] | type = np.float32,
        *,
        action_shape: tuple[int, ...] = (),
        action_dtype: np.dtype[Any] | type = np.int64,
        total_timesteps: int,
        state: Mapping[str, tuple[tuple[int, ...], Any]] | None = None,
    ) -> None:
        block = (n_steps, num_envs)
        row = np.dtype([("obs", obs_dtype, obs_shape), ("action", action_dtype, action_shape)]).itemsize
        memory = sum(np.dtype(kind).itemsize * int(np.prod(shape)) for shape, kind in (state or {}).values())
        require_memory(n_steps, num_envs * (row + memory + 8), "algo_kwargs.n_steps", "steps of a rollout")
        self.n_steps, self.num_envs = n_steps, num_envs
        self._total = total_timesteps
        self._obs = np.zeros((*block, *obs_shape), obs_dtype)
        self._action = np.zeros((*block, *action_shape), action_dtype)
        self._reward = np.zeros(block, np.float32)
        self._terminated, self._truncated, self._valid = (np.zeros(block, np.bool_) for _ in _FLAGS)
        self._starts = np.zeros(block, np.bool_)
        self._mask: Array | None = None  # [T, N, A], made when the first mask comes
        self._carry = {
            name: np.zeros((*block, *shape), kind) for name, (shape, kind) in (state or {}).items()
        }
        self._last_obs = np.zeros((num_envs, *obs_shape), obs_dtype)  # after each environment's newest row
        self._begins = np.ones(num_envs, np.bool_)  # the next row of an environment begins an episode
        self._final: list[tuple[int, int, Array]] = []  # row, environment and observation of truncations
        self._count = 0

    def __len__(self) -> int:
        """Return the number of transitions held."""
        return int(np.count_nonzero(self._valid[: self._count]))

    def add(self, step: Transitions) -> None:
        """Write one step of the environments as the next row, unless all of them were only reset in it."""
        t, envs = self._count, step.env_ids
        if not len(envs):
            return
        whole = len(envs) == self.num_envs
        where: Any = t if whole else (t, envs)
        if not whole:
            self._valid[t] = self._terminated[t] = self._truncated[t] = self._starts[t] = False
        self._obs[where], self._action[where], self._reward[where] = step.obs, step.action, step.reward
        self._terminated[where], self._truncated[where] = step.terminated, step.truncated
        self._valid[where] = True
        self._starts[where] = self._begins[envs]
        if step.mask is not None or self._mask is not None:
            self._write_mask(where, step.mask)
        for name, array in self._carry.items():
            array[where] = 0 if step.carry is None else step.carry[name]
        self._last_obs[envs] = step.next_obs
        ended = step.terminated | step.truncated
        self._begins[envs] = ended
        for i in np.flatnonzero(step.truncated & ~step.terminated) if ended.any() else ():
            self._final.append((t, int(envs[i]), np.array(step.next_obs[i])))
        self._count += 1

    def _write_mask(self, where: Any, mask: Array | None) -> None:
        if self._mask is None:
            assert mask is not None
            self._mask = np.ones((self.n_steps, self.num_envs, mask.shape[-1]), np.bool_)
        self._mask[where] = True if mask is None else mask

    def batches(self, env_steps: int) -> Iterator[Rollout]:
        """Return the rollout if it is complete, or if the budget is used up; then it is forgotten."""
        if not self._count or (self._count < self.n_steps and env_steps < self._total):
            return iter(())
        rollout = self._rollout()
        self._count, self._final = 0, []
        return iter((rollout,))

    def _rollout(self) -> Rollout:
        """Return views of the block, which stay as they are until the next step is added."""
        t = slice(self._count)
        terminated, truncated, valid = self._terminated[t], self._truncated[t], self._valid[t]
        after = np.where(terminated, -2, -1)
        rows = [row for row, _, _ in self._final]
        after[rows, [env for _, env, _ in self._final]] = np.arange(len(rows))
        # The last row of an environment that goes on: of those without any row in this rollout there is none.
        newest = self._count - 1 - valid[::-1].argmax(0)
        everyone = np.arange(self.num_envs)
        open_ended = valid.any(0) & (after[newest, everyone] == -1)
        after[newest[open_ended], everyone[open_ended]] = len(rows) + np.arange(np.count_nonzero(open_ended))
        final = [obs[None] for _, _, obs in self._final]
        return Rollout(
            self._obs[t],
            self._action[t],
            self._reward[t],
            terminated,
            truncated,
            valid,
            self._starts[t],
            after,
            np.concatenate([*final, self._last_obs[open_ended]]),
            None if self._mask is None else self._mask[t],
            {name: array[t] for name, array in self._carry.items()} or None,
        )

    def actions(self) -> Iterator[Array]:
        """Yield the actions in the rows so far; where no step was made, those of an earlier rollout."""
        yield self._action[: self._count]

    def feedback(self, batch: Rollout, result: UpdateResult) -> None:
        """Do nothing: what was learned from is gone."""

    def begin_at(self, env_steps: int) -> None:
        """Do nothing: a rollout begins anywhere."""

    def interrupt(self, envs: Array | None = None) -> None:
        """End the episodes of these environments, or of all, where they are, as a truncation would."""
        given = np.arange(self.num_envs) if envs is None else envs
        for env in given[~self._begins[given]].tolist():
            rows = np.flatnonzero(self._valid[: self._count, env])
            if len(rows):
                self._truncated[rows[-1], env] = True
                self._final.append((int(rows[-1]), env, self._last_obs[env].copy()))
        self._begins[given] = True

    # State

    def _blocks(self) -> dict[str, Array]:
        fields = ("obs", "action", "reward", "terminated", "truncated", "valid", "starts")
        return {name: getattr(self, f"_{name}") for name in fields}

    def state_dict(self) -> dict[str, Any]:
        """Return the rows written so far, and where every environment stands."""
        held = slice(self._count)
        state = {
            "blocks": {name: array[held] for name, array in self._blocks().items()},
            "carry": {name: array[held] for name, array in self._carry.items()},
            "last_obs": self._last_obs.copy(),
            "begins": self._begins.copy(),
            "final_rows": np.array([entry[:2] for entry in self._final], np.int64).reshape(-1, 2),
            "final_obs": np.array([entry[2] for entry in self._final], self._obs.dtype).reshape(
                -1, *self._obs.shape[2:]
            ),
        }
        return state if self._mask is None else {**state, "mask": self._mask[held]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a rollout of the same shapes that is not complete yet."""
        given = {name: np.asarray(array) for name, array in state["blocks"].items()}
        carry = {name: np.asarray(array) for name, array in state["carry"].items()}
        count = len(given["reward"])
        if (
            given.keys() != self._blocks().keys()
            or carry.keys() != self._carry.keys()
            or count > self.n_steps
        ):
            raise CheckpointError(f"replay: not a rollout of up to {self.n_steps} steps")
        # Not by name in one mapping: a memory may hold an action or a reward, too.
        pairs = [(own, given[name], name) for name, own in self._blocks().items()]
        pairs += [(own, carry[name], f"carry.{name}") for name, own in self._carry.items()]
        for own, array, name in pairs:
            expected = (count, *own.shape[1:])
            if array.shape != expected or array.dtype != own.dtype:
                raise CheckpointError(
                    f"replay: {name} is {array.dtype}{array.shape}, not {own.dtype}{expected}"
                )
        last_obs, begins = np.asarray(state["last_obs"]), np.asarray(state["begins"])
        if last_obs.shape != self._last_obs.shape or begins.shape != self._begins.shape:
            raise CheckpointError(f"replay: last_obs or begins do not fit {self.num_envs} environments")
        rows, final = np.asarray(state["final_rows"]), np.asarray(state["final_obs"])
        inside = (rows >= 0).all() and (rows < (max(count, 1), self.num_envs)).all()
        if rows.shape != (len(final), 2) or final.shape[1:] != self._obs.shape[2:] or not inside:
            raise CheckpointError("replay: the observations of truncations do not fit the rollout")
        mask = np.asarray(state["mask"]) if "mask" in state else None
        if mask is not None and (mask.dtype != bool or mask.shape[:2] != (count, self.num_envs)):
            raise CheckpointError(f"replay: masks are {mask.dtype}{mask.shape}, not bool of {count} steps")
        for own, array, _ in pairs:
            own[:count] = array
        self._mask = None
        if mask is not None:
            self._mask = np.ones((self.n_steps, *mask.shape[1:]), np.bool_)
            self._mask[:count] = mask
        self._last_obs[:], self._begins[:], self._count = last_obs, begins, count
        self._final = [(int(t), int(env), obs) for (t, env), obs in zip(rows, final, strict=True)]

"""From vector environments to true transitions: the only place that knows Gymnasium's autoreset modes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from rl_training.algorithms.protocol import Algorithm
from rl_training.data.transitions import Transitions
from rl_training.envs.subprocess import SubprocessVectorEnv
from rl_training.envs.sync import SyncVectorEnv
from rl_training.errors import CheckpointError, EnvError
from rl_training.runtime.timing import Timer
from rl_training.spaces import ActionSpec, Array

_OWN = (SyncVectorEnv, SubprocessVectorEnv)  # vector environments whose members keep a journal

Episode = tuple[float, int]
"""Return and length of a finished episode."""


class Collector:
    """Asks the algorithm for actions, steps the environments, and emits what really happened.

    Every row of the result is one environment step: ``next_obs`` is the observation that the action led to,
    never that of the next episode, and the row that ``NEXT_STEP`` autoreset makes up is left out.
    """

    def __init__(
        self,
        envs: gym.vector.VectorEnv[Any, Any, Any],
        actions: ActionSpec,
        root: np.random.SeedSequence | None = None,
        timer: Timer | None = None,
    ) -> None:
        self.envs = envs
        self._root = root if root is not None else np.random.SeedSequence()
        self._actions = actions
        self._timer = timer if timer is not None else Timer()
        self._mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        count = envs.num_envs
        self._own = isinstance(envs, _OWN)
        self._all = np.arange(count)
        self._obs: Array | None = None
        self._carry: Any = None
        self._resetting = np.zeros(count, np.bool_)  # NEXT_STEP: the coming step is the reset of these
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int64)
        self._started = np.zeros(count, np.int64)  # episodes begun in each env, over all resumes

    @property
    def obs(self) -> Array:
        """The observations to act on next [N, *obs]."""
        if self._obs is None:
            self._obs = self._first_obs()
        return self._obs

    def _first_obs(self) -> Array:
        if isinstance(self.envs, _OWN):
            self.envs.call_each("start_from", [(int(k),) for k in self._started])
            obs = self.envs.reset()[0]
        else:
            # A foreign vector environment seeds itself; after a restart it must not repeat its first episodes.
            key = (*self._root.spawn_key, int(self._started.sum()))
            sequence = np.random.SeedSequence(self._root.entropy, spawn_key=key)
            obs = self._foreign_reset(seed=int(sequence.generate_state(1)[0] >> 1))
        self._started += 1
        return obs

    def step(self, algorithm: Algorithm, *, explore: bool = True) -> tuple[Transitions, list[Episode]]:
        """Make one step of every environment; return its transitions and the episodes that ended."""
        obs = self._obs if self._obs is not None else self.obs
        lap = self._timer.lap
        lap("other")
        if explore:
            algorithm.observe(obs)
        decision = algorithm.act(obs, self._carry, explore=explore)
        self._carry = decision.carry
        lap("inference")
        actions = self._actions.to_env(decision.action)
        if self._own:
            next_obs, reward, terminated, truncated, infos = self.envs.step(actions)
        else:
            next_obs, reward, terminated, truncated, infos = self._foreign_step(actions)
        done = terminated | truncated
        any_done = bool(np.count_nonzero(done))
        self._obs = next_obs
        if not any_done:
            pass
        elif self._mode is AutoresetMode.SAME_STEP:
            next_obs = _with_final_obs(next_obs, done, infos)
        elif self._mode is AutoresetMode.DISABLED:
            self._obs = self._foreign_reset(options={"reset_mask": done.copy()})
        lap("environment")

        step = Transitions(self._all, obs, decision.action, reward, next_obs, terminated, truncated)
        if self._mode is AutoresetMode.NEXT_STEP:
            step = _without(step, self._resetting)
            self._resetting = done & ~self._resetting
        return step, self._count_episodes(step, any_done)

    def _foreign_step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step environments that are not ours, checking what ours check by themselves."""
        with _as_env_error():
            obs, reward, terminated, truncated, infos = self.envs.step(actions)
        if not np.isfinite(reward).all():
            raise EnvError("rewards: expected finite numbers, got NaN or infinity")
        for final_obs in infos.get("final_obs", ()):
            if final_obs is not None and not np.isfinite(final_obs).all():
                raise EnvError("final observations: expected finite numbers, got NaN or infinity")
        return self._checked_copy(obs), np.asarray(reward), terminated, truncated, infos

    def _foreign_reset(self, **options: Any) -> Array:
        with _as_env_error():
            obs, _ = self.envs.reset(**options)
        return self._checked_copy(obs)

    def _checked_copy(self, obs: Array) -> Array:
        """Check observations, and copy them because the next step may overwrite them."""
        expected = self.envs.observation_space
        if obs.shape != expected.shape or obs.dtype != expected.dtype:
            raise EnvError(
                f"observations: expected {expected.dtype} {expected.shape}, got {obs.dtype} {obs.shape}"
            )
        if not np.isfinite(obs).all():
            raise EnvError("observations: expected finite numbers, got NaN or infinity")
        return np.array(obs)

    def _count_episodes(self, step: Transitions, any_done: bool) -> list[Episode]:
        if step.env_ids is self._all:
            self._returns += step.reward
            self._lengths += 1
        else:
            self._returns[step.env_ids] += step.reward
            self._lengths[step.env_ids] += 1
        if not any_done:
            return []
        ended = step.env_ids[step.terminated | step.truncated]
        episodes = [(float(self._returns[i]), int(self._lengths[i])) for i in ended]
        self._started[ended] += 1
        self._returns[ended] = 0.0
        self._lengths[ended] = 0
        return episodes

    def restores(self) -> str:
        """Say how the environments' state comes back from a checkpoint: ``replayed`` or ``restarted``."""
        return "replayed" if isinstance(self.envs, _OWN) else "restarted"

    def state_dict(self, *, lost: bool = False) -> dict[str, Any]:
        """Return observations, statistics and the journal of every environment (none if the envs are ``lost``)."""
        journals: list[Any] | None = None
        if not lost and isinstance(self.envs, _OWN) and self._obs is not None:
            journals = self.envs.call_each("journal")
        if self._obs is None or journals is None or any(journal is None for journal in journals):
            return {"restore": "restarted", "started": self._started.copy()}
        return {
            "restore": "replayed",
            "started": self._started.copy(),
            "obs": self._obs.copy(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "journals": {str(i): journal for i, journal in enumerate(journals)},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> str:
        """Bring the environments back; return ``replayed``, or ``restarted`` if that was not possible."""
        started = np.asarray(state["started"])
        if started.shape != self._started.shape:
            raise CheckpointError(f"envs: {len(started)} were saved, the config says {len(self._started)}")
        self._started[:] = started
        if state["restore"] != "replayed":
            return "restarted"
        if not isinstance(self.envs, _OWN):
            raise CheckpointError("envs: journals were saved, but these environments cannot replay them")
        journals = [state["journals"][str(i)] for i in range(self.envs.num_envs)]
        replayed = self.envs.call_each("replay_journal", [(_as_arrays(journal),) for journal in journals])
        if any(obs is None for obs in replayed):
            return "restarted"
        obs = np.stack(replayed)
        saved = np.asarray(state["obs"])
        if obs.dtype != saved.dtype or obs.shape != saved.shape or obs.tobytes() != saved.tobytes():
            return "restarted"  # not deterministic under reset(seed): the journal does not lead to the saved state
        self._obs = obs
        self._returns[:] = np.asarray(state["returns"])
        self._lengths[:] = np.asarray(state["lengths"])
        return "replayed"


@contextmanager
def _as_env_error() -> Iterator[None]:
    try:
        yield
    except EnvError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise EnvError(f"vector environment: {reason}", details=traceback.format_exc()) from error


def _with_final_obs(obs: Array, done: Array, infos: Mapping[str, Any]) -> Array:
    true_next: Array = obs.copy()
    for i in np.flatnonzero(done):
        true_next[i] = infos["final_obs"][i]
    return true_next


def _without(step: Transitions, dropped: Array) -> Transitions:
    if not dropped.any():
        return step
    keep = ~dropped
    return Transitions(*(getattr(step, name)[keep] for name in Transitions.__slots__))


def _as_arrays(journal: Mapping[str, Any]) -> dict[str, Any]:
    return {**journal, "actions": np.asarray(journal["actions"])}

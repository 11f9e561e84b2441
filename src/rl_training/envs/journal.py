"""The wrapper every environment gets: it seeds episodes, journals them, and checks what comes out."""

from __future__ import annotations

import math
import re
import traceback
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.masks import checked_mask, maskable_actions
from rl_training.envs.spaces import DescribedSpace, describe_observations, frames_stacked
from rl_training.errors import EnvError, is_users_interrupt
from rl_training.observations import cast_floats
from rl_training.spaces import Array

MAX_REWARD = float(np.finfo(np.float32).max)
"""What the replay can hold."""
MAX_JOURNAL = 1_000_000
"""Actions of one episode after which its journal is given up, and with it exact restoring."""
_RESET_GIVES = "(obs, info)"
_RESET_CALL = f"reset(self, *, seed=None, options=None) that returns {_RESET_GIVES}"
_STEP_GIVES = "(obs, reward, terminated, truncated, info)"
_NO_KEYWORD = re.compile(r"reset\(\) got an unexpected keyword argument '(seed|options)'")
"""What environments of the old API say when they are reset as Gymnasium does."""


class EpisodeSeeds:
    """The seeds of an environment's episodes: the k-th depends on the root and k only, so k is all its state.

    ``offset`` and ``stride`` deal the episodes of one stream out to several environments.
    """

    def __init__(self, root: np.random.SeedSequence, offset: int = 0, stride: int = 1) -> None:
        self._root = root
        self._stride = stride
        self.index = offset

    def __next__(self) -> int:
        sequence = np.random.SeedSequence(self._root.entropy, spawn_key=(*self._root.spawn_key, self.index))
        self.index += self._stride
        return int(sequence.generate_state(1)[0] >> 1)  # 31 bits: some emulators take no more


class JournaledEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Gives each episode its own seed and remembers (seed, actions), from which the state can be rebuilt.

    Whatever the environment returns is checked against its spaces
    here, so that nothing malformed gets further; whatever it raises becomes a one-line ``EnvError``. Observations come
    out as single arrays, whatever their space (see ``observations.py``). An ``action_mask`` in its infos comes out as
    bools [A].
    """

    def __init__(self, env: gym.Env[Any, Any], seeds: EpisodeSeeds) -> None:
        super().__init__(env)
        self._seeds = seeds
        self._obs_space: gym.Space[Any] = env.observation_space
        self._own_action_space: gym.Space[Any] = env.action_space
        spec = describe_observations(env.observation_space).with_stack(frames_stacked(env))
        self._spec = None if spec.plain else spec
        if spec.stack > 1 or not spec.plain:
            self.observation_space = DescribedSpace(spec)
        self._shape = self._obs_space.shape
        self._dtype = self._obs_space.dtype
        self._is_float = self._dtype is not None and np.issubdtype(self._dtype, np.floating)
        self._is_short = self._shape is not None and len(self._shape) == 1 and self._shape[0] <= 16
        self.episode_seed: int | None = None
        self.episode_step = 0
        self._actions: list[Any] = []
        self._num_actions = maskable_actions(self._own_action_space)
        self._many_discrete = isinstance(
            self._own_action_space, (gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
        )
        self._mask: Array | None = None
        self._cast_from: str | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode under its own seed; an explicit ``seed`` overrides the stream once."""
        self.episode_seed = next(self._seeds) if seed is None else seed
        self.episode_step = 0
        self._actions = []
        try:
            started: Any = self.env.reset(seed=self.episode_seed, options=options)
            if not isinstance(started, tuple) or len(started) != 2:
                raise self._wrong("reset()", _RESET_GIVES, _count(started))
            obs, info = started
            if self._spec is None:
                obs = np.asarray(obs)
            self._mask = self._checked_mask(info, over=False) if info else None
        except EnvError:
            raise
        except BaseException as error:  # SystemExit, too, which pygame's users raise when a window is closed
            if isinstance(error, TypeError) and _NO_KEYWORD.search(str(error)):
                raise self._wrong("reset()", _RESET_CALL, error) from error
            raise self._failure(error) from error
        if not (
            _same(self.env.observation_space, self._obs_space)
            and _same(self.env.action_space, self._own_action_space)
        ):
            raise self._wrong(
                "the spaces", f"{self._obs_space}, {self._own_action_space} as at the start", "others"
            )
        return self._checked(obs), info if self._mask is None else {**info, "action_mask": self._mask}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, journal the action, and check the result."""
        self.episode_step += 1
        if self.episode_step <= MAX_JOURNAL:
            self._actions.append(action.copy() if isinstance(action, np.ndarray) else action)
        try:
            result: Any = self.env.step(action)
            if len(result) != 5:
                raise self._wrong("step()", _STEP_GIVES, _count(result))
            obs, reward, terminated, truncated, info = result
            if self._spec is None:
                obs = np.asarray(obs)
            if type(reward) is not float:
                reward = self._number(reward)
            if type(terminated) is not bool or type(truncated) is not bool:
                terminated = self._flag("terminated", terminated)
                truncated = self._flag("truncated", truncated)
            self._mask = self._checked_mask(info, over=terminated) if info else None
        except EnvError:
            raise
        except BaseException as error:  # SystemExit, too, which pygame's users raise when a window is closed
            raise self._failure(error) from error
        if not abs(reward) <= MAX_REWARD:  # NaN is not, either
            expected = f"at most {MAX_REWARD:g}" if math.isfinite(reward) else "a finite number"
            raise self._wrong("reward", expected, reward)
        if self._mask is not None:
            info = {**info, "action_mask": self._mask}
        return self._checked(obs), reward, terminated, truncated, info

    def action_mask(self) -> Array | None:
        """Return which actions [A] the current observation allows, or none if the environment did not say."""
        return self._mask

    def cast_from(self) -> str | None:
        """Return the type of floats that observations were made of, if it is not the one that their space says."""
        return self._cast_from

    def journal(self) -> dict[str, Any] | None:
        """Return (episode seed, actions so far) as arrays, or ``None`` if the episode outgrew the journal."""
        if self.episode_seed is None or self.episode_step > MAX_JOURNAL:
            return None
        actions = np.array(self._actions, dtype=self._own_action_space.dtype)
        shape = (self.episode_step, *(self._own_action_space.shape or ()))
        return {"seed": self.episode_seed, "next": self._seeds.index, "actions": actions.reshape(shape)}

    def start_from(self, episode: int) -> None:
        """Let the next reset begin the episode of that index in the seed stream."""
        self._seeds.index = episode

    def replay_journal(self, journal: dict[str, Any]) -> Any:
        """Bring the environment into the journaled state and return its observation, or none if it fails."""
        self._seeds.index = int(journal["next"])
        discrete = self._own_action_space.shape == ()
        try:
            obs, _ = self.reset(seed=int(journal["seed"]))
            for action in journal["actions"]:
                obs, _, terminated, truncated, _ = self.step(int(action) if discrete else action)
                if terminated or truncated:  # no journal goes beyond the end of its episode
                    return None
        except EnvError:
            return None  # not raised: a vector env in which a call failed could not start anew either
        return obs

    def _checked(self, obs: Any) -> Any:
        if self._spec is not None:
            try:
                if self._cast_from is None and self.episode_step < 2:  # each look at all parts costs time
                    self._cast_from = self._spec.cast_from(obs)
                return self._spec.pack(obs)
            except EnvError as error:
                raise EnvError(f"{error} {self._where()}") from None
        if obs.shape != self._shape:
            raise self._wrong("observation shape", self._shape, obs.shape)
        if obs.dtype is not self._dtype and obs.dtype != self._dtype:
            if not self._is_float or obs.dtype.kind != "f":
                raise self._wrong("observation dtype", self._dtype, obs.dtype)
            self._cast_from = obs.dtype.name
            obs = cast_floats(obs, self._dtype)
        if self._is_float and not math.isfinite(self._total(obs)):
            wrong = int((~np.isfinite(obs)).sum())
            if wrong:
                raise self._wrong("observation", "finite numbers", f"{wrong} NaN or infinite")
        return obs

    def _total(self, obs: Array) -> float:
        """Return the cheapest number that a NaN or infinity would spoil; it may also overflow by itself."""
        if self._is_short:
            return float(sum(obs.tolist()))
        flat = obs.ravel()
        return float(flat.dot(flat))

    def _checked_mask(self, info: dict[str, Any], *, over: bool) -> Array | None:
        given = info.get("action_mask")
        if given is None:
            return None
        if not self._num_actions:
            if self._many_discrete:
                raise EnvError("action_mask: only Discrete actions can be forbidden, not several at once")
            return None
        try:
            return checked_mask(given, self._num_actions, over=over)
        except EnvError as error:
            raise EnvError(f"{error} {self._where()}") from None

    def _number(self, reward: Any) -> float:
        """Return a reward as a float, if it is one number of any kind."""
        if isinstance(reward, (int, float, np.number)):
            return float(reward)
        array = np.asarray(reward)
        if array.size != 1 or array.dtype.kind not in "fiub":
            raise self._wrong("reward", "a number", repr(reward)[:100])
        return float(array.item())

    def _flag(self, name: str, value: Any) -> bool:
        """Return a flag as a bool, if it is true or false, or 1 or 0."""
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "biuf" or array.item() not in (0, 1):
            raise self._wrong(name, "true or false", repr(value)[:100])
        return bool(array.item())

    def _where(self) -> str:
        return f"(episode seed {self.episode_seed}, step {self.episode_step})"

    def _wrong(self, what: str, expected: object, got: object) -> EnvError:
        return EnvError(f"{what}: expected {expected}, got {got} {self._where()}")

    def _failure(self, error: BaseException) -> EnvError:
        if is_users_interrupt(error):
            raise error
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return EnvError(f"{reason} {self._where()}", details=traceback.format_exc())


def _count(result: Any) -> str:
    """Say what came instead of several values."""
    return f"{len(result)} values" if isinstance(result, tuple | list) else type(result).__name__


def _same(space: gym.Space[Any], before: gym.Space[Any]) -> bool:
    return space is before or space == before

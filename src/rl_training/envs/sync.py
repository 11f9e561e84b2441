"""Several environments stepped one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rl_training.envs.closing import close_all
from rl_training.envs.masks import add_mask, maskable_actions
from rl_training.errors import EnvError
from rl_training.spaces import Array


class SyncVectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """A lean ``SAME_STEP`` vector environment.

    Its infos hold ``final_obs``, the last observation of each episode that ended, ``action_mask`` [N, A] where
    an environment gives one (that of a last observation in ``final_info``), and nothing else: what other
    environments put into theirs need not fit together.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gym.Env[Any, Any]]]) -> None:
        self.envs = [fn() for fn in env_fns]
        self.num_envs = len(self.envs)
        first = self.envs[0]
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._dtype = first.observation_space.dtype
        self._shape = (self.num_envs, *(first.observation_space.shape or ()))
        self._discrete = first.action_space.shape == ()
        self._maskable = maskable_actions(first.action_space) > 0
        self._none_ended = np.zeros(self.num_envs, np.bool_)
        self._none_ended.flags.writeable = False  # steps share it

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Reset every environment; a list of seeds gives each its own."""
        seeds = (
            [None if seed is None else seed + i for i in range(self.num_envs)]
            if not isinstance(seed, list)
            else seed
        )
        obs = np.empty(self._shape, self._dtype)
        infos: dict[str, Any] = {}
        for i, env in enumerate(self.envs):
            try:
                obs[i], info = env.reset(seed=seeds[i], options=options)
            except EnvError as error:
                raise _named(i, error) from error
            if info and (mask := self._mask_in(info)) is not None:
                add_mask(infos, mask, i, self.num_envs)
        return obs, infos

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step every environment, starting a new episode at once where one ended."""
        obs = np.empty(self._shape, self._dtype)
        reward = np.empty(self.num_envs)
        terminated = truncated = self._none_ended
        infos: dict[str, Any] = {}
        # Gymnasium's single environments take a plain int for a discrete action.
        listed: Any = actions.tolist() if self._discrete else actions
        for i, env in enumerate(self.envs):
            try:
                last, reward[i], dead, cut, info = env.step(listed[i])
                if dead or cut:
                    if terminated is self._none_ended:
                        terminated, truncated = terminated.copy(), truncated.copy()
                    terminated[i], truncated[i] = dead, cut
                    # A copy, because the env may write the next episode's first obs into the same array.
                    infos = self._add_info(infos, {"final_obs": last.copy()}, i)
                    if info and (mask := self._mask_in(info)) is not None:
                        add_mask(infos.setdefault("final_info", {}), mask, i, self.num_envs)
                    last, info = env.reset()
            except EnvError as error:
                raise _named(i, error) from error
            obs[i] = last
            if info and (mask := self._mask_in(info)) is not None:
                add_mask(infos, mask, i, self.num_envs)
        return obs, reward, terminated, truncated, infos

    def _mask_in(self, info: dict[str, Any]) -> Array | None:
        return info.get("action_mask") if self._maskable else None

    def call_each(self, name: str, args: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Call a method of every environment, each with its own arguments."""
        given = [()] * self.num_envs if args is None else args
        return [env.get_wrapper_attr(name)(*a) for env, a in zip(self.envs, given, strict=True)]

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment."""
        close_all(self.envs)


def _named(index: int, error: EnvError) -> EnvError:
    return EnvError(f"env {index}: {error}", details=error.details)

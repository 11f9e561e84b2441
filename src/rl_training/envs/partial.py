"""Environments that do not show everything at once, so that an agent has to remember.

``rl_training/CartPoleNoVelocity-v0``, ``rl_training/PendulumNoVelocity-v0`` and ``rl_training/TMaze-v0`` are registered
with Gymnasium when ``rl_training.envs`` is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.spaces import Array


class SelectObservation(gym.ObservationWrapper[Array, Any, Array]):
    """Shows only the entries ``indices`` of vector observations.

    A wrapper for any environment: ``{id: rl_training.envs.partial:SelectObservation, kwargs: {indices: [0, 2]}}``.
    """

    def __init__(self, env: gym.Env[Array, Any], indices: Sequence[int]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"needs vector observations, got {space}")
        if (
            not isinstance(indices, Sequence)
            or not indices
            or not all(type(i) is int and 0 <= i < space.shape[0] for i in indices)
        ):
            raise ValueError(f"indices: expected some of 0 to {space.shape[0] - 1}, got {indices}")
        self._indices = np.array(indices, np.int64)
        low, high = space.low[self._indices], space.high[self._indices]
        self.observation_space = gym.spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: Array) -> Array:
        """Return the entries that are shown."""
        return np.asarray(observation)[self._indices]


def cartpole_without_velocities(**kwargs: Any) -> gym.Env[Any, Any]:
    """Make CartPole-v1 that shows the cart's position and the pole's angle, but not how fast they change."""
    return _partly("CartPole-v1", (0, 2), kwargs)


def pendulum_without_velocity(**kwargs: Any) -> gym.Env[Any, Any]:
    """Make Pendulum-v1 that shows cosine and sine of the angle, but not how fast it changes."""
    return _partly("Pendulum-v1", (0, 1), kwargs)


def _partly(env_id: str, indices: Sequence[int], kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    creator = gym.envs.registration.load_env_creator(gym.spec(env_id).entry_point)  # type: ignore[arg-type]
    env = creator(**kwargs)
    assert isinstance(env, gym.Env)
    return SelectObservation(env, indices)


class TMaze(gym.Env[Array, np.int64]):
    """A corridor with a fork at its end, and a hint at its beginning which way to turn (after Bakker 2002).

    Observations [cue, corridor, fork]: the cue is 1 (turn up) or -1 (turn down) at the beginning and 0 ever
    after; of the others, one is 1. Actions: 0 goes on, 1 turns up, 2 turns down. The fork is ``length`` steps from
    the beginning. Turning there ends the episode with a reward of 1 if it was the right way, else -1, and says
    which in ``info["is_success"]``. Anything that leads into a wall costs 0.1 and changes nothing. Episodes are cut
    after ``20 * length`` steps. An agent without a memory can do no better than to guess: its mean return is at
    most 0.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, length: int = 10) -> None:
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ValueError(f"length: expected a whole number of at least 1, got {length!r}")
        self.length = length
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self._place, self._cue, self._steps = 0, 1.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Go back to the beginning, with a new cue."""
        super().reset(seed=seed)
        self._place = self._steps = 0
        self._cue = 1.0 if self.np_random.random() < 0.5 else -1.0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Go on, or turn."""
        if not self.action_space.contains(action):
            raise ValueError(f"action: expected 0, 1 or 2, got {action!r}")
        self._steps += 1
        cut = self._steps >= 20 * self.length
        at_fork = self._place == self.length
        if at_fork and action != 0:
            right = (action == 1) == (self._cue > 0)
            return self._observation(), 1.0 if right else -1.0, True, False, {"is_success": bool(right)}
        if at_fork or action != 0:
            return self._observation(), -0.1, False, cut, {}
        self._place += 1
        return self._observation(), 0.0, False, cut, {}

    def _observation(self) -> Array:
        cue = self._cue if self._place == 0 else 0.0
        at_fork = self._place == self.length
        return np.array([cue, not at_fork, at_fork], np.float32)


def register() -> None:
    """Make the environments known to Gymnasium."""
    here = "rl_training.envs.partial"
    gym.register(
        "rl_training/CartPoleNoVelocity-v0",
        f"{here}:cartpole_without_velocities",
        max_episode_steps=500,
        reward_threshold=475.0,
    )
    gym.register(
        "rl_training/PendulumNoVelocity-v0", f"{here}:pendulum_without_velocity", max_episode_steps=200
    )
    gym.register("rl_training/TMaze-v0", f"{here}:TMaze", reward_threshold=0.9)

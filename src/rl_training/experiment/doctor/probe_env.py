"""Five tiny environments whose answers are known, after the probe environments of Andy Jones.

Each adds one thing to the one before it, so that the first one that fails says what is broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from rl_training.spaces import Array

Kind = Literal["value", "discount", "policy", "both", "memory"]
ADDS: dict[Kind, str] = {
    "value": "learning the value of an observation: the loss, the optimizer or the network",
    "discount": "values that come from later steps: discounting, bootstrapping or the target network",
    "policy": "choosing actions: the policy's update or exploration",
    "both": "choosing actions for rewards that come later: policy and values together",
    "memory": "remembering what was seen before",
}
"""What each probe adds to those before it."""
SIGNALS = 3
"""Numbers that an observation tells: the context (1 or -1), how far the episode is, and whether it is on track."""


@dataclass(frozen=True)
class Rewards:
    """What is paid for right and for wrong; they fit the support of a categorical critic."""

    good: float = 1.0
    bad: float = 0.0

    @property
    def gap(self) -> float:
        """How much more the right action is worth."""
        return self.good - self.bad


class ProbeEnv(gym.Env[Array, Any]):
    """A context of 1 or -1 is shown; what it means depends on the ``kind``.

    - ``value``: one step; the context alone decides the reward.
    - ``discount``: the same, but the reward comes at the end of ``length`` steps.
    - ``policy``: one step; the right action is 1 (or a positive number) for the context 1, else 0 (or negative).
    - ``both``: the first action decides what is paid at the end of ``length`` steps.
    - ``memory``: two steps; the context is shown at the first one only, and the second action should follow it.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        kind: Kind,
        action_space: gym.Space[Any],
        rewards: Rewards = Rewards(),  # noqa: B008 - frozen
        length: int = 2,
        observation_space: gym.spaces.Box | None = None,
    ) -> None:
        self.kind, self.rewards = kind, rewards
        self.length = {"value": 1, "policy": 1, "memory": 2}.get(kind, length)
        plain = gym.spaces.Box(-1.0, 1.0, (SIGNALS,), np.float32)
        self.observation_space = plain if observation_space is None else observation_space
        self.action_space = action_space
        self._context, self._time, self._merit = 1.0, 0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Draw a new context."""
        super().reset(seed=seed)
        self._context = 1.0 if self.np_random.random() < 0.5 else -1.0
        self._time = 0
        self._merit = 0.5
        return self.shown(self._context, 0, 0.5), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Go on; the reward comes with the last step."""
        if self.kind in ("value", "discount"):
            self._merit = float(self._context > 0)
        elif self._time == (1 if self.kind == "memory" else 0):
            self._merit = 0.5 * (1.0 + self._context * side(action))
        self._time += 1
        done = self._time >= self.length
        reward = self.rewards.bad + self.rewards.gap * self._merit if done else 0.0
        return self.shown(self._context, self._time, self._merit), reward, done, False, {}

    def shown(self, context: float, time: int, merit: float) -> Array:
        """Return the observation; only the memory probe hides the context after the first step."""
        hidden = self.kind == "memory" and time > 0
        told = (
            0.0 if hidden else context,
            time / self.length,
            2.0 * merit - 1.0 if self.kind == "both" else 0.0,
        )
        return written(np.array(told), self.observation_space)

    def first(self) -> Array:
        """Return the first observations [2, *obs] of both contexts, 1 and -1."""
        return np.stack([self.shown(context, 0, 0.5) for context in (1.0, -1.0)])


def side(action: Any) -> float:
    """Return what an action says, from -1 to 1, whatever kind of action it is."""
    value = float(np.asarray(action).ravel()[0])
    return float(np.clip(value, -1.0, 1.0)) if np.asarray(action).dtype.kind == "f" else 2.0 * value - 1.0


def written(signals: Array, space: gym.Space[Any]) -> Array:
    """Return numbers from -1 to 1 as an observation of a Box: each fills an equal part of it."""
    assert isinstance(space, gym.spaces.Box)
    assert space.shape is not None
    flat = np.zeros(int(np.prod(space.shape)), np.float64)
    if len(flat) < len(signals):
        flat[:] = signals @ (1.0, 2.0, 4.0)
    else:
        for part, value in zip(np.array_split(np.arange(len(flat)), len(signals)), signals, strict=True):
            flat[part] = value
    if space.dtype is not None and np.dtype(space.dtype).kind in "ui":
        flat = 128.0 + 100.0 * flat.clip(-1.0, 1.0)
    written: Array = flat.reshape(space.shape).astype(space.dtype)
    return written

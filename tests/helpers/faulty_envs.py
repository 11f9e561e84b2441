"""Environments that go wrong at a chosen moment, or are difficult in another way."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from torch import nn


class Faulty(CartPoleEnv):
    """CartPole with one ``fault``, in the ``when``-th step of the episode that has ``episode_seed``."""

    def __init__(self, fault: str = "", episode_seed: int = -1, when: int = 5) -> None:
        super().__init__()
        self.fault, self.episode_seed, self.when = fault, episode_seed, when
        self.armed, self.steps = False, 0
        if fault == "exit at once":
            raise SystemExit(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.armed, self.steps = seed == self.episode_seed, 0
        if self.armed and self.fault == "raise in reset":
            raise ValueError("no such\nlevel")
        if self.armed and self.fault == "exit in reset":
            raise SystemExit
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, reward, terminated, truncated, info = super().step(action)
        if self.armed and self.steps == self.when:
            obs, reward = self.go_wrong(obs, reward)
            terminated = float("nan") if self.fault == "nan terminated" else terminated
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        if self.fault == "raise in close":
            raise SystemExit("not yet")
        if self.fault == "hang in close":
            time.sleep(1000.0)
        super().close()

    def go_wrong(self, obs: Any, reward: Any) -> tuple[Any, Any]:
        if self.fault == "raise":
            raise ValueError("the pole\nis gone")
        if self.fault == "leave":
            raise SystemExit("the window was closed")
        if self.fault == "base":
            raise BaseException("whatever")
        if self.fault == "interrupt":
            raise KeyboardInterrupt
        if self.fault == "long":
            raise ValueError("x" * 5_000_000)
        if self.fault == "hang":
            time.sleep(1000.0)
        if self.fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "exit":
            os._exit(7)
        if self.fault == "change spaces":
            self.observation_space = self.action_space  # type: ignore[assignment]
        wrong_obs = {
            "nan obs": np.full(4, np.nan, np.float32),
            "wrong shape": np.zeros(5, np.float32),
            "wrong dtype": np.zeros(4, np.int64),
            "dict obs": {"position": 0.0},
        }
        wrong_reward = {
            "nan reward": float("nan"),
            "infinite reward": float("inf"),
            "text reward": "much",
            "text number": "1",
            "several rewards": np.ones(2),
            "huge reward": 1e39,
        }
        return wrong_obs.get(self.fault, obs), wrong_reward.get(self.fault, reward)


class Generous(CartPoleEnv):
    """CartPole whose rewards, finite all of them, become too large for a 32-bit loss after some steps."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, _, terminated, truncated, info = super().step(action)
        return obs, 1.0 if self.steps < 250 else 1e38, terminated, truncated, info


class Kinked(nn.Module):
    """A network whose values are finite and whose gradient is not a number, as that of a root at zero."""

    def __init__(self, obs_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(obs_shape[0], num_outputs)
        self.zero = nn.Parameter(torch.zeros(1))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(obs) + self.zero.square().sqrt()
        return out


class Rendering(CartPoleEnv):
    """CartPole that opens pygame's video system and draws every step."""

    def __init__(self) -> None:
        super().__init__(render_mode="rgb_array")

    def step(self, action: Any) -> Any:
        result = super().step(action)
        self.render()
        return result


class Unrepeatable(CartPoleEnv):
    """CartPole that does not obey its seed."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=None, options=options)


class Unsteady(CartPoleEnv):
    """CartPole that can no longer play the episode whose seed the environment variable names."""

    episode = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episode = str(seed)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.episode == os.environ.get("BROKEN_EPISODE"):
            raise RuntimeError("broken")
        return super().step(action)


class Endless(CartPoleEnv):
    """CartPole that never falls."""

    def step(self, action: Any) -> Any:
        obs, _, _, truncated, info = super().step(action)
        if abs(obs).max() > 1:
            self.state = np.zeros(4)
        self.steps_beyond_terminated = None
        return obs, 1.0, False, truncated, info


class Old(CartPoleEnv):
    """CartPole whose reset takes nothing."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


def old(fault: str) -> CartPoleEnv:
    """CartPole as environments were before Gymnasium, with one difference to it."""
    if fault == "no seed":
        return Old()
    env = CartPoleEnv()
    reset, step = env.reset, env.step
    if fault == "old reset":
        env.reset = lambda **options: reset(**options)[0]  # type: ignore[method-assign]
    if fault == "old step":
        env.step = lambda action: (*step(action)[:3], {})  # type: ignore[method-assign]
    return env

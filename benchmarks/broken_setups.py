"""Twelve set-ups, each broken in one way, for ``benchmarks/doctor.py`` and the doctor's tests."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import nn

Env = gym.Env[Any, Any]


class Setup(NamedTuple):
    """A config, what is changed in it, and the cause that the doctor should name."""

    what: str
    config: str
    overrides: tuple[str, ...]
    cause: str


class Negated(gym.RewardWrapper[Any, Any]):
    """The reward with the wrong sign."""

    def reward(self, reward: Any) -> float:
        return -float(reward)


class Terminating(gym.Wrapper[Any, Any, Any, Any]):
    """Passes time limits off as terminations."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or truncated, False, info


class Unscaled(gym.ObservationWrapper[Any, Any, Any]):
    """The first entry of observations in another unit, such as millimetres instead of metres."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        shape = env.observation_space.shape
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, shape, np.float32)

    def observation(self, observation: Any) -> Any:
        changed = np.array(observation, np.float32)
        changed[0] *= 1000.0
        return changed


class Unseeded(gym.ObservationWrapper[Any, Any, Any]):
    """Noise from a generator of its own, which no seed reaches."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._own = np.random.default_rng()

    def observation(self, observation: Any) -> Any:
        return np.asarray(observation + self._own.normal(0.0, 0.01, observation.shape), np.float32)


class WithoutSpeed(gym.ObservationWrapper[Any, Any, Any]):
    """Pendulum without its last entry, the speed."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def observation(self, observation: Any) -> Any:
        return observation[:2]


class DeadNetwork(nn.Module):
    """Its hidden units are 0 for every observation."""

    has_modes = False

    def __init__(self, obs_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(obs_shape[0], 64), nn.Linear(64, num_outputs)
        nn.init.constant_(self.hidden.bias, -50.0)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(torch.relu(self.hidden(obs)))
        return out


class BatchNormNetwork(nn.Module):
    """Batch normalisation in a network that learns from batches and acts on single observations."""

    def __init__(self, obs_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(obs_shape[0], 64), nn.Linear(64, num_outputs)
        self.norm = nn.BatchNorm1d(64)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(torch.relu(self.norm(self.hidden(obs))))
        return out


def _wrapped(name: str) -> str:
    return f"env.wrappers=[{__name__}:{name}]"


_NO_EXPLORATION = ("exploration_initial_eps=0", "exploration_final_eps=0", "learning_starts=128")
SETUPS = (
    Setup("wrong sign of the reward", "dqn/cartpole", (_wrapped("Negated"),), "sign"),
    Setup("termination on time limits", "sac/pendulum", (_wrapped("Terminating"),), "termination"),
    Setup("unscaled observations", "ppo/cartpole", (_wrapped("Unscaled"),), "observations"),
    Setup("learning rate 1", "dqn/cartpole", ("algo_kwargs.learning_rate=1",), "learning_rate"),
    Setup("gamma 0", "dqn/cartpole", ("algo_kwargs.gamma=0",), "gamma"),
    Setup("target never synced", "dqn/cartpole", ("algo_kwargs.target_update_interval=1e9",), "target"),
    Setup("support too small", "c51/cartpole", ("algo_kwargs.v_max=10",), "support"),
    Setup(
        "no exploration",
        "dqn/cartpole",
        tuple(f"algo_kwargs.{one}" for one in _NO_EXPLORATION),
        "exploration",
    ),
    Setup(
        "batch norm misuse", "dqn/cartpole", (f"network.factory={__name__}:BatchNormNetwork",), "batch_norm"
    ),
    Setup("a non-deterministic environment", "dqn/cartpole", (_wrapped("Unseeded"),), "determinism"),
    Setup("a memoryless agent on a memory task", "sac/pendulum", (_wrapped("WithoutSpeed"),), "memory"),
    Setup("a dead network", "dqn/cartpole", (f"network.factory={__name__}:DeadNetwork",), "dead_network"),
)

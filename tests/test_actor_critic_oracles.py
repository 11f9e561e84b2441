"""Actor-critics on problems whose answers are known: a linear regulator, and rewards that never change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from helpers.actor_critic import make_learner, trainer
from rl_training import load_config
from rl_training.data.transitions import Batch

GAMMA, COST = 0.9, 0.5
"""Of the regulator: x' = x + a, at most 2 and at least -2, and a reward of -(x^2 + COST a^2)."""
CONTINUOUS = ["ddpg", "td3", "sac", "tqc", "crossq"]


def riccati_gain() -> float:
    """Return K of the best policy a = -K x around 0, by iterating Riccati's equation."""
    value = 0.0
    for _ in range(1_000):
        gain = GAMMA * value / (COST + GAMMA * value)
        value = 1.0 + COST * gain**2 + GAMMA * value * (1.0 - gain) ** 2
    return gain


def transitions(rng: np.random.Generator, count: int) -> Batch:
    x = torch.from_numpy(rng.uniform(-2.0, 2.0, (count, 1)).astype(np.float32))
    action = torch.from_numpy(rng.uniform(-1.0, 1.0, (count, 1)).astype(np.float32))
    reward = -(x.square() + COST * action.square())[:, 0]
    return Batch(x, action, reward, torch.full((count,), GAMMA), (x + action).clamp(-2.0, 2.0))


@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac"])
def test_the_actor_finds_the_gain_of_a_linear_regulator(algo: str) -> None:
    options: dict[str, Any] = {
        "tau": 0.05,
        "policy_delay": 1,
        **({"ent_coef": 1e-4} if algo == "sac" else {}),
    }
    options |= {"learning_rate": 3e-3, "learning_rate_final": 0.0, "total_timesteps": 2_000}
    smooth = {"activation": "tanh"}  # of rectified units, values have corners, and slopes jump there
    learner = make_learner(algo, obs=1, actions=1, hidden=(32, 32), network=smooth, **options)
    rng = np.random.default_rng(0)
    for step in range(2_000):
        learner.advance(step)
        learner.update(transitions(rng, 128))
    x = np.linspace(-0.6, 0.6, 25, dtype=np.float32)[:, None]
    action = learner.act(x, explore=False).action
    gain = -float((x * action).sum() / np.square(x).sum())
    assert gain == pytest.approx(riccati_gain(), abs=0.07)
    assert np.abs(action + riccati_gain() * x).max() < 0.12


class Unchanging(gym.Env[Any, Any]):
    """Always the same observation and a reward of 1; only a time limit ends it, or ``last`` steps, if that is given."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, *, discrete: bool = False, last: int | None = None) -> None:
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._last, self._steps = last, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        return np.zeros(1, np.float32), 1.0, self._steps == self._last, False, {}


gym.register("ActorCriticUnchanging-v0", lambda **kwargs: Unchanging(**kwargs))


def value_after_training(algo: str, folder: Path, last: int | None) -> float:
    """Train on episodes of four steps; return what the critics think a step is worth in the end."""
    own: dict[str, Any] = {} if algo == "crossq" else {"tau": 0.2}
    if algo == "tqc":
        own |= {"num_quantiles": 5, "drop_quantiles": 0}
    if algo in ("sac", "tqc", "discrete_sac", "crossq"):
        own["ent_coef"] = 1e-6
    config = load_config(
        {
            "algo": algo,
            "env": {
                "id": "ActorCriticUnchanging-v0",
                "kwargs": {"discrete": algo == "discrete_sac", "last": last},
                "wrappers": [{"id": "TimeLimit", "kwargs": {"max_episode_steps": 4}}],
                "num_envs": 2,
            },
            "total_timesteps": 900,
            "network": {"hidden_sizes": [16]},
            "algo_kwargs": {
                "learning_starts": 100,
                "learning_rate": 1e-2,
                "learning_rate_final": 1e-3,
                "batch_size": 32,
                "policy_delay": 1,
                "gamma": 0.8,
                **own,
            },
            "evaluation": {"frequency": 0, "final_episodes": 0},
            "logging": {"tensorboard": False, "frequency": 100},
        }
    )
    trainer(algo)(config, run_dir=folder, console=False)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    values: list[float] = [
        value for row in rows for name, value in row.items() if name.endswith("q_value_mean")
    ]
    return values[-1]


@pytest.mark.parametrize("algo", [*CONTINUOUS, "discrete_sac"])
def test_what_a_time_limit_cuts_off_is_still_worth_something(algo: str, tmp_path: Path) -> None:
    """Through collector and replay: a reward of 1 for ever is worth 1 / (1 - 0.8), whenever episodes are cut."""
    assert value_after_training(algo, tmp_path / "cut", None) == pytest.approx(5.0, abs=0.25)


@pytest.mark.parametrize("algo", [*CONTINUOUS, "discrete_sac"])
def test_nothing_comes_after_a_termination(algo: str, tmp_path: Path) -> None:
    """A quarter of all steps is the last one, and cannot be told from the others: V = 1 + 0.75 * 0.8 V."""
    assert value_after_training(algo, tmp_path / "ended", 4) == pytest.approx(2.5, abs=0.25)

"""What the doctor says of environments, networks and settings before a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.experiment.configs import load_config
from rl_training.experiment.doctor.environment import check_environment
from rl_training.experiment.doctor.findings import Section
from rl_training.experiment.doctor.network import check_network
from rl_training.experiment.doctor.observability import check_memory, hidden
from rl_training.experiment.doctor.rewards import discounted
from rl_training.experiment.doctor.sampling import take_sample
from rl_training.experiment.doctor.settings import check_settings

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from broken_setups import SETUPS, Setup

BY_CHECKS = [setup for setup in SETUPS if setup.cause not in ("learning_rate", "gamma", "target")]
"""Those that show without running the algorithm."""


def checked(name: str, *overrides: str, **options: Any) -> Section:
    config, section = load_config(name, overrides), Section("")
    sample = take_sample(config.env, seconds=1.0, **options)
    check_environment(config, sample, section)
    check_memory(config, sample, section)
    check_settings(config, section, None)
    check_network(config, sample, section)
    return section


def bad(section: Section) -> set[str]:
    return {finding.cause for finding in section.findings if finding.bad}


@pytest.mark.parametrize("setup", BY_CHECKS, ids=lambda setup: setup.cause)
def test_broken_setups_are_named(setup: Setup) -> None:
    found = bad(checked(setup.config, *setup.overrides))
    assert setup.cause in found
    assert len(found) <= 2, found


@pytest.mark.parametrize(
    "name",
    [
        "dqn/cartpole",
        "c51/cartpole",
        "sac/pendulum",
        "dqn/frozenlake",
        "dqn/taxi",
        "sac/mountaincar_continuous",
        "drqn/tmaze",
        "recurrent_ppo/cartpole_no_velocity",
    ],
)
def test_healthy_environments_raise_no_alarm(name: str) -> None:
    assert bad(checked(name)) == set()


@pytest.mark.parametrize("env_id", ["MountainCar-v0", "Acrobot-v1", "CliffWalking-v1", "Blackjack-v1"])
def test_other_environments_raise_no_alarm(env_id: str) -> None:
    section, config = Section(""), load_config("ppo/cartpole", [f"env.id={env_id}"])
    sample = take_sample(config.env, seconds=1.0)
    check_environment(config, sample, section)
    check_memory(config, sample, section)
    assert bad(section) == set()


@pytest.mark.parametrize(
    ("env_id", "hides"),
    [
        ("rl_training/CartPoleNoVelocity-v0", True),
        ("rl_training/PendulumNoVelocity-v0", True),
        ("rl_training/TMaze-v0", True),
        ("CartPole-v1", False),
        ("Pendulum-v1", False),
        ("MountainCar-v0", False),
        ("Acrobot-v1", False),
    ],
)
def test_hidden_state_shows_in_the_steps_alone(env_id: str, hides: bool) -> None:
    sample = take_sample(load_config("ppo/cartpole", [f"env.id={env_id}"]).env, seconds=2.0)
    assert (hidden(sample) is not None) == hides


def test_stacked_frames_count_as_a_memory() -> None:
    wrappers = "env.wrappers=[{id: FrameStackObservation, kwargs: {stack_size: 3}}, FlattenObservation]"
    assert bad(checked("dqn/cartpole_no_velocity", wrappers)) == set()


class Counting(gym.Env[Any, Any]):
    """Ends after ``length`` steps, in a way that can be chosen."""

    def __init__(self, length: int = 7, terminates: bool = True, reward: float = 1.0) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.length, self.terminates, self.paid = length, terminates, reward
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        done = self.steps == self.length
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return obs, self.paid, done and self.terminates, done and not self.terminates, {}


def sampled(**options: Any) -> Section:
    config, section = load_config("dqn/cartpole"), Section("")
    check_environment(
        config, take_sample(config.env, factory=lambda: Counting(**options), steps=300), section
    )
    return section


def test_episodes_that_always_end_at_one_step_are_a_time_limit() -> None:
    assert bad(sampled(terminates=True)) == {"termination"}
    assert bad(sampled(terminates=False)) == set()
    assert bad(sampled(length=1)) == set()  # a bandit


@pytest.mark.parametrize(("reward", "alarm"), [(1e4, True), (1e-5, True), (10.0, False), (0.0, False)])
def test_the_size_of_rewards(reward: float, alarm: bool) -> None:
    assert bad(sampled(reward=reward, terminates=False)) == ({"reward_scale"} if alarm else set())


def test_discounted_returns_begin_anew_with_every_episode() -> None:
    config = load_config("dqn/cartpole")
    sample = take_sample(config.env, factory=lambda: Counting(length=3), steps=7)
    assert np.allclose(discounted(sample, 0.5), [1.0, 1.5, 1.75] * 2)


@pytest.mark.parametrize(
    ("name", "override", "cause"),
    [
        ("td3/pendulum", "algo_kwargs.action_noise=none", "exploration"),
        ("ppo/pendulum", "algo_kwargs.log_std_init=-10", "exploration"),
        ("sac/pendulum", "algo_kwargs.tau=1e-7", "target"),
        ("sac/pendulum", "algo_kwargs.gradient_steps=100", "replay_ratio"),
        ("dqn/cartpole", "algo_kwargs.train_freq=10000", "replay_ratio"),
        ("dqn/cartpole", "algo_kwargs.buffer_size=200", "buffer_size"),
        ("dqn/cartpole", "algo_kwargs.learning_starts=40000", "learning_starts"),
        ("dqn/cartpole", "algo_kwargs.learning_rate=1e-9", "learning_rate"),
        ("ppo/cartpole", "algo_kwargs.gamma=0.3", "gamma"),
    ],
)
def test_settings_far_from_the_usual(name: str, override: str, cause: str) -> None:
    section = Section("")
    check_settings(load_config(name, [override]), section)
    assert bad(section) == {cause}


def test_a_discount_of_zero_is_fine_where_episodes_have_one_step() -> None:
    section = Section("")
    check_settings(load_config("dqn/cartpole", ["algo_kwargs.gamma=0"]), section, episode=1.0)
    assert bad(section) == set()

"""The doctor's probes: known answers, budgets, and what their failures are put down to."""

from __future__ import annotations

import time

import gymnasium as gym
import numpy as np
import pytest

from rl_training.experiment.configs import load_config
from rl_training.experiment.doctor.blame import blame
from rl_training.experiment.doctor.probe_config import (
    chain_length,
    probe_config,
    rewards_for,
    scaled,
    updates_for,
)
from rl_training.experiment.doctor.probe_env import Kind, ProbeEnv, Rewards
from rl_training.experiment.doctor.probes import Plan, action_space, observation_space, run_probe
from rl_training.experiment.doctor.values import state_values
from rl_training.runtime.run import Run

DISCRETE = gym.spaces.Discrete(2)


def plan_of(name: str, *overrides: str) -> Plan:
    config = load_config(name, overrides)
    return Plan(config, action_space(config, None), observation_space(config, None))


def played(env: ProbeEnv, actions: list[int], context: float) -> float:
    seeds = (seed for seed in range(100))
    while True:
        obs, _ = env.reset(seed=next(seeds))
        if obs[0] == context:
            break
    total = 0.0
    for action in actions:
        _, reward, done, cut, _ = env.step(action)
        total += reward
        assert not cut
    assert done
    return total


@pytest.mark.parametrize("context", [1.0, -1.0])
def test_probes_pay_for_what_they_say(context: float) -> None:
    right, rewards = int(context > 0), Rewards(3.0, 1.0)
    wrong = 1 - right
    for action in (right, wrong):  # actions do not matter
        want = 3.0 if context > 0 else 1.0
        assert played(ProbeEnv("value", DISCRETE, rewards), [action], context) == want
        assert played(ProbeEnv("discount", DISCRETE, rewards, 3), [action] * 3, context) == want
    assert played(ProbeEnv("policy", DISCRETE, rewards), [right], context) == 3.0
    assert played(ProbeEnv("policy", DISCRETE, rewards), [wrong], context) == 1.0
    # Only the first action counts here, and only the second one there.
    assert played(ProbeEnv("both", DISCRETE, rewards, 3), [right, wrong, wrong], context) == 3.0
    assert played(ProbeEnv("both", DISCRETE, rewards, 3), [wrong, right, right], context) == 1.0
    assert played(ProbeEnv("memory", DISCRETE, rewards), [wrong, right], context) == 3.0
    assert played(ProbeEnv("memory", DISCRETE, rewards), [right, wrong], context) == 1.0


def test_only_the_memory_probe_hides_the_context() -> None:
    for kind in ("discount", "both"):
        env = ProbeEnv(kind, DISCRETE, length=3)
        assert env.shown(1.0, 1, 0.5)[0] == 1.0
    hiding = ProbeEnv("memory", DISCRETE)
    assert np.array_equal(hiding.shown(1.0, 1, 0.5), hiding.shown(-1.0, 1, 0.5))
    assert not np.array_equal(hiding.shown(1.0, 0, 0.5), hiding.shown(-1.0, 0, 0.5))


@pytest.mark.parametrize("space", [gym.spaces.Box(-9, 9, (1,)), gym.spaces.Box(0, 255, (3, 8, 8), np.uint8)])
def test_observations_of_a_custom_network_tell_the_same(space: gym.spaces.Box) -> None:
    env = ProbeEnv("both", DISCRETE, length=2, observation_space=space)
    shown = [env.shown(c, t, m) for c in (1.0, -1.0) for t in (0, 1) for m in (0.0, 1.0)]
    assert all(one.shape == space.shape and one.dtype == space.dtype for one in shown)
    assert len({one.tobytes() for one in shown}) == len(shown)


def test_a_probe_config_keeps_what_decides_how_it_learns() -> None:
    config = load_config("dqn/pong")
    small = probe_config(config, 600)
    own, changed = config.algo_kwargs, small.algo_kwargs
    for name in ("learning_rate", "gamma", "tau", "n_step_return", "exploration_final_eps", "double", "loss"):
        assert getattr(own, name) == getattr(changed, name)
    assert changed.gradient_steps / changed.train_freq == own.gradient_steps / own.train_freq
    assert small.total_timesteps < 3_000
    assert changed.buffer_size >= small.total_timesteps
    assert changed.target_update_interval < own.target_update_interval  # in proportion to the run's length
    assert any("target_update_interval 1000" in one for one in scaled(config, small))


def test_a_target_that_is_never_renewed_stays_so() -> None:
    small = probe_config(load_config("dqn/cartpole", ["algo_kwargs.target_update_interval=1e9"]), 600)
    assert small.algo_kwargs.target_update_interval > small.total_timesteps
    slow = probe_config(load_config("sac/pendulum", ["algo_kwargs.tau=1e-9"]), 600)
    assert slow.algo_kwargs.tau * 600 < 0.01


def test_rewards_fit_the_support_and_chains_are_longer_than_n_step_returns() -> None:
    assert rewards_for(load_config("dqn/cartpole")) == Rewards(1.0, 0.0)
    for low, high in ((0, 10), (-200, -100), (-10, 10), (-50, 0)):
        overrides = {"algo_kwargs.v_min": low, "algo_kwargs.v_max": high}
        rewards = rewards_for(load_config("c51/cartpole", overrides))
        assert low <= rewards.bad < rewards.good <= high
        assert rewards.gap > 0.25 * (high - low)
    assert chain_length(load_config("dqn/cartpole", ["algo_kwargs.n_step_return=5"])) == 6


def test_small_learning_rates_get_more_updates() -> None:
    fast, slow = (load_config("dqn/cartpole", [f"algo_kwargs.learning_rate={rate}"]) for rate in (1e-3, 1e-4))
    assert updates_for(slow) == 4 * updates_for(fast)


@pytest.mark.parametrize("algo", ["dqn/cartpole", "ppo/cartpole", "sac/pendulum", "drqn/tmaze"])
@pytest.mark.parametrize("kind", ["value", "both"])
def test_healthy_settings_pass(algo: str, kind: Kind) -> None:
    outcome = run_probe(plan_of(algo), kind, deadline=time.monotonic() + 60)
    assert outcome.verdict == "passed", outcome


def test_a_memory_passes_the_memory_probe_and_no_memory_does_not() -> None:
    assert run_probe(plan_of("drqn/tmaze"), "memory", deadline=time.monotonic() + 60).verdict == "passed"
    assert run_probe(plan_of("dqn/cartpole"), "memory", deadline=time.monotonic() + 60).verdict == "failed"


@pytest.mark.parametrize(
    ("name", "override", "passes", "fails", "cause"),
    [
        ("dqn/cartpole", "algo_kwargs.learning_rate=1", None, "value", "learning_rate"),
        ("dqn/cartpole", "algo_kwargs.target_update_interval=1e9", "value", "discount", "target"),
        ("dqn/cartpole", "algo_kwargs.gamma=0", "policy", "both", "gamma"),
        ("ppo/cartpole", "algo_kwargs.learning_rate=1e-9", None, "value", "learning_rate"),
    ],
)
def test_the_first_failing_probe_and_its_cause(
    name: str, override: str, passes: Kind | None, fails: Kind, cause: str
) -> None:
    plan, deadline = plan_of(name, override), time.monotonic() + 60
    if passes is not None:
        assert run_probe(plan, passes, deadline=deadline).verdict == "passed"
    assert run_probe(plan, fails, deadline=deadline).verdict == "failed"
    found = blame(plan, fails, deadline)
    assert found is not None
    assert found[0] == cause


def test_out_of_time_is_no_failure() -> None:
    outcome = run_probe(plan_of("sac/pendulum"), "both", deadline=time.monotonic())
    assert outcome.verdict == "undecided"
    assert "out of time" in outcome.evidence


@pytest.mark.parametrize(
    "name",
    [
        "dqn/cartpole",
        "c51/cartpole",
        "ppo/cartpole",
        "recurrent_ppo/tmaze",
        "discrete_sac/cartpole",
        "sac/pendulum",
    ],
)
def test_values_of_every_family_can_be_read(name: str) -> None:
    config = probe_config(load_config(name), 8)
    plan = plan_of(name)
    run = Run(config, env=lambda **_: plan.make("value"))
    obs = plan.make("value").first()
    values = state_values(run.algorithm, obs)
    run.close()
    assert values is not None
    assert values.shape == (2,)
    assert np.isfinite(values).all()
    assert values[0] != values[1]

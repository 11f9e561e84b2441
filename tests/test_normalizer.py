"""Observation statistics: exact over the whole stream, one set for everything, moved by training alone."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_training.algorithms import DQN
from rl_training.algorithms.declared.dqn import DQNConfig
from rl_training.config import EnvConfig, EvaluationConfig, ExperimentConfig
from rl_training.data import Batch
from rl_training.models import MLPQNetwork, RunningNormalizer
from rl_training.runtime.evaluator import evaluate
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run


def stream(count, shape=(3,), seed=0):
    """Dimensions far from zero and of very different spread, as float32 like an env gives them."""
    spread = 10.0 ** np.arange(-1, int(np.prod(shape)) - 1).reshape(shape)
    return (1e4 + spread * np.random.default_rng(seed).normal(size=(count, *shape))).astype(np.float32)


def make_learner(normalize_obs=True, tau=1.0, seed=0):
    torch.manual_seed(seed)
    network = MLPQNetwork((3,), 2, (16,), normalize_obs=normalize_obs)
    return DQN(network, 2, DQNConfig(tau=tau), total_timesteps=1000, rng=np.random.default_rng(0))


def statistics(learner):
    normalizer = learner.online.features.normalizer
    return torch.cat([t.flatten() for t in (normalizer.mean, normalizer.var, normalizer.count)]).clone()


def make_run(seed=0):
    config = ExperimentConfig[DQNConfig](
        algo="dqn",
        env=EnvConfig(id="CartPole-v1", num_envs=3),
        seed=seed,
        total_timesteps=300,
        algo_kwargs=DQNConfig(learning_starts=60, batch_size=8),
        network={"hidden_sizes": (16,), "normalize_obs": True},
    )
    return Run(config)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30), seed=st.integers(0, 1000))
def test_merged_statistics_equal_one_pass_over_the_stream(sizes, seed):
    obs = stream(sum(sizes), seed=seed)
    normalizer = RunningNormalizer((3,))
    for chunk in np.split(obs, np.cumsum(sizes)[:-1]):
        normalizer.observe(chunk)
    exact = obs.astype(np.float64)
    assert normalizer.count == len(obs)
    assert normalizer.mean.numpy() == pytest.approx(exact.mean(0), rel=1e-12)
    assert normalizer.var.numpy() == pytest.approx(exact.var(0), rel=1e-6, abs=1e-9)


def test_many_single_observations_do_not_wear_the_statistics_down():
    obs = stream(5000)
    normalizer = RunningNormalizer((3,))
    for one in obs:
        normalizer.observe(one[None])
    assert normalizer.mean.numpy() == pytest.approx(obs.mean(0, dtype=np.float64), rel=1e-12)
    assert normalizer.var.numpy() == pytest.approx(obs.var(0, dtype=np.float64), rel=1e-8)


def test_images_are_normalised_per_pixel():
    images = np.random.default_rng(0).integers(0, 256, (20, 2, 3, 3), dtype=np.uint8)
    normalizer = RunningNormalizer((2, 3, 3))
    normalizer.observe(images)
    got = normalizer(torch.from_numpy(images))
    assert got.dtype == torch.float32
    assert got.numpy() == pytest.approx((images - images.mean(0)) / images.std(0), abs=1e-5)


def test_outliers_are_clipped_and_constant_dimensions_stay_finite():
    normalizer = RunningNormalizer((2,), clip=5.0)
    normalizer.observe(np.array([[0.0, 7.0], [2.0, 7.0]]))
    got = normalizer(torch.tensor([[1000.0, 7.0], [-1000.0, 7.0]]))
    assert got.tolist() == [[5.0, 0.0], [-5.0, 0.0]]


def test_obs_and_next_obs_are_normalised_by_the_same_statistics():
    learner, plain = make_learner(), make_learner(normalize_obs=False)
    seen = stream(50)
    learner.observe(seen)
    learner.sync_target()
    obs, next_obs = stream(8, seed=1), stream(8, seed=2)
    by_hand = [
        torch.from_numpy(((x - seen.mean(0, np.float64)) / seen.std(0, np.float64)).clip(-10, 10)).float()
        for x in (obs, next_obs)
    ]
    action, reward, discount = torch.tensor([0, 1] * 4), torch.arange(8.0), torch.full((8,), 0.9)
    learner.update(Batch(torch.from_numpy(obs), action, reward, discount, torch.from_numpy(next_obs)))
    plain.update(Batch(by_hand[0], action, reward, discount, by_hand[1]))
    assert torch.allclose(learner.last_td_errors, plain.last_td_errors, atol=1e-4)
    assert learner.q_values(obs) == pytest.approx(plain.q_values(by_hand[0].numpy()), abs=1e-4)


def test_the_target_network_always_uses_the_statistics_of_the_online_one():
    learner = make_learner()
    for _ in range(3):
        learner.observe(stream(20))
        for name, value in learner.online.features.normalizer.state_dict().items():
            assert torch.equal(value, learner.target.features.normalizer.state_dict()[name])
    obs = torch.as_tensor(stream(5))
    assert torch.equal(learner.online(obs), learner.target(obs)), "the weights are still the same"
    restored = make_learner()
    restored.load_state_dict(copy.deepcopy(learner.state_dict()))
    assert torch.equal(restored.target(obs), learner.target(obs))


def test_training_observes_exactly_what_it_acts_on():
    run = make_run()
    seen = []
    obs = run.collector.obs
    for _ in train(run):
        seen.append(obs)
        obs = run.collector.obs
    run.close()
    everything = np.concatenate(seen).astype(np.float64)
    normalizer = run.algorithm.online.features.normalizer
    assert normalizer.count == len(everything) == 300
    assert normalizer.mean.numpy() == pytest.approx(everything.mean(0), abs=1e-12)
    assert normalizer.var.numpy() == pytest.approx(everything.var(0), rel=1e-9)


def test_evaluation_and_prediction_leave_the_statistics_alone():
    run = make_run()
    steps = train(run)
    for _ in range(10):
        next(steps)
    before = statistics(run.algorithm)
    evaluate(run.algorithm, run.config.env, run.policy.actions, EvaluationConfig(num_envs=2), episodes=3)
    for deterministic in (True, False):
        run.policy.predict(np.full(4, 100.0), deterministic=deterministic)
        run.policy.predict(np.full((5, 4), 100.0), deterministic=deterministic)
    run.algorithm.update(run.experience.buffer.sample(4))
    assert torch.equal(statistics(run.algorithm), before)
    run.close()


def test_the_statistics_are_part_of_the_saved_state():
    original, restored = make_run(seed=0), make_run(seed=1)
    steps = train(original)
    for _ in range(30):
        next(steps)
    state = copy.deepcopy(original.state_dict())
    assert state["model"]["online"]["features.normalizer.count"] == 90
    restored.load_state_dict(state)
    assert torch.equal(statistics(restored.algorithm), statistics(original.algorithm))
    obs = original.collector.obs
    assert np.array_equal(restored.algorithm.q_values(obs), original.algorithm.q_values(obs))
    for run in (original, restored):
        run.close()

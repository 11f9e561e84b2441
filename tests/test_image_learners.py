"""Who trains an encoder of images, and what the slow copies of actor-critics follow."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from helpers.contracts import small_config
from rl_training.algorithms import on_policy
from rl_training.data.image_replay_buffer import ImageReplayBuffer
from rl_training.data.transitions import Transitions
from rl_training.envs.spaces import describe_observations
from rl_training.models.encoders import Convolutions
from rl_training.observations import ObsSpec
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run

ACTOR_CRITICS = ("ddpg", "td3", "sac", "tqc", "discrete_sac", "crossq")


def run_of(algo: str, **settings: Any) -> Run:
    kwargs = {"kind": "image_first", "continuous": algo != "discrete_sac"}
    env = {"env": {"id": "helpers.observation_envs:Shown"}, "env__kwargs": kwargs}
    return Run(small_config(algo, **env, total_timesteps=80, **settings))


@pytest.fixture(params=ACTOR_CRITICS)
def learner(request: pytest.FixtureRequest) -> Any:
    """A learner from images after a few updates, and a batch."""
    run = run_of(request.param, algo_kwargs__learning_starts=40)
    deque(itertools.islice(train(run), 60), maxlen=0)
    batch = run.experience.buffer.sample(8)  # type: ignore[attr-defined]
    run.close()
    return run.algorithm, batch


def vector(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def test_slow_critics_follow_the_critics_and_not_what_lies_beside_them(learner: Any) -> None:
    algorithm, batch = learner
    names = [name for name in ("target_critic", "target") if name in algorithm.networks]
    if not names:
        assert not algorithm._slow  # without slow copies
        return
    slow = algorithm.networks[names[0]]
    before = vector(slow)
    while True:  # where they wait for the actor, until it was its turn
        turns = algorithm.actor_updates
        algorithm.update(batch)
        if algorithm.actor_updates > turns or not algorithm.targets_wait:
            break
    tau = algorithm.config.tau
    expected = (1 - tau) * before + tau * vector(algorithm.network.critic)
    torch.testing.assert_close(vector(slow), expected, rtol=1e-5, atol=1e-7)
    assert not torch.equal(vector(slow), before)


def test_the_actor_leaves_the_encoder_alone(learner: Any) -> None:
    algorithm, batch = learner
    features = algorithm.network.features
    before = vector(features)
    x, following = algorithm._see(batch)
    assert x.requires_grad, "the critics' loss trains the encoder"
    assert not following.requires_grad
    grads = [p.grad.clone() if p.grad is not None else None for p in features.parameters()]
    algorithm.updates += -algorithm.updates % algorithm.config.policy_delay
    real = algorithm._improve
    seen: list[bool] = []

    def improve(batch: Any, x: torch.Tensor) -> Any:
        seen.append(x.requires_grad)
        weights = vector(features)
        found = real(batch, x)
        assert torch.equal(vector(features), weights)
        return found

    algorithm._improve = improve
    for _ in range(algorithm.config.policy_delay):
        algorithm.update(batch)
    assert seen == [False]
    assert not torch.equal(vector(features), before), "the critics did not train it"
    assert len(grads) > 0


def test_rollouts_of_images_are_looked_at_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = Convolutions.forward

    def forward(self: Convolutions, images: torch.Tensor) -> torch.Tensor:
        sizes.append(len(images))
        return real(self, images)

    monkeypatch.setattr(Convolutions, "forward", forward)
    monkeypatch.setattr(on_policy, "MAX_IMAGES", 7)
    for algo in ("ppo", "trpo"):
        run = run_of(algo)
        whole: list[Any] = []
        for limit in (7, 10_000):
            monkeypatch.setattr(on_policy, "MAX_IMAGES", limit)
            rng = np.random.default_rng(0)
            x = torch.from_numpy(rng.integers(0, 256, (20, *run.policy.obs.shape), np.uint8))
            sizes.clear()
            learner: Any = run.algorithm
            with torch.no_grad():
                whole.append(learner._outputs(learner.network, x, 18))
            assert max(sizes) == min(limit, 20)
        for one, other in zip(*whole, strict=True):
            torch.testing.assert_close(one, other)
        assert [len(t) for t in whole[0]] == [18, 20]
        run.close()


def test_a_segment_that_an_interruption_can_change_is_not_complete() -> None:
    buffer = ImageReplayBuffer(64 * 8, (2, 2, 1), obs_dtype=np.uint8, rng=np.random.default_rng(0))
    rows = buffer._rings.segment if hasattr(buffer, "_rings") else buffer._segment
    steps = 3 * rows

    def step(t: int) -> Transitions:
        obs = np.full((1, 2, 2, 1), t % 256, np.uint8)
        flags = np.zeros(1, bool)
        return Transitions(np.arange(1), obs, np.zeros((1,), np.float32), np.ones(1), obs + 1, flags, flags)

    for t in range(steps):
        buffer.add(step(t))
    before = {name: _bytes(segment) for name, segment in buffer.state_dict()["segments"].items()}
    buffer.interrupt()
    after = {name: _bytes(segment) for name, segment in buffer.state_dict()["segments"].items()}
    assert before
    assert all(before[name] == after[name] for name in before.keys() & after.keys())


def _bytes(segment: Any) -> dict[str, bytes]:
    return {name: np.asarray(array).tobytes() for name, array in segment.arrays().items()}


def test_images_are_scaled_by_the_largest_value_of_their_space() -> None:
    spec = describe_observations(spaces.Box(0, 10, (10, 10, 1), np.uint8))
    convolutions = Convolutions(spec.parts[0])
    images = torch.full((1, 10, 10, 1), 10, dtype=torch.uint8)
    expected = convolutions.convs(torch.ones(1, 1, 10, 10)).permute(0, 2, 3, 1).flatten(1)
    torch.testing.assert_close(convolutions(images), expected)


def test_frames_that_are_known_to_be_stacked_are_the_channels_whatever_their_number() -> None:
    spec: ObsSpec = describe_observations(spaces.Box(0, 255, (12, 12, 10), np.uint8))
    assert spec.parts[0].channels_last  # ten channels of 12 x 12, by its looks
    stacked = spec.with_stack(12)
    assert stacked.parts[0].frame == (12, 12, 10)
    assert stacked.stack == 12

"""TD3: smoothed targets, twins, and what waits for its turn."""

from __future__ import annotations

import numpy as np
import torch

from helpers.actor_critic import (
    Recording,
    flat,
    make_learner,
    plain_critics,
    plain_mlp,
    random_batch,
    seen_by,
)


def test_the_target_is_the_smaller_value_of_a_smoothed_action() -> None:
    learner = make_learner("td3", tau=0.3, target_policy_noise=0.4, target_noise_clip=0.5)
    for i in range(4):
        learner.update(random_batch("td3", seed=i))
    batch = random_batch("td3", 64)
    learner._rng = noise = Recording()
    found = seen_by(learner, batch)
    drawn = torch.from_numpy(0.4 * noise.drawn[0])
    assert drawn.shape == (64, 2), "of each sample and each dimension its own"
    assert (drawn.abs() > 0.5).any()
    mean = torch.tanh(plain_mlp(learner.target_actor.net, batch.next_obs))
    action = (mean + drawn.clamp(-0.5, 0.5)).clamp(-1.0, 1.0)
    first, second = plain_critics(learner.target_critic, batch.next_obs, action)
    target = batch.reward + batch.discount * torch.minimum(first, second)[:, 0]
    torch.testing.assert_close(found.target, target.detach())
    assert (first < second).any()
    assert (second < first).any()


def test_noise_is_clipped_and_actions_are_bounded_in_each_dimension() -> None:
    learner = make_learner("td3", target_policy_noise=1.0, target_noise_clip=0.25)
    with torch.no_grad():
        learner.target_actor.net.flat[-1].copy_(torch.tensor([9.0, 0.0]))  # the bias: one action at its bound
        x = torch.randn(200, 3)
        mean, action = learner.target_actor(x), learner._next_action(x)
    moved = (action - mean).abs()
    assert (moved <= 0.25 + 1e-6).all()
    assert (action.abs() <= 1).all()
    assert (action[:, 0] == 1).any()
    assert ((moved[:, 1] - 0.25).abs() < 1e-6).float().mean() > 0.5, "noise of 1 is mostly cut at 0.25"


def test_actor_and_slow_copies_wait_for_their_turn() -> None:
    learner = make_learner("td3", policy_delay=3)
    parts = [learner.network.actor, learner.target_actor, learner.target_critic]
    for i in range(1, 10):
        before, critic = [flat(part) for part in parts], flat(learner.network.critic)
        metrics = learner.update(random_batch("td3", seed=i)).metrics
        turn = i % 3 == 0
        assert [not torch.equal(flat(part), old) for part, old in zip(parts, before, strict=True)] == [
            turn
        ] * 3
        assert not torch.equal(flat(learner.network.critic), critic)
        assert ("actor_loss" in metrics) == turn
    assert learner.status()["actor_updates"] == 3


def test_slow_copies_go_a_share_of_the_way_at_each_turn() -> None:
    learner = make_learner("td3", learning_rate=1e-30, tau=0.1, policy_delay=2)
    online = flat(learner.network.critic)
    learner._slow[0].flat.zero_()
    for k in range(1, 9):
        learner.update(random_batch("td3", seed=k))
        assert torch.allclose(flat(learner.target_critic), online * (1 - 0.9 ** (k // 2)), atol=1e-6)


def test_exploration_noise_has_its_size() -> None:
    learner = make_learner("td3", action_noise_std=0.05)
    obs = np.zeros((4_000, 3), np.float32)
    moved = learner.act(obs, explore=True).action - learner.act(obs, explore=False).action
    assert np.allclose(moved.std(0), 0.05, atol=0.003)
    quiet = make_learner("td3", action_noise="none")
    assert np.array_equal(quiet.act(obs, explore=True).action, quiet.act(obs, explore=False).action)


def test_any_number_of_critics() -> None:
    learner, batch = make_learner("td3", n_critics=3, target_policy_noise=0.0), random_batch("td3")
    found = seen_by(learner, batch)
    assert found.value.shape == (3, 16)
    action = torch.tanh(plain_mlp(learner.target_actor.net, batch.next_obs))
    values = torch.stack(plain_critics(learner.target_critic, batch.next_obs, action))
    torch.testing.assert_close(found.target, (batch.reward + batch.discount * values.amin(0)[:, 0]).detach())

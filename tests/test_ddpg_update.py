"""DDPG: targets, the actor's slope, slow copies, noise, and linear-quadratic control, where the answer is known."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from helpers.actor_critic import (
    CONTINUOUS,
    flat,
    gain_learned,
    make_learner,
    plain_critics,
    plain_mlp,
    polyak_shares,
    random_batch,
    riccati_gain,
    seen_by,
    value_learned,
)
from rl_training.algorithms.ddpg import deterministic_policy_loss
from rl_training.algorithms.exploration import ActionNoise
from rl_training.data.transitions import Batch
from rl_training.spaces import ContinuousActions

ALL = (*CONTINUOUS, "discrete_sac")


# What all of them share


@pytest.mark.parametrize("algo", ALL)
def test_updates_move_critics_and_actor_and_count(algo: str) -> None:
    learner = make_learner(algo, policy_delay=1)
    before = flat(learner.network.critic), flat(learner.network.actor)
    result = learner.update(random_batch(algo))
    assert not torch.equal(flat(learner.network.critic), before[0])
    assert not torch.equal(flat(learner.network.actor), before[1])
    assert (learner.updates, learner.actor_updates) == (1, 1)
    assert result.priorities.shape == (16,)
    assert (result.priorities > 0).all()


@pytest.mark.parametrize("algo", ALL)
def test_the_same_learner_learns_the_same(algo: str) -> None:
    one, other = make_learner(algo), make_learner(algo)
    for i in range(4):
        batch = random_batch(algo, seed=i)
        one.update(batch)
        other.update(copy.deepcopy(batch))
    assert torch.equal(flat(one.network), flat(other.network))


@pytest.mark.parametrize("algo", ALL)
@pytest.mark.parametrize("options", [{}, {"critic_dropout": 0.1}, {"critic_layer_norm": True}])
def test_a_state_goes_on_where_it_was(algo: str, options: dict[str, Any]) -> None:
    if algo == "crossq" and options:
        pytest.skip("its critics are normalised by batches")
    one, other = make_learner(algo, **options), make_learner(algo, seed=1, **options)
    for i in range(3):
        one.update(random_batch(algo, seed=i))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    other._rng = copy.deepcopy(one._rng)
    for i in range(4):
        one.update(random_batch(algo, seed=9 + i))
        other.update(random_batch(algo, seed=9 + i))
    for name, network in one.networks.items():
        for key, value in network.state_dict().items():
            assert torch.equal(value, other.networks[name].state_dict()[key]), f"{name}: {key}"
    assert (one.updates, one.actor_updates) == (other.updates, other.actor_updates)


@pytest.mark.parametrize("algo", ALL)
def test_weights_of_samples_scale_their_part_of_the_loss(algo: str) -> None:
    batch = random_batch(algo)
    weight = torch.rand(16, generator=torch.Generator().manual_seed(0))
    batch.weight = torch.ones(16)
    each = []
    for i in range(16):
        batch.weight = torch.zeros(16).index_fill_(0, torch.tensor([i]), 1.0)
        each.append(float(seen_by(make_learner(algo), batch).loss.detach()))
    batch.weight = weight
    whole = float(seen_by(make_learner(algo), batch).loss.detach())
    assert whole == pytest.approx(float((torch.tensor(each) * weight).sum()), rel=1e-4)


@pytest.mark.parametrize("algo", ALL)
def test_a_time_limit_does_not_change_what_a_step_is_worth(algo: str) -> None:
    options: dict[str, Any] = {"learning_rate": 3e-3, "policy_delay": 1}
    if algo in ("sac", "tqc", "discrete_sac", "crossq"):
        options["ent_coef"] = 1e-6
    if algo != "crossq":
        options["tau"] = 0.1
    learner, cut = make_learner(algo, hidden=(32,), **options), make_learner(algo, hidden=(32,), **options)
    found = value_learned(learner, 500, reward=1.0, gamma=0.5, bootstrap=True)
    assert float(found.mean()) == pytest.approx(2.0, abs=0.1)
    assert (found - 2.0).abs().max() < 0.5
    ended = value_learned(cut, 500, reward=1.0, gamma=0.5, bootstrap=False)
    assert ended.mean() < 1.8, "what treats the end of time as a termination is worth less"


@pytest.mark.parametrize("algo", ["sac", "tqc", "discrete_sac"])
def test_slow_critics_follow_at_every_update(algo: str) -> None:
    learner = make_learner(algo, learning_rate=1e-30, tau=0.1, policy_delay=3)
    batches = [random_batch(algo, seed=i) for i in range(6)]
    shares = polyak_shares(learner, batches, learner.target_critic, learner.network.critic)
    assert shares == pytest.approx([1 - 0.9**k for k in range(1, 7)], abs=1e-5)


@pytest.mark.parametrize("algo", CONTINUOUS)
def test_acting_is_the_same_for_one_few_and_many(algo: str) -> None:
    learner = make_learner(algo)
    obs = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    many = learner.act(obs, explore=False).action
    assert many.shape == (40, 2)
    assert (np.abs(many) <= 1).all()
    alone = np.concatenate([learner.act(obs[i : i + 1], explore=False).action for i in range(40)])
    assert np.allclose(alone, many, atol=1e-6)


@pytest.mark.parametrize("algo", ALL)
def test_warm_up_is_uniform_and_ends(algo: str) -> None:
    learner = make_learner(algo, learning_starts=100)
    obs = np.zeros((20_000, 3), np.float32)
    action = learner.act(obs, explore=True).action
    if algo == "discrete_sac":
        assert np.bincount(action) / 20_000 == pytest.approx([0.5, 0.5], abs=0.02)
        return
    for column in action.T:
        counts, _ = np.histogram(column, bins=10, range=(-1, 1))
        assert counts / 20_000 == pytest.approx([0.1] * 10, abs=0.01)
    greedy = learner.act(obs[:2], explore=False).action
    assert np.array_equal(greedy[0], greedy[1]), "evaluation does not warm up"
    learner.advance(100)
    later = learner.act(obs, explore=True).action
    assert abs(later.mean(0) - greedy[0]).max() < 0.1, "exploration is around what the actor does"


def test_bounds_are_met_exactly_each_by_itself() -> None:
    low, high = np.array([-0.3, 2.0, -7.0], np.float32), np.array([1.1, 2.5, 1e3], np.float32)
    space = ContinuousActions(low, high)
    assert np.array_equal(space.to_env(np.ones(3, np.float32)), high)
    assert np.array_equal(space.to_env(-np.ones(3, np.float32)), low)
    action = np.random.default_rng(0).uniform(-1, 1, (100, 3)).astype(np.float32)
    assert np.allclose(space.from_env(space.to_env(action)), action, atol=1e-6)


# Gradients without autograd


def spying(optimizer: Any, seen: list[torch.Tensor]) -> Any:
    """Return ``apply`` of an optimizer, which also remembers the gradient."""
    apply = optimizer.apply

    def remembered(loss: torch.Tensor) -> torch.Tensor:
        seen.append(optimizer.grad.clone())
        found: torch.Tensor = apply(loss)
        return found

    return remembered


@pytest.mark.parametrize("options", [{}, {"n_critics": 3}, {"network": {"activation": "tanh"}}])
@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac", "discrete_sac", "crossq"])
def test_gradients_without_autograd_are_those_of_autograd(algo: str, options: dict[str, Any]) -> None:
    direct, plain = (
        make_learner(algo, hidden=(24, 16), policy_delay=1, **copy.deepcopy(options)) for _ in range(2)
    )
    assert direct._critics is not None
    assert direct._actor is not None
    plain._critics = plain._slow_critics = plain._actor = plain._slow_actor = None
    grads: dict[Any, list[torch.Tensor]] = {}
    for which, learner in ((0, direct), (1, plain)):
        for name, optimizer in learner.optimizers.items():
            optimizer.apply = spying(optimizer, grads.setdefault((which, name), []))
        with torch.no_grad():  # one log-deviation beyond its limit, where its gradient is cut off
            list(learner.network.actor.parameters())[-1][-1] += 3.0
    for i in range(3):
        batch = random_batch(
            algo, 32, seed=i, weight=torch.rand(32, generator=torch.Generator().manual_seed(i))
        )
        found = [learner.update(copy.deepcopy(batch)) for learner in (direct, plain)]
        torch.testing.assert_close(found[0].priorities, found[1].priorities, atol=1e-5, rtol=1e-4)
        for name in found[0].metrics:
            torch.testing.assert_close(
                found[0].metrics[name], found[1].metrics[name], atol=1e-5, rtol=1e-4, check_dtype=False
            )
    for name in direct.optimizers:
        for one, other in zip(grads[0, name], grads[1, name], strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(
    "options", [{"critic_layer_norm": True}, {"critic_dropout": 0.1}, {"network": {"activation": "silu"}}]
)
def test_other_networks_are_left_to_autograd(options: dict[str, Any]) -> None:
    assert make_learner("sac", **options)._critics is None


def test_an_ensemble_s_mean_goes_back_through_every_critic() -> None:
    direct = make_learner("sac", n_critics=4, target_critics=2)
    x = torch.randn(16, 3)
    action = torch.tanh(torch.randn(16, 2)).requires_grad_(True)
    value, slope = direct._actors_slope(direct._critics, x, action.detach())
    mean = torch.stack(plain_critics(direct.network.critic, x, action)).mean(0)[:, 0]
    (wanted,) = torch.autograd.grad(mean.sum(), action)
    torch.testing.assert_close(value, mean.detach())
    torch.testing.assert_close(slope, wanted)


# DDPG


def test_the_target_is_that_of_the_slow_actor_and_the_slow_critic() -> None:
    learner, batch = make_learner("ddpg", tau=0.3), random_batch("ddpg")
    for i in range(3):
        learner.update(random_batch("ddpg", seed=i))
    action = torch.tanh(plain_mlp(learner.target_actor.net, batch.next_obs))
    (value,) = plain_critics(learner.target_critic, batch.next_obs, action)
    target = batch.reward + batch.discount * value[:, 0]
    (own,) = plain_critics(learner.network.critic, batch.obs, batch.action)
    found = seen_by(learner, batch)
    torch.testing.assert_close(found.target, target.detach())
    torch.testing.assert_close(found.loss, (own[:, 0] - target).square().mean())
    torch.testing.assert_close(found.priority, (own[:, 0] - target).abs().detach())


def test_the_actor_follows_the_slope_of_its_first_critic() -> None:
    for algo in ("ddpg", "td3"):
        learner, batch = make_learner(algo, policy_delay=1), random_batch(algo)
        actor = copy.deepcopy(learner.network.actor)
        captured: list[torch.Tensor] = []
        optimizer = learner.optimizers["actor"]
        optimizer.apply = lambda loss, o=optimizer, c=captured: c.append(o.grad.clone()) or loss
        critics = flat(learner.network.critic)
        learner._improve(batch, batch.obs)
        action = torch.tanh(plain_mlp(actor.net, batch.obs))
        loss = -plain_critics(learner.network.critic, batch.obs, action)[0].mean()
        expected = torch.autograd.grad(loss, list(actor.parameters()))
        torch.testing.assert_close(
            captured[0], torch.cat([g.reshape(-1) for g in expected]), atol=1e-7, rtol=1e-4
        )
        assert torch.equal(flat(learner.network.critic), critics)
        assert all(p.requires_grad for p in learner.network.critic.parameters())


def test_the_policy_loss_is_minus_the_mean() -> None:
    assert float(deterministic_policy_loss(torch.tensor([1.0, 2.0, 6.0]))) == -3.0


@pytest.mark.parametrize("algo", ["ddpg", "td3"])
def test_the_policy_reaches_the_gain_of_riccati(algo: str) -> None:
    options: dict[str, Any] = {"tau": 0.05, "learning_rate": 3e-3, "gamma": 0.9}
    if algo == "td3":
        options |= {"target_policy_noise": 0.02, "target_noise_clip": 0.05, "policy_delay": 1}
    learner = make_learner(algo, obs=1, actions=1, hidden=(48, 48), **options)
    assert gain_learned(learner, 1_500, learner.network.act) == pytest.approx(riccati_gain(), abs=0.05)


# Noise


def test_normal_noise_is_each_environments_own_and_cut_at_the_bounds() -> None:
    noise = ActionNoise("normal", 0.5)
    rng = np.random.default_rng(0)
    action, carry = noise.add(np.full((5_000, 2), 0.2, np.float32), None, rng)
    assert carry is None
    assert noise.initial(3, 2) is None
    assert action.min() == -1
    assert action.max() == 1
    assert np.corrcoef(action.T)[0, 1] == pytest.approx(0, abs=0.05)
    assert len(np.unique(action[:, 0])) > 4_000, "not one draw for all"


def test_ornstein_uhlenbeck_noise_is_the_recursion_of_each_environment() -> None:
    noise = ActionNoise("ou", 0.3, theta=0.5, dt=0.1)
    rng, again = np.random.default_rng(0), np.random.default_rng(0)
    carry, by_hand = noise.initial(3, 2), np.zeros((3, 2))
    for _ in range(50):
        action, carry = noise.add(np.zeros((3, 2), np.float32), carry, rng)
        fresh = again.standard_normal((3, 2), dtype=np.float32)
        by_hand = by_hand - 0.5 * by_hand * 0.1 + 0.3 * np.sqrt(0.1) * fresh
        assert np.allclose(action, by_hand, atol=1e-5)
    assert carry is not None
    carry["noise"][1] = 0.0  # as the collector does where an episode begins
    _, after = noise.add(np.zeros((3, 2), np.float32), carry, rng)
    assert after is not None
    fresh = again.standard_normal((3, 2), dtype=np.float32) * np.float32(0.3 * 0.1**0.5)
    assert np.allclose(after["noise"][1], fresh[1], atol=1e-6)
    assert np.allclose(after["noise"][0], by_hand[0] * 0.95 + fresh[0], atol=1e-5)


def test_noise_moves_the_action_that_is_learned_from() -> None:
    learner = make_learner("ddpg", action_noise="ou", action_noise_std=0.5, ou_dt=0.1)
    obs = np.ones((2, 3), np.float32)
    greedy = learner.act(obs, explore=False)
    decision = learner.act(obs, learner.exploration_carry(2), explore=True)
    assert greedy.carry is None
    assert np.allclose(decision.action - decision.carry["noise"], greedy.action, atol=1e-6)
    assert not np.allclose(decision.action[0], decision.action[1]), "each environment has its own"
    assert decision.played is None
    assert learner.initial_carry(2) is None, "evaluation has no noise to remember"


def test_a_critic_of_another_size_is_possible() -> None:
    learner = make_learner("ddpg", network={"critic_hidden_sizes": [8, 8, 8]})
    assert learner.network.critic.members[0].sizes == (5, 8, 8, 8, 1)
    assert learner.network.actor.net.sizes == (3, 16, 2)
    learner.update(random_batch("ddpg"))


def test_observations_are_normalised_by_running_statistics() -> None:
    learner = make_learner("ddpg", network={"normalize_obs": True})
    learner.observe(np.random.default_rng(0).normal(5.0, 3.0, (500, 3)).astype(np.float32))
    batch = random_batch("ddpg")
    x, following = learner._see(
        Batch(batch.obs * 3 + 5, batch.action, batch.reward, batch.discount, batch.next_obs)
    )
    assert torch.allclose(x, batch.obs, atol=0.4)
    assert not torch.allclose(following, batch.next_obs, atol=0.4)

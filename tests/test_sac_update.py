"""SAC: the density of its actions, the temperature, targets, ensembles, lasting noise, and linear-quadratic control."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.actor_critic import (
    Recording,
    flat,
    gain_learned,
    make_learner,
    plain_critics,
    plain_mlp,
    random_batch,
    riccati_gain,
    seen_by,
)
from rl_training.algorithms.sac import soft_policy_loss
from rl_training.algorithms.temperature import Temperature, temperature_gradient
from rl_training.models.actors import squashed

# The density


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5), (0.2, -3.0)])
def test_the_density_integrates_to_one(mean: float, log_std: float) -> None:
    raw = torch.linspace(-12.0, 12.0, 400_001, dtype=torch.float64)
    noise = ((raw - mean) / math.exp(log_std))[:, None]
    action, log_prob = squashed(torch.full_like(noise, mean), torch.full_like(noise, log_std), noise)
    assert float(torch.trapezoid(log_prob.exp(), action[:, 0])) == pytest.approx(1.0, abs=1e-4)


def test_the_density_is_that_of_torch_and_stays_right_far_out() -> None:
    mean, log_std = torch.randn(200, 3, dtype=torch.float64), torch.randn(200, 3, dtype=torch.float64) * 0.3
    noise = torch.randn(200, 3, dtype=torch.float64)
    action, log_prob = squashed(mean, log_std, noise)
    base = torch.distributions.Normal(mean, log_std.exp())
    known = torch.distributions.TransformedDistribution(base, torch.distributions.TanhTransform())
    torch.testing.assert_close(log_prob, known.log_prob(action).sum(-1), atol=1e-6, rtol=1e-6)
    zero = torch.zeros(1, 1)
    for far in (10.0, -10.0, 40.0):
        _, found = squashed(torch.full((1, 1), far), zero, zero)
        exact = -0.5 * math.log(2 * math.pi) - (math.log(4.0) - 2 * abs(far))  # 1 - tanh^2 = 4 exp(-2|u|)
        assert float(found) == pytest.approx(exact, rel=1e-5)


# The temperature


def test_entropy_above_its_target_makes_the_temperature_fall() -> None:
    for entropy, falls in ((2.0, True), (-4.0, False)):
        assert (float(temperature_gradient(torch.full((5,), entropy), -1.0)) > 0) == falls
    learner = make_learner("sac", target_entropy=-20.0)
    before = float(learner.temperature())
    learner.update(random_batch("sac"))
    assert float(learner.temperature()) < before
    other = make_learner("sac")
    other.target_entropy = 9.0
    other.update(random_batch("sac"))
    assert float(other.temperature()) > before


def test_the_temperature_s_gradient_is_that_of_its_loss() -> None:
    temperature = Temperature(0.3)
    entropy = torch.tensor([1.0, -2.0, 0.4])
    loss = (temperature.log_alpha * (entropy + 1.5)).mean()
    (expected,) = torch.autograd.grad(loss, temperature.log_alpha)
    assert float(temperature_gradient(entropy, -1.5)) == pytest.approx(float(expected))
    assert float(temperature()) == pytest.approx(0.3)


def test_a_fixed_temperature_stays_and_has_no_optimizer() -> None:
    learner = make_learner("sac", ent_coef=0.2)
    assert set(learner.optimizers) == {"critic", "actor"}
    for i in range(3):
        metrics = learner.update(random_batch("sac", seed=i)).metrics
    assert float(metrics["ent_coef"]) == pytest.approx(0.2)
    assert float(learner.temperature()) == pytest.approx(0.2)
    assert make_learner("sac").target_entropy == -2.0


# Targets and slopes


def actions_of(learner: Any, x: torch.Tensor, noise: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out = plain_mlp(learner.network.actor.net, x)
    mean, log_std = out[:, :2], out[:, 2:].clamp(-20, 2)
    raw = mean + log_std.exp() * torch.from_numpy(noise)
    log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(raw).sum(1)
    return torch.tanh(raw), log_prob - torch.log1p(-torch.tanh(raw).square()).sum(1)


def test_the_target_is_the_smaller_soft_value_and_a_termination_masks_entropy() -> None:
    learner = make_learner("sac", tau=0.3, ent_coef=0.7)
    for i in range(3):
        learner.update(random_batch("sac", seed=i))
    batch = random_batch("sac", 64)
    learner._rng = noise = Recording()
    found = seen_by(learner, batch)
    action, log_prob = actions_of(learner, batch.next_obs, noise.drawn[0])
    first, second = plain_critics(learner.target_critic, batch.next_obs, action)
    soft = torch.minimum(first, second)[:, 0] - 0.7 * log_prob
    torch.testing.assert_close(
        found.target, (batch.reward + batch.discount * soft).detach(), atol=1e-4, rtol=1e-4
    )
    ended = batch.discount == 0
    assert torch.equal(found.target[ended], batch.reward[ended])
    own = plain_critics(learner.network.critic, batch.obs, batch.action)
    loss = sum((q[:, 0] - found.target).square().mean() for q in own)
    torch.testing.assert_close(found.loss, loss)


def test_the_actor_and_the_temperature_move_by_their_losses() -> None:
    learner, batch = make_learner("sac", ent_coef_init=0.5), random_batch("sac")
    before = SimpleNamespace(network=copy.deepcopy(learner.network))
    learner._rng = noise = Recording()
    grads: dict[str, torch.Tensor] = {}
    for name in ("actor", "temperature"):
        optimizer = learner.optimizers[name]
        optimizer.apply = lambda loss, n=name, o=optimizer: grads.update({n: o.grad.clone()}) or loss
    critics = flat(learner.network.critic)
    metrics = learner._improve(batch, batch.obs)
    action, log_prob = actions_of(before, batch.obs, noise.drawn[0])
    first, second = plain_critics(before.network.critic, batch.obs, action)
    loss = (0.5 * log_prob - torch.minimum(first, second)[:, 0]).mean()
    expected = torch.autograd.grad(loss, list(before.network.actor.parameters()))
    joined = torch.cat([g.reshape(-1) for g in expected])
    torch.testing.assert_close(grads["actor"], joined, atol=1e-6, rtol=1e-3)
    assert float(metrics["actor_loss"]) == pytest.approx(float(loss), rel=1e-4)
    # The slope of log(alpha) * (entropy - target), with the entropy before this step.
    assert float(grads["temperature"]) == pytest.approx(float((-log_prob + 2.0).mean()), rel=1e-4)
    assert float(metrics["ent_coef"]) == pytest.approx(0.5), "the temperature from before its own step"
    assert torch.equal(flat(learner.network.critic), critics)


def test_the_policy_loss_by_hand() -> None:
    log_prob, value = torch.tensor([1.0, -1.0]), torch.tensor([0.5, 2.0])
    assert float(soft_policy_loss(log_prob, value, torch.tensor(0.1))) == pytest.approx(-(0.4 + 2.1) / 2)


def test_a_part_of_an_ensemble_makes_the_target_and_the_actor_follows_its_mean() -> None:
    learner = make_learner("sac", n_critics=5, target_critics=2, ent_coef=1e-9)
    batch = random_batch("sac", 64)
    seen = set()
    for seed in range(12):
        learner._rng = noise = Recording(seed)
        target = seen_by(learner, batch).target
        action, _ = actions_of(learner, batch.next_obs, noise.drawn[0])
        values = torch.stack(plain_critics(learner.target_critic, batch.next_obs, action))[:, :, 0]
        value = (target - batch.reward) / batch.discount
        pairs = [
            (i, j)
            for i in range(5)
            for j in range(i)
            if torch.allclose(torch.minimum(values[i], values[j])[1], value[1], atol=1e-4)
            and torch.allclose(torch.minimum(values[i], values[j])[2], value[2], atol=1e-4)
        ]
        assert pairs, "the target is the smaller one of two critics"
        seen.update(pairs)
    assert len(seen) > 3
    values = torch.randn(5, 7, 1)
    assert torch.equal(learner._actors_value(values), values.mean(0)[:, 0])


def test_dropout_is_active_in_learning_only() -> None:
    learner, batch = make_learner("sac", critic_dropout=0.5), random_batch("sac")
    with torch.no_grad():
        calm = [learner.network.values(batch.obs, batch.action) for _ in range(2)]
    assert torch.equal(*calm)
    rng = copy.deepcopy(learner._rng)
    first = seen_by(learner, batch).value
    learner._rng = rng
    assert not torch.equal(first, seen_by(learner, batch).value)
    assert not learner.network.critic.training


def test_the_policy_reaches_the_gain_of_riccati() -> None:
    options: dict[str, Any] = {"tau": 0.05, "learning_rate": 3e-3, "gamma": 0.9, "ent_coef": 1e-4}
    learner = make_learner("sac", obs=1, actions=1, hidden=(48, 48), **options)
    assert gain_learned(learner, 1_500, learner.network.act) == pytest.approx(riccati_gain(), abs=0.05)


# Exploration


def test_actions_are_drawn_from_the_policy() -> None:
    learner = make_learner("sac")
    obs = np.ones((1, 3), np.float32)
    drawn = np.concatenate([learner.act(obs, explore=True).action for _ in range(3_000)])
    with torch.no_grad():
        mean, log_std = learner.network.actor(torch.ones(1, 3))
    raw = np.arctanh(np.clip(drawn, -0.999999, 0.999999))
    assert np.allclose(raw.mean(0), mean[0], atol=0.1)
    assert np.allclose(raw.std(0), log_std.exp()[0], rtol=0.08)
    assert np.allclose(learner.act(obs, explore=False).action, torch.tanh(mean), atol=1e-6)


def test_lasting_noise_is_one_function_of_the_state_until_it_is_drawn_anew() -> None:
    learner = make_learner("sac", use_sde=True, sde_sample_freq=3, sde_log_std_init=0.0)
    obs = np.ones((2, 3), np.float32)
    carry, actions = learner.exploration_carry(2), []
    for _ in range(6):
        decision = learner.act(obs, carry, explore=True)
        carry = decision.carry
        actions.append(decision.action)
    for i in (1, 2):
        assert np.array_equal(actions[0], actions[i])
        assert np.array_equal(actions[3], actions[3 + i])
    assert not np.array_equal(actions[0], actions[3])
    assert not np.array_equal(actions[0][0], actions[0][1]), "each environment has its own"


def test_the_density_of_lasting_noise_is_that_over_all_its_draws() -> None:
    learner = make_learner("sac", use_sde=True, sde_log_std_init=-0.5)
    x = torch.ones(1, 3)
    with torch.no_grad():
        mean, log_std = learner.network.actor(x)
        matrix = torch.randn(20_000, 16, 2, generator=torch.Generator().manual_seed(0))
        raw = torch.atanh(
            learner.network.actor.explored(x.expand(20_000, 3), matrix).double().clamp(-1 + 1e-9, 1 - 1e-9)
        )
    assert torch.allclose(raw.mean(0).float(), mean[0], atol=0.03)
    assert torch.allclose(raw.std(0).float(), log_std.exp()[0], rtol=0.03)
    learner.update(random_batch("sac"))

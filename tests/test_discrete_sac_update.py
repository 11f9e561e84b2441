"""Discrete SAC: exact expectations, masks, targets of the entropy, and the policy that is best for given values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from helpers.actor_critic import flat, make_learner, plain_mlp, random_batch, seen_by
from rl_training.algorithms.discrete_sac import discrete_policy_loss, entropy_of, expected
from rl_training.data.transitions import Batch

MASK = torch.tensor([[True, True, False], [True, True, True], [False, True, False], [True, False, True]])


def masked_batch(size: int = 16, seed: int = 0) -> Batch:
    batch = random_batch("discrete_sac", size, actions=3, seed=seed)
    mask = MASK.repeat(size // 4, 1)
    batch.action = mask.float().argmax(1)
    batch.mask, batch.next_mask = mask, mask.flip(0)
    return batch


def distribution(learner: Any, x: torch.Tensor, mask: torch.Tensor | None) -> torch.distributions.Categorical:
    logits = plain_mlp(learner.network.actor, x)
    return torch.distributions.Categorical(
        logits=logits if mask is None else logits.masked_fill(~mask, -1e30), validate_args=False
    )


def test_expectations_count_what_is_forbidden_as_nothing() -> None:
    log_prob = torch.tensor([[math.log(0.25), math.log(0.75), -math.inf], [0.0, -math.inf, -math.inf]])
    values = torch.tensor([[1.0, 2.0, math.nan], [5.0, math.inf, 0.0]])
    assert torch.allclose(expected(log_prob, values), torch.tensor([1.75, 5.0]))
    exact = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert torch.allclose(entropy_of(log_prob), torch.tensor([exact, 0.0]))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("target", ["min", "mean"])
@pytest.mark.parametrize("critic_entropy", [False, True])
def test_the_target_is_an_exact_expectation(masked: bool, target: str, critic_entropy: bool) -> None:
    learner = make_learner(
        "discrete_sac", actions=3, target=target, critic_entropy=critic_entropy, ent_coef=0.4, tau=0.3
    )
    for i in range(3):
        learner.update(masked_batch(seed=i))
    batch = masked_batch() if masked else random_batch("discrete_sac", actions=3)
    chances = distribution(learner, batch.next_obs, batch.next_mask)
    values = torch.stack([plain_mlp(member, batch.next_obs) for member in learner.target_critic.members])
    each = values.amin(0) if target == "min" else values.mean(0)
    soft = (chances.probs * each).sum(1) + (0.4 * chances.entropy() if critic_entropy else 0.0)
    found = seen_by(learner, batch)
    torch.testing.assert_close(found.target, (batch.reward + batch.discount * soft).detach())
    own = torch.stack([plain_mlp(member, batch.obs) for member in learner.network.critic.members])
    taken = own[:, torch.arange(16), batch.action]
    torch.testing.assert_close(found.value, taken.detach())
    torch.testing.assert_close(found.loss, (taken - found.target).square().mean(1).sum())


@pytest.mark.parametrize("masked", [False, True])
def test_the_actor_moves_by_a_sum_over_actions_and_a_mean_over_the_batch(masked: bool) -> None:
    learner = make_learner("discrete_sac", actions=3, ent_coef_init=0.4)
    batch = masked_batch() if masked else random_batch("discrete_sac", actions=3)
    before, grads = make_learner("discrete_sac", actions=3, ent_coef_init=0.4), {}
    for name in ("actor", "temperature"):
        optimizer = learner.optimizers[name]
        optimizer.apply = lambda loss, n=name, o=optimizer: grads.update({n: o.grad.clone()}) or loss
    learner._improve(batch, batch.obs)
    chances = distribution(before, batch.obs, batch.mask)
    values = torch.stack([plain_mlp(member, batch.obs) for member in before.network.critic.members])
    loss = -((chances.probs * values.amin(0).detach()).sum(1) + 0.4 * chances.entropy()).mean()
    wanted = torch.autograd.grad(loss, list(before.network.actor.parameters()))
    torch.testing.assert_close(
        grads["actor"], torch.cat([g.reshape(-1) for g in wanted]), atol=1e-6, rtol=1e-4
    )
    most = torch.full((16,), math.log(3)) if batch.mask is None else batch.mask.sum(1).float().log()
    slope = (chances.entropy() - 0.7 * most).mean()
    assert float(grads["temperature"]) == pytest.approx(float(slope), rel=1e-3, abs=1e-6)


def test_with_fixed_values_the_best_policy_is_their_softmax() -> None:
    values, alpha = torch.tensor([[1.0, 0.2, -0.5]]), torch.tensor(0.5)
    logits = torch.zeros(1, 3, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.05)
    for _ in range(600):
        optimizer.zero_grad()
        discrete_policy_loss(logits.log_softmax(1), values, alpha)[0].backward()
        optimizer.step()
    torch.testing.assert_close(logits.softmax(1).detach(), (values / alpha).softmax(1), atol=1e-3, rtol=1e-3)


def test_states_with_one_allowed_action_want_no_entropy() -> None:
    learner = make_learner("discrete_sac", actions=3)
    batch = masked_batch()
    target = learner._target_entropy(batch)
    assert target[2] == 0
    assert torch.isfinite(target).all()
    assert float(target[1]) == pytest.approx(0.7 * math.log(3))
    only = torch.tensor([[False, True, False]]).repeat(16, 1)
    batch.mask = batch.next_mask = only
    batch.action = torch.ones(16, dtype=torch.int64)
    before = float(learner.temperature())
    actor = flat(learner.network.actor)
    learner.update(batch)
    assert float(learner.temperature()) == before, "nothing to choose, so nothing to say about the entropy"
    assert torch.equal(flat(learner.network.actor), actor)


def test_forbidden_actions_are_never_drawn_and_others_by_their_probabilities() -> None:
    learner = make_learner("discrete_sac", actions=3)
    obs = np.ones((4_000, 3), np.float32)
    mask = np.tile([True, False, True], (4_000, 1))
    drawn = learner.act(obs, explore=True, mask=mask).action
    chances = distribution(learner, torch.ones(1, 3), torch.tensor([[True, False, True]])).probs[0]
    assert np.bincount(drawn, minlength=3) / 4_000 == pytest.approx(chances.detach().numpy(), abs=0.03)
    assert (learner.act(obs[:2], explore=False, mask=mask[:2]).action == int(chances.argmax())).all()
    action, log_prob = learner.network.sample(
        torch.ones(1_000, 3), torch.rand(1_000), torch.tensor([[True, False, True]])
    )
    assert set(action.tolist()) <= {0, 2}
    torch.testing.assert_close(log_prob.detach(), chances.log()[action].detach())

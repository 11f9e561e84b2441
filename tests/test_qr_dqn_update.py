"""QR-DQN: the quantile loss by loops, limits and known distributions, its gradient, and what it is drawn to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from helpers.q_learning import gradient_table, make_learner, random_batch, set_table, weights_of
from rl_training.algorithms.qr_dqn import qr_dqn_loss, quantile_huber_loss
from rl_training.models import MLPQRQNetwork
from rl_training.models.mlp_iqn_q_network import midpoints


def random_tensor(seed: int, *shape: int) -> torch.Tensor:
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# The network and the learner


def test_the_network_gives_quantiles_of_every_action() -> None:
    network = MLPQRQNetwork((3,), 4, num_quantiles=5, hidden_sizes=(8,))
    assert network(torch.zeros(6, 3)).shape == (6, 4, 5)


def test_the_network_acts_by_the_mean_and_not_by_a_quantile() -> None:
    network = MLPQRQNetwork((2,), 2, num_quantiles=3, hidden_sizes=())
    set_table(
        network, torch.tensor([[[0.0, 1.0, 2.0], [-9.0, 1.5, 9.0]], [[0.0, 0.0, 5.0], [1.0, 2.0, 3.0]]])
    )
    assert network.act(torch.eye(2)).tolist() == [0, 1]


def test_an_update_reports_its_metrics() -> None:
    learner = make_learner(algo="qr_dqn", num_quantiles=7)
    batch = random_batch()
    with torch.no_grad():
        q = learner.online(batch.obs).mean(2)[torch.arange(8), batch.action]
        target = batch.reward + batch.discount * learner.target(batch.next_obs).mean(2).amax(1)
    result = learner.update(batch)
    assert {"loss", "q_value_mean", "target_mean", "td_error_mean"} <= result.metrics.keys()
    torch.testing.assert_close(result.metrics["q_value_mean"], q.mean())
    torch.testing.assert_close(result.metrics["target_mean"], target.mean())
    torch.testing.assert_close(result.metrics["td_error_mean"], (q - target).abs().mean())
    torch.testing.assert_close(result.metrics["loss"], result.priorities.mean())


def test_state_dict_and_load_state_dict_come_round() -> None:
    original, restored = (make_learner(algo="qr_dqn", num_quantiles=7, seed=seed) for seed in (1, 2))
    for step in range(5):
        original.update(random_batch(step))
    original.advance(5)
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    for learner in (original, restored):
        learner.update(random_batch(9))
        learner.sync_target()
        learner.update(random_batch(10))
    assert torch.equal(weights_of(original.online), weights_of(restored.online))
    assert original.updates == restored.updates == 7


def test_the_fractions_are_the_midpoints_of_equal_shares() -> None:
    learner = make_learner(algo="qr_dqn", num_quantiles=4)
    assert learner.fractions.tolist() == [0.125, 0.375, 0.625, 0.875]
    assert midpoints(3).tolist() == pytest.approx([1 / 6, 3 / 6, 5 / 6])


# The loss


@pytest.mark.parametrize("kappa", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("each_its_own", [False, True])
def test_the_loss_is_summed_over_estimates_and_averaged_over_targets(
    kappa: float, each_its_own: bool
) -> None:
    batch, estimates, targets = 3, 5, 7
    theta, goal = random_tensor(0, batch, estimates), random_tensor(1, batch, targets)
    shape = (batch, estimates) if each_its_own else (estimates,)
    tau = torch.rand(shape, generator=torch.Generator().manual_seed(2))
    expected = np.zeros(batch)
    for b in range(batch):
        for i in range(estimates):
            for j in range(targets):
                u = float(goal[b, j] - theta[b, i])
                huber = 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
                fraction = float(tau[b, i] if each_its_own else tau[i])
                expected[b] += abs(fraction - (u < 0)) * huber / kappa / targets
    np.testing.assert_allclose(quantile_huber_loss(theta, goal, tau, kappa), expected, rtol=1e-5)


def test_without_kappa_it_is_the_pinball_loss() -> None:
    theta, goal, tau = random_tensor(0, 4, 5), random_tensor(1, 4, 9), midpoints(5)
    u = goal[:, None, :] - theta[:, :, None]
    pinball = torch.maximum(tau[:, None] * u, (tau[:, None] - 1.0) * u).mean(2).sum(1)
    torch.testing.assert_close(quantile_huber_loss(theta, goal, tau, 1e-6), pinball, rtol=1e-4, atol=1e-5)


def test_an_estimate_that_is_too_low_costs_its_fraction_and_one_too_high_the_rest() -> None:
    """The one test in which a flipped tau shows for a single quantile."""
    tau, goal = torch.tensor([0.9]), torch.zeros(2, 1)
    too_low, too_high = quantile_huber_loss(torch.tensor([[-3.0], [3.0]]), goal, tau, kappa=1e-6).tolist()
    assert (too_low, too_high) == pytest.approx((0.9 * 3, 0.1 * 3), rel=1e-4)


def exponential(tau: Any) -> Any:
    return stats.expon.ppf(tau)


def bimodal(tau: Any) -> Any:
    """The quantiles of 0.3 N(-2, 0.3) + 0.7 N(1, 0.5)."""
    x = np.linspace(-4, 4, 20_001)
    cdf = 0.3 * stats.norm.cdf(x, -2, 0.3) + 0.7 * stats.norm.cdf(x, 1, 0.5)
    return np.interp(tau, cdf, x)


@pytest.mark.parametrize("inverse", [exponential, bimodal])
@pytest.mark.parametrize("count", [1, 8])
def test_minimising_on_samples_gives_the_quantiles_at_the_midpoints(
    inverse: Callable[[Any], Any], count: int
) -> None:
    samples = torch.from_numpy(inverse((np.arange(2000) + 0.5) / 2000)).float()[None]
    theta = nn.Parameter(torch.zeros(1, count))
    optimizer = torch.optim.Adam([theta], lr=0.2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    for _ in range(500):
        optimizer.zero_grad()
        quantile_huber_loss(theta, samples, midpoints(count), kappa=0.02).sum().backward()
        optimizer.step()
        schedule.step()
    expected = inverse(midpoints(count).numpy())
    assert theta.detach()[0].numpy() == pytest.approx(expected, abs=0.03)


def test_the_gradient_by_hand() -> None:
    """d/d theta_i = -mean_j |tau_i - 1{u < 0}| clip(u, -kappa, kappa) / kappa, and nothing through the indicator."""
    theta, goal, tau = random_tensor(3, 4, 5).requires_grad_(), random_tensor(4, 4, 6), midpoints(5)
    quantile_huber_loss(theta, goal, tau, kappa=0.5).sum().backward()
    u = goal[:, None, :] - theta.detach()[:, :, None]
    tilt = (tau[:, None] - (u < 0).float()).abs()
    torch.testing.assert_close(theta.grad, -(tilt * u.clamp(-0.5, 0.5) / 0.5).mean(2))


# What it is drawn to

ONLINE = [[[0.0, 1.0, 2.0], [1.0, 2.0, 4.5]], [[3.0, 4.0, 5.0], [-1.0, 0.0, 9.0]]]
TARGET = [[[4.0, 5.0, 6.0], [-2.0, 0.0, 8.0]], [[-9.0, 1.0, 20.0], [5.0, 6.0, 7.0]]]
BEST = {False: [0, 1], True: [1, 0]}
"""By the target's means 5, 2; 4, 6 and by the online network's 1, 2.5; 4, 8/3."""


def hand_learner(double: bool, **options: Any) -> Any:
    learner = make_learner(
        (2,), 2, (), algo="qr_dqn", num_quantiles=3, double=double, max_grad_norm=None, **options
    )
    set_table(learner.online, ONLINE)
    set_table(learner.target, TARGET)
    return learner


def hand_batch(**changes: Any) -> Any:
    fields = {"action": torch.tensor([0, 1]), "reward": torch.tensor([1.0, -1.0])}
    fields |= {"discount": torch.tensor([0.5, 0.0]), "obs": torch.eye(2), "next_obs": torch.eye(2)}
    return random_batch(size=2, **{**fields, **changes})


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_update_descends_towards_the_target_networks_quantiles(double: bool, weighted: bool) -> None:
    learner = hand_learner(double, kappa=2.0)
    weight = torch.tensor([0.5, 2.0]) if weighted else torch.ones(2)
    batch = hand_batch(discount=torch.tensor([0.5, 0.9]), weight=weight if weighted else None)
    rows = torch.arange(2)
    target = batch.reward[:, None] + batch.discount[:, None] * torch.tensor(TARGET)[rows, BEST[double]]
    theta = torch.tensor(ONLINE)[rows, batch.action]
    u = target[:, None, :] - theta[:, :, None]
    tilt = (learner.fractions[:, None] - (u < 0).float()).abs()
    result = learner.update(batch)
    expected = torch.zeros(2, 2, 3)
    expected[rows, batch.action] = -(tilt * u.clamp(-2, 2) / 2).mean(2) * weight[:, None] / 2
    torch.testing.assert_close(gradient_table(learner, 2, 2, 3), expected)
    each = quantile_huber_loss(theta, target, learner.fractions, 2.0)
    torch.testing.assert_close(result.priorities, each)  # whatever the weights are
    torch.testing.assert_close(result.metrics["loss"], (each * weight).mean())
    assert not any(p.requires_grad or p.grad is not None for p in learner.target.parameters())


@pytest.mark.parametrize("double", [False, True])
def test_what_is_forbidden_next_is_nobodys_target(double: bool) -> None:
    learner = hand_learner(double)
    mask = torch.ones(2, 2, dtype=torch.bool)
    mask[0, BEST[double][0]] = False
    result = learner.update(hand_batch(next_mask=mask))
    other = np.mean(TARGET[0][1 - BEST[double][0]])
    assert result.metrics["target_mean"] == pytest.approx((1.0 + 0.5 * other - 1.0) / 2)


def test_a_terminal_transition_has_its_reward_as_all_quantiles() -> None:
    batch = hand_batch(discount=torch.zeros(2))
    head = qr_dqn_loss(random_tensor(0, 2, 3), random_tensor(1, 2, 4), batch, midpoints(3))
    assert head.target.tolist() == [1.0, -1.0]
    same = qr_dqn_loss(batch.reward[:, None].expand(2, 3), random_tensor(1, 2, 4), batch, midpoints(3))
    assert same.each.tolist() == [0.0, 0.0]

"""IQN: its embedding by hand, which fractions go where, and a quantile function learned from samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from helpers.q_learning import make_learner, random_batch
from rl_training.algorithms.qr_dqn import quantile_huber_loss
from rl_training.data import Batch
from rl_training.errors import ConfigError
from rl_training.models import MLPIQNQNetwork
from rl_training.models.mlp_iqn_q_network import midpoints

# The network


@pytest.mark.parametrize("hidden", [(6,), (7, 6), (5, 7, 6)])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_network_by_hand(hidden: tuple[int, ...], dueling: bool, layer_norm: bool) -> None:
    """Cosines of i = 1 .. n, and the product with the state's features before the last hidden layer."""
    torch.manual_seed(0)
    network = MLPIQNQNetwork((3,), 2, hidden, num_cosines=4, dueling=dueling, layer_norm=layer_norm)
    for parameter in network.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    obs, tau = torch.randn(5, 3), torch.rand(5, 8)
    out = network(obs, tau)
    assert out.shape == (5, 2, 8)
    layers = {name: parameter.detach().numpy() for name, parameter in network.named_parameters()}

    def linear(name: str, x: Any) -> Any:
        return layers[f"{name}.weight"] @ x + layers[f"{name}.bias"]

    def normalized(name: str, x: Any) -> Any:
        if not layer_norm:
            return x
        return layers[f"{name}.weight"] * (x - x.mean()) / np.sqrt(x.var() + 1e-5) + layers[f"{name}.bias"]

    def chain(name: str, x: Any) -> Any:
        count = sum(key.startswith(f"{name}.linears.") for key in layers) // 2
        for i in range(count):
            x = linear(f"{name}.linears.{i}", x)
            x = np.maximum(normalized(f"{name}.norms.{i}", x), 0) if i < count - 1 else x
        return x

    for b in range(5):
        for k in range(8):
            cosines = np.array([math.cos(math.pi * i * float(tau[b, k])) for i in (1, 2, 3, 4)])
            state = np.maximum(normalized("norm", chain("state", obs[b].numpy())), 0)
            head = chain("head", state * np.maximum(linear("embedding", cosines), 0))
            values = head[0] + head[1:] - head[1:].mean() if dueling else head
            assert out[b, :, k].detach().numpy() == pytest.approx(values, abs=1e-5)


def test_a_quantile_depends_on_its_own_fraction_only() -> None:
    torch.manual_seed(0)
    network = MLPIQNQNetwork((3,), 2, (8, 8), activation="tanh")
    obs, tau = torch.randn(4, 3), torch.rand(4, 6)
    order = torch.tensor([5, 2, 0, 1, 4, 3])
    out = network(obs, tau)
    torch.testing.assert_close(network(obs, tau[:, order]), out[:, :, order])
    torch.testing.assert_close(network(obs[1:2], tau[1:2, :3]), out[1:2, :, :3])
    assert (network(obs, tau + 0.1) - out).abs().min() > 1e-6


def test_without_a_hidden_layer_there_is_nothing_to_multiply() -> None:
    with pytest.raises(ConfigError, match=r"^network.hidden_sizes: IQN needs at least one hidden layer$"):
        make_learner(hidden=(), algo="iqn")


# Which fractions go where


class Recording(nn.Module):
    """Quantiles a + b * tau with learned a and b for each action; remembers the fractions it was asked for."""

    def __init__(self, obs_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        (inputs,) = obs_shape
        self.linear = nn.Linear(inputs, 2 * num_outputs)
        self.seen: list[torch.Tensor] = []

    def forward(self, obs: torch.Tensor, fractions: torch.Tensor) -> torch.Tensor:
        self.seen.append(fractions.clone())
        a, b = self.linear(obs).chunk(2, 1)
        return a[:, :, None] + b[:, :, None] * fractions[:, None]


def recording_learner(**options: Any) -> Any:
    options = {"num_quantiles": 6, "num_target_quantiles": 6, "num_policy_quantiles": 4, **options}
    learner = make_learner(algo="iqn", network=Recording, **options)
    learner.online.seen.clear()
    learner.target.seen.clear()
    return learner


@pytest.mark.parametrize("double", [False, True])
def test_online_and_target_draw_for_themselves_and_the_policy_does_not(double: bool) -> None:
    learner = recording_learner(double=double)
    for seed in range(200):
        learner.update(random_batch(seed))
    online, target = learner.online.seen, learner.target.seen
    policies = (
        [online.pop(i) for i in reversed(range(0, 400, 2))]
        if double
        else [target.pop(i) for i in reversed(range(1, 400, 2))]
    )
    assert len(online) == len(target) == len(policies) == 200
    assert all(torch.equal(policy, midpoints(4).expand(8, 4)) for policy in policies)
    drawn = torch.stack([torch.stack(online), torch.stack(target)]).numpy()  # [2, updates, B, T]
    assert len(np.unique(drawn)) == pytest.approx(drawn.size, rel=1e-3)  # float32 repeats itself now and then
    assert abs(np.corrcoef(drawn.reshape(2, -1))[0, 1]) < 0.03
    for values in drawn:
        assert stats.kstest(values.ravel(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("double", [False, True])
def test_the_loss_weighs_by_the_fractions_that_the_online_network_was_asked_for(double: bool) -> None:
    learner = recording_learner(double=double)
    batch = random_batch()
    table = learner.online.linear.weight.detach().clone(), learner.online.linear.bias.detach().clone()
    result = learner.update(batch)
    asked, asked_target = learner.online.seen[-1], learner.target.seen[0]

    def quantiles(obs: torch.Tensor, fractions: torch.Tensor) -> torch.Tensor:
        a, b = torch.nn.functional.linear(obs, *table).chunk(2, 1)
        return a[:, :, None] + b[:, :, None] * fractions[:, None]

    rows = torch.arange(8)
    theta = quantiles(batch.obs, asked)[rows, batch.action]
    # Both networks are still the same, so that it does not matter who chooses.
    best = quantiles(batch.next_obs, midpoints(4).expand(8, 4)).mean(2).argmax(1)
    following = quantiles(batch.next_obs, asked_target)[rows, best]
    target = batch.reward[:, None] + batch.discount[:, None] * following
    torch.testing.assert_close(result.priorities, quantile_huber_loss(theta, target, asked))
    assert not torch.allclose(result.priorities, quantile_huber_loss(theta, target, asked_target), rtol=1e-2)


def test_the_numbers_of_fractions_are_the_configs() -> None:
    learner = recording_learner(num_quantiles=3, num_target_quantiles=5, num_policy_quantiles=7)
    learner.update(random_batch())
    assert [seen.shape[1] for seen in learner.online.seen] == [3]
    assert [seen.shape[1] for seen in learner.target.seen] == [5, 7]
    learner.q_values(np.zeros((2, 3), np.float32))
    assert learner.online.seen[-1].shape == (2, 7)


def test_acting_is_the_mean_over_even_fractions_and_draws_nothing() -> None:
    learner = make_learner(algo="iqn", num_policy_quantiles=8)
    obs = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    state = learner._rng.bit_generator.state
    with torch.no_grad():
        expected = learner.online(torch.from_numpy(obs), midpoints(8).expand(20, 8)).mean(2)
    for _ in range(2):
        assert learner.q_values(obs) == pytest.approx(expected.numpy(), abs=1e-6)
        assert learner.act(obs, explore=False).action.tolist() == expected.argmax(1).tolist()
    assert learner._rng.bit_generator.state == state
    assert learner.online.act(torch.from_numpy(obs), 8).tolist() == expected.argmax(1).tolist()


# A bandit


def test_a_bandits_quantile_functions_are_learned_at_all_fractions() -> None:
    """Two arms, an exponential and a uniform one; the fractions asked for were never drawn."""
    inverses = [lambda tau: -np.log1p(-tau), lambda tau: 3.0 * tau - 1.0]
    learner = make_learner(
        (1,),
        2,
        (32, 32),
        algo="iqn",
        total=800,
        learning_rate=5e-3,
        learning_rate_final=1e-4,
        num_quantiles=16,
        num_target_quantiles=1,
        num_cosines=16,
        kappa=0.05,
    )
    rng = np.random.default_rng(0)
    for update in range(800):
        arm, where = rng.integers(0, 2, 64), rng.random(64)
        reward = np.where(arm == 0, inverses[0](where), inverses[1](where))
        ones = torch.ones(64, 1)
        batch = Batch(ones, torch.from_numpy(arm), torch.from_numpy(reward).float(), torch.zeros(64), ones)
        learner.update(batch)
        learner.advance(update + 1)
    tau = torch.linspace(0.02, 0.98, 49)
    with torch.no_grad():
        learned = learner.online(torch.ones(1, 1), tau[None])[0].numpy()
    for inverse, values in zip(inverses, learned, strict=True):
        error = np.abs(values - inverse(tau.numpy()))
        assert error[:43].max() < 0.2  # up to 0.86
        assert error.mean() < 0.1
    assert learner.q_values(np.ones((1, 1), np.float32))[0] == pytest.approx([1.0, 0.5], abs=0.1)

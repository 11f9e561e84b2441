"""Noisy layers: the moments of factorised noise, who draws when, and that nothing else explores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from helpers.q_learning import ALGOS, HEADS, fill, make_learner, random_batch, weights_of
from rl_training.errors import ConfigError
from rl_training.experiment.configs import load_config
from rl_training.models import MLPC51QNetwork, MLPIQNQNetwork, MLPQNetwork, MLPQRQNetwork, NoisyLinear
from rl_training.models.mlp import ACTIVATIONS, MLP
from rl_training.models.noisy import noise, noisy_layers
from rl_training.runtime.evaluator import evaluate
from rl_training.runtime.run import Run

# One layer

SPREAD = math.sqrt(2.0 / math.pi)
"""The variance of f(e) = sign(e) sqrt|e|, which is the mean of |e|."""


def noisy_layer(in_features: int, out_features: int) -> NoisyLinear:
    """A layer whose noise differs from weight to weight, so that a wrong axis would show."""
    draw = torch.Generator().manual_seed(0)
    layer = NoisyLinear(in_features, out_features)
    for parameter in (layer.weight_sigma, layer.bias_sigma):
        parameter.data.copy_(0.2 + torch.rand(parameter.shape, generator=draw))
    return layer


@torch.no_grad()
def draws(layer: NoisyLinear, x: torch.Tensor, count: int, *, shared: bool) -> torch.Tensor:
    """Outputs [count, out] for one input under as many draws, one by one or all in one batch."""
    rng = np.random.default_rng(1)
    if not shared:
        with noise([layer], rng, count):
            return layer(x.expand(count, -1)).double()
    outputs = []
    for _ in range(count):
        with noise([layer], rng):
            outputs.append(layer(x[None])[0])
    return torch.stack(outputs).double()


@pytest.mark.parametrize(("shared", "count"), [(False, 200_000), (True, 8_000)], ids=["by row", "shared"])
def test_mean_and_covariance_are_those_of_factorised_noise(shared: bool, count: int) -> None:
    """Outputs differ by factors f(e_out) of their own: Var y = c (c sum_i s_i^2 x_i^2 + s_b^2), and no covariance."""
    layer, x = noisy_layer(4, 3), torch.tensor([0.5, -1.0, 2.0, 0.1])
    out = draws(layer, x, count, shared=shared)
    with torch.no_grad():
        mean = nn.functional.linear(x, layer.weight, layer.bias).double()
        variance = SPREAD * (SPREAD * layer.weight_sigma**2 @ x**2 + layer.bias_sigma**2)
    error = 5.0 * variance.sqrt() / math.sqrt(count)
    assert ((out.mean(0) - mean).abs() < error).all()
    accuracy = 12.0 / math.sqrt(count)
    covariance = torch.cov(out.T)
    np.testing.assert_allclose(covariance.diagonal(), variance, rtol=accuracy)
    scale = variance.sqrt()
    correlation = covariance / torch.outer(scale, scale)
    np.testing.assert_allclose(correlation - correlation.diag().diag(), np.zeros((3, 3)), atol=accuracy)


@pytest.mark.parametrize(("shared", "count"), [(False, 400_000), (True, 16_000)], ids=["by row", "shared"])
def test_outputs_share_the_noise_of_their_inputs(shared: bool, count: int) -> None:
    """For one input and no bias, E[y_1^2 y_2^2] / (E[y_1^2] E[y_2^2]) is pi / 2; independent noise has 1."""
    layer = noisy_layer(1, 2)
    fill(layer, 0.0)
    layer.weight_sigma.data.copy_(torch.tensor([[0.7], [1.3]]))
    squares = draws(layer, torch.tensor([1.0]), count, shared=shared) ** 2
    ratio = squares.prod(1).mean() / squares.mean(0).prod()
    assert float(ratio) == pytest.approx(math.pi / 2, abs=40.0 / math.sqrt(count))


def test_the_noise_of_the_weights_is_an_outer_product_with_the_bias_in_step() -> None:
    layer = noisy_layer(5, 4)
    with noise([layer], np.random.default_rng(2)), torch.no_grad():
        weight, bias = layer.effective()
        unit = (weight - layer.weight) / layer.weight_sigma
        outer = (bias - layer.bias) / layer.bias_sigma
    assert torch.linalg.matrix_rank(unit, rtol=1e-4) == 1
    torch.testing.assert_close(unit / outer[:, None], (unit[0] / outer[0]).expand(4, 5), rtol=1e-4, atol=1e-5)


def test_noise_drawn_by_row_is_that_of_an_effective_matrix_each() -> None:
    layer, x = noisy_layer(4, 3), torch.randn(6, 4)
    with noise([layer], np.random.default_rng(3), 6), torch.no_grad():
        assert layer.noise is not None
        out, (inner, outer) = layer(x), layer.noise
        for row in range(6):
            layer.noise = inner[row : row + 1], outer[row : row + 1]
            torch.testing.assert_close(out[row], layer(x[row : row + 1])[0])


def test_without_a_draw_a_layer_is_its_mean_also_after_an_error() -> None:
    layer, x, rng = noisy_layer(4, 3), torch.randn(6, 4), np.random.default_rng(0)
    mean = nn.functional.linear(x, layer.weight, layer.bias)
    assert torch.equal(layer(x), mean)
    with noise([layer], rng):
        assert (layer(x) - mean).abs().min() > 1e-6
    assert torch.equal(layer(x), mean)
    with pytest.raises(KeyError), noise([layer], rng):
        raise KeyError
    assert torch.equal(layer(x), mean)


def test_sizes_at_the_start() -> None:
    """Sigma by the number of inputs, and means uniform in 1 / sqrt(inputs)."""
    torch.manual_seed(0)
    layer = NoisyLinear(400, 9, sigma=0.8)
    assert torch.equal(layer.weight_sigma, torch.full((9, 400), 0.8 / 20))
    assert torch.equal(layer.bias_sigma, torch.full((9,), 0.8 / 20))
    assert 0.045 < layer.weight.abs().max() <= 0.05
    assert layer.bias.abs().max() <= 0.05
    network = make_learner(hidden=(64, 25), algo="rainbow", noisy_sigma=0.3).online
    sigmas = [float(layer.weight_sigma.detach().unique()) for layer in noisy_layers(network)]
    assert sigmas == pytest.approx([0.3 / 8, 0.3 / 5])


# Networks


def by_modules(mlp: MLP, x: torch.Tensor) -> torch.Tensor:
    for linear in mlp.linears[:-1]:
        x = ACTIVATIONS[mlp.activation]()(linear(x))
    return mlp.linears[-1](x)


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu"])
@pytest.mark.parametrize("sizes", [[4, 3], [4, 8, 3], [4, 8, 6, 3]])
@pytest.mark.parametrize("rows", [0, 1, 7], ids=["no noise", "shared", "by row"])
def test_fused_and_module_path_agree_under_noise(activation: str, sizes: list[int], rows: int) -> None:
    torch.manual_seed(0)
    mlp = MLP(sizes, activation, noisy_sigma=0.5)
    layers = noisy_layers(mlp)
    assert len(layers) == max(len(sizes) - 2, 1)
    x, weight = torch.randn(7, 4, requires_grad=True), torch.randn(7, 3)
    results = []
    with noise(layers if rows else [], np.random.default_rng(0), rows):
        for compute in (mlp, lambda x: by_modules(mlp, x)):
            out = compute(x)
            grads = torch.autograd.grad(
                (out * weight).sum(), [x, *mlp.parameters()], allow_unused=True, materialize_grads=True
            )
            results.append([out, *grads])
        with torch.no_grad():
            torch.testing.assert_close(mlp(x), results[1][0])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    names = [name for name, _ in mlp.named_parameters()]
    for name, grad in zip(names, results[0][2:], strict=True):
        if "sigma" in name:
            assert bool(grad.abs().sum() > 0) == (rows > 0), name


NETWORKS = {"dqn": MLPQNetwork, "c51": MLPC51QNetwork, "qr_dqn": MLPQRQNetwork, "iqn": MLPIQNQNetwork}


@pytest.mark.parametrize("head", NETWORKS)
@pytest.mark.parametrize("layer_norm", [False, True])
def test_each_observation_is_seen_by_a_network_of_its_own(head: str, layer_norm: bool) -> None:
    """With IQN, too, where an observation is several rows of its head."""
    torch.manual_seed(0)
    options = {"dueling": True, "layer_norm": layer_norm, "noisy_sigma": 0.5}
    network = NETWORKS[head]((3,), 2, hidden_sizes=(8, 6), **options)
    layers, obs = noisy_layers(network), torch.randn(4, 3)
    extra = [torch.rand(4, 5)] if head == "iqn" else []
    with noise(layers, np.random.default_rng(0), 4), torch.no_grad():
        out, kept = network(obs, *extra), [layer.noise for layer in layers if layer.noise is not None]
        for row in range(4):
            for layer, (inner, outer) in zip(layers, kept, strict=True):
                layer.noise = inner[row : row + 1], outer[row : row + 1]
            alone = network(obs[row : row + 1], *(part[row : row + 1] for part in extra))
            torch.testing.assert_close(out[row : row + 1], alone)


def test_noise_by_row_takes_inputs_of_more_dimensions() -> None:
    layer, x = noisy_layer(4, 3), torch.randn(6, 5, 4)
    with noise([layer], np.random.default_rng(3), 6):
        torch.testing.assert_close(layer(x).flatten(0, 1), layer(x.flatten(0, 1)))


# Learners


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[NoisyLinear, Any]]:
    """The noise under which layers worked, as often as they did."""
    record: list[tuple[NoisyLinear, Any]] = []

    def spy(name: str) -> None:
        method = getattr(NoisyLinear, name)

        def spied(self: NoisyLinear, *args: Any) -> Any:
            if name == "effective" or (self.noise is not None and len(self.noise[0]) > 1):
                record.append((self, None if self.noise is None else torch.cat(self.noise, 1).clone()))
            return method(self, *args)

        monkeypatch.setattr(NoisyLinear, name, spied)

    spy("effective")
    spy("forward")
    return record


@pytest.mark.parametrize("algo", HEADS)
@pytest.mark.parametrize("double", [False, True])
def test_an_update_draws_once_for_each_network_and_observation(
    algo: str, double: bool, used: list[tuple[NoisyLinear, Any]]
) -> None:
    learner = make_learner(hidden=(8, 8), algo=algo, noisy=True, double=double)
    last = {"online": noisy_layers(learner.online)[-1], "target": noisy_layers(learner.target)[-1]}
    seen: dict[str, list[Any]] = {"online": [], "target": []}
    for seed in range(3):
        used.clear()
        learner.update(random_batch(seed))
        assert all(drawn is not None and len(drawn) == 1 for _, drawn in used), "one draw for the whole batch"
        for name, layer in last.items():
            seen[name] += [drawn for of, drawn in used if of is layer]
    # online(s), target(s'), and with Double the choice by online(s'). IQN's choice is always a pass of its own.
    assert len(seen["online"]) == 3 * (1 + double)
    assert len(seen["target"]) == 3 * (1 + (algo == "iqn" and not double))
    everything = seen["online"] + seen["target"]
    assert len(np.unique(torch.cat(everything).numpy(), axis=0)) == len(everything)
    assert all(layer.noise is None for layer, _ in used)


@pytest.mark.parametrize("algo", HEADS)
@pytest.mark.parametrize("count", [1, 4, 40])
def test_acting_draws_for_each_environment(algo: str, count: int) -> None:
    learner = make_learner(hidden=(8, 8), algo=algo, noisy=True)
    obs = np.ones((count, 3), np.float32)
    q = np.concatenate([learner.q_values(obs, noisy=True) for _ in range(3)])
    assert len(np.unique(q, axis=0)) == 3 * count


@pytest.mark.parametrize("algo", HEADS)
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("options", [{}, {"dueling": True}, {"layer_norm": True}])
def test_noise_is_the_same_whatever_computes_it(algo: str, count: int, options: dict[str, bool]) -> None:
    learner = make_learner(hidden=(8, 8), algo=algo, noisy=True, **options)
    obs = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    state, results = learner._rng.bit_generator.state, []
    for _ in range(2):
        learner._rng.bit_generator.state = state
        results.append(learner.q_values(obs, noisy=True))
        learner._mirror = None
    assert results[0] == pytest.approx(results[1], abs=1e-5)
    assert np.abs(results[0] - learner.q_values(obs)).max() > 1e-3


def test_environments_that_see_the_same_explore_apart() -> None:
    learner = make_learner(hidden=(32, 32), algo="dqn", noisy=True, noisy_sigma=3.0)
    obs = np.ones((2, 3), np.float32)
    actions = np.stack([learner.act(obs, explore=True).action for _ in range(1500)])
    assert (actions.std(0) > 0.2).all()
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.1


@pytest.mark.parametrize("algo", ALGOS)
def test_nothing_but_the_noise_explores_once_learning_has_started(algo: str) -> None:
    learner = make_learner(
        num_actions=3, hidden=(16, 16), algo=algo, noisy=True, learning_starts=100, exploration_final_eps=0.5
    )
    obs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    for steps in (0, 99):
        learner.advance(steps)
        assert learner.status()["exploration_rate"] == 1.0
    counts = np.bincount(np.concatenate([learner.act(obs, explore=True).action for _ in range(30)]))
    assert counts / 1920 == pytest.approx(1 / 3, abs=0.05)
    learner.advance(100)
    assert learner.status()["exploration_rate"] == 0.0
    greedy = learner.act(obs, explore=False).action
    differing = [(learner.act(obs, explore=True).action != greedy).mean() for _ in range(10)]
    assert np.mean(differing) > 0.0, "noise should change some actions"
    for layer in noisy_layers(learner.online):
        layer.weight_sigma.data.zero_()
        layer.bias_sigma.data.zero_()
    for _ in range(10):
        assert np.array_equal(learner.act(obs, explore=True).action, greedy)


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("count", [1, 40])
def test_greedy_acting_is_that_of_the_means(algo: str, count: int) -> None:
    learner = make_learner(num_actions=3, hidden=(16, 16), algo=algo, noisy=True)
    plain = make_learner(num_actions=3, hidden=(16, 16), algo=algo, noisy=False)
    weights = learner.online.state_dict()
    plain.online.load_state_dict({name: value for name, value in weights.items() if "sigma" not in name})
    obs = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    state = learner._rng.bit_generator.state
    for _ in range(2):
        assert learner.q_values(obs) == pytest.approx(plain.q_values(obs), abs=1e-6)
        assert np.array_equal(learner.act(obs, explore=False).action, plain.act(obs, explore=False).action)
    assert learner._rng.bit_generator.state == state


def test_evaluation_is_free_of_noise() -> None:
    options = {"network.hidden_sizes": [16], "algo_kwargs.learning_starts": 0, "env.num_envs": 2}
    config = load_config("rainbow/cartpole", options)
    run = Run(config)
    stream = run.streams("exploration").bit_generator
    before = stream.state
    results = [
        evaluate(run.algorithm, config.env, run.policy.actions, config.evaluation, episodes=4)
        for _ in range(2)
    ]
    assert results[0] == results[1]
    assert stream.state == before
    run.collector.step(run.algorithm)
    assert stream.state != before, "training draws noise"
    run.close()


class Own(nn.Module):
    """A user's network with a noisy layer."""

    def __init__(self, obs_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        (inputs,) = obs_shape
        self.layers = nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), NoisyLinear(8, num_outputs, sigma=2.0))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layers(obs)


def test_an_own_network_with_noisy_layers_is_a_noisy_one(used: list[tuple[NoisyLinear, Any]]) -> None:
    learner = make_learner(num_actions=4, network=Own, learning_starts=10)
    learner.advance(10)
    assert learner.epsilon == 0.0
    obs = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    greedy = learner.act(obs, explore=False).action
    assert np.array_equal(learner.act(obs, explore=False).action, greedy)
    explored = [learner.act(obs, explore=True).action for _ in range(2)]
    assert (explored[0] != greedy).any()
    assert (explored[0] != explored[1]).any()
    sigma = learner.online.layers[2].weight_sigma
    before, weights = sigma.detach().clone(), weights_of(learner.online)
    used.clear()
    learner.update(random_batch(num_actions=4))
    assert len({id(layer) for layer, _ in used}) == 2, "online and target"
    assert all(drawn is not None for _, drawn in used)
    assert not torch.equal(sigma, before)
    assert not torch.equal(weights_of(learner.online), weights)


@pytest.mark.parametrize("name", ["noisy", "dueling"])
def test_an_option_of_the_packaged_network_is_refused_for_an_own_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^algo_kwargs.{name}: belongs to the packaged network"):
        make_learner(network=Own, **{name: True})


@pytest.mark.parametrize("name", ["normalize_obs", "layer_norm"])
def test_what_the_packaged_network_would_normalize_is_refused_for_an_own_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^network.{name}: belongs to the packaged network"):
        make_learner(network=Own, **{name: True})

"""The compiled gradient of PPO is what autograd finds, for everything that it is used for, and for nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from helpers.on_policy import BOX, collect, make_learner, parameters_of
from rl_training import native
from rl_training.algorithms import ppo as module
from rl_training.algorithms.compiled_ppo import compiled_ppo, compiled_surrogate
from rl_training.algorithms.declared.ppo import PPOConfig
from rl_training.algorithms.on_policy import Samples
from rl_training.algorithms.optimizer import FlatAdam
from rl_training.algorithms.ppo import loss_options, ppo_loss
from rl_training.errors import NonFiniteError
from rl_training.models.distributions import ActionHead, CategoricalHead, GaussianHead
from rl_training.models.mlp_actor_critic import MLPActorCritic

ROWS = 100
CASES = [
    case
    for case in itertools.product(
        ("categorical", "masked", "gaussian"),
        ("tanh", "relu"),
        (False, True),
        ((), (5,), (64, 64), (33, 7)),
        ("none", "prediction", "maximum"),
    )
    if not (case[2] and not case[3])
]


def made(
    kind: str, activation: str, layer_norm: bool, hidden: tuple[int, ...]
) -> tuple[MLPActorCritic, Samples]:
    head: ActionHead = GaussianHead((3,)) if kind == "gaussian" else CategoricalHead(4)
    network = MLPActorCritic(
        (6,),
        head,
        hidden,
        activation=activation,
        layer_norm=layer_norm,
        orthogonal_init=False,
        log_std_init=-0.3,
    )
    x = 2.0 * torch.randn(ROWS, 6)
    mask = None
    action = torch.randn(ROWS, 3) if kind == "gaussian" else torch.randint(4, (ROWS,))
    if kind == "masked":
        mask = torch.rand(ROWS, 4) < 0.6
        mask[torch.arange(ROWS), action] = True
    with torch.no_grad():
        log_prob = head.distribution(network.actor(x), network.log_std, mask).log_prob(action)
        value = network.critic(x)[:, 0]
    noisy = log_prob + 0.3 * torch.randn(ROWS), value + 0.2 * torch.randn(ROWS)
    return network, Samples(x, action, *noisy, 3.0 * torch.randn(ROWS) + 1.0, 2.0 * torch.randn(ROWS), mask)


@pytest.mark.parametrize(("kind", "activation", "layer_norm", "hidden", "clipping"), CASES)
def test_gradient_loss_and_metrics_are_autograds(
    kind: str, activation: str, layer_norm: bool, hidden: tuple[int, ...], clipping: Any
) -> None:
    torch.manual_seed(0)
    network, samples = made(kind, activation, layer_norm, hidden)
    optimizer = FlatAdam(network, lr=1e-3)
    for rows, normalize in (
        (torch.randperm(ROWS)[:1], True),
        (torch.randperm(ROWS)[:7], False),
        (torch.randperm(ROWS), True),
    ):
        config = PPOConfig(
            ent_coef=0.02,
            vf_coef=0.7,
            value_clipping=clipping,
            clip_range_vf=0.1,
            normalize_advantage=normalize,
        )
        compiled = compiled_ppo(network, optimizer, config)
        assert compiled is not None
        optimizer.grad.fill_(torch.nan)
        loss, metrics = compiled.gradient(samples, rows, 0.15)
        some = samples.take(rows)
        chances = network.head.distribution(network.actor(some.x), network.log_std, some.mask)
        expected, named = ppo_loss(chances, network.critic(some.x)[:, 0], some, **loss_options(config, 0.15))
        grads = torch.autograd.grad(expected, list(network.parameters()))
        exact = torch.cat([grad.reshape(-1) for grad in grads])
        assert float((optimizer.grad - exact).norm()) <= 2e-5 * max(float(exact.norm()), 1e-3)
        assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-5)
        assert metrics.keys() == named.keys()
        for name, metric in metrics.items():
            assert float(metric) == pytest.approx(float(named[name]), rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("kind", ["categorical", "masked", "gaussian"])
@pytest.mark.parametrize("clipping", ["none", "prediction", "maximum"])
def test_slopes_by_the_outputs_of_any_network_are_autograds(kind: str, clipping: Any) -> None:
    torch.manual_seed(0)
    network, samples = made(kind, "tanh", False, (16,))
    rows = torch.randperm(ROWS)[:70]
    config = PPOConfig(ent_coef=0.02, vf_coef=0.7, value_clipping=clipping, clip_range_vf=0.1)
    some = samples.take(rows)
    outputs = [network.actor(some.x), network.critic(some.x)[:, 0]]
    outputs += [] if network.log_std is None else [network.log_std]
    chances = network.head.distribution(outputs[0], network.log_std, some.mask)
    expected, named = ppo_loss(chances, outputs[1], some, **loss_options(config, 0.15))
    compiled = compiled_surrogate(network.head, torch.device("cpu"), config)
    assert compiled is not None
    loss, metrics, slopes = compiled(outputs, samples, rows, 0.15)
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-5)
    assert {name: float(m) for name, m in metrics.items()} == pytest.approx(
        {name: float(m) for name, m in named.items()}, rel=1e-4, abs=1e-5
    )
    for found, exact in zip(slopes, torch.autograd.grad(expected, outputs), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-6)


def test_steps_of_an_epoch_are_those_of_the_optimizer() -> None:
    """One by one by ``gradient`` and ``FlatAdam``, or all at once: the same weights, moments and metrics."""
    made_by = []
    for at_once in (True, False):
        torch.manual_seed(0)
        network, samples = made("gaussian", "tanh", True, (16,))
        optimizer = FlatAdam(network, lr=1e-2, eps=1e-5, betas=(0.8, 0.99), max_grad_norm=0.3)
        compiled = compiled_ppo(network, optimizer, PPOConfig())
        assert compiled is not None
        order = torch.randperm(ROWS)
        if at_once:
            epoch = compiled.epoch(samples, order, 33, 0.2)  # the last row joins the third minibatch
            assert (epoch.steps, epoch.looked) == (3, 3)
            sums = epoch.sums
        else:
            sums = dict.fromkeys(sums, torch.zeros(()))
            for rows in module.minibatches(order, 33):
                loss, metrics = compiled.gradient(samples, rows, 0.2)
                step = {**metrics, "loss": loss, "grad_norm": optimizer.apply(loss)}
                sums = {name: total + step[name] for name, total in sums.items()}
        state = torch.cat([optimizer.flat, *(t.reshape(-1) for t in optimizer.state_dict().values())])
        made_by.append((state.clone(), {name: float(total) for name, total in sums.items()}))
    torch.testing.assert_close(made_by[0][0], made_by[1][0], rtol=1e-4, atol=1e-6)
    assert made_by[0][1] == pytest.approx(made_by[1][1], rel=1e-4)


def test_an_epoch_stops_before_a_step_that_goes_too_far_and_before_one_that_is_not_finite() -> None:
    torch.manual_seed(0)
    network, samples = made("categorical", "tanh", False, (16,))
    samples.log_prob[50:] += 1.0  # the second half has moved
    optimizer = FlatAdam(network, lr=1e-4)
    compiled = compiled_ppo(network, optimizer, PPOConfig(target_kl=0.1))
    assert compiled is not None
    epoch = compiled.epoch(samples, torch.arange(ROWS), 25, 0.2)
    assert (epoch.steps, epoch.looked) == (2, 3)
    assert int(optimizer.state_dict()["step"]) == 2
    samples.target[30] = torch.nan
    before = optimizer.flat.clone()
    with pytest.raises(NonFiniteError, match="loss is nan"):
        compiled.epoch(samples, torch.arange(25, 50), 25, 0.2)
    assert torch.equal(optimizer.flat, before)


def test_large_sums_saturate_and_what_is_not_a_number_stays_so() -> None:
    torch.manual_seed(0)
    network, samples = made("gaussian", "tanh", False, (16,))
    optimizer, config = FlatAdam(network, lr=1e-3), PPOConfig()
    compiled = compiled_ppo(network, optimizer, config)
    assert compiled is not None
    samples.x[:50] *= 1e4
    loss, _ = compiled.gradient(samples, torch.arange(50), 0.2)
    some = samples.take(torch.arange(50))
    chances = network.head.distribution(network.actor(some.x), network.log_std)
    expected, _ = ppo_loss(chances, network.critic(some.x)[:, 0], some, **loss_options(config, 0.2))
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-4)
    samples.x[60, 2] = torch.nan
    loss, _ = compiled.gradient(samples, torch.arange(55, 65), 0.2)
    assert torch.isnan(loss) or torch.isnan(optimizer.grad).any()


def test_an_action_that_does_not_exist_is_refused() -> None:
    network, samples = made("categorical", "tanh", False, (8,))
    optimizer = FlatAdam(network, lr=1e-3)
    compiled = compiled_ppo(network, optimizer, PPOConfig())
    assert compiled is not None
    samples.action[3] = 4
    with pytest.raises(IndexError, match="action: 4 does not exist"):
        compiled.gradient(samples, torch.arange(8), 0.2)


@pytest.mark.parametrize("kind", ["discrete", "box", "masked"])
def test_whole_updates_are_the_same_with_and_without_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(module, "compiled_ppo", lambda *_: None)
        learner = make_learner(
            actions=BOX if kind == "box" else None,
            n_epochs=3,
            batch_size=6,
            ent_coef=0.01,
            learning_rate=3e-3,
        )
        assert (learner._compiled is not None) == compiled
        for rollout in collect(learner, 2, masked=kind == "masked"):
            result = learner.update(rollout)
        results.append(
            (parameters_of(learner), {name: float(value) for name, value in result.metrics.items()})
        )
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-3, atol=1e-5)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-2, abs=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"shared_trunk": True},
        {"activation": "elu"},
        {"actions": BOX, "action_distribution": "tanh_gaussian"},
    ],
    ids=str,
)
def test_what_it_does_not_compute_goes_through_autograd(options: dict[str, Any]) -> None:
    learner = make_learner(**options)
    assert learner._compiled is None
    before = parameters_of(learner)
    learner.update(collect(learner)[0])
    assert not torch.equal(parameters_of(learner), before)


def test_without_the_library_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.library() is not None
    monkeypatch.setattr("rl_training.algorithms.compiled_ppo.library", lambda: None)
    assert make_learner()._compiled is None

"""CrossQ: batch renormalisation, joint statistics, and in which mode each part is."""

from __future__ import annotations

import copy
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from helpers.actor_critic import Recording, flat, make_learner, random_batch, seen_by
from rl_training.models.batch_renorm import BatchRenorm


def batches(count: int, size: int = 64) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(size, 5, generator=draw) * 2 + 1 for _ in range(count)]


# Batch renormalisation


def test_before_warm_up_it_is_batch_normalisation() -> None:
    own = BatchRenorm(5, warm_up=100)
    known = nn.BatchNorm1d(5, eps=1e-3, momentum=0.01)
    for x in batches(20):
        x.requires_grad_(True)
        out, same = own(x), known(x)
        torch.testing.assert_close(out, same)
        slope = torch.linspace(-1, 1, out.numel()).view_as(out)
        torch.testing.assert_close(
            torch.autograd.grad(out, x, slope)[0],
            torch.autograd.grad(same, x, slope)[0],
            atol=1e-5,
            rtol=1e-4,
        )
    assert int(own.calls) == 20
    torch.testing.assert_close(own.running_mean, known.running_mean)
    # torch keeps the variance with Bessel's correction, ours is that of the batch itself.
    assert known.running_var is not None
    shrunk = (known.running_var - 0.99**20) * (63 / 64) + 0.99**20
    torch.testing.assert_close(own.running_var, shrunk, atol=1e-5, rtol=1e-4)


def test_after_warm_up_a_batch_is_treated_as_in_evaluation() -> None:
    layer = BatchRenorm(5, warm_up=0)
    for x in batches(300):
        layer(x)
    trained = copy.deepcopy(layer)
    x = batches(1)[0]
    out = trained(x)
    torch.testing.assert_close(out, layer.eval()(x), atol=1e-4, rtol=1e-4)
    plain = BatchRenorm(5, warm_up=10**9)
    assert not torch.allclose(out, plain(x), atol=1e-2), "r and d make the difference"


def test_corrections_keep_to_their_limits_long_after_warm_up() -> None:
    layer = BatchRenorm(5, warm_up=10, momentum=0.01)
    for x in batches(100):
        layer(x)
    far = batches(1)[0] * 1_000 + 1e6
    mean, var = far.mean(0), far.var(0, correction=0)
    r, d = layer._correction(mean, var)
    assert torch.equal(r, torch.full((5,), 3.0))
    assert torch.equal(d, torch.full((5,), 5.0))
    out = layer(far)
    torch.testing.assert_close(out, (far - mean) / (var + 1e-3).sqrt() * 3.0 + 5.0, atol=1e-2, rtol=1e-3)
    r, d = layer._correction(mean * 0 - 1e6, var * 0)
    assert torch.equal(r, torch.full((5,), 1 / 3))
    assert torch.equal(d, torch.full((5,), -5.0))


def test_corrections_are_not_differentiated() -> None:
    layer = BatchRenorm(5, warm_up=0)
    for x in batches(50):
        layer(x)
    x = batches(1)[0].requires_grad_(True)
    var, mean = torch.var_mean(x.detach(), 0, correction=0)
    r, d = layer._correction(mean, var)
    slope = torch.randn(64, 5)
    (found,) = torch.autograd.grad(layer(x), x, slope)
    by_hand = (x - x.mean(0)) / (x.var(0, correction=0) + layer.eps).sqrt() * r + d
    (wanted,) = torch.autograd.grad(by_hand, x, slope)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-4)


# The learner


def plain_member(member: Any, x: torch.Tensor) -> torch.Tensor:
    """Compute a member in training mode before warm-up, by torch's own functions."""
    for layer in member:
        if isinstance(layer, BatchRenorm):
            var, mean = torch.var_mean(x, 0, correction=0)
            x = (x - mean) / (var + layer.eps).sqrt() * layer.weight + layer.bias
        else:
            x = layer(x)
    return x


def trained(**options: Any) -> Any:
    learner = make_learner("crossq", **options)
    for i in range(6):
        learner.update(random_batch("crossq", 32, seed=i))
    return learner


def test_both_halves_are_normalised_together() -> None:
    learner, batch = trained(ent_coef=0.3), random_batch("crossq", 32, seed=50)
    before = SimpleNamespace(network=copy.deepcopy(learner.network))
    learner._rng = noise = Recording()
    found = seen_by(learner, batch)
    with torch.no_grad():
        action, log_prob = before.network.sample(batch.next_obs, torch.from_numpy(noise.drawn[0]))
    joint = torch.cat((torch.cat((batch.obs, batch.action), 1), torch.cat((batch.next_obs, action), 1)))
    both = torch.stack([plain_member(member, joint)[:, 0] for member in before.network.critic.members])
    values, following = both[:, :32], both[:, 32:].detach()
    target = batch.reward + batch.discount * (following.amin(0) - 0.3 * log_prob)
    torch.testing.assert_close(found.target, target, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.loss, (values - target).square().mean(1).sum(), atol=1e-4, rtol=1e-4)
    # The statistics moved towards those of the joint batch, which are not those of either half.
    for old, new in zip(before.network.critic.members, learner.network.critic.members, strict=True):
        mean = new[0].running_mean
        torch.testing.assert_close(mean, old[0].running_mean.lerp(joint.mean(0), 0.01))
        assert not torch.allclose(mean, old[0].running_mean.lerp(joint[:32].mean(0), 0.01), atol=1e-5)


@pytest.mark.parametrize("compiled", [True, False])
def test_gradients_flow_through_the_statistics_of_both_halves_but_not_through_targets(compiled: bool) -> None:
    learner, batch = trained(ent_coef=0.3), random_batch("crossq", 32, seed=50)
    if not compiled:
        learner._critics = None
    before = SimpleNamespace(network=copy.deepcopy(learner.network))
    learner._rng = noise = Recording()
    loss, critic = seen_by(learner, batch).loss, learner.optimizers["critic"]
    grads = critic.grad_views() if compiled else torch.autograd.grad(loss, critic.parameters)
    with torch.no_grad():
        action, log_prob = before.network.sample(batch.next_obs, torch.from_numpy(noise.drawn[0]))
    joint = torch.cat((torch.cat((batch.obs, batch.action), 1), torch.cat((batch.next_obs, action), 1)))
    both = torch.stack([plain_member(member, joint)[:, 0] for member in before.network.critic.members])
    target = (batch.reward + batch.discount * (both[:, 32:].amin(0) - 0.3 * log_prob)).detach()
    loss = (both[:, :32] - target).square().mean(1).sum()
    wanted = torch.autograd.grad(loss, list(before.network.critic.parameters()))
    for found, exact in zip(grads, wanted, strict=True):
        torch.testing.assert_close(found, exact, atol=1e-4, rtol=1e-3)


def statistics(module: nn.Module) -> torch.Tensor:
    return torch.cat([buffer.detach().double().reshape(-1) for buffer in module.buffers()]).clone()


def test_each_part_is_in_its_mode() -> None:
    learner = trained()
    critic, actor = learner.network.critic, learner.network.actor
    for i in range(4):
        before = statistics(critic), statistics(actor)
        seen_by(learner, random_batch("crossq", 32, seed=i))
        assert not torch.equal(statistics(critic), before[0])
        assert torch.equal(statistics(actor), before[1]), (
            "next actions come from the actor in evaluation mode"
        )
        middle = statistics(critic)
        learner._improve(random_batch("crossq", 32, seed=i), torch.randn(32, 3))
        assert torch.equal(statistics(critic), middle), (
            "the actor's actions do not move the critics' statistics"
        )
        assert not torch.equal(statistics(actor), before[1])
    assert not any(module.training for module in learner.network.modules())


def test_acting_leaves_statistics_alone_and_uses_them() -> None:
    learner = trained()
    before = statistics(learner.network)
    obs = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    together = learner.act(obs, explore=False).action
    alone = [learner.act(row[None], explore=False).action[0] for row in obs]
    learner.act(obs, explore=True)
    assert torch.equal(statistics(learner.network), before)
    assert np.allclose(together, alone, atol=1e-6), "an action does not depend on who else is in the batch"


def test_there_are_no_slow_copies_and_statistics_are_saved() -> None:
    learner = trained()
    state = learner.state_dict()
    assert state["model"].keys() == {"online", "temperature"}
    assert {name.rpartition(".")[2] for name in state["model"]["online"]} >= {
        "running_mean",
        "running_var",
        "calls",
    }
    assert learner.optimizers["critic"].betas == (0.5, 0.999)
    other = make_learner("crossq", seed=5)
    other.load_state_dict(copy.deepcopy(state))
    assert torch.equal(statistics(other.network), statistics(learner.network))


def test_actor_and_temperature_wait_for_their_turn() -> None:
    learner = make_learner("crossq")
    seen = []
    for i in range(1, 7):
        learner.update(random_batch("crossq", seed=i))
        seen.append((flat(learner.network.actor), float(learner.temperature())))
    moved = [(not torch.equal(a[0], b[0]), a[1] != b[1]) for a, b in pairwise(seen)]
    assert moved == [(i % 3 == 0, i % 3 == 0) for i in range(2, 7)]


@pytest.mark.parametrize("warm_up", [0, 3])
def test_learning_goes_on_through_warm_up(warm_up: int) -> None:
    learner = make_learner("crossq", renorm_warm_up=warm_up)
    for i in range(12):
        result = learner.update(random_batch("crossq", 32, seed=i))
        assert torch.isfinite(result.priorities).all()

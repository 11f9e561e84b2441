"""Distributions over actions against torch's own, closed forms, and numerical integrals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions as reference

from rl_training.models.distributions import (
    ActionHead,
    BernoulliHead,
    Categorical,
    CategoricalHead,
    Distribution,
    GaussianHead,
    Joint,
    MultiCategoricalHead,
    TanhGaussian,
    TanhGaussianHead,
)

B = 64
LOG_STD = torch.tensor([-0.5, 0.3])


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


CASES: dict[str, tuple[ActionHead, Any, torch.Tensor | None]] = {
    "categorical": (CategoricalHead(5), lambda out: reference.Categorical(logits=out), None),
    "multi-categorical": (MultiCategoricalHead([3, 2]), None, None),
    "bernoulli": (
        BernoulliHead(3),
        lambda out: reference.Independent(reference.Bernoulli(logits=out), 1),
        None,
    ),
    "gaussian": (
        GaussianHead((2,)),
        lambda out: reference.Independent(reference.Normal(out, LOG_STD.exp()), 1),
        LOG_STD,
    ),
}


def theirs_multi(out: torch.Tensor) -> list[reference.Categorical]:
    return [reference.Categorical(logits=part) for part in torch.split(out, [3, 2], -1)]


@pytest.mark.parametrize("name", CASES)
def test_probabilities_entropy_and_divergence_are_torchs(name: str) -> None:
    head, make, log_std = CASES[name]
    out, other = drawn(0, B, head.size), drawn(1, B, head.size)
    ours, old = head.distribution(out, log_std), head.distribution(other, log_std)
    action = torch.as_tensor(
        head.choose(out.numpy(), None if log_std is None else log_std.numpy(), None, np.random.default_rng(0))
    )
    if name == "multi-categorical":
        theirs, before = theirs_multi(out), theirs_multi(other)
        log_prob = sum(part.log_prob(action[:, i]) for i, part in enumerate(theirs))
        entropy = sum(part.entropy() for part in theirs)
        kl = sum(reference.kl_divergence(p, q) for p, q in zip(before, theirs, strict=True))
    else:
        theirs, before = make(out), make(other)
        log_prob = theirs.log_prob(action.float() if name == "bernoulli" else action)
        entropy, kl = theirs.entropy(), reference.kl_divergence(before, theirs)
    torch.testing.assert_close(ours.log_prob(action), log_prob, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.entropy(), entropy, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.kl_from(old), kl, rtol=1e-4, atol=1e-5)
    assert float(ours.kl_from(ours).abs().max()) < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn_has_the_probabilities_that_are_said(name: str) -> None:
    head, _, log_std = CASES[name]
    out = drawn(2, 1, head.size).expand(40_000, -1)
    std = None if log_std is None else log_std.numpy()
    rng = np.random.default_rng(0)
    action = head.choose(out.numpy(), std, None, rng)
    if name == "gaussian":
        assert action.mean(0) == pytest.approx(out[0].numpy(), abs=0.03)
        assert action.std(0) == pytest.approx(LOG_STD.exp().numpy(), rel=0.03)
        return
    values, counts = np.unique(action.reshape(len(action), -1), axis=0, return_counts=True)
    chances = head.distribution(out[: len(values)], log_std).log_prob(
        torch.as_tensor(values if action.ndim > 1 else values[:, 0])
    )
    assert counts / len(action) == pytest.approx(chances.exp().numpy(), abs=0.012)
    assert float(chances.exp().sum()) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_without_a_stream_the_most_likely_action_is_chosen(name: str) -> None:
    head, _, log_std = CASES[name]
    out = drawn(3, B, head.size)
    std = None if log_std is None else log_std.numpy()
    best = torch.as_tensor(head.choose(out.numpy(), std, None, None))
    likelihood = head.distribution(out, log_std).log_prob(best)
    rng = np.random.default_rng(1)
    for _ in range(20):
        other = torch.as_tensor(head.choose(out.numpy(), std, None, rng))
        assert (likelihood >= head.distribution(out, log_std).log_prob(other) - 1e-6).all()


def test_forbidden_actions_are_impossible_and_add_no_entropy() -> None:
    head, out = CategoricalHead(5), drawn(4, B, 5).requires_grad_()
    mask = drawn(5, B, 5) > 0
    mask[:, 0] = True
    chances = head.distribution(out, mask=mask)
    for row in range(8):
        allowed = mask[row].nonzero().flatten()
        alone = Categorical(out[row, allowed][None])
        torch.testing.assert_close(chances.entropy()[row], alone.entropy()[0])
        for place, action in enumerate(allowed.tolist()):
            found = head.distribution(out[row : row + 1], mask=mask[row : row + 1])
            mine = found.log_prob(torch.tensor([action]))
            torch.testing.assert_close(mine, alone.log_prob(torch.tensor([place])))
    chosen = head.choose(out.detach().numpy(), None, mask.numpy(), np.random.default_rng(0))
    assert mask.numpy()[np.arange(B), chosen].all()
    loss = chances.entropy().sum() + chances.log_prob(torch.as_tensor(chosen)).sum()
    (gradient,) = torch.autograd.grad(
        loss + chances.kl_from(head.distribution(out.detach() + 1.0, mask=mask)).sum(), out
    )
    assert torch.isfinite(gradient).all()
    assert (gradient[~mask] == 0).all()


def test_a_single_allowed_action_has_no_entropy() -> None:
    chances = Categorical(torch.randn(1, 3), torch.tensor([[False, True, False]]))
    assert float(chances.entropy()) == 0.0
    assert float(chances.log_prob(torch.tensor([1]))) == 0.0


def test_the_squashed_density_integrates_to_one_and_is_torchs() -> None:
    mean, log_std = torch.tensor([[0.4]]), torch.tensor([-0.3])
    raw = torch.linspace(-9.0, 9.0, 200_001)[:, None]
    density = TanhGaussian(mean.expand(len(raw), -1), log_std).log_prob(raw).exp()
    squashed = torch.tanh(raw[:, 0].double())
    assert float(torch.trapezoid(density.double(), squashed)) == pytest.approx(1.0, abs=1e-3)
    theirs = reference.TransformedDistribution(
        reference.Normal(mean.double(), log_std.double().exp()), [reference.TanhTransform(cache_size=1)]
    )
    u = torch.linspace(-3.0, 3.0, 25).double()[:, None]
    ours = TanhGaussian(mean.expand(25, -1), log_std).log_prob(u.float())
    torch.testing.assert_close(ours.double(), theirs.log_prob(torch.tanh(u))[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("u", [-10.0, 10.0, 40.0])
def test_the_squashed_density_is_right_where_it_is_saturated(u: float) -> None:
    found = TanhGaussian(torch.tensor([[u]]), torch.tensor([0.0])).log_prob(torch.tensor([[u]]))
    exact = -0.5 * math.log(2.0 * math.pi) - 2.0 * (
        math.log(2.0) - abs(u) - math.log1p(math.exp(-2.0 * abs(u)))
    )
    assert float(found) == pytest.approx(exact, rel=1e-5)


def test_squashing_is_for_the_environment_only() -> None:
    head, plain = TanhGaussianHead((2,)), GaussianHead((2,))
    raw = head.choose(np.array([[3.0, -0.2]], np.float32), LOG_STD.numpy(), None, None)
    assert np.array_equal(raw, np.array([[3.0, -0.2]], np.float32))
    assert np.array_equal(head.played(raw), np.tanh(raw))
    assert plain.played(raw) is raw


@pytest.mark.parametrize("log_std", [-300.0, 300.0])
def test_a_runaway_deviation_stays_finite(log_std: float) -> None:
    head = GaussianHead((1,))
    chances = head.distribution(torch.zeros(1, 1), torch.tensor([log_std]))
    assert torch.isfinite(chances.log_prob(torch.zeros(1, 1))).all()
    drawn_action = head.choose(
        np.zeros((1, 1), np.float32), np.array([log_std], np.float32), None, np.random.default_rng(0)
    )
    assert np.isfinite(drawn_action).all()


def test_independent_parts_add_up() -> None:
    parts: list[Distribution] = [Categorical(drawn(i, 3, 4)) for i in range(2)]
    joint, action = Joint(parts), torch.tensor([[0, 1], [2, 3], [1, 1]])
    torch.testing.assert_close(
        joint.log_prob(action), parts[0].log_prob(action[:, 0]) + parts[1].log_prob(action[:, 1])
    )

"""TRPO: conjugate gradients, products with the Fisher matrix, and a line search that keeps its word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from helpers.on_policy import BOX, collect, make_learner, parameters_of
from rl_training.algorithms.trpo import conjugate_gradients
from rl_training.models.distributions import CategoricalHead, Gaussian, GaussianHead
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.spaces import MultiDiscreteActions

ACTIONS: dict[str, Any] = {
    "discrete": None,
    "box": BOX,
    "multi-discrete": MultiDiscreteActions((3, 2), (0, 0)),
}


@pytest.mark.parametrize("size", [1, 5, 20])
def test_conjugate_gradients_solve_what_is_positive_definite(size: int) -> None:
    torch.manual_seed(size)
    root = torch.randn(size, size, dtype=torch.float64)
    matrix = root @ root.T + 0.1 * torch.eye(size, dtype=torch.float64)
    target = torch.randn(size, dtype=torch.float64)
    found = conjugate_gradients(lambda v: matrix @ v, target, 10 * size, tolerance=1e-24)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, target), rtol=1e-8, atol=1e-8)


def test_a_target_of_zeros_needs_no_product() -> None:
    def never(_: torch.Tensor) -> torch.Tensor:
        raise AssertionError

    assert conjugate_gradients(never, torch.zeros(4), 10).tolist() == [0.0] * 4


def fisher_of(learner: Any, rollout: Any) -> tuple[Any, torch.Tensor]:
    """Return the learner's product with its Fisher matrix, caught on the way, and the matrix from scores."""
    caught: list[Any] = []

    def catch(product: Any, target: torch.Tensor, steps: int) -> torch.Tensor:
        caught.append(product)
        return torch.zeros_like(target)

    samples = learner.samples(rollout, rollout.reward)
    from rl_training.algorithms import trpo

    original = trpo.conjugate_gradients
    trpo.conjugate_gradients = catch  # type: ignore[assignment]
    try:
        learner._policy_step(samples)
    finally:
        trpo.conjugate_gradients = original
    return caught[0], samples.x


def test_the_product_is_that_of_the_explicit_fisher_matrix_of_a_categorical_policy() -> None:
    learner = make_learner("trpo", hidden=(3,), obs_size=2, cg_damping=0.0)
    (rollout,) = collect(learner)
    product, x = fisher_of(learner, rollout)
    network, count = learner.network, sum(p.numel() for p in learner._policy)
    fisher = torch.zeros(count, count)
    for row in x:
        log = network.actor(row[None]).log_softmax(1)[0]
        for action in range(3):
            score = torch.cat(
                [g.reshape(-1) for g in torch.autograd.grad(log[action], learner._policy, retain_graph=True)]
            )
            fisher += log[action].exp().detach() * torch.outer(score, score) / len(x)
    for seed in range(3):
        vector = torch.randn(count, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(product(vector), fisher @ vector, rtol=1e-3, atol=1e-5)


def test_the_product_is_that_of_the_explicit_fisher_matrix_of_a_gaussian_policy() -> None:
    learner = make_learner("trpo", BOX, hidden=(), obs_size=2, cg_damping=0.0, log_std_init=-0.4)
    (rollout,) = collect(learner)
    product, x = fisher_of(learner, rollout)
    count = sum(p.numel() for p in learner._policy)
    fisher = torch.zeros(count, count)
    precision = torch.exp(-2.0 * learner.network.log_std.detach())
    places = {id(p): i for i, p in enumerate(learner._policy)}
    sizes = [p.numel() for p in learner._policy]
    at = int(np.cumsum([0, *sizes])[places[id(learner.network.log_std)]])
    for row in x:
        mean = learner.network.actor(row[None])[0]
        for k in range(2):
            grads = torch.autograd.grad(
                mean[k], learner._policy, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            score = torch.cat([g.reshape(-1) for g in grads])
            fisher += precision[k] * torch.outer(score, score) / len(x)
    for k in range(2):
        fisher[at + k, at + k] += 2.0
    vector = torch.randn(count, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(product(vector), fisher @ vector, rtol=1e-3, atol=1e-5)


def test_damping_is_added_to_the_diagonal() -> None:
    learner = make_learner("trpo", hidden=(3,), obs_size=2)
    (rollout,) = collect(learner)
    vector = torch.randn(sum(p.numel() for p in learner._policy))
    products = []
    for damping in (0.0, 0.5):
        object.__setattr__(learner.config, "cg_damping", damping)
        products.append(fisher_of(learner, rollout)[0](vector))
    torch.testing.assert_close(products[1] - products[0], 0.5 * vector, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ACTIONS)
def test_every_accepted_step_keeps_to_the_divergence_and_gains(kind: str) -> None:
    learner = make_learner("trpo", ACTIONS[kind], n_steps=32, target_kl=0.02)
    for seed in range(5):
        (rollout,) = collect(learner, seed=seed)
        samples = learner.samples(rollout, rollout.reward)
        with torch.no_grad():
            old = learner._chances(samples)
        metrics = learner._policy_step(samples)
        assert float(metrics["line_search_success"]) == 1.0
        with torch.no_grad():
            now = learner._chances(samples)
            kl = float(now.kl_from(old).mean())
            advantage = samples.advantage
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            ratio = (now.log_prob(samples.action) - samples.log_prob).exp()
        assert 0.0 < kl < 0.02
        assert kl == pytest.approx(float(metrics["kl"]), rel=1e-5)
        assert float((ratio * advantage).mean()) > 0.0
        assert kl > 0.005, "it should go nearly as far as it may"


def test_a_step_that_nothing_makes_acceptable_leaves_every_bit_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = make_learner("trpo")
    (rollout,) = collect(learner)
    before = [p.detach().clone() for p in learner._policy]
    places = [p.data_ptr() for p in learner._policy]
    monkeypatch.setattr(
        "rl_training.algorithms.trpo.conjugate_gradients", lambda product, target, steps: -target
    )
    samples = learner.samples(rollout, rollout.reward)
    metrics = learner._policy_step(samples)
    assert float(metrics["line_search_success"]) == 0.0
    assert all(torch.equal(p, b) for p, b in zip(learner._policy, before, strict=True))
    assert [p.data_ptr() for p in learner._policy] == places, "views of the parameters have to stay true"


def test_the_divergence_that_is_allowed_falls_with_the_env_steps() -> None:
    learner = make_learner("trpo", n_steps=32, target_kl=0.02, target_kl_final=0.001, total=6_400)
    bound = {}
    for steps in (0, 3_200, 6_400):
        learner.advance(steps)
        bound[steps] = learner.status()["target_kl"]
    assert bound[0] == 0.02 > bound[3_200] > bound[6_400] >= 0.001
    for rollout in collect(learner, 3):
        assert 0.0 < float(learner.update(rollout).metrics["kl"]) < bound[6_400]


def test_a_long_step_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("trpo", n_steps=32)
    (rollout,) = collect(learner)
    samples = learner.samples(rollout, rollout.reward)
    advantage = samples.advantage
    with torch.no_grad():
        old = learner._chances(samples)
    gain = learner._surrogate(learner._chances(samples), samples, advantage)
    slope = learner._flat(torch.autograd.grad(gain, learner._policy))
    start = torch.cat([p.detach().reshape(-1).clone() for p in learner._policy])
    moved, _, kl = learner._line_search(slope / slope.norm(), samples, advantage, old, gain.detach())
    now = torch.cat([p.detach().reshape(-1) for p in learner._policy])
    assert moved
    assert float(kl) < 0.01
    share = float((now - start).norm())
    assert any(share == pytest.approx(0.8**k, rel=1e-4) for k in range(1, 10))


def test_equal_advantages_move_nothing() -> None:
    learner = make_learner("trpo")
    (rollout,) = collect(learner)
    before = [p.detach().clone() for p in learner._policy]
    samples = learner.samples(rollout, rollout.reward)
    samples.advantage[:] = 0.7
    learner._policy_step(samples)
    assert all(torch.equal(p, b) for p, b in zip(learner._policy, before, strict=True))


def test_the_natural_step_does_not_depend_on_how_the_policy_is_written_down() -> None:
    """Of a one-dimensional Gaussian: by its mean m, or by k with m = 10 k, the policy moves alike."""
    action, advantage = torch.randn(200, 1), torch.randn(200)
    moves = []
    for scale in (1.0, 10.0):
        k = torch.zeros(1, requires_grad=True)

        def policy(k: torch.Tensor = k, scale: float = scale) -> Gaussian:
            return Gaussian((scale * k).expand(200, 1), torch.zeros(1))

        (slope,) = torch.autograd.grad((policy().log_prob(action).exp() * advantage).mean(), k)
        (first,) = torch.autograd.grad(
            policy().kl_from(Gaussian(torch.zeros(200, 1), torch.zeros(1))).mean(), k, create_graph=True
        )

        def fisher(v: torch.Tensor, first: torch.Tensor = first, k: torch.Tensor = k) -> torch.Tensor:
            return torch.autograd.grad(first.dot(v), k, retain_graph=True)[0]

        direction = conjugate_gradients(fisher, slope, 5, tolerance=1e-20)
        step = (0.02 / float(direction.dot(fisher(direction)))) ** 0.5 * direction
        moves.append(float(scale * step))
    assert moves[0] == pytest.approx(moves[1], rel=1e-4)


def test_the_critic_learns_and_the_policy_does_not_move_with_it() -> None:
    learner = make_learner("trpo", n_steps=64, n_critic_updates=30, learning_rate=1e-2)
    (rollout,) = collect(learner)
    samples = learner.samples(rollout, rollout.reward)
    error = float((samples.value - samples.target).square().mean())
    result = learner.update(rollout)
    again = learner.network.critic(samples.x)[:, 0].detach()
    assert float((again - samples.target).square().mean()) < 0.95 * error
    assert result.gradient_steps == learner.updates == 30 + int(result.metrics["line_search_success"])


def test_acting_follows_the_policy_after_a_step() -> None:
    learner = make_learner("trpo", BOX)
    (rollout,) = collect(learner)
    learner.update(rollout)
    obs = rollout.obs[0]
    with torch.no_grad():
        expected = learner.network.policy(torch.from_numpy(obs)).numpy()
    assert learner.act(obs, explore=False).action == pytest.approx(expected, abs=1e-6)
    assert not torch.isnan(parameters_of(learner)).any()


@pytest.mark.parametrize("head", [CategoricalHead(3), GaussianHead((2,))], ids=["categorical", "gaussian"])
def test_its_network_can_be_differentiated_twice(head: Any) -> None:
    network = MLPActorCritic((2,), head, (4,), fused=False)
    x = torch.randn(6, 2)
    chances = head.distribution(network.actor(x), network.log_std)
    old = head.distribution(
        network.actor(x).detach(), None if network.log_std is None else network.log_std.detach()
    )
    parameters = list(network.actor.parameters())
    first = torch.autograd.grad(chances.kl_from(old).mean(), parameters, create_graph=True)
    second = torch.autograd.grad(torch.stack([part.sum() for part in first]).sum(), parameters)
    assert any((part != 0).any() for part in second)

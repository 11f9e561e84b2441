"""TQC: pooled quantiles without the largest, and the quantile loss by brute force."""

from __future__ import annotations

import pytest
import torch

from helpers.actor_critic import Recording, make_learner, plain_critics, random_batch, seen_by
from rl_training.algorithms.tqc import truncated


def test_the_largest_of_all_critics_together_are_left_out() -> None:
    quantiles = torch.tensor([[[1.0, 9.0, 3.0]], [[8.0, 2.0, 7.0]]])
    assert truncated(quantiles, 0).tolist() == [[1, 2, 3, 7, 8, 9]]
    assert truncated(quantiles, 1).tolist() == [[1, 2, 3, 7]], "of the pool, not of each critic"
    assert truncated(quantiles, 2).tolist() == [[1, 2]]
    many = torch.randn(3, 5, 7)
    expected = torch.stack([many[:, i].reshape(-1).sort().values[:15] for i in range(5)])
    assert torch.equal(truncated(many, 2), expected)


def test_the_loss_is_that_of_an_explicit_loop() -> None:
    learner = make_learner("tqc", num_quantiles=4, drop_quantiles=1, ent_coef=0.3, n_critics=2)
    batch = random_batch("tqc", 6)
    learner._rng = noise = Recording()
    found = seen_by(learner, batch)
    with torch.no_grad():
        drawn = torch.from_numpy(noise.drawn[0])
        action, log_prob = learner.network.sample(batch.next_obs, drawn)
        pool = (
            torch.cat(plain_critics(learner.target_critic, batch.next_obs, action), 1).sort(1).values[:, :6]
        )
        target = batch.reward[:, None] + batch.discount[:, None] * (pool - 0.3 * log_prob[:, None])
        own = plain_critics(learner.network.critic, batch.obs, batch.action)
    total = 0.0
    for critic in own:
        for b in range(6):
            for i in range(4):
                tau = (i + 0.5) / 4
                for j in range(6):
                    u = float(target[b, j] - critic[b, i])
                    huber = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
                    total += abs(tau - (u < 0)) * huber / 6 / 6
    assert float(found.loss.detach()) == pytest.approx(total, rel=1e-4)
    torch.testing.assert_close(found.target, target.mean(1))
    ended = batch.discount == 0
    torch.testing.assert_close(found.target[ended], batch.reward[ended])


def test_the_actor_follows_the_mean_of_all_quantiles() -> None:
    learner = make_learner("tqc", num_quantiles=5, drop_quantiles=1)
    values = torch.randn(2, 7, 5)
    torch.testing.assert_close(learner._actors_value(values), values.sum((0, 2)) / 10)


def test_leaving_more_out_lowers_the_target() -> None:
    batch, targets = random_batch("tqc", 32), []
    for drop in (0, 2, 4):
        learner = make_learner("tqc", num_quantiles=5, drop_quantiles=drop)
        targets.append(float(seen_by(learner, batch).target.mean()))
    assert targets[0] > targets[1] > targets[2]

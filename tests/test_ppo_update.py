"""PPO: the surrogate, values, passes over a rollout, normalisers, and learning where the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from helpers.on_policy import BOX, collect, make_learner, parameters_of
from rl_training.algorithms.on_policy import Samples
from rl_training.algorithms.ppo import minibatches, ppo_loss, standardised
from rl_training.data.rollout_buffer import Rollout, RolloutBuffer
from rl_training.data.transitions import Transitions
from rl_training.models.distributions import Categorical
from rl_training.spaces import MultiBinaryActions, MultiDiscreteActions

ACTIONS: dict[str, Any] = {
    "discrete": None,
    "box": BOX,
    "multi-discrete": MultiDiscreteActions((3, 2), (0, 0)),
    "multi-binary": MultiBinaryActions(3),
}


def samples(**changes: Any) -> Samples:
    fields: dict[str, Any] = {
        "x": torch.zeros(4, 0),
        "action": torch.tensor([0, 1, 0, 1]),
        "log_prob": torch.tensor([-0.7, -0.7, -0.7, -0.7]),
        "value": torch.zeros(4),
        "advantage": torch.tensor([1.0, 1.0, -1.0, -1.0]),
        "target": torch.zeros(4),
    }
    return Samples(**{**fields, **changes})


# The surrogate


def test_the_clipped_gradient_is_zero_exactly_where_it_should_be() -> None:
    ratios = torch.tensor([1.5, 1.1, 0.5, 0.9, 1.5, 1.1, 0.5, 0.9])
    advantage = torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0])
    logits = torch.zeros(8, 2, requires_grad=True)
    action = torch.zeros(8, dtype=torch.int64)
    chances = Categorical(logits)
    before = chances.log_prob(action).detach() - ratios.log()
    of = samples(
        x=torch.zeros(8, 0),
        action=action,
        log_prob=before,
        advantage=advantage,
        value=torch.zeros(8),
        target=torch.zeros(8),
    )
    loss, metrics = ppo_loss(chances, torch.zeros(8), of, clip_range=0.2, normalize_advantage=False)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (gradient[:, 0] == 0).tolist() == [True, False, False, False, False, False, True, False]
    # Elsewhere it is that of -ratio * advantage / 8 by the logit: the probability's slope is p (1 - p) = 1/4 / p.
    expected = -(ratios * advantage * 0.5 / 8)
    kept = gradient[:, 0] != 0
    torch.testing.assert_close(gradient[kept, 0], expected[kept])
    assert float(metrics["clip_fraction"]) == 0.5
    cut = ratios.clamp(0.8, 1.2)
    by_hand = -torch.minimum(ratios * advantage, cut * advantage).mean()
    assert float(metrics["policy_loss"]) == pytest.approx(float(by_hand))
    assert float(metrics["approx_kl"]) == pytest.approx(float((ratios - 1 - ratios.log()).mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("form", "expected"),
    [("none", [9.0, 0.01, 4.0]), ("prediction", [3.61, 0.01, 0.04]), ("maximum", [9.0, 0.01, 4.0])],
)
def test_the_forms_of_value_clipping(form: Any, expected: list[float]) -> None:
    value = torch.tensor([3.0, 0.1, 2.0], requires_grad=True)
    before, target = torch.tensor([1.7, 0.05, 0.0]), torch.tensor([0.0, 0.0, 0.0])
    of = samples(
        action=torch.tensor([0, 0, 0]),
        log_prob=torch.zeros(3),
        value=before,
        target=target,
        advantage=torch.zeros(3),
    )
    options: dict[str, Any] = {"value_clipping": form, "clip_range_vf": 0.2, "vf_coef": 3.0}
    loss, metrics = ppo_loss(Categorical(torch.zeros(3, 2)), value, of, clip_range=0.2, **options)
    assert float(metrics["value_loss"]) == pytest.approx(np.mean(expected))
    (gradient,) = torch.autograd.grad(loss, value)
    # With vf_coef 3 and three samples, the slope of a square is twice the error; a clipped prediction has none.
    assert gradient.tolist() == pytest.approx([0.0, 0.2, 0.0] if form == "prediction" else [6.0, 0.2, 4.0])


def test_the_maximum_takes_the_clipped_error_where_that_is_larger() -> None:
    value = torch.tensor([0.0], requires_grad=True)
    of = samples(
        action=torch.tensor([0]),
        log_prob=torch.zeros(1),
        value=torch.tensor([1.0]),
        target=torch.tensor([0.0]),
        advantage=torch.zeros(1),
    )
    loss, metrics = ppo_loss(
        Categorical(torch.zeros(1, 2)), value, of, clip_range=0.2, value_clipping="maximum", clip_range_vf=0.2
    )
    assert float(metrics["value_loss"]) == pytest.approx(0.64)
    assert float(torch.autograd.grad(loss, value)[0]) == 0.0


def test_the_entropy_is_added_and_the_whole_is_a_weighted_sum() -> None:
    logits, value = torch.randn(4, 3), torch.randn(4)
    loss, metrics = ppo_loss(Categorical(logits), value, samples(), clip_range=0.2, ent_coef=0.3, vf_coef=0.7)
    by_hand = metrics["policy_loss"] - 0.3 * metrics["entropy"] + 0.7 * metrics["value_loss"]
    assert float(loss) == pytest.approx(float(by_hand), rel=1e-6)


def test_masked_means_leave_padding_out() -> None:
    torch.manual_seed(0)
    logits, value, weight = torch.randn(4, 2), torch.randn(4), torch.tensor([1.0, 1.0, 0.0, 1.0])
    whole = samples(advantage=torch.randn(4), target=torch.randn(4))
    kept = weight.bool().nonzero().flatten()
    padded, _ = ppo_loss(Categorical(logits), value, whole, clip_range=0.2, ent_coef=0.1, weight=weight)
    alone, _ = ppo_loss(
        Categorical(logits[kept]), value[kept], whole.take(kept), clip_range=0.2, ent_coef=0.1
    )
    assert float(padded) == pytest.approx(float(alone), rel=1e-5)


def test_a_policy_gradient_is_the_analytic_one_in_expectation() -> None:
    """Of a bandit, the gradient of expected reward by the logits is p_a (r_a - sum p r)."""
    logits, reward = torch.tensor([[0.3, -0.2, 0.5]], requires_grad=True), torch.tensor([1.0, -2.0, 0.5])
    chances = logits.detach().softmax(1)[0]
    analytic = chances * (reward - (chances * reward).sum())
    total = torch.zeros(3)
    for action in range(3):
        now = Categorical(logits)
        taken = torch.tensor([action])
        of = samples(
            action=taken,
            log_prob=now.log_prob(taken).detach(),
            advantage=reward[taken],
            value=torch.zeros(1),
            target=torch.zeros(1),
        )
        loss, _ = ppo_loss(now, torch.zeros(1), of, clip_range=0.2, normalize_advantage=False)
        total -= chances[action] * torch.autograd.grad(loss, logits)[0][0]
    torch.testing.assert_close(total, analytic)


# Advantages and minibatches


def test_advantages_are_standardised_and_a_single_one_is_left_alone() -> None:
    given = torch.randn(50) * 3 + 2
    found = standardised(given)
    assert float(found.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(found.std()) == pytest.approx(1.0, rel=1e-5)
    assert standardised(torch.tensor([5.0])).tolist() == [5.0]
    weight = torch.ones(50)
    weight[10:] = 0.0
    torch.testing.assert_close(standardised(given, weight)[:10], standardised(given[:10]))


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(8, 4, [4, 4]), (10, 4, [4, 4, 2]), (9, 4, [4, 5]), (3, 4, [3]), (1, 4, [1]), (7, None, [7])],
)
def test_what_is_left_over_makes_a_smaller_minibatch_but_never_a_single_sample(
    count: int, size: int | None, expected: list[int]
) -> None:
    portions = list(minibatches(torch.arange(count), size))
    assert [len(portion) for portion in portions] == expected
    assert torch.cat(portions).tolist() == list(range(count))


def test_a_batch_that_does_not_divide_the_rollout_is_said() -> None:
    assert "the last minibatch of each epoch has 4" in make_learner(batch_size=6).warnings({})["batch_size"]
    assert (
        "every minibatch is a whole rollout of 16" in make_learner(batch_size=50).warnings({})["batch_size"]
    )
    assert "has 6" in make_learner(batch_size=5).warnings({})["batch_size"]
    assert make_learner(batch_size=8).warnings({}) == {}


# Updates


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("shared", [False, True])
def test_before_the_first_step_the_ratio_is_one(kind: str, shared: bool) -> None:
    learner = make_learner(actions=ACTIONS[kind], shared_trunk=shared, n_epochs=1, batch_size=None)
    for seed in range(2):
        (rollout,) = collect(learner, seed=seed)
        metrics = learner.update(rollout).metrics
        assert float(metrics["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
        assert float(metrics["clip_fraction"]) == 0.0
        assert float(metrics["policy_loss"]) == pytest.approx(0.0, abs=1e-5)


def test_before_the_first_step_the_ratio_is_one_with_masks_and_a_squashed_policy() -> None:
    for learner, masked in (
        (make_learner(n_epochs=1, batch_size=None), True),
        (make_learner(actions=BOX, action_distribution="tanh_gaussian", n_epochs=1, batch_size=None), False),
    ):
        (rollout,) = collect(learner, masked=masked)
        assert float(learner.update(rollout).metrics["approx_kl"]) == pytest.approx(0.0, abs=1e-6)


def test_the_probabilities_of_actions_are_those_before_they_are_cut_off() -> None:
    learner = make_learner(actions=BOX, log_std_init=1.0)
    (rollout,) = collect(learner)
    assert (np.abs(rollout.action) > 1.0).any(), "some should lie beyond the bounds"
    found = learner.samples(rollout, rollout.reward)
    network = learner.network
    exact = (
        torch.distributions.Normal(network.actor(found.x), network.log_std.exp())
        .log_prob(found.action)
        .sum(1)
    )
    torch.testing.assert_close(found.log_prob, exact.detach(), rtol=1e-4, atol=1e-5)


def test_every_pass_makes_its_steps_and_they_are_counted() -> None:
    learner = make_learner(n_epochs=3, batch_size=6)
    result = learner.update(collect(learner)[0])
    assert (result.gradient_steps, learner.updates) == (9, 9)
    assert float(result.metrics["epochs"]) == 3.0


def test_passes_stop_before_a_step_that_would_go_on_from_too_far() -> None:
    learner = make_learner(n_epochs=10, batch_size=None, learning_rate=0.1, target_kl=0.01)
    (rollout,) = collect(learner)
    start, begun = parameters_of(learner), []
    epoch = learner._epoch

    def noted(*given: Any) -> Any:
        begun.append(parameters_of(learner))
        return epoch(*given)

    learner._epoch = noted
    result = learner.update(rollout)
    assert 1 <= result.gradient_steps < 10
    # Each epoch is one step, but for the last, which looked and did not move.
    assert result.gradient_steps == learner.updates == len(begun) - 1 == result.metrics["epochs"] - 1
    assert torch.equal(begun[0], start)
    assert torch.equal(begun[-1], parameters_of(learner))
    assert not torch.equal(begun[-2], begun[-1])
    found = learner.samples(rollout, rollout.reward)
    log_ratio = found.log_prob - make_ratio_base(learner, rollout, start)
    assert float((log_ratio.exp() - 1 - log_ratio).mean()) > 0.015, (
        "it should have stopped beyond 1.5 times the target"
    )


def make_ratio_base(learner: Any, rollout: Rollout, start: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities by the parameters at the start."""
    now = learner.optimizer.flat.clone()
    learner.optimizer.flat.copy_(start)
    base: torch.Tensor = learner.samples(rollout, rollout.reward).log_prob
    learner.optimizer.flat.copy_(now)
    return base


def test_recomputed_advantages_are_those_of_the_weights_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(n_epochs=3, batch_size=None, recompute_advantages=True, learning_rate=0.05)
    (rollout,) = collect(learner)
    seen: list[torch.Tensor] = []
    epoch = learner._epoch

    def noted(of: Samples, order: torch.Tensor) -> Any:
        fresh = learner.samples(rollout, rollout.reward)
        torch.testing.assert_close(of.advantage, fresh.advantage)
        torch.testing.assert_close(of.target, fresh.target)
        seen.append(of.target.clone())
        return epoch(of, order)

    monkeypatch.setattr(learner, "_epoch", noted)
    learner.update(rollout)
    assert len(seen) == 3
    assert not torch.allclose(seen[0], seen[1])


def test_schedules_follow_the_env_steps() -> None:
    learner = make_learner(
        learning_rate=1e-3, learning_rate_final=0.0, clip_range=0.4, clip_range_final=0.2, total=1_000
    )
    # A rollout has 16 steps; while it is collected and learned from, what is scheduled stays where it began.
    for steps, begun in ((0, 0), (1, 0), (16, 0), (17, 16), (250, 240), (256, 240), (1_000, 992)):
        learner.advance(steps)
        rate, clip = 1e-3 * (1 - begun / 1_000), 0.4 - 0.2 * begun / 1_000
        assert learner.status() == {"clip_range": pytest.approx(clip), "learning_rate": pytest.approx(rate)}


def test_single_samples_and_equal_advantages_give_finite_updates() -> None:
    learner = make_learner(num_envs=1, n_steps=1, batch_size=1, n_epochs=2)
    learner.update(collect(learner)[0])
    assert torch.isfinite(parameters_of(learner)).all()
    flat = make_learner(batch_size=None)
    (rollout,) = collect(flat)
    rollout.reward[:] = 0.0
    for parameter in flat.network.critic.parameters():
        parameter.data.zero_()
    flat.update(rollout)
    assert torch.isfinite(parameters_of(flat)).all()


# Normalisers


def test_observations_are_normalised_by_the_rollouts_before() -> None:
    learner = make_learner(normalize_obs=True, n_epochs=1, batch_size=None)
    normalizer = learner.network.features.normalizer
    seen = []
    for seed in range(3):
        (rollout,) = collect(learner, seed=seed, scale=5.0)
        before = normalizer.mean.clone()
        learner.observe(rollout.obs[0])
        assert torch.equal(normalizer.mean, before), "acting moves nothing"
        assert float(learner.update(rollout).metrics["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
        seen.append(rollout.obs[rollout.valid].copy())
        everything = np.concatenate(seen).astype(np.float64)
        assert normalizer.mean.numpy() == pytest.approx(everything.mean(0))
        assert normalizer.var.numpy() == pytest.approx(everything.var(0))


def test_rows_that_are_no_steps_have_no_part_in_the_statistics() -> None:
    learner = make_learner(normalize_obs=True, normalize_reward=True, n_epochs=1, batch_size=None)
    (rollout,) = collect(learner, scale=5.0)
    rollout.valid = rollout.valid.copy()
    rollout.valid[3, 0] = rollout.valid[7, 1] = False
    rollout.obs[~rollout.valid] = 1e6
    learner.update(rollout)
    normalizer = learner.network.features.normalizer
    steps = rollout.obs[rollout.valid].astype(np.float64)
    assert int(normalizer.count) == len(steps) == rollout.valid.size - 2
    assert normalizer.mean.numpy() == pytest.approx(steps.mean(0))
    assert int(learner.reward_scale.count) == len(steps)


def test_rewards_are_divided_by_the_spread_of_discounted_returns() -> None:
    learner = make_learner(normalize_reward=True, gamma=0.9)
    returns, seen = np.zeros(2), []
    for seed in range(3):
        (rollout,) = collect(learner, seed=seed)
        for t in range(len(rollout.reward)):
            returns = returns * 0.9 + rollout.reward[t]
            seen += returns.tolist()
            returns = np.where(rollout.done[t], 0.0, returns)
        scaled = learner.scaled_rewards(rollout)
        assert scaled == pytest.approx(rollout.reward / np.sqrt(np.var(seen) + 1e-8), rel=1e-5)
        assert float(learner.reward_scale.mean) == pytest.approx(np.mean(seen))


def test_the_return_of_an_episode_that_was_cut_short_does_not_go_on_in_the_next() -> None:
    learner = make_learner(normalize_reward=True, gamma=0.9)
    (first,) = collect(learner, ends=0.0)
    learner.scaled_rewards(first)
    learner.experience.interrupt()  # as after a resume that could not replay the environments
    (second,) = collect(learner, ends=0.0)
    learner.scaled_rewards(second)
    seen = []
    for rollout in (first, second):
        returns = np.zeros(2)
        for reward in rollout.reward:
            returns = returns * 0.9 + reward
            seen += returns.tolist()
    assert float(learner.reward_scale.mean) == pytest.approx(np.mean(seen))
    assert float(learner.reward_scale.var) == pytest.approx(np.var(seen))


# Learning


def constant_rollouts(limit: int, terminal: bool, count: int) -> Any:
    """One state that pays 1 for ever, in episodes that are cut, or end, after ``limit`` steps."""
    buffer = RolloutBuffer(20, 1, (1,), total_timesteps=10**9)
    one, number = np.ones((1, 1), np.float32), np.array([0])
    for t in range(20 * count):
        over = np.array([(t + 1) % limit == 0])
        never = np.array([False])
        flags = (over, never) if terminal else (never, over)
        buffer.add(Transitions(number, one, number, np.ones(1), one, *flags))
        yield from buffer.batches(0)


@pytest.mark.parametrize("limit", [3, 7])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_truncation_does_not_end_what_a_state_is_worth(limit: int, terminal: bool) -> None:
    learner = make_learner(
        num_envs=1,
        obs_size=1,
        hidden=(),
        n_steps=20,
        gamma=0.9,
        gae_lambda=0.9,
        n_epochs=10,
        learning_rate=0.05,
        learning_rate_final=1e-3,
        total=8_000,
        batch_size=None,
    )
    for k, rollout in enumerate(constant_rollouts(limit, terminal, 150)):
        learner.advance(40 * k)
        learner.update(rollout)
    value = float(learner.network.value(torch.ones(1, 1)).detach())
    if terminal:
        assert value < 8.0
    else:
        assert value == pytest.approx(10.0, abs=0.1)


def test_it_learns_which_arm_pays() -> None:
    """A contextual bandit: the best of three arms depends on the observation."""
    learner = make_learner(num_envs=4, n_steps=32, obs_size=3, learning_rate=1e-2, n_epochs=4, batch_size=32)
    rng, buffer = np.random.default_rng(0), learner.experience
    yes = np.ones(4, bool)
    for _ in range(32 * 40):
        obs = np.eye(3, dtype=np.float32)[rng.integers(0, 3, 4)]
        action = learner.act(obs, explore=True).action
        reward = (action == obs.argmax(1)).astype(float)
        buffer.add(Transitions(np.arange(4), obs, action, reward, obs, yes, ~yes))
        for rollout in buffer.batches(0):
            learner.update(rollout)
    assert learner.act(np.eye(3, dtype=np.float32), explore=False).action.tolist() == [0, 1, 2]

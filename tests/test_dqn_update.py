"""The DQN learner: its targets and optimizer by hand, its fixed points by value iteration, its schedules."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.q_learning import (
    fill,
    make_learner,
    random_batch,
    random_mdp,
    set_table,
    two_state_mdp,
    value_iteration,
    weights_of,
    whole_mdp,
)
from rl_training.algorithms import DQN, dqn_loss
from rl_training.algorithms.declared.dqn import DQNConfig
from rl_training.data import Batch, NStepFolder, Transitions
from rl_training.errors import CheckpointError, NonFiniteError
from rl_training.models.mirror import MAX_BATCH, numpy_mirror
from rl_training.models.mlp_q_network import MLPQNetwork, duel

# Fixed points


def learned_q(batch, num_states, num_actions, **options):
    settings = {"learning_rate": 0.05, "loss": "mse", "max_grad_norm": None, "hidden": (), **options}
    learner = make_learner((num_states,), num_actions, **settings)
    for _ in range(35):
        for _ in range(30):
            learner.update(batch)
        learner.sync_target()
    return learner.q_values(np.eye(num_states, dtype=np.float32))


@pytest.mark.parametrize("mdp", [two_state_mdp, random_mdp])
@pytest.mark.parametrize("double", [False, True], ids=["max", "double"])
@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
def test_learned_values_equal_value_iteration(mdp, double, dueling):
    transition, reward = mdp(np.random.default_rng(1))
    batch = whole_mdp(transition, reward, gamma=0.8)
    q = learned_q(batch, *reward.shape, double=double, dueling=dueling)
    assert np.abs(q - value_iteration(transition, reward, 0.8)).max() < 1e-2


@pytest.mark.parametrize("n", [2, 3, 5])
def test_n_step_on_policy_values_equal_value_iteration(n):
    """Episodes start with any state and action, then follow the best policy until cut off by truncation."""
    rng = np.random.default_rng(4)
    successor, reward, gamma = rng.integers(0, 5, (5, 2)), rng.normal(size=(5, 2)), 0.8
    ends = np.zeros((5, 2), np.bool_)
    ends[2, 1] = True
    transition = np.eye(5)[successor] * ~ends[..., None]
    best = value_iteration(transition, reward, gamma)

    folder = NStepFolder(n, gamma, 1, (5,), np.float32, (), np.int64)
    one_hot, folded = np.eye(5, dtype=np.float32), []
    for s, a in np.ndindex(5, 2):
        for t in range(7):
            after, terminated, truncated = successor[s, a], ends[s, a], t == 6
            row = (one_hot[s], a, reward[s, a], one_hot[after], terminated, truncated)
            columns: list[Any] = [np.array([value]) for value in row]
            folded.append(folder.fold(Transitions(np.array([0]), *columns)))
            if terminated:
                break
            s, a = after, best[after].argmax()
    obs, action, returns, discount, next_obs = (
        torch.from_numpy(np.concatenate(field)) for field in list(zip(*folded, strict=True))[:5]
    )
    batch = Batch(obs, action, returns.float(), discount.float(), next_obs)
    assert np.abs(learned_q(batch, 5, 2) - best).max() < 1e-2


# Targets and the loss

NEXT_ONLINE = [[1.0, 2.0], [3.0, 0.0]]
NEXT_TARGET = [[10.0, 5.0], [1.0, 7.0]]
HAND_TARGETS = {False: [1 + 0.5 * 10, 2 + 0.9 * 7], True: [1 + 0.5 * 5, 2 + 0.9 * 1]}


def hand_batch(**changes):
    fields = {
        "obs": torch.eye(2),
        "action": torch.tensor([1, 0]),
        "reward": torch.tensor([1.0, 2.0]),
        "discount": torch.tensor([0.5, 0.9]),
        "next_obs": torch.eye(2),
    }
    return Batch(**{**fields, **changes})


@pytest.mark.parametrize("double", [False, True])
def test_targets_of_the_loss_match_the_hand_computation(double):
    q = torch.tensor([[100.0, 0.25], [0.5, 200.0]])
    online = torch.tensor(NEXT_ONLINE) if double else None
    _, td_error, metrics = dqn_loss(q, torch.tensor(NEXT_TARGET), online, hand_batch())
    expected = torch.tensor([0.25, 0.5]) - torch.tensor(HAND_TARGETS[double])
    assert torch.allclose(td_error, expected)
    assert metrics["q_value_mean"] == pytest.approx(0.375)
    assert metrics["target_mean"] == pytest.approx(np.mean(HAND_TARGETS[double]))
    assert metrics["td_error_mean"] == pytest.approx(expected.abs().mean().item())


@pytest.mark.parametrize("double", [False, True])
def test_update_lets_the_online_network_choose_and_the_target_network_value(double):
    learner = make_learner((2,), 2, hidden=(), double=double)
    set_table(learner.online, NEXT_ONLINE)
    set_table(learner.target, NEXT_TARGET)
    result = learner.update(hand_batch())
    expected = torch.tensor([2.0, 3.0]) - torch.tensor(HAND_TARGETS[double])
    assert torch.allclose(learner.last_td_errors, expected)
    assert torch.allclose(result.priorities, expected.abs())


def test_adding_a_constant_to_the_advantages_leaves_q_unchanged():
    draw = torch.Generator().manual_seed(0)
    out = torch.randn(6, 5, generator=draw)
    shift = torch.zeros(6, 5)
    shift[:, 1:] = torch.arange(6.0)[:, None]
    assert torch.allclose(duel(out + shift), duel(out), atol=1e-6)


def test_the_mean_of_dueling_q_over_actions_is_the_state_value():
    out = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    q = duel(out)
    assert q.shape == (6, 4)
    assert torch.allclose(q.mean(1), out[:, 0], atol=1e-6)
    assert torch.allclose(q[:, 0] - q[:, 3], out[:, 1] - out[:, 4], atol=1e-6)


def test_gradient_flows_through_q_of_the_chosen_actions_only():
    q, target, online = (torch.randn(4, 3, requires_grad=True) for _ in range(3))
    batch = random_batch(size=4, num_actions=3)
    loss, td_error, metrics = dqn_loss(q, target, online, batch)
    loss.backward()
    expected = torch.zeros(4, 3)
    expected[torch.arange(4), batch.action] = td_error.clamp(-1, 1) / 4  # derivative of the Huber loss
    assert q.grad is not None
    assert torch.allclose(q.grad, expected)
    assert target.grad is None
    assert online.grad is None
    assert not any(tensor.requires_grad for tensor in (td_error, *metrics.values()))


@pytest.mark.parametrize("double", [False, True])
def test_target_network_gets_no_gradient(double):
    learner = make_learner(double=double, target_update_interval=100)
    before = weights_of(learner.target)
    for seed in range(3):
        learner.update(random_batch(seed))
    assert torch.equal(weights_of(learner.target), before)
    assert not any(p.requires_grad or p.grad is not None for p in learner.target.parameters())


@pytest.mark.filterwarnings("error")  # torch warns of losses between tensors of different shapes
def test_a_batch_of_one_keeps_its_shapes():
    learner = make_learner()
    result = learner.update(random_batch(size=1))
    assert learner.last_td_errors.shape == result.priorities.shape == (1,)
    assert all(value.shape == () for value in result.metrics.values())
    assert learner.q_values(np.zeros((1, 3), np.float32)).shape == (1, 2)
    assert learner.act(np.zeros((1, 3), np.float32), explore=False).action.shape == (1,)


@pytest.mark.parametrize(("name", "function"), [("huber", F.huber_loss), ("mse", F.mse_loss)])
def test_weights_multiply_the_loss_of_each_sample(name, function):
    weight = torch.tensor([0.0, 0.5, 1.0, 3.0])
    learner = make_learner(loss=name)
    batch = random_batch(size=4)
    result = learner.update(batch, weight)
    td_error = learner.last_td_errors
    each = function(td_error, torch.zeros(4), reduction="none")
    assert result.metrics["loss"] == pytest.approx((weight * each).mean().item(), rel=1e-5)
    assert torch.equal(result.priorities, td_error.abs())
    assert td_error.min() < 0.0 < td_error.max()
    assert result.metrics["td_error_mean"] == pytest.approx(td_error.abs().mean().item(), rel=1e-5)


def test_a_sample_of_weight_zero_has_no_influence():
    weight = torch.tensor([1.0, 0.0])
    learner, other = make_learner(), make_learner()
    batch, changed = random_batch(size=2), random_batch(size=2)
    changed.reward[1] += 100.0
    learner.update(batch, weight)
    other.update(changed, weight)
    assert torch.equal(weights_of(learner.online), weights_of(other.online))


# The optimizer


@pytest.mark.parametrize("max_grad_norm", [None, 0.05])
def test_updates_equal_torch_adam_with_clipping(max_grad_norm):
    learner = make_learner(learning_rate=3e-3, adam_eps=1e-5, max_grad_norm=max_grad_norm, double=False)
    reference = copy.deepcopy(learner.online)
    adam = torch.optim.Adam(reference.parameters(), lr=3e-3, eps=1e-5)
    for seed in range(25):
        batch = random_batch(seed)
        target = batch.reward + batch.discount * learner.target(batch.next_obs).amax(1)
        chosen = reference(batch.obs)[torch.arange(8), batch.action]
        adam.zero_grad()
        F.huber_loss(chosen, target.detach()).backward()
        norm = nn.utils.clip_grad_norm_(reference.parameters(), max_grad_norm or float("inf"))
        adam.step()
        result = learner.update(batch)
        assert result.metrics["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
        assert max_grad_norm is None or norm > max_grad_norm
        assert torch.allclose(weights_of(learner.online), weights_of(reference), rtol=1e-5, atol=1e-6)
    assert learner.updates == 25


@pytest.mark.parametrize("field", ["obs", "reward", "discount", "next_obs"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_batch_that_is_not_finite_is_refused_and_changes_nothing(field, value):
    learner, untouched = make_learner(), make_learner()
    for each in (learner, untouched):
        each.update(random_batch(1))
    bad = random_batch(2)
    getattr(bad, field)[0] = value
    with pytest.raises(NonFiniteError, match="the update was not applied"):
        learner.update(bad)
    assert learner.updates == 1
    for each in (learner, untouched):
        each.update(random_batch(3))
    assert torch.equal(weights_of(learner.online), weights_of(untouched.online))
    assert torch.equal(weights_of(learner.target), weights_of(untouched.target))


def test_frozen_and_unused_parameters_of_an_own_network_stay_as_they_are():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = nn.Linear(3, 4).requires_grad_(False)
            self.unused = nn.Linear(3, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, obs):
            return self.head(self.frozen(obs))

    learner = DQN(Own(), 2, DQNConfig(tau=0.5), total_timesteps=1000)
    before = copy.deepcopy(learner.online)
    learner.update(random_batch())
    learner.sync_target()
    assert not torch.equal(weights_of(learner.online.head), weights_of(before.head))
    halfway = (weights_of(learner.online.head) + weights_of(before.head)) / 2
    assert torch.allclose(weights_of(learner.target.head), halfway)
    for network in (learner.online, learner.target):
        for part in ("frozen", "unused"):
            assert torch.equal(weights_of(getattr(network, part)), weights_of(getattr(before, part)))


# The target network


def test_a_sync_copies_the_batch_statistics_of_a_custom_network():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    learner = DQN(network, 2, DQNConfig(tau=0.5), total_timesteps=1000)
    for seed in range(3):
        learner.update(random_batch(seed))
    online, target = dict(learner.online.named_buffers()), dict(learner.target.named_buffers())
    assert not torch.equal(online["1.running_mean"], target["1.running_mean"])
    learner.sync_target()
    assert online.keys() == target.keys() == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert all(torch.equal(online[name], target[name]) for name in online), "whole, whatever tau is"


@pytest.mark.parametrize("tau", [0.005, 0.3])
def test_soft_syncs_approach_constant_weights_geometrically(tau):
    learner = make_learner(tau=tau)
    fill(learner.target, 0.0)
    fill(learner.online, 1.0)
    for k in range(1, 21):
        learner.sync_target()
        expected = torch.full_like(weights_of(learner.target), 1 - (1 - tau) ** k)
        assert torch.allclose(weights_of(learner.target), expected, atol=1e-6)
    assert torch.equal(weights_of(learner.online), torch.ones_like(expected))


def test_a_full_sync_copies_bit_for_bit():
    learner = make_learner(tau=1.0)
    learner.update(random_batch())
    assert not torch.equal(weights_of(learner.target), weights_of(learner.online))
    learner.sync_target()
    assert torch.equal(weights_of(learner.target), weights_of(learner.online))


@pytest.mark.parametrize("stride", [1, 4, 7, 10])
def test_target_is_synced_at_the_first_step_that_reaches_each_multiple_of_the_interval(stride):
    learner = make_learner(target_update_interval=10)
    fill(learner.target, 0.0)
    for steps in range(stride, 100, stride):
        fill(learner.online, steps)
        learner.advance(steps)
        multiple = steps // 10 * 10
        synced_at = -(-multiple // stride) * stride
        assert weights_of(learner.target)[0] == synced_at


def test_a_stride_over_several_intervals_counts_each_of_them():
    learner = make_learner(target_update_interval=2, tau=0.5)
    fill(learner.target, 0.0)
    fill(learner.online, 1.0)
    for steps in (6, 12):
        learner.advance(steps)
        assert weights_of(learner.target)[0] == pytest.approx(1 - 0.5 ** (steps // 2))


# Exploration and schedules


def test_epsilon_follows_its_schedule():
    learner = make_learner(
        learning_starts=100, exploration_fraction=0.5, exploration_initial_eps=0.9, exploration_final_eps=0.1
    )
    assert learner.epsilon == 1.0
    for steps, expected in [(99, 1.0), (100, 0.74), (250, 0.5), (499, 0.1016), (500, 0.1), (1000, 0.1)]:
        learner.advance(steps)
        assert learner.status()["exploration_rate"] == pytest.approx(expected)


def test_epsilon_starts_at_its_initial_value_without_a_warm_up():
    assert make_learner(exploration_initial_eps=0.7).epsilon == 0.7


@pytest.mark.parametrize(("steps", "expected"), [(0, 1e-2), (500, 5.5e-3), (1000, 1e-3), (2000, 1e-3)])
def test_learning_rate_falls_linearly_and_is_what_the_optimizer_uses(steps, expected):
    learner = make_learner(learning_rate=1e-2, learning_rate_final=1e-3)
    learner.advance(steps)
    assert learner.status()["learning_rate"] == pytest.approx(expected)
    before = weights_of(learner.online)
    learner.update(random_batch())
    first_step = (weights_of(learner.online) - before).abs().max().item()
    assert first_step == pytest.approx(expected, rel=1e-3)  # Adam's first step is the learning rate


def test_every_env_tosses_its_own_coin():
    learner = make_learner(num_actions=500, exploration_initial_eps=0.4, exploration_fraction=1.0)
    obs = np.ones((4, 3), np.float32)
    greedy = learner.act(obs, explore=False).action
    actions = np.stack([learner.act(obs, explore=True).action for _ in range(4000)])
    explored = actions != greedy
    assert explored.mean(0) == pytest.approx(0.4, abs=0.04)
    correlation = np.corrcoef(explored.T) - np.eye(4)
    assert np.abs(correlation).max() < 0.08
    both = explored[:, 0] & explored[:, 1]
    assert (actions[both, 0] == actions[both, 1]).mean() < 0.02


def test_random_actions_are_uniform_and_cover_all():
    learner = make_learner(num_actions=4, learning_starts=100)
    actions = np.concatenate(
        [learner.act(np.ones((8, 3), np.float32), explore=True).action for _ in range(1000)]
    )
    assert np.bincount(actions, minlength=4) / 8000 == pytest.approx(0.25, abs=0.02)


def test_greedy_acting_is_free_of_randomness():
    learner = make_learner(exploration_initial_eps=1.0)
    state = learner._rng.bit_generator.state
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert np.array_equal(learner.act(obs, explore=False).action, learner.q_values(obs).argmax(1))
    assert learner._rng.bit_generator.state == state


# The NumPy mirror


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("hidden", [(), (16, 8)])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_mirror_equals_the_network_and_follows_its_updates(activation, dueling, dtype, hidden, layer_norm):
    options = {"dueling": dueling, "activation": activation, "layer_norm": layer_norm and hidden != ()}
    learner = make_learner((2, 3), 4, hidden, learning_rate=0.01, **options)
    mirror = numpy_mirror(learner.online)
    assert mirror is not None
    obs = (np.random.default_rng(0).random((5, 2, 3)) * 255).astype(dtype)
    kept = obs.copy()
    last = mirror(obs)
    for seed in range(3):
        learner.update(random_batch(seed, obs_shape=(2, 3), num_actions=4))
        with torch.no_grad():
            expected = learner.online(torch.from_numpy(obs)).numpy()
        assert mirror(obs) == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert learner.q_values(obs) == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert np.abs(mirror(obs) - last).max() > 1e-3
        last = mirror(obs)
    assert np.array_equal(obs, kept)


@pytest.mark.parametrize("count", [1, MAX_BATCH, MAX_BATCH + 1])
@pytest.mark.parametrize("activation", ["relu", "elu"])
def test_q_values_are_the_networks_whatever_computes_them(count, activation):
    learner = make_learner(activation=activation)
    obs = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    with torch.no_grad():
        expected = learner.online(torch.from_numpy(obs)).numpy()
    assert learner.q_values(obs) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_network_of_another_kind_has_no_mirror():
    class Doubled(MLPQNetwork):
        def forward(self, obs):
            return 2 * super().forward(obs)

    assert numpy_mirror(Doubled((3,), 2)) is None
    assert numpy_mirror(MLPQNetwork((3,), 2, activation="elu")) is None
    assert numpy_mirror(MLPQNetwork((3,), 2, normalize_obs=True)) is None


# State


def test_a_restored_learner_goes_on_exactly_like_the_original():
    options = {"target_update_interval": 7, "learning_rate_final": 1e-5, "tau": 0.5}
    original, restored = make_learner(seed=1, **options), make_learner(seed=2, **options)
    for steps in range(1, 11):
        original.update(random_batch(steps))
        original.advance(steps * 3)
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    assert restored.status() == original.status()
    for steps in range(11, 16):
        for learner in (original, restored):
            learner.update(random_batch(steps))
            learner.advance(steps * 3)
    assert restored.updates == original.updates == 15
    assert torch.equal(weights_of(restored.online), weights_of(original.online))
    assert torch.equal(weights_of(restored.target), weights_of(original.target))
    obs = random_batch().obs.numpy()
    assert np.array_equal(restored.q_values(obs), original.q_values(obs))


@pytest.mark.parametrize("part", ["model", "optimizer"])
def test_a_state_of_another_network_is_refused(part):
    learner, other = make_learner(hidden=(16,)), make_learner(hidden=(8,))
    with pytest.raises(CheckpointError, match=f"^{part}: "):
        learner.load_state_dict({**learner.state_dict(), part: other.state_dict()[part]})


def test_dropout_is_off_when_acting_and_draws_from_a_stream_of_its_own():
    def make():
        torch.manual_seed(3)
        network = nn.Sequential(nn.Linear(3, 32), nn.Dropout(0.5), nn.Linear(32, 2))
        options = DQNConfig(learning_starts=0)
        return DQN(network, 2, options, total_timesteps=100, rng=np.random.default_rng(0))

    one, two, resumed = make(), make(), make()
    obs = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    assert np.array_equal(one.q_values(obs), one.q_values(obs))
    before = torch.get_rng_state()
    for seed in range(5):
        one.update(random_batch(seed))
    assert torch.equal(before, torch.get_rng_state())
    drawn, fresh = (each.state_dict()["counters"]["torch_stream"] for each in (one, make()))
    assert not torch.equal(drawn, fresh)  # it was on while learning
    torch.manual_seed(99)
    for seed in range(3):
        two.update(random_batch(seed))
    resumed.load_state_dict(copy.deepcopy(two.state_dict()))
    for seed in range(3, 5):
        resumed.update(random_batch(seed))
    assert torch.equal(weights_of(one.online), weights_of(resumed.online))
    assert not torch.equal(weights_of(one.online), weights_of(make().online))


def test_one_environment_explores_as_often_as_many_do():
    learner = make_learner(num_actions=4, learning_starts=0)
    obs = np.random.default_rng(0).normal(size=(1, 3)).astype(np.float32)
    best = learner.act(obs, explore=False).action[0]
    for epsilon in (0.0, 0.3, 1.0):
        learner.epsilon = epsilon
        others = np.mean([learner.act(obs, explore=True).action[0] != best for _ in range(2_000)])
        assert others == pytest.approx(0.75 * epsilon, abs=0.04)


def test_a_target_interval_of_ones_own_means_copies_unless_tau_is_given():
    assert (DQNConfig().target_update_interval, DQNConfig().tau) == (1, 0.01)
    assert DQNConfig(target_update_interval=1).tau == 0.01
    assert DQNConfig(target_update_interval=500).tau == 1.0
    assert DQNConfig(target_update_interval=500, tau=0.3).tau == 0.3
    saved = DQNConfig(target_update_interval=500).model_dump()
    assert DQNConfig(**saved).tau == 1.0


@pytest.mark.parametrize("loss_name", ["huber", "mse"])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_pure_loss_is_what_a_loop_over_the_samples_gives(loss_name, double, weighted):
    rng = np.random.default_rng(5)
    q, of_target, of_online = (torch.from_numpy(rng.normal(0.0, 2.0, (6, 3))).float() for _ in range(3))
    q.requires_grad_(True)
    of_target.requires_grad_(True)
    batch = Batch(
        *(torch.zeros(6, 1), torch.from_numpy(rng.integers(0, 3, 6))),
        reward=torch.from_numpy(rng.normal(size=6)).float(),
        discount=torch.tensor([0.9, 0.0, 0.9, 0.81, 0.0, 0.9]),
        next_obs=torch.zeros(6, 1),
        weight=torch.tensor([0.0, 0.5, 1.0, 3.0, 0.2, 1.0]) if weighted else None,
    )
    loss, errors, means = dqn_loss(q, of_target, of_online if double else None, batch, loss_name)
    losses, expected, slopes = [], [], torch.zeros(6, 3)
    for i in range(6):
        choosing = of_online if double else of_target
        following = float(of_target.detach()[i, int(choosing[i].argmax())])
        error = (
            float(q.detach()[i, batch.action[i]])
            - float(batch.reward[i])
            - float(batch.discount[i]) * following
        )
        weight = 1.0 if batch.weight is None else float(batch.weight[i])
        squared = loss_name == "mse" or abs(error) <= 1.0
        each = error**2 * (1.0 if loss_name == "mse" else 0.5) if squared else abs(error) - 0.5
        slope = (2.0 * error if loss_name == "mse" else error) if squared else math.copysign(1.0, error)
        losses.append(weight * each)
        slopes[i, batch.action[i]] = weight * slope / 6
        expected.append(error)
    assert float(loss.detach()) == pytest.approx(np.mean(losses), rel=1e-5)
    assert errors.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert float(means.samples["td_error_mean"].mean()) == pytest.approx(np.abs(expected).mean(), rel=1e-5)
    of_q, through_target = torch.autograd.grad(loss, [q, of_target], allow_unused=True)
    torch.testing.assert_close(of_q, slopes)
    assert through_target is None

"""What every learner has from its base: networks, modes, normalisers, optimizers, state."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.algorithms.actor_critic import SlowCopy
from rl_training.algorithms.building import replay_experience
from rl_training.algorithms.learner import Learner
from rl_training.algorithms.optimizer import FlatAdam, flatten_parameters
from rl_training.algorithms.options import OptimizerOptions
from rl_training.algorithms.protocol import Decision, Means, UpdateResult
from rl_training.algorithms.spec import BuildContext
from rl_training.data import Batch, Transitions
from rl_training.errors import CheckpointError, NonFiniteError
from rl_training.experiment.configs import load_config
from rl_training.models.normalizer import RunningNormalizer
from rl_training.observations import ObsSpec
from rl_training.runtime.streams import Streams
from rl_training.spaces import DiscreteActions


class Plain(Learner[OptimizerOptions, Batch]):
    """A learner that does nothing."""

    def act(self, obs: Any, carry: Any = None, *, explore: bool, mask: Any = None) -> Decision:
        return Decision(np.zeros(len(obs), np.int64))

    def update(self, batch: Batch) -> UpdateResult:
        return UpdateResult(Means({}))


def make(**networks: nn.Module) -> Plain:
    learner = Plain(OptimizerOptions(), total_timesteps=100, rng=np.random.default_rng(0))
    for name, network in networks.items():
        learner.own(name, network)
    return learner


def test_a_network_with_modes_is_in_training_only_while_it_learns() -> None:
    torch.manual_seed(0)  # whatever state an earlier test has left
    network = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    learner = make(online=network)
    outside = torch.get_rng_state()
    x, seen = torch.ones(4, 3), []
    modes = [network.training]
    for _ in range(2):
        with learner.learning(network):
            modes.append(network.training)
            seen.append(network(x))
        modes.append(network.training)
    assert modes == [False, True, False, True, False]
    assert torch.equal(torch.get_rng_state(), outside), "nobody else's numbers are touched"
    assert not torch.equal(*seen)
    with pytest.raises(ZeroDivisionError), learner.learning(network):
        raise ZeroDivisionError
    assert [network.training, torch.equal(torch.get_rng_state(), outside)] == [False, True]


def test_the_stream_of_a_network_with_modes_is_part_of_the_state() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    learner = make(online=network)
    with learner.learning(network):
        network(torch.ones(4, 3))
    state = learner.state_dict()
    again = make(online=nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)))
    again.load_state_dict(state)
    drawn = []
    for one in (learner, again):
        with one.learning(one.networks["online"]):
            drawn.append(one.networks["online"](torch.ones(4, 3)))
    assert torch.equal(*drawn)


def test_owning_a_network_with_modes_draws_nothing_from_the_exploration_stream() -> None:
    plain, moded = make(online=nn.Linear(3, 3)), make(online=nn.Sequential(nn.Dropout(0.5)))
    assert plain._rng.random() == moded._rng.random()
    assert "torch_stream" not in plain.state_dict()["counters"]
    assert "torch_stream" in moded.state_dict()["counters"]


def test_every_normaliser_is_moved_and_a_shared_one_once() -> None:
    shared = RunningNormalizer((2,))
    learner = make(
        actor=nn.Sequential(shared),
        critic=nn.Sequential(RunningNormalizer((2,))),
        target=nn.Sequential(shared),
    )
    learner.observe(np.ones((5, 2)))
    for name in ("actor", "critic", "target"):
        assert float(learner.networks[name][0].count) == 5.0  # type: ignore[index]


def test_optimizers_are_made_by_the_options_and_one_of_several_is_saved_by_name() -> None:
    options = OptimizerOptions(learning_rate=0.5, learning_rate_final=0.1, adam_eps=0.25, max_grad_norm=7.0)
    learner = Plain(options, total_timesteps=100)
    network = learner.own("online", nn.Linear(2, 2))
    assert learner.status() == {}
    learner.optimizers["all"] = learner.adam(network, betas=(0.3, 0.7))
    made = learner.optimizers["all"]
    assert (made.lr, made.eps, made.max_grad_norm, made.betas) == (0.5, 0.25, 7.0, (0.3, 0.7))
    learner.advance(50)
    assert learner.status() == {"learning_rate": pytest.approx(0.3)}
    assert learner.state_dict()["optimizer"].keys() == {"exp_avg", "exp_avg_sq", "step"}
    learner.optimizers["other"] = learner.adam(nn.Linear(1, 1))
    assert learner.state_dict()["optimizer"].keys() == {"all", "other"}


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.999), (0.0, 0.5)])
def test_adam_is_torchs_with_any_betas(betas: tuple[float, float]) -> None:
    torch.manual_seed(0)
    ours, theirs = nn.Linear(4, 3), nn.Linear(4, 3)
    theirs.load_state_dict(ours.state_dict())
    mine = FlatAdam(ours, lr=0.05, betas=betas, eps=1e-6)
    reference = torch.optim.Adam(theirs.parameters(), lr=0.05, betas=betas, eps=1e-6)
    for seed in range(5):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
        mine.step(ours(x).square().mean())
        reference.zero_grad()
        theirs(x).square().mean().backward()
        reference.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gradient", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_refused_before_anything_is_touched(gradient: float) -> None:
    network = nn.Linear(3, 2)
    optimizer = FlatAdam(network, lr=0.1, max_grad_norm=1.0)
    optimizer.step(network(torch.ones(4, 3)).square().mean())
    before = {"flat": optimizer.flat.clone(), **copy.deepcopy(optimizer.state_dict())}
    optimizer.grad[4] = gradient
    with pytest.raises(
        NonFiniteError, match=r"^loss is 0\.25 and its gradient's norm (nan|inf); the update was"
    ):
        optimizer.apply(torch.tensor(0.25))
    after = {"flat": optimizer.flat, **optimizer.state_dict()}
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_slow_copy_takes_over_batch_statistics_as_a_whole() -> None:
    fast = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    slow = SlowCopy(fast, flatten_parameters(fast))
    layer = fast[0]
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.weight += 1.0
    fast(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))
    slow.follow(0.25)
    assert torch.allclose(dict(slow.module.named_parameters())["0.weight"], layer.weight - 0.75)
    own, theirs = dict(slow.module.named_buffers()), dict(fast.named_buffers())
    assert int(theirs["1.num_batches_tracked"]) == 1
    assert all(torch.equal(own[name], theirs[name]) for name in theirs)


def test_a_part_that_is_missing_is_refused() -> None:
    learner = make(online=nn.Linear(2, 2))
    state = learner.state_dict()
    with pytest.raises(KeyError):
        make(online=nn.Linear(2, 2)).load_state_dict({**state, "model": {}})
    with pytest.raises(CheckpointError, match="model: online"):
        make(online=nn.Linear(2, 3)).load_state_dict(state)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("prioritized", [False, True])
def test_replay_keeps_the_masks_of_obs_where_an_algorithm_asks_for_them(
    keep: bool, prioritized: bool
) -> None:
    config = load_config(
        {
            "algo": "dqn",
            "env": {"id": "CartPole-v1"},
            "total_timesteps": 100,
            "algo_kwargs": {
                "learning_starts": 0,
                "train_freq": 1,
                "batch_size": 4,
                "n_step_return": 2,
                "prioritized": prioritized,
            },
        }
    )
    spaces = ObsSpec((1,), np.dtype(np.float32)), DiscreteActions(3)
    context = BuildContext(config, *spaces, Streams(0), torch.device("cpu"))
    experience = replay_experience(context, keep_masks=keep)
    batches = []
    for t in range(8):
        here, there = (np.array([[(k + i) % 2 == 0 for i in range(3)]]) for k in (t, t + 1))
        obs = np.array([[t]], np.float32)
        no = np.zeros(1, bool)
        experience.add(
            Transitions(np.array([0]), obs, np.array([0]), np.ones(1), obs + 1, no, no, there, None, here)
        )
        batches += list(experience.batches(t + 1))
    for batch in batches:
        assert (batch.mask is not None) == keep
        if batch.mask is not None:
            expected = (batch.obs.long() + torch.arange(3)) % 2 == 0
            assert torch.equal(batch.mask, expected)


def test_rows_that_are_selected_keep_their_masks() -> None:
    rows = np.arange(3)
    yes = np.ones(3, bool)
    step = Transitions(rows, rows, rows, rows, rows, yes, yes, mask=np.eye(3, dtype=bool))
    picked = step.select(np.array([True, False, True])).mask
    assert picked is not None
    assert np.array_equal(picked, np.eye(3, dtype=bool)[[0, 2]])

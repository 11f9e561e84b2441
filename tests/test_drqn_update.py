"""DRQN: the network, acting with a memory, and learning from sequences."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from helpers.q_learning import make_learner, random_masks, weights_of
from rl_training.algorithms.drqn import learned_steps, rescale, sequence_priorities, unscale
from rl_training.data import RecurrentReplayBuffer, SequenceBatch, Transitions, carry_on
from rl_training.models.recurrent import LSTMQNetwork

OBS, ACTIONS, SIZE = 3, 4, 8


def network(seed: int = 0, **options: Any) -> LSTMQNetwork:
    torch.manual_seed(seed)
    return LSTMQNetwork((OBS,), ACTIONS, (6,), core_size=SIZE, **options).eval()


def drqn(**options: Any) -> Any:
    return make_learner(
        (OBS,), ACTIONS, (6,), algo="drqn", **{"core_size": SIZE, "sequence_length": 6, **options}
    )


def random_sequences(
    learner: Any, lengths: tuple[int, ...] = (6, 6, 4, 1, 6), seed: int = 0, **changes: Any
) -> SequenceBatch:
    """Make chunks with these numbers of steps, of which the odd ones begin an episode."""
    draw, size, steps = torch.Generator().manual_seed(seed), len(lengths), max(lengths)
    mask = torch.arange(steps)[:, None] < torch.tensor(lengths)
    starts = torch.zeros(steps, size, dtype=torch.bool)
    starts[0, 1::2] = True
    state = {
        name: torch.rand(tensor.shape, generator=draw)
        if tensor.is_floating_point()
        else torch.randint(ACTIONS + 1, tensor.shape, generator=draw)
        for name, tensor in learner.online.initial_state(size).items()
    }
    fields = {
        "obs": torch.randn(steps + 1, size, OBS, generator=draw),
        "action": torch.randint(ACTIONS, (steps, size), generator=draw),
        "reward": torch.randn(steps, size, generator=draw),
        "returns": torch.randn(steps, size, generator=draw),
        "discount": torch.rand(steps, size, generator=draw),
        "after": (torch.arange(steps)[:, None] + 1).minimum(torch.tensor(lengths)),
        "mask": mask,
        "starts": starts,
        "state": learner.online.reset_state(state, starts[0]),
    }
    return SequenceBatch(**{**fields, **changes})


# The network


def test_lstm_q_network_vector_obs_returns_q_values_actions_and_state() -> None:
    net = network()
    q, action, state = net.act(torch.randn(5, OBS), net.initial_state(5))
    assert q.shape == (5, ACTIONS)
    assert torch.equal(action, q.argmax(1))
    assert {name: tuple(t.shape) for name, t in state.items()} == {
        "hidden": (5, 1, SIZE),
        "cell": (5, 1, SIZE),
    }
    assert all(t.abs().sum() > 0 for t in state.values())
    sequence, _ = net.q_values_sequence(torch.randn(7, 5, OBS), net.initial_state(5))
    assert sequence.shape == (7, 5, ACTIONS)


def test_act_forgets_where_an_episode_starts_and_notes_its_action() -> None:
    net = network(prev_action=True, prev_reward=True)
    obs, state = torch.randn(2, OBS), net.initial_state(2)
    state = {name: torch.ones_like(tensor) for name, tensor in state.items()}
    q, action, after = net.act(obs, state, torch.tensor([True, False]))
    fresh = net.act(obs, net.initial_state(2))[0]
    torch.testing.assert_close(q[0], fresh[0])
    assert not torch.allclose(q[1], fresh[1])
    assert torch.equal(after["action"], action + 1)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"core": "gru"}, {"dueling": True}, {"prev_action": True, "prev_reward": True}]
)
def test_a_sequence_with_resets_equals_single_steps(layers: int, options: dict[str, Any]) -> None:
    steps, batch = 12, 5
    net = network(core_layers=layers, **options)
    obs, rewards = torch.randn(steps, batch, OBS), torch.randn(steps, batch)
    actions, starts = torch.randint(ACTIONS, (steps, batch)), torch.rand(steps, batch) < 0.3
    state = {name: torch.rand(t.shape).to(t.dtype) for name, t in net.initial_state(batch).items()}

    expected, single = [], state
    for t in range(steps):
        single = {
            name: torch.where(starts[t].view(-1, *(1,) * (s.ndim - 1)), 0, s) for name, s in single.items()
        }
        q, single = net(obs[t], single)
        expected.append(q)
        if "action" in single:
            single["action"], single["reward"] = actions[t] + 1, rewards[t]
    q, after = net.q_values_sequence(obs, state, actions=actions[:-1], rewards=rewards[:-1], starts=starts)
    torch.testing.assert_close(q, torch.stack(expected), rtol=0, atol=1e-6)
    for name in ("hidden", "cell"):
        if name in after:
            torch.testing.assert_close(after[name], single[name], rtol=0, atol=1e-6)


def test_nothing_is_known_of_the_episode_before() -> None:
    """The gradient of a Q-value by observations of an earlier episode is zero, and by those of its own is not."""
    net = network(prev_reward=True)
    obs, rewards = torch.randn(9, 2, OBS, requires_grad=True), torch.randn(8, 2, requires_grad=True)
    starts = torch.zeros(9, 2, dtype=torch.bool)
    starts[4, 0] = starts[6, 1] = True
    state = {name: t.requires_grad_() for name, t in net.initial_state(2).items()}
    q, _ = net.q_values_sequence(obs, state, rewards=rewards, starts=starts)
    grads = torch.autograd.grad(q[8].sum(), [obs, rewards, *state.values()])
    for column, begin in ((0, 4), (1, 6)):
        assert not grads[0][:begin, column].any()
        assert grads[0][begin:, column].all()
        assert not grads[1][:begin, column].any()
        assert grads[1][begin:, column].all()
    assert not any(grad.any() for grad in grads[2:])


def test_the_last_action_and_reward_are_inputs_only_if_asked_for() -> None:
    obs = torch.randn(1, 2, OBS)
    plain, both = network(), network(prev_action=True, prev_reward=True)
    assert set(plain.initial_state()) == {"hidden", "cell"}
    state = both.initial_state(2)
    q = both.q_values_sequence(obs, state)[0]
    for name, value in (("action", 2), ("reward", 1.5)):
        changed = {**state, name: torch.full_like(state[name], value)}
        assert not torch.equal(both.q_values_sequence(obs, changed)[0], q)
    with pytest.raises(ValueError, match="hand them in"):
        both.q_values_sequence(torch.randn(2, 2, OBS), state)


def test_dueling_leaves_q_unchanged_when_all_advantages_move() -> None:
    net = network(dueling=True)
    obs, state = torch.randn(4, 2, OBS), net.initial_state(2)
    before = net.q_values_sequence(obs, state)[0]
    with torch.no_grad():
        net.head.bias[1:] += 3.0
    torch.testing.assert_close(net.q_values_sequence(obs, state)[0], before)


# Acting


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("hidden", [(), (6,), (6, 5)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"core": "gru"},
        {"dueling": True},
        {"prev_action": True, "prev_reward": True},
        {"layer_norm": True},
    ],
)
def test_the_numpy_mirror_gives_what_the_network_gives(
    layers: int, hidden: tuple[int, ...], options: dict[str, Any]
) -> None:
    if not hidden and "layer_norm" in options:
        pytest.skip("nothing to normalise")
    learner = make_learner(
        (OBS,), ACTIONS, hidden, algo="drqn", core_size=SIZE, core_layers=layers, **options
    )
    assert learner._recurrent_mirror is not None
    rng = np.random.default_rng(0)
    carry = {
        name: rng.normal(size=array.shape).astype(array.dtype)
        if array.dtype == np.float32
        else rng.integers(0, 5, 7)
        for name, array in learner.initial_carry(7).items()
    }
    kept = copy.deepcopy(carry)
    obs = rng.normal(size=(7, OBS)).astype(np.float32)
    with torch.no_grad():  # it follows updates
        learner.optimizer.flat += 0.1 * torch.randn(learner.optimizer.flat.shape)
    q, after = learner.step(obs, carry)
    learner._recurrent_mirror = None
    expected_q, expected = learner.step(obs, carry)
    np.testing.assert_allclose(q, expected_q, rtol=0, atol=1e-6)
    assert after.keys() == expected.keys()
    for name in after:
        np.testing.assert_allclose(after[name], expected[name], rtol=0, atol=1e-6)
        assert np.array_equal(carry[name], kept[name])


def test_every_layer_of_the_encoder_is_normalized() -> None:
    encoder = make_learner((OBS,), ACTIONS, (6, 5), algo="drqn", layer_norm=True).online.encoder
    mlp, obs = encoder[1], torch.randn(7, OBS)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        x = obs
        for linear, norm in zip(mlp.linears, (mlp.norms[0], encoder[2]), strict=True):
            x = linear(x)
            x = (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
            x = torch.relu(norm.weight * x + norm.bias)
        torch.testing.assert_close(encoder(obs), x)


def test_the_mirror_follows_running_statistics() -> None:
    learner = make_learner((OBS,), ACTIONS, (6,), algo="drqn", core_size=SIZE, normalize_obs=True)
    rng = np.random.default_rng(0)
    for count in (5, 9):
        learner.observe(rng.normal(3.0, 2.0, (count, OBS)).astype(np.float32))
        obs, carry = rng.normal(3.0, 20.0, (4, OBS)).astype(np.float32), learner.initial_carry(4)
        mirrored, mirror = learner.step(obs, carry)[0], learner._recurrent_mirror
        assert mirror is not None
        learner._recurrent_mirror = None
        np.testing.assert_allclose(mirrored, learner.step(obs, carry)[0], rtol=0, atol=1e-6)
        learner._recurrent_mirror = mirror


def test_networks_of_another_make_have_no_mirror() -> None:
    assert drqn(core_size=4096)._recurrent_mirror is None
    assert make_learner((OBS,), ACTIONS, algo="drqn", activation="gelu")._recurrent_mirror is None
    own = make_learner(
        (OBS,), ACTIONS, (6,), algo="drqn", network=lambda shape, n: torch.nn.Linear(shape[0], n)
    )
    assert own._recurrent_mirror is None
    assert own.act(np.zeros((2, OBS), np.float32), explore=False).action.shape == (2,)


def test_the_memory_moves_on_although_all_actions_are_random() -> None:
    learner = drqn(prev_action=True)
    obs, carry = np.ones((3, OBS), np.float32), learner.initial_carry(3)
    assert learner.epsilon == 1.0
    decision = learner.act(obs, carry, explore=True)
    greedy = learner.act(obs, carry, explore=False)
    assert np.array_equal(decision.carry["hidden"], greedy.carry["hidden"])
    assert decision.carry["hidden"].any()
    assert np.array_equal(decision.carry["action"], decision.action + 1)
    assert not carry["hidden"].any()


def test_epsilon_is_a_coin_for_each_environment() -> None:
    learner = drqn()
    learner.epsilon = 0.5
    obs = np.tile(np.ones(OBS, np.float32), (4000, 1))
    best = learner.act(obs[:1], explore=False).action[0]
    share = (learner.act(obs, explore=True).action == best).mean()
    assert share == pytest.approx(0.5 + 0.5 / ACTIONS, abs=0.03)


def test_masks_hold_for_random_and_for_greedy_actions() -> None:
    learner = drqn()
    learner.epsilon = 0.5
    mask = random_masks(0, 500, ACTIONS)
    obs = np.random.default_rng(0).normal(size=(500, OBS)).astype(np.float32)
    for explore in (False, True):
        action = learner.act(obs, explore=explore, mask=mask).action
        assert mask[np.arange(500), action].all()


def test_carry_on_notes_rewards_and_forgets_where_an_episode_begins() -> None:
    learner = drqn(prev_action=True, prev_reward=True)
    decision = learner.act(np.ones((2, OBS), np.float32), explore=False)
    kept = {name: array.copy() for name, array in decision.carry.items()}
    after = carry_on(decision.carry, np.array([1.5, 2.5]), np.array([False, True]))
    assert after["reward"].tolist() == [1.5, 0.0]
    for name, array in after.items():
        assert not array[1].any()
        if name != "reward":
            assert np.array_equal(array[0], kept[name][0])
            assert np.array_equal(decision.carry[name], kept[name])


# Learning


def brute_force(
    learner: Any, batch: SequenceBatch, burn_in: int = 0
) -> tuple[torch.Tensor, list[list[float]]]:
    """Return loss and errors of every chunk, step by step from its stored state, one chunk at a time."""
    losses = []
    errors: list[list[float]] = []
    for b in range(batch.mask.shape[1]):
        steps = int(batch.mask[:, b].sum())
        q: dict[str, list[torch.Tensor]] = {}
        for name, net in (("online", learner.online), ("target", learner.target)):
            state = {key: value[b : b + 1] for key, value in batch.state.items()}
            q[name] = []
            for t in range(steps + 1):
                values, state = net(batch.obs[t, b : b + 1], state)
                if t < steps and "action" in state:
                    state["action"] = batch.action[t, b : b + 1] + 1
                if t < steps and "reward" in state:
                    state["reward"] = batch.reward[t, b : b + 1]
                if t + 1 == burn_in and not batch.starts[0, b]:
                    state = {key: value.detach() for key, value in state.items()}
                q[name].append(values[0])
        errors.append([])
        for t in range(0 if batch.starts[0, b] else burn_in, steps):
            after = int(batch.after[t, b])
            choosing = (q["online"] if learner.config.double else q["target"])[after].clone()
            if batch.action_mask is not None:
                choosing[~batch.action_mask[after, b]] = -torch.inf
            following = q["target"][after][choosing.argmax()].detach()
            target = batch.returns[t, b] + batch.discount[t, b] * following
            value = q["online"][t][batch.action[t, b]]
            weight = 1.0 if batch.weight is None else batch.weight[b]
            losses.append(weight * torch.nn.functional.huber_loss(value, target))
            errors[-1].append(float(value.detach() - target))
    return torch.stack(losses).mean(), errors


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, {}),
        ({"double": False}, {}),
        ({"dueling": True}, {"weight": torch.rand(5)}),
        ({"core": "gru", "core_layers": 2}, {}),
        ({"prev_action": True, "prev_reward": True}, {}),
        ({"burn_in": 3}, {}),
        ({"burn_in": 2, "prev_action": True, "prev_reward": True}, {"weight": torch.rand(5)}),
        ({}, {"action_mask": torch.from_numpy(random_masks(1, 35, ACTIONS)).view(7, 5, ACTIONS)}),
        (
            {"double": False},
            {"action_mask": torch.from_numpy(random_masks(1, 35, ACTIONS)).view(7, 5, ACTIONS)},
        ),
        ({"n_step_return": 3}, {"after": torch.tensor([[3, 3, 3, 1, 3]] * 6)}),
    ],
)
def test_loss_and_gradient_equal_a_walk_through_every_chunk(
    options: dict[str, Any], changes: dict[str, Any]
) -> None:
    learner = drqn(**options)
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    batch = random_sequences(learner, **changes)
    loss, head = learner._loss(batch)
    expected, errors = brute_force(learner, batch, learner.config.burn_in)
    torch.testing.assert_close(loss, expected)
    parameters = list(learner.online.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), rtol=1e-4, atol=1e-6
    )
    priorities = [0.9 * max(map(abs, e)) + 0.1 * np.mean(np.abs(e)) if e else 0.0 for e in errors]
    torch.testing.assert_close(head.priority, torch.tensor(priorities, dtype=torch.float32))
    assert len(head.value) == sum(map(len, errors))


def test_padding_changes_no_bit() -> None:
    """Neither what is in masked steps nor how many of them there are has an effect."""

    def outcome(batch: SequenceBatch) -> list[torch.Tensor]:
        learner = drqn(prev_action=True, prev_reward=True)
        result = learner.update(batch)
        return [*(result.metrics.samples[name] for name in ("loss", "grad_norm")), weights_of(learner.online)]

    plain = random_sequences(drqn(prev_action=True, prev_reward=True), (5, 2, 4))
    spoiled = copy.deepcopy(plain)
    for b, steps in enumerate((5, 2, 4)):
        spoiled.obs[steps + 1 :, b] = 77.0
        spoiled.action[steps:, b] = ACTIONS - 1
        for field in ("reward", "returns", "discount"):
            getattr(spoiled, field)[steps:, b] = -55.0
    extra: dict[str, Any] = {
        field: torch.cat([tensor, torch.ones_like(tensor[:1]).repeat(3, *(1,) * (tensor.ndim - 1)) * 5])
        for field in ("obs", "action", "reward", "returns", "discount", "after")
        for tensor in [getattr(spoiled, field)]
    }
    extra["action"] = extra["action"].clamp(max=ACTIONS - 1)
    none = torch.zeros(3, 3, dtype=torch.bool)
    extra |= {field: torch.cat([getattr(spoiled, field), none]) for field in ("mask", "starts")}
    longer = dataclasses.replace(spoiled, **extra)
    expected = outcome(plain)
    for batch in (spoiled, longer):
        assert all(torch.equal(a, b) for a, b in zip(outcome(batch), expected, strict=True))


def test_the_loss_is_a_mean_over_made_steps() -> None:
    learner = drqn()
    batch = random_sequences(learner, (6, 1, 3))
    _, head = learner._loss(batch)
    assert head.each.shape == (10,)
    torch.testing.assert_close(learner._loss(batch)[0], head.each.sum() / 10)


def test_burn_in_spares_chunks_that_begin_an_episode() -> None:
    batch = random_sequences(drqn(), (6, 6, 4, 2, 6))
    learned = learned_steps(batch, 3)
    assert learned.sum(0).tolist() == [3, 6, 1, 2, 3]


def test_no_gradient_reaches_back_through_the_burn_in() -> None:
    learner = drqn(burn_in=3)
    batch = random_sequences(learner, (6, 6))
    batch.obs.requires_grad_()
    grad = torch.autograd.grad(learner._loss(batch)[0], batch.obs)[0]
    assert not grad[:3, 0].any()  # starts in the middle of an episode
    assert grad[3:6, 0].all()
    assert grad[:6, 1].all()  # begins one


def test_value_rescaling_can_be_undone() -> None:
    x = torch.tensor([-1000.0, -3.0, -1e-3, 0.0, 1e-3, 0.5, 7.0, 1e4])
    torch.testing.assert_close(unscale(rescale(x)), x, rtol=1e-5, atol=1e-6)
    assert rescale(torch.tensor(3.0)) == pytest.approx(1.0 + 3e-3)
    assert rescale(torch.tensor(-8.0)) == pytest.approx(-2.0 - 8e-3)


def test_rescaled_targets() -> None:
    learner = drqn(value_rescaling=True, double=False)
    batch = random_sequences(learner, (2, 2))
    _, head = learner._loss(batch)
    with torch.no_grad():
        following = learner.unroll(learner.target, batch).amax(2)[1:]
    expected = rescale(batch.returns + batch.discount * unscale(following))
    torch.testing.assert_close(head.target, expected.flatten())


def test_sequence_priorities_mix_largest_and_mean() -> None:
    learned = torch.tensor([[True, True, False], [True, False, False]])
    error = torch.tensor([-3.0, 1.0, 1.0])  # of (0, 0), (0, 1), (1, 0)
    assert sequence_priorities(error, learned, 0.5).tolist() == [0.5 * 3 + 0.5 * 2, 1.0, 0.0]


# Stored states


def played(
    learner: Any, length: int, period: int, steps: int = 30
) -> tuple[RecurrentReplayBuffer, list[Any]]:
    """Act on random observations in one long episode; return the buffer, and Q-values and memory of every step."""
    spec = {name: (a.shape[1:], a.dtype) for name, a in learner.initial_carry(1).items()}
    buffer = RecurrentReplayBuffer(200, (OBS,), length=length, period=period, state=spec)
    rng = np.random.default_rng(3)
    obs, carry, seen = rng.normal(size=(1, OBS)).astype(np.float32), None, []
    none = np.zeros(1, bool)
    for _ in range(steps):
        q, _ = learner.step(obs, learner.initial_carry(1) if carry is None else carry)
        decision = learner.act(obs, carry, explore=False)
        following = rng.normal(size=(1, OBS)).astype(np.float32)
        seen.append(q[0])
        buffer.add(
            Transitions(np.arange(1), obs, decision.action, np.ones(1), following, none, none, None, carry)
        )
        obs, carry = following, carry_on(decision.carry, np.ones(1), none)
    return buffer, seen


def stale(learner: Any, buffer: RecurrentReplayBuffer, skipped: int = 0) -> float:
    """Return how far Q-values from the stored states are from those that the whole history gives."""
    batch = buffer.gather(np.arange(len(buffer)))
    obs = torch.from_numpy(buffer._rows["obs"][0, :31])[:, None]
    with torch.no_grad():
        whole, _ = learner.online.q_values_sequence(obs, learner.online.initial_state(1))
        stored, _ = learner.online.q_values_sequence(batch.obs, batch.state)
    gaps = []
    for b, start in enumerate(buffer._start[: len(buffer)]):
        if start:  # before the first chunk, nothing is forgotten
            gaps.append(
                (stored[skipped:-1, b] - whole[start + skipped : start + buffer.length, 0]).abs().max()
            )
    return float(torch.stack(gaps).max())


def test_replaying_a_chunk_gives_the_q_values_of_acting() -> None:
    learner = drqn(prev_action=True, prev_reward=True)
    buffer, seen = played(learner, 6, 6)
    batch = buffer.gather(np.arange(len(buffer)))
    with torch.no_grad():
        q = learner.unroll(learner.online, batch)
    for b, start in enumerate(buffer._start[: len(buffer)]):
        np.testing.assert_allclose(q[:-1, b].numpy(), np.stack(seen[start : start + 6]), rtol=0, atol=1e-6)


def test_stored_states_age_and_burn_in_makes_up_for_it() -> None:
    learner = drqn(learning_rate=1e-2)
    buffer, _ = played(learner, 10, 5)
    assert stale(learner, buffer) < 1e-6
    for _ in range(20):
        learner.update(buffer.sample(4))
    aged = stale(learner, buffer)
    assert aged > 1e-3
    assert stale(learner, buffer, skipped=5) < 0.5 * aged


def test_targets_are_what_the_whole_history_gives() -> None:
    """The target network's value at t + 1 is that of an agent that has lived through everything up to there."""
    learner = drqn(double=False)
    with torch.no_grad():
        for parameter in learner.online.parameters():
            parameter += 0.2
    learner.sync_target()
    buffer, _ = played(learner, 6, 6)
    batch = buffer.gather(np.arange(len(buffer)))
    _, head = learner._loss(batch)
    obs = torch.from_numpy(buffer._rows["obs"][0, :31])[:, None]
    with torch.no_grad():
        best = learner.target.q_values_sequence(obs, learner.target.initial_state(1))[0][:, 0].amax(1)
    expected = [
        [1.0 + 0.99 * best[start + t + 1] for start in buffer._start[: len(buffer)]] for t in range(6)
    ]
    torch.testing.assert_close(head.target, torch.tensor(expected).flatten())


def test_updates_lower_the_loss_and_syncs_follow_the_interval() -> None:
    learner = drqn(learning_rate=1e-2, target_update_interval=10)
    batch = random_sequences(learner)
    losses = [float(learner.update(batch).metrics["loss"]) for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]
    before = weights_of(learner.target)
    learner.advance(9)
    assert torch.equal(weights_of(learner.target), before)
    learner.advance(10)
    assert torch.equal(weights_of(learner.target), weights_of(learner.online))

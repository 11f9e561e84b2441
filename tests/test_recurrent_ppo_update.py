"""Recurrent PPO: sequences, the memory they begin with, values behind their ends, and what a memory is good for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.on_policy import BOX, collect, make_learner, parameters_of
from rl_training.algorithms import recurrent_ppo as module
from rl_training.algorithms.on_policy import Samples
from rl_training.algorithms.recurrent_ppo import RecurrentPPO, Sequences, Steps, cut, portions
from rl_training.data.rollout_buffer import Rollout
from rl_training.data.transitions import Transitions, carry_on

VARIANTS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "compiled": {"core_size": 8},
    "compiled layers": {"core_size": 16, "core_layers": 2},
    "gru": {"core": "gru"},
    "two layers": {"core_layers": 2},
    "shared": {"shared_trunk": True},
    "past": {"prev_action": True, "prev_reward": True},
    "pieces": {"sequence_length": 3},
    "box": {"actions": BOX},
}


def make(name: str = "lstm", **options: Any) -> Any:
    settings = {
        "core_size": 6,
        "n_steps": 16,
        "num_envs": 3,
        "total": 9_999,
        "batch_size": None,
        **VARIANTS[name],
        **options,
    }
    return make_learner("recurrent_ppo", **settings)


def shaped(valid: Any, starts: Any) -> Rollout:
    nothing: Any = np.zeros(0)
    return Rollout(nothing, nothing, nothing, nothing, nothing, valid, starts, nothing, nothing)


@given(
    steps=st.integers(1, 12),
    envs=st.integers(1, 3),
    longest=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 2**32),
)
def test_pieces_cover_every_step_once_and_no_episode_is_joined(
    steps: int, envs: int, longest: int | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    valid, starts = rng.random((steps, envs)) < 0.85, rng.random((steps, envs)) < 0.3
    if not valid.any():
        return
    found = cut(shaped(valid, starts & valid), longest)
    covered = np.zeros_like(valid, int)
    for env, start, length in zip(found.env, found.start, found.length, strict=True):
        assert length >= 1
        assert longest is None or length <= longest
        covered[start : start + length, env] += 1
        assert not starts[start + 1 : start + length, env].any()
        assert longest is not None or start == 0 or starts[start, env] or not valid[start - 1, env]
    assert np.array_equal(covered == 1, valid)


def test_portions_reach_the_size_that_was_asked_for_and_leave_nothing_out() -> None:
    lengths, order = np.array([5, 1, 7, 2, 2, 9]), np.array([3, 0, 5, 1, 4, 2])
    dealt = [some.tolist() for some in portions(order, lengths, 6)]
    assert dealt == [[3, 0], [5], [1, 4, 2]]
    assert [some.tolist() for some in portions(order, lengths, None)] == [order.tolist()]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("masked", [False, True])
def test_before_the_first_step_the_ratio_is_one(name: str, masked: bool) -> None:
    if masked and name == "box":
        pytest.skip("masks are for discrete actions")
    learner = make(name, n_epochs=1)
    for rollout in collect(learner, 3, masked=masked):
        metrics = learner.update(rollout).metrics
        assert float(metrics["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
        assert float(metrics["clip_fraction"]) == 0.0


def walk(learner: Any, rollout: Rollout) -> tuple[Any, Any]:
    """Return values [T, N] of observations, and of what follows each, from single steps with the stored memory."""
    assert rollout.carry is not None
    values, following = np.zeros(rollout.reward.shape), np.zeros(rollout.reward.shape)
    extra = {
        (t, e): rollout.extra_obs[rollout.after[t, e]]
        for t, e in zip(*np.nonzero(rollout.after >= 0), strict=True)
    }
    for t, e in np.ndindex(values.shape):
        state = {name: torch.from_numpy(array[t, e : e + 1]) for name, array in rollout.carry.items()}
        with torch.no_grad():
            _, value, after = learner.network(torch.from_numpy(rollout.obs[t, e : e + 1]), state)
            values[t, e] = float(value)
            if "action" in after:
                after["action"] = torch.from_numpy(rollout.action[t, e : e + 1]) + 1
            if "reward" in after:
                after["reward"] = torch.from_numpy(rollout.reward[t, e : e + 1])
            ahead = extra.get((t, e))
            if ahead is None and not rollout.terminated[t, e]:
                ahead = rollout.obs[t + 1, e]
            if ahead is not None:
                following[t, e] = float(learner.network(torch.from_numpy(ahead[None]), after)[1])
    return values, following


@pytest.mark.parametrize("name", VARIANTS)
def test_values_behind_an_end_are_those_of_the_memory_that_was_not_reset(name: str) -> None:
    learner = make(name, gae_lambda=0.0, gamma=0.9)
    for parameter in learner.network.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    (rollout,) = collect(learner, ends=0.4)
    assert (rollout.truncated & ~rollout.terminated).any()
    found = learner._samples_of(rollout, cut(rollout, learner.config.sequence_length), rollout.reward)
    values, following = walk(learner, rollout)
    assert found.value.numpy() == pytest.approx(values.ravel(), abs=1e-5)
    expected = rollout.reward + 0.9 * following
    assert found.target.numpy() == pytest.approx(expected.ravel(), abs=1e-5)


def loss_of(learner: RecurrentPPO, rollout: Rollout, some: Sequences, samples: Samples) -> torch.Tensor:
    steps = Steps.of(some)
    out, value = learner._walk(rollout, some, steps, rollout.obs[steps.row, steps.env])
    rows = torch.from_numpy(steps.row * rollout.valid.shape[1] + steps.env)
    return learner._loss(out, value, samples.take(rows))[0]


def test_packing_has_no_part_in_loss_or_gradient() -> None:
    learner = make()
    (rollout,) = collect(learner, ends=0.5)
    sequences = cut(rollout, None)
    assert len(set(sequences.length.tolist())) > 1
    samples = learner._samples_of(rollout, sequences, rollout.reward)
    loss = loss_of(learner, rollout, sequences, samples)
    gradient = torch.autograd.grad(loss, list(learner.network.parameters()))
    # The loss of all is the mean over the steps of one sequence at a time.
    advantage = (samples.advantage - samples.advantage.mean()) / (samples.advantage.std() + 1e-8)
    samples.advantage = advantage
    object.__setattr__(learner.config, "normalize_advantage", False)
    alone = [torch.zeros_like(part) for part in gradient]
    total = int(sequences.length.sum())
    for i in range(len(sequences.env)):
        one = Sequences(sequences.env[[i]], sequences.start[[i]], sequences.length[[i]])
        part = loss_of(learner, rollout, one, samples)
        share = int(sequences.length[i]) / total
        for mine, found in zip(
            alone, torch.autograd.grad(part, list(learner.network.parameters())), strict=True
        ):
            mine += share * found
    for whole, summed in zip(gradient, alone, strict=True):
        torch.testing.assert_close(whole, summed, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["discrete", "masked", "box", "target_kl"])
def test_whole_updates_are_the_same_with_and_without_compiled_code(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(module, "compiled_surrogate", lambda *_: None)
            monkeypatch.setattr("rl_training.models.recurrent.body.is_compiled", lambda *_: False)
        options = {"target_kl": 1e-3} if kind == "target_kl" else {"ent_coef": 0.01, "target_kl": None}
        learner = make(
            "box" if kind == "box" else "lstm",
            core_size=8,
            n_epochs=4,
            batch_size=12,
            learning_rate=3e-3,
            **options,
        )
        assert (learner._surrogate is not None) == compiled
        for rollout in collect(learner, 2, ends=0.3, masked=kind == "masked"):
            result = learner.update(rollout)
        if kind == "target_kl":
            assert result.metrics["epochs"] < 4
        results.append(
            (parameters_of(learner), {name: float(value) for name, value in result.metrics.items()})
        )
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-3, atol=1e-5)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-2, abs=1e-4)


def test_minibatches_of_whole_sequences_are_counted() -> None:
    learner = make(batch_size=12, n_epochs=2)
    (rollout,) = collect(learner, ends=0.3)
    before = parameters_of(learner)
    result = learner.update(rollout)
    expected = len(list(portions(np.arange(len(cut(rollout, None).env)), cut(rollout, None).length, 12)))
    assert abs(result.gradient_steps - 2 * expected) <= 2
    assert result.gradient_steps == learner.updates
    assert not torch.equal(parameters_of(learner), before)


def test_a_memory_reaches_further_back_than_a_rollout() -> None:
    """The state at the beginning of a rollout is the one that acting had, not zeros."""
    learner = make(n_steps=4)
    _, second = collect(learner, 2, ends=0.0)
    assert second.carry is not None
    assert (second.carry["hidden"][0] != 0).any()
    assert not second.starts.any()
    # What is learned from are values of that memory, and not of an empty one.
    found = learner._samples_of(second, cut(second, None), second.reward)
    values, _ = walk(learner, second)
    assert found.value.numpy() == pytest.approx(values.ravel(), abs=1e-5)
    second.carry = {name: np.zeros_like(array) for name, array in second.carry.items()}
    forgotten = learner._samples_of(second, cut(second, None), second.reward)
    assert not np.allclose(forgotten.value.numpy(), values.ravel(), atol=1e-3)


def recall(algo: str, **options: Any) -> float:
    """Train on: a cue is shown, then nothing for three steps, then it has to be repeated; return the share right."""
    learner = make_learner(
        algo,
        num_envs=8,
        obs_size=3,
        hidden=(16,),
        n_steps=16,
        n_epochs=4,
        learning_rate=1e-2,
        gamma=0.9,
        total=60_000,
        **options,
    )
    rng, envs = np.random.default_rng(0), 8
    cue, time = rng.integers(0, 2, envs), np.zeros(envs, int)
    carry = learner.initial_carry(envs)
    right: list[float] = []

    def look() -> Any:
        obs = np.zeros((envs, 3), np.float32)
        obs[time == 0, cue[time == 0]] = 1.0
        obs[:, 2] = time == 4
        return obs

    for _ in range(3_000):
        obs = look()
        decision = learner.act(obs, carry, explore=True)
        over = time == 4
        reward = np.where(over, np.where(decision.action == cue, 1.0, -1.0), 0.0)
        right += (decision.action == cue)[over].tolist()
        time = np.where(over, 0, time + 1)
        cue = np.where(over, rng.integers(0, 2, envs), cue)
        step = Transitions(
            np.arange(envs), obs, decision.action, reward, look(), over, np.zeros(envs, bool), None, carry
        )
        learner.experience.add(step)
        carry = None if carry is None else carry_on(decision.carry, reward, over)
        for rollout in learner.experience.batches(0):
            learner.update(rollout)
    return float(np.mean(right[-400:]))


def test_what_was_seen_is_remembered_and_without_a_memory_it_is_a_guess() -> None:
    assert recall("recurrent_ppo", core_size=16, batch_size=None, shared_trunk=True) > 0.95
    assert recall("ppo", batch_size=None) < 0.6

"""When updates are due, counted in environment steps."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.data import (
    Batch,
    NStepFolder,
    PrioritizedExperience,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayExperience,
    Transitions,
)
from rl_training.data.results import Means, UpdateResult
from rl_training.spaces import Array


def make(n: int = 1, **cadence: int) -> ReplayExperience:
    options = {"batch_size": 2, "learning_starts": 10, "train_freq": 4, "gradient_steps": 1, **cadence}
    return ReplayExperience(
        ReplayBuffer(100, (1,)), NStepFolder(n, 0.9, 1, (1,), np.float32, (), np.int64), **options
    )


def step() -> Transitions:
    row = np.zeros((1, 1), np.float32)
    flag = np.zeros(1, bool)
    return Transitions(np.arange(1), row, np.zeros(1, np.int64), np.ones(1), row, flag, flag)


def updates(experience: ReplayExperience, first: int, last: int, stride: int = 1) -> list[int]:
    dealt = []
    for steps in range(first, last + 1, stride):
        experience.add(step())
        dealt += [steps] * len(list(experience.batches(steps)))
    return dealt


@pytest.mark.parametrize("stride", [1, 2])
def test_one_round_per_train_freq_steps_after_the_warm_up(stride: int) -> None:
    assert updates(make(), stride, 30, stride) == [14, 18, 22, 26, 30]


def test_a_stride_over_several_rounds_deals_all_of_them() -> None:
    assert updates(make(gradient_steps=2), 20, 40, 20) == [20] * 4 + [40] * 10


def test_what_is_earned_before_there_is_a_window_is_dealt_with_the_first_one() -> None:
    assert updates(make(3, learning_starts=0, train_freq=1), 1, 4) == [3, 3, 3, 4]


def test_another_cadence_after_a_resume_owes_nothing_of_old() -> None:
    before = make(train_freq=256)
    updates(before, 1, 1_000)
    after = make(train_freq=4)
    after.load_state_dict(before.state_dict())
    assert updates(after, 1_001, 1_010) == [1_002, 1_006, 1_010]


def test_what_is_owed_is_still_owed_after_a_resume() -> None:
    cadence = {"learning_starts": 0, "train_freq": 1, "gradient_steps": 2}
    before, after = make(3, **cadence), make(3, **cadence)
    assert updates(before, 1, 2) == []
    after.load_state_dict(before.state_dict())
    assert updates(after, 3, 4) == [3] * 6 + [4] * 2


def make_prioritized(**options: float) -> PrioritizedExperience:
    settings: dict[str, Any] = {"beta": 0.4, "beta_final": 1.0, "total_timesteps": 100, **options}
    return PrioritizedExperience(
        PrioritizedReplayBuffer(100, (1,), rng=np.random.default_rng(3)),
        NStepFolder(1, 0.9, 1, (1,), np.float32, (), np.int64),
        batch_size=16,
        learning_starts=10,
        train_freq=4,
        gradient_steps=2,
        **settings,
    )


def found(priorities: torch.Tensor | None) -> UpdateResult:
    return UpdateResult(Means({}), priorities)


def names_and_weights(batch: Batch) -> tuple[Array, torch.Tensor]:
    assert batch.indices is not None
    assert batch.weight is not None
    return batch.indices, batch.weight


def errors(batch: Batch) -> UpdateResult:
    indices, _ = names_and_weights(batch)
    return found(torch.from_numpy(indices % 7).float())


def learn(experience: PrioritizedExperience, first: int, last: int) -> list[Batch]:
    dealt = []
    for steps in range(first, last + 1):
        experience.add(step())
        for batch in experience.batches(steps):
            dealt.append(batch)
            experience.feedback(batch, errors(batch))
    return dealt


def test_prioritized_updates_are_due_when_uniform_ones_are() -> None:
    assert len(learn(make_prioritized(), 1, 30)) == 10


def test_beta_moves_in_a_line_and_ends_with_the_run() -> None:
    experience = make_prioritized()
    betas = {}
    for steps in (0, 50, 75, 100, 200):
        list(experience.batches(steps))
        betas[steps] = experience.beta
    assert betas == {0: 0.4, 50: pytest.approx(0.7), 75: pytest.approx(0.85), 100: 1.0, 200: 1.0}


@pytest.mark.parametrize(
    ("settings", "steps", "beta"),
    [
        ({}, 58, 0.4 + 0.6 * 0.58),
        ({}, 98, 0.4 + 0.6 * 0.98),
        ({"beta_final": 0.4}, 58, 0.4),
        ({"total_timesteps": 580}, 58, 0.46),
    ],
)
def test_batches_carry_weights_of_the_present_beta(
    settings: dict[str, float], steps: int, beta: float
) -> None:
    experience = make_prioritized(**settings)
    learn(experience, 1, steps - 1)
    experience.add(step())
    batch = next(experience.batches(steps))  # updates are due at 14, 18, ...
    indices, weight = names_and_weights(batch)
    chances = experience.buffer.probabilities(indices)
    assert weight.numpy() == pytest.approx((chances.min() / chances) ** beta, rel=1e-6)
    assert weight.min() < 1.0


def test_feedback_moves_the_chances() -> None:
    experience = make_prioritized()
    learn(experience, 1, 14)
    result = found(torch.tensor([30.0, 0.0]))
    zeros = torch.zeros(2)
    experience.feedback(Batch(zeros, zeros, zeros, zeros, zeros, indices=np.array([3, 4])), result)
    chances = experience.buffer.probabilities(np.arange(14))
    assert chances[3] == chances.max() > 100 * chances[4]
    assert chances[4] == chances.min()


def test_an_update_without_priorities_is_refused() -> None:
    experience = make_prioritized()
    (batch, *_) = learn(experience, 1, 14)
    with pytest.raises(ValueError, match="needs a priority per sample"):
        experience.feedback(batch, found(None))


@pytest.mark.parametrize("name", ["beta", "beta_final"])
def test_a_beta_outside_its_range_is_refused_at_once(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be from 0 to 1, got 1.5"):
        make_prioritized(**{name: 1.5})


def test_a_resumed_prioritized_run_draws_what_the_uninterrupted_one_does() -> None:
    straight, before, after = make_prioritized(), make_prioritized(), make_prioritized()
    expected = learn(straight, 1, 90)
    got = learn(before, 1, 47)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    after.buffer._rng.bit_generator.state = before.buffer._rng.bit_generator.state  # belongs to the run
    got += learn(after, 48, 90)
    assert len(got) == len(expected) == 40
    for one, other in zip(got, expected, strict=True):
        (indices, weight), (other_indices, other_weight) = names_and_weights(one), names_and_weights(other)
        assert np.array_equal(indices, other_indices)
        assert torch.equal(weight, other_weight)

"""When updates are due, counted in environment steps."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.data import NStepFolder, ReplayBuffer, ReplayExperience, Transitions


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

"""Means of what updates report, kept in a block of memory of their own."""

from __future__ import annotations

import time
import weakref
from typing import Any

import pytest
import torch

from rl_training.algorithms.protocol import Means
from rl_training.runtime.metrics import Metrics


@pytest.mark.parametrize("count", [1, 5, 256, 257, 700])
def test_a_row_is_the_mean_over_updates(count: int) -> None:
    metrics = Metrics(window=10)
    values = [torch.full((3,), float(i)) + torch.tensor([0.0, 1.0, 2.0]) for i in range(count)]
    for i, value in enumerate(values):
        metrics.record(Means({"error": value, "norm": torch.tensor(2.0 * i)}))
    row = metrics.row()
    assert row["train/error"] == pytest.approx((count - 1) / 2 + 1)
    assert row["train/norm"] == pytest.approx(count - 1)
    assert metrics.row() == {}


def test_batches_of_different_sizes_count_as_one_update_each() -> None:
    metrics = Metrics(window=10)
    for size, value in ((2, 1.0), (3, 4.0), (3, 6.0), (1, 9.0)):
        metrics.record(Means({"error": torch.full((size,), value)}))
    assert metrics.row() == {"train/error": pytest.approx(5.0)}


def test_where_a_save_cuts_makes_no_difference() -> None:
    torch.manual_seed(0)
    values = torch.randn(600, 5)
    whole, cut = Metrics(window=10), Metrics(window=10)
    for i, value in enumerate(values):
        whole.record(Means({"error": value}))
        cut.record(Means({"error": value}))
        if i in (3, 300, 301):
            other = Metrics(window=10)
            other.load_state_dict(cut.state_dict())
            cut = other
    assert whole.row() == cut.row()


def test_tensors_of_updates_are_not_kept() -> None:
    """Kept ones would lie between the large tensors of later updates, and the heap would grow by those."""
    metrics = Metrics(window=10)
    value = torch.ones(4)
    metrics.record(Means({"error": value}))
    there = weakref.ref(value)
    del value
    assert there() is None
    assert metrics.row() == {"train/error": 1.0}


def test_time_spent_in_replay_has_a_name_of_its_own() -> None:
    from helpers.contracts import small_config
    from rl_training.runtime.loop import train
    from rl_training.runtime.run import Run

    run = Run(small_config("dqn"))
    sample = run.experience.buffer.sample  # type: ignore[attr-defined]

    def slow(count: int) -> Any:
        time.sleep(0.005)
        return sample(count)

    run.experience.buffer.sample = slow  # type: ignore[attr-defined]
    for _ in train(run):
        pass
    run.close()
    assert run.clock.updates > 30
    assert run.timer.seconds["replay"] > 0.005 * run.clock.updates
    assert run.timer.seconds["learning"] < run.timer.seconds["replay"]

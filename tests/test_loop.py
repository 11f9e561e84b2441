"""Small parts of a run: what the loop counts, where time goes, and when a threshold stops it."""

from __future__ import annotations

import time
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.contracts import small_config
from rl_training.algorithms.actor_critic import squared_loss
from rl_training.runtime.callbacks import StopOnThreshold, keyed
from rl_training.runtime.clock import Every
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run
from rl_training.runtime.timing import Timer


def test_episodes_that_end_together_count_each() -> None:
    """Both environments end every episode after two steps, so that every second step of them ends two."""
    limit = [{"id": "TimeLimit", "kwargs": {"max_episode_steps": 2}}]
    config = small_config("dqn", env__num_envs=2, env__wrappers=limit)
    with closing(Run(config)) as run:
        training = train(run)
        for _ in range(6):
            next(training)
        assert run.clock.steps == 12
        assert run.clock.episodes == 6
        assert run.metrics.row()["rollout/ep_len_mean"] == 2.0


def test_updates_leave_an_environment_s_arithmetic_alone() -> None:
    """Denormal numbers are taken for zero while an update is made, and only then."""
    tiny = torch.tensor([1e-40])
    with closing(Run(small_config("dqn"))) as run:
        during: list[float] = []
        update = run.algorithm.update

        def watched(batch: Any) -> Any:
            during.append(float(tiny * 1.0))
            return update(batch)

        run.policy.algorithm.update = watched  # type: ignore[method-assign]
        training = train(run)
        while not during:
            next(training)
        assert set(during) == {0.0}
        assert float(tiny * 1.0) > 0.0
        assert np.float32(1e-40) * np.float32(1.0) > 0.0


def test_the_time_is_charged_once() -> None:
    begun = time.perf_counter()
    timer = Timer()
    for account in ("environment", "learning", "environment", "checkpoint"):
        time.sleep(0.01)
        timer.lap(account)
    elapsed = time.perf_counter() - begun
    assert 0.04 <= timer.total <= elapsed
    assert timer.seconds["environment"] >= 0.02
    assert timer.training == pytest.approx(timer.total - timer.seconds["checkpoint"])


@pytest.mark.parametrize(("mean", "stops"), [(9.5, False), (10.0, True), (11.0, True)])
def test_a_threshold_stops_as_soon_as_it_is_met(mean: float, stops: bool) -> None:
    said: list[str] = []
    training: Any = SimpleNamespace(stop=said.append)
    StopOnThreshold(10.0).on_evaluation(training, SimpleNamespace(mean=mean))  # type: ignore[arg-type]
    assert bool(said) == stops


def test_callbacks_of_one_class_keep_their_states_apart() -> None:
    first, second = StopOnThreshold(1.0), StopOnThreshold(2.0)
    assert keyed([first, second], "built-in-") == {
        "built-in-StopOnThreshold-1": first,
        "built-in-StopOnThreshold-2": second,
    }


def test_what_is_due_every_so_often_does_not_drift() -> None:
    every = Every(100)
    assert [steps for steps in range(0, 1001, 16) if every.due(steps)] == [
        -(-multiple // 16) * 16 for multiple in range(100, 1001, 100) if -(-multiple // 16) * 16 <= 1001
    ]


def test_the_critics_loss_by_hand() -> None:
    values = torch.tensor([[1.0, 2.0, 5.0], [3.0, 0.0, 5.0]])
    target, weight = torch.tensor([2.0, 1.0, 5.0]), torch.tensor([1.0, 0.5, 3.0])
    plain, weighted = squared_loss(values, target, None), squared_loss(values, target, weight)
    assert float(plain.loss) == pytest.approx((1 + 1 + 0) / 3 + (1 + 1 + 0) / 3)
    assert float(weighted.loss) == pytest.approx(2 * (1 + 0.5) / 3)
    # The errors of the two critics have opposite signs, and count both.
    assert plain.priority.tolist() == weighted.priority.tolist() == [1.0, 1.0, 0.0]

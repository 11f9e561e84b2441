"""train_td3 from config to checkpoint: what it writes, what it refuses, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers import actor_critic_runs as runs


def test_train_td3_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    metrics = runs.check_trains("td3", tmp_path / "run")
    assert metrics["train/actor_updates"] == metrics["train/n_updates"] // 2


def test_actions_keep_to_uneven_bounds(tmp_path: Path) -> None:
    runs.check_bounded_actions("td3", tmp_path)


def test_other_spaces_are_refused_by_name(tmp_path: Path) -> None:
    runs.check_unfit_spaces("td3", tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"algo_kwargs__target_policy_noise": 1.5}, "algo_kwargs.target_policy_noise: 1.5 is not allowed"),
        ({"algo_kwargs__target_noise_clip": 2}, "algo_kwargs.target_noise_clip: 2 is not allowed"),
        ({"algo_kwargs__policy_delay": 0}, "algo_kwargs.policy_delay: 0 is not allowed"),
        ({"algo_kwargs__policy_freq": 2}, "algo_kwargs.policy_freq: unknown key; did you mean"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    runs.check_refused("td3", tmp_path / "run", said, **overrides)


def test_priorities_and_longer_returns_go_on_exactly(tmp_path: Path) -> None:
    runs.check_goes_on_exactly(
        runs.small("td3/pendulum", algo_kwargs__prioritized=True, algo_kwargs__n_step_return=3), tmp_path
    )

"""train_crossq from config to checkpoint: what it writes, what it refuses, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers import actor_critic_runs as runs


def test_train_crossq_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    metrics = runs.check_trains("crossq", tmp_path / "run", "entropy", "ent_coef")
    assert metrics["train/actor_updates"] == metrics["train/n_updates"] // 2


def test_actions_keep_to_uneven_bounds(tmp_path: Path) -> None:
    runs.check_bounded_actions("crossq", tmp_path)


def test_other_spaces_are_refused_by_name(tmp_path: Path) -> None:
    runs.check_unfit_spaces("crossq", tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"algo_kwargs__tau": 0.01}, "algo_kwargs.tau: not for crossq"),
        ({"algo_kwargs__critic_layer_norm": True}, "algo_kwargs.critic_layer_norm: not for crossq"),
        ({"algo_kwargs__critic_dropout": 0.1}, "algo_kwargs.critic_dropout: not for crossq"),
        (
            {"algo_kwargs__batch_size": 1},
            "algo_kwargs.batch_size: 1 has no batch statistics, which crossq normalises by; take 2 or more",
        ),
        (
            {"network__layer_norm": True},
            "network.layer_norm: not for crossq, whose layers are batch-normalised",
        ),
        ({"algo_kwargs__target_entropy": 1.0}, "algo_kwargs.target_entropy: 1 cannot be reached"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    runs.check_refused("crossq", tmp_path / "run", said, **overrides)


def test_batch_statistics_go_on_exactly(tmp_path: Path) -> None:
    runs.check_goes_on_exactly(
        runs.small("crossq/pendulum", algo_kwargs__renorm_warm_up=20, algo_kwargs__n_step_return=2), tmp_path
    )

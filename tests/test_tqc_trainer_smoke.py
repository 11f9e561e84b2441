"""train_tqc from config to checkpoint: what it writes, what it refuses, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers import actor_critic_runs as runs


def test_train_tqc_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    metrics = runs.check_trains("tqc", tmp_path / "run", "entropy", "ent_coef")
    assert metrics["train/actor_updates"] == metrics["train/n_updates"] // 1


def test_actions_keep_to_uneven_bounds(tmp_path: Path) -> None:
    runs.check_bounded_actions("tqc", tmp_path)


def test_other_spaces_are_refused_by_name(tmp_path: Path) -> None:
    runs.check_unfit_spaces("tqc", tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            {"algo_kwargs__drop_quantiles": 25},
            "algo_kwargs.drop_quantiles: 25 leaves nothing of algo_kwargs.num_quantiles=25",
        ),
        ({"algo_kwargs__target_critics": 1}, "algo_kwargs.target_critics: 1 is not allowed"),
        ({"algo_kwargs__n_quantiles": 5}, "algo_kwargs.n_quantiles: unknown key; did you mean"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    runs.check_refused("tqc", tmp_path / "run", said, **overrides)


def test_priorities_go_on_exactly(tmp_path: Path) -> None:
    runs.check_goes_on_exactly(runs.small("tqc/pendulum", algo_kwargs__prioritized=True), tmp_path)

"""train_sac from config to checkpoint: what it writes, what it refuses, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers import actor_critic_runs as runs


def test_train_sac_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    metrics = runs.check_trains("sac", tmp_path / "run", "entropy", "ent_coef")
    assert metrics["train/actor_updates"] == metrics["train/n_updates"] // 1


def test_actions_keep_to_uneven_bounds(tmp_path: Path) -> None:
    runs.check_bounded_actions("sac", tmp_path)


def test_other_spaces_are_refused_by_name(tmp_path: Path) -> None:
    runs.check_unfit_spaces("sac", tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            {"algo_kwargs__target_entropy": 0.7},
            "algo_kwargs.target_entropy: 0.7 cannot be reached: ",
        ),
        (
            {"algo_kwargs__ent_coef": 0.1, "algo_kwargs__target_entropy": -3},
            "algo_kwargs.target_entropy: has no effect with a fixed algo_kwargs.ent_coef",
        ),
        (
            {"algo_kwargs__ent_coef": 0.1, "algo_kwargs__ent_coef_init": 0.5},
            "algo_kwargs.ent_coef_init: has no effect on a fixed algo_kwargs.ent_coef",
        ),
        ({"algo_kwargs__ent_coef": 0}, "algo_kwargs.ent_coef"),
        (
            {"algo_kwargs__sde_sample_freq": 4},
            "algo_kwargs.sde_sample_freq: has no effect without algo_kwargs.use_sde",
        ),
        (
            {"algo_kwargs__use_sde": True, "network__hidden_sizes": []},
            "algo_kwargs.use_sde: needs a hidden layer",
        ),
        (
            {"algo_kwargs__target_critics": 3},
            "algo_kwargs.target_critics: 3 cannot be drawn from algo_kwargs.n_critics=2",
        ),
        ({"algo_kwargs__critic_dropout": 1.0}, "algo_kwargs.critic_dropout: 1.0 is not allowed"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    runs.check_refused("sac", tmp_path / "run", said, **overrides)


def test_lasting_noise_and_temperature_go_on_exactly(tmp_path: Path) -> None:
    runs.check_goes_on_exactly(
        runs.small("sac/pendulum", algo_kwargs__use_sde=True, algo_kwargs__sde_sample_freq=7), tmp_path
    )

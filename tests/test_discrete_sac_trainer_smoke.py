"""train_discrete_sac from config to checkpoint: what it writes, what it refuses, masks, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers import actor_critic_runs as runs
from helpers import rollout_checks
from helpers.actor_critic import trainer


def test_train_discrete_sac_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    metrics = runs.check_trains("discrete_sac", tmp_path / "run", "entropy", "ent_coef", env="cartpole")
    assert metrics["train/actor_updates"] == metrics["train/n_updates"]


@pytest.mark.parametrize("options", [{}, {"critic_entropy": False, "target": "mean"}])
def test_what_is_forbidden_is_neither_played_nor_predicted(tmp_path: Path, options: dict[str, Any]) -> None:
    kwargs = {f"algo_kwargs__{name}": value for name, value in options.items()}
    config = runs.small(
        "discrete_sac/cartpole", env__id="Forbidding-v0", evaluation__final_episodes=10, **kwargs
    )
    rollout_checks.check_masks_are_kept_to(trainer("discrete_sac"), config, tmp_path / "run")


def test_the_best_of_what_is_allowed_is_learned(tmp_path: Path) -> None:
    config = runs.small(
        "discrete_sac/cartpole",
        env__id="Forbidding-v0",
        total_timesteps=4_000,
        algo_kwargs__learning_rate=3e-3,
        algo_kwargs__target_entropy_ratio=0.3,
        evaluation__final_episodes=50,
    )
    result = trainer("discrete_sac")(config, run_dir=tmp_path / "run", console=False)
    assert result.evaluation is not None
    assert result.evaluation.mean > 7.5, "9 is perfect; by chance, about 3.9 of two allowed actions"


def test_masks_and_priorities_go_on_exactly(tmp_path: Path) -> None:
    config = runs.small(
        "discrete_sac/cartpole",
        env__id="Forbidding-v0",
        algo_kwargs__prioritized=True,
        algo_kwargs__n_step_return=3,
    )
    runs.check_goes_on_exactly(config, tmp_path)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"env__id": "Pendulum-v1"}, "algo: 'discrete_sac' takes discrete actions, not continuous ones; "),
        (
            {"algo_kwargs__target_entropy_ratio": 1.0},
            "algo_kwargs.target_entropy_ratio: 1.0 is not allowed: should be less than 1",
        ),
        (
            {"algo_kwargs__ent_coef": 0.1, "algo_kwargs__target_entropy_ratio": 0.5},
            "algo_kwargs.target_entropy_ratio: has no effect with a fixed algo_kwargs.ent_coef",
        ),
        ({"algo_kwargs__target": "max"}, "algo_kwargs.target: "),
        ({"algo_kwargs__target_entropy": 0.5}, "algo_kwargs.target_entropy: unknown key; did you mean"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    runs.check_refused("discrete_sac", tmp_path / "run", said, env="cartpole", **overrides)

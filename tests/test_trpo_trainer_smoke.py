"""train_trpo, from config to checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers import rollout_checks as checks
from helpers.rollout_checks import KINDS, METRICS, SMALL, small
from rl_training import load_config
from rl_training.algorithms import TRPO
from rl_training.errors import ConfigError
from rl_training.runtime.trpo_trainer import train_trpo

NAMES = {*METRICS, "kl", "surrogate_gain", "line_search_success"}
BRIEF: dict[str, Any] = {"algo_kwargs__batch_size": 32, "algo_kwargs__n_critic_updates": 2}


def brief(**overrides: Any) -> Any:
    return small("trpo/cartpole", **{**BRIEF, **overrides})


def test_train_trpo_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    options = {"algo_kwargs.batch_size": 32, "algo_kwargs.n_critic_updates": 2}
    config = load_config("trpo/cartpole", {**SMALL, **options})
    result, rows = checks.check_train_writes_checkpoint_and_metrics(
        train_trpo, config, tmp_path / "run", NAMES
    )
    # Two passes of the critic over four minibatches, in the last rollout over two, and a step of the policy.
    updates = 0
    for row, critic in zip(rows, [8] * 9 + [4], strict=True):
        moved = row["train/line_search_success"]
        updates += critic + int(moved)
        assert row["train/n_updates"] == updates
        assert 0 <= row["train/kl"] < config.algo_kwargs.target_kl
        assert (row["train/surrogate_gain"] > 0) == (moved == 1) == (row["train/kl"] > 0)
    assert result.updates == updates > 9 * 8 + 4


def test_train_trpo_learns_a_little(tmp_path: Path) -> None:
    config = load_config(
        "trpo/cartpole",
        {"total_timesteps": 8_192, "evaluation.frequency": 0, "evaluation.final_episodes": 20},
    )
    result = train_trpo(config, run_dir=tmp_path / "run", console=False)
    assert result.evaluation is not None
    assert result.evaluation.mean > 60, "a random policy scores about 22"


def test_a_budget_is_kept_to_exactly_and_every_step_learned_from_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks.check_makes_exactly_the_steps_of_its_budget(monkeypatch, brief(), TRPO, tmp_path / "run")


def test_train_trpo_refuses_another_algorithm(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not trained by train_trpo; it trains trpo"):
        train_trpo(load_config("ppo/cartpole"), run_dir=tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"algo_kwargs__n_steps": 601}, "algo_kwargs.n_steps: 601 steps of 2 environments are more than"),
        (
            {"algo_kwargs__shared_trunk": True},
            "algo_kwargs.shared_trunk: True is not allowed: should be False",
        ),
        (
            {"env__id": "UnboundedSigns-v0", "algo_kwargs__action_distribution": "tanh_gaussian"},
            "algo_kwargs.action_distribution: tanh_gaussian needs bounds",
        ),
        (
            {"algo_kwargs__action_distribution": "gaussian"},
            "algo_kwargs.action_distribution: gaussian is for cont",
        ),
        (
            {"env__id": "NothingSigns-v0"},
            "env: actions of Dict('left': Discrete(2), 'right': Discrete(2)) are not",
        ),
        ({"algo_kwargs__target_kl": 0}, "algo_kwargs.target_kl: 0 is not allowed"),
        ({"algo_kwargs__clip_range": 0.2}, "algo_kwargs.clip_range: unknown key"),
        ({"algo_kwargs__max_kl": 0.02}, "algo_kwargs.max_kl: unknown key; did you mean 'target_kl'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    checks.check_refused(train_trpo, lambda: brief(**overrides), tmp_path / "run", said)


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_actions_train_and_are_predicted(tmp_path: Path, kind: str) -> None:
    checks.check_trains_and_predicts(train_trpo, brief(env__id=f"{kind}Signs-v0"), tmp_path / "run")


def test_actions_squashed_into_bounds_train_and_are_predicted(tmp_path: Path) -> None:
    config = brief(env__id="BoundedSigns-v0", algo_kwargs__action_distribution="tanh_gaussian")
    checks.check_trains_and_predicts(train_trpo, config, tmp_path / "run")


def test_what_is_forbidden_is_neither_played_nor_predicted(tmp_path: Path) -> None:
    config = brief(env__id="Forbidding-v0", evaluation__final_episodes=20)
    checks.check_masks_are_kept_to(train_trpo, config, tmp_path / "run")


def test_one_allowed_action_leaves_no_choice(tmp_path: Path) -> None:
    config = brief(env__id="Forbidding-v0", env__kwargs={"allowed": 1})
    checks.check_one_allowed_action_leaves_no_choice(train_trpo, config, tmp_path / "run")


def test_statistics_are_those_of_what_was_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = brief(network__normalize_obs=True, algo_kwargs__normalize_reward=True)
    checks.check_statistics(train_trpo, config, tmp_path / "run", monkeypatch)


def test_predict_applies_the_statistics(tmp_path: Path) -> None:
    config = brief(env__id="UnboundedSigns-v0", network__normalize_obs=True)
    checks.check_predict_normalises(train_trpo(config, run_dir=tmp_path / "run", console=False).checkpoint)

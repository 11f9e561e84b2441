"""train_ppo, from config to checkpoint, for PPO and A2C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import rollout_checks as checks
from helpers.rollout_checks import CLIPPED, KINDS, SMALL, TOTAL, small
from rl_training import algorithms, load_config
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.runtime.curves import read_metrics
from rl_training.runtime.ppo_trainer import train_ppo

BRIEF = {"algo_kwargs__batch_size": 32, "algo_kwargs__n_epochs": 2}


def test_train_ppo_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    options = {"algo_kwargs.batch_size": 32, "algo_kwargs.n_epochs": 2}
    config = load_config("ppo/cartpole", {**SMALL, **options})
    result, rows = checks.check_train_writes_checkpoint_and_metrics(
        train_ppo, config, tmp_path / "run", CLIPPED
    )
    # Four minibatches of 32 make a rollout of 128; the last one is of 48 steps, so it has one of 32 and one of 16.
    assert [row["train/n_updates"] for row in rows] == [*range(8, 73, 8), 76]
    assert result.updates == 76
    for row in rows:
        begun = (row["step"] - 1) // 128 * 128  # where the rollout of that row began
        left = 1 - begun / TOTAL
        assert row["train/clip_range"] == pytest.approx(0.2 * left)
        assert row["train/learning_rate"] == pytest.approx(1e-3 * left)
        assert 0 < row["train/entropy"] <= np.log(2) + 1e-6
        assert row["train/epochs"] == 2


def test_train_a2c_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    config = load_config("a2c/cartpole", SMALL)
    result, rows = checks.check_train_writes_checkpoint_and_metrics(
        train_ppo, config, tmp_path / "run", CLIPPED
    )
    assert [row["train/n_updates"] for row in rows] == [*range(1, 11)]
    assert result.updates == 10
    for row in rows:
        assert row["train/clip_fraction"] == 0, "the policy that is improved is the one that acted"
        assert row["train/approx_kl"] == pytest.approx(0, abs=1e-6)


def test_train_ppo_learns_a_little(tmp_path: Path) -> None:
    config = load_config(
        "ppo/cartpole", {"total_timesteps": 8_192, "evaluation.frequency": 0, "evaluation.final_episodes": 20}
    )
    result = train_ppo(config, run_dir=tmp_path / "run", console=False)
    assert result.evaluation is not None
    assert result.evaluation.mean > 60, "a random policy scores about 22"


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_a_budget_is_kept_to_exactly_and_every_step_learned_from_once(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, learner = small(f"{algo}/cartpole"), getattr(algorithms, algo.upper())
    checks.check_makes_exactly_the_steps_of_its_budget(monkeypatch, config, learner, tmp_path / "run")


def test_a_single_rollout_may_be_the_whole_budget(tmp_path: Path) -> None:
    config = small("ppo/cartpole", algo_kwargs__n_steps=600, **BRIEF)
    result = train_ppo(config, run_dir=tmp_path / "run", console=False)
    assert (result.steps, result.updates) == (1_200, 2 * 38)


def test_a_target_kl_ends_an_update_early(tmp_path: Path) -> None:
    options: dict[str, Any] = {"algo_kwargs__learning_rate": 0.03, "algo_kwargs__target_kl": 0.01}
    config = small("ppo/cartpole", **{**BRIEF, **options, "algo_kwargs__n_epochs": 10})
    result = train_ppo(config, run_dir=tmp_path / "run", console=False)
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "train/epochs" in row]
    counts = np.diff([0, *(row["train/n_updates"] for row in rows)])
    assert result.updates == counts.sum() < 380
    for row, count in zip(rows, counts, strict=True):
        steps = 4 if row["step"] < TOTAL else 2
        assert (row["train/epochs"] - 1) * steps <= count <= row["train/epochs"] * steps


def test_minibatches_that_do_not_divide_a_rollout_are_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small("ppo/cartpole", algo_kwargs__batch_size=100, algo_kwargs__n_epochs=1)
    result = train_ppo(config, run_dir=tmp_path / "run", console=False)
    said = "algo_kwargs.batch_size: 100 does not divide 128: the last minibatch of each epoch has 28"
    assert capsys.readouterr().err.count(said) == 1
    assert result.updates == 9 * 2 + 1


def test_train_ppo_refuses_another_algorithm(tmp_path: Path) -> None:
    for name in ("dqn/cartpole", "trpo/cartpole", "recurrent_ppo/cartpole_no_velocity"):
        with pytest.raises(ConfigError, match=r"not trained by train_ppo; it trains .*\bppo\b"):
            train_ppo(load_config(name), run_dir=tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            {"algo_kwargs__n_steps": 601},
            "algo_kwargs.n_steps: 601 steps of 2 environments are more than total_timesteps=1200; the largest that "
            "fits is 600",
        ),
        (
            {"algo_kwargs__action_distribution": "gaussian"},
            "algo_kwargs.action_distribution: gaussian is for continuous actions, these are discrete ones",
        ),
        (
            {"env__id": "MultiBinarySigns-v0", "algo_kwargs__action_distribution": "tanh_gaussian"},
            "algo_kwargs.action_distribution: tanh_gaussian is for continuous actions, these are multi-binary ones",
        ),
        (
            {"env__id": "UnboundedSigns-v0", "algo_kwargs__action_distribution": "tanh_gaussian"},
            "algo_kwargs.action_distribution: tanh_gaussian needs bounds to squash actions into",
        ),
        (
            {"env__id": "HalfBoundedSigns-v0", "algo_kwargs__action_distribution": "tanh_gaussian"},
            "algo_kwargs.action_distribution: tanh_gaussian needs bounds to squash actions into",
        ),
        (
            {"env__id": "NothingSigns-v0"},
            "env: actions of Dict('left': Discrete(2), 'right': Discrete(2)) are not",
        ),
        ({"env__id": "PairSigns-v0"}, "env: actions of Tuple(Discrete(2), Discrete(2)) are not supported"),
        ({"env__id": "GridSigns-v0"}, "env: actions of MultiDiscrete("),
        ({"algo_kwargs__clip_range": 0}, "algo_kwargs.clip_range: 0 is not allowed"),
        (
            {"algo_kwargs__value_clipping": "yes"},
            "algo_kwargs.value_clipping: 'yes' is not allowed: should be 'none'",
        ),
        (
            {"algo_kwargs__update_epochs": 4},
            "algo_kwargs.update_epochs: unknown key; did you mean 'n_epochs'?",
        ),
        ({"algo_kwargs__buffer_size": 100}, "algo_kwargs.buffer_size: unknown key"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    checks.check_refused(train_ppo, lambda: small("ppo/cartpole", **overrides), tmp_path / "run", said)


def test_a2c_has_no_minibatches(tmp_path: Path) -> None:
    said = "algo_kwargs.batch_size: 8 is not allowed"
    checks.check_refused(
        train_ppo, lambda: small("a2c/cartpole", algo_kwargs__batch_size=8), tmp_path / "run", said
    )


def test_an_own_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^network: ppo takes no custom network yet"):
        registry.train(
            small("ppo/cartpole"), run_dir=tmp_path / "run", network=lambda shape, n: None, console=False
        )


# Actions


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_actions_train_and_are_predicted(tmp_path: Path, kind: str) -> None:
    config = small("ppo/cartpole", env__id=f"{kind}Signs-v0", **BRIEF)
    result = checks.check_trains_and_predicts(train_ppo, config, tmp_path / "run")
    assert ("train/std" in result.metrics) == (kind not in ("MultiDiscrete", "MultiBinary"))


def test_actions_squashed_into_bounds_train_and_are_predicted(tmp_path: Path) -> None:
    options = {"algo_kwargs__action_distribution": "tanh_gaussian", "algo_kwargs__log_std_init": 1.0}
    config = small("ppo/cartpole", env__id="BoundedSigns-v0", **{**BRIEF, **options})
    checks.check_trains_and_predicts(train_ppo, config, tmp_path / "run")


LEARNED = {"MultiDiscrete": 8.5, "MultiBinary": 8.5, "Bounded": 7.5, "Unbounded": 7.5}
"""Returns to reach; 10 is perfect, and what knows nothing of the signs stays below 7."""


@pytest.mark.parametrize("kind", LEARNED)
def test_what_the_signs_ask_for_is_learned(tmp_path: Path, kind: str) -> None:
    config = small(
        "ppo/cartpole",
        env__id=f"{kind}Signs-v0",
        total_timesteps=8_000,
        algo_kwargs__learning_rate=3e-3,
        algo_kwargs__batch_size=64,
        evaluation__final_episodes=20,
    )
    result = train_ppo(config, run_dir=tmp_path / "run", console=False)
    assert result.evaluation is not None
    assert result.evaluation.mean > LEARNED[kind]


# Masks


def forbidding(**overrides: Any) -> Any:
    return small("ppo/cartpole", env__id="Forbidding-v0", **overrides)


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_what_is_forbidden_is_neither_played_nor_predicted(tmp_path: Path, vectorization: str) -> None:
    config = forbidding(env__vectorization=vectorization, evaluation__final_episodes=20, **BRIEF)
    checks.check_masks_are_kept_to(train_ppo, config, tmp_path / "run")


def test_one_allowed_action_leaves_no_choice(tmp_path: Path) -> None:
    config = forbidding(env__kwargs={"allowed": 1}, **BRIEF)
    checks.check_one_allowed_action_leaves_no_choice(train_ppo, config, tmp_path / "run")


def test_the_best_of_what_is_allowed_is_learned(tmp_path: Path) -> None:
    config = forbidding(total_timesteps=8_000, algo_kwargs__learning_rate=3e-3, evaluation__final_episodes=50)
    result = train_ppo(config, run_dir=tmp_path / "run", console=False)
    assert result.evaluation is not None
    assert result.evaluation.mean > 7.5, "9 is perfect; by chance, about 3.9 of two allowed actions"


# Statistics


def test_statistics_are_those_of_what_was_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small("ppo/cartpole", network__normalize_obs=True, algo_kwargs__normalize_reward=True, **BRIEF)
    checks.check_statistics(train_ppo, config, tmp_path / "run", monkeypatch)


@pytest.mark.parametrize("shared", [False, True])
def test_predict_applies_the_statistics(tmp_path: Path, shared: bool) -> None:
    options = {"network__normalize_obs": True, "algo_kwargs__shared_trunk": shared}
    config = small("ppo/cartpole", env__id="UnboundedSigns-v0", **{**BRIEF, **options})
    checks.check_predict_normalises(train_ppo(config, run_dir=tmp_path / "run", console=False).checkpoint)


def test_the_command_line_trains_evaluates_and_predicts(cli: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("total_timesteps=512", "evaluation.frequency=0", "evaluation.final_episodes=2")
    assert cli("train", "--config", "ppo/cartpole", "--run-dir", run, *words).code == 0
    assert cli("eval", run, "--episodes", "2").code == 0
    done = cli("predict", run, "--obs", "[0.0, 0.0, 0.1, 0.0]")
    assert done.out.strip() in ("0", "1")

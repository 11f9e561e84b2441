"""train_dqn, from config to checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import safe_open

from helpers.trainer_checks import SMALL, check_train_writes_checkpoint_and_metrics
from rl_training import load_config
from rl_training.errors import ConfigError
from rl_training.runtime.curves import read_metrics
from rl_training.runtime.dqn_trainer import train_dqn


def test_train_dqn_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    check_train_writes_checkpoint_and_metrics(train_dqn, "dqn/cartpole", tmp_path / "run", 1_200)


def test_train_prioritized_dqn_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    check_train_writes_checkpoint_and_metrics(train_dqn, "prioritized_dqn/cartpole", tmp_path / "run", 600)
    (replay,) = (tmp_path / "run" / "checkpoints").glob("step-000000600*/replay.safetensors")
    with safe_open(replay, "np") as file:
        (name,) = (name for name in file.keys() if name.endswith("priorities"))  # noqa: SIM118
        priorities = file.get_tensor(name)
    assert len(priorities) == 600 - 2 * 2, "three-step returns: the last two of each environment still wait"
    assert priorities.std() > 0, "updates should have fed their errors back"


def test_train_c51_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    metrics = check_train_writes_checkpoint_and_metrics(train_dqn, "c51/cartpole", tmp_path / "run", 600)
    assert 0 <= metrics["train/clipped_mass"] < 0.05


def test_train_qr_dqn_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    check_train_writes_checkpoint_and_metrics(train_dqn, "qr_dqn/cartpole", tmp_path / "run", 600)


def test_train_iqn_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    check_train_writes_checkpoint_and_metrics(train_dqn, "iqn/cartpole", tmp_path / "run", 600)


def test_train_rainbow_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    metrics = check_train_writes_checkpoint_and_metrics(train_dqn, "rainbow/cartpole", tmp_path / "run", 600)
    assert metrics["train/exploration_rate"] == 0


def test_train_dqn_learns_a_little(tmp_path: Path) -> None:
    config = load_config(
        "dqn/cartpole", {"total_timesteps": 8_000, "evaluation.frequency": 0, "evaluation.final_episodes": 20}
    )
    result = train_dqn(config, run_dir=tmp_path / "run", console=False)
    assert result.evaluation is not None
    assert result.evaluation.mean > 60, "a random policy scores about 22"


def test_train_dqn_refuses_another_algorithm(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole").model_copy(update={"algo": "ppo"})
    with pytest.raises(ConfigError, match="not trained by train_dqn"):
        train_dqn(config, run_dir=tmp_path / "run")


def test_schedules_follow_the_env_steps_of_the_run(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole", {**SMALL, "algo_kwargs.exploration_fraction": 0.5})
    train_dqn(config, run_dir=tmp_path / "run", console=False)
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "train/n_updates" in row]
    options = config.algo_kwargs
    middle, last = rows[1], rows[-1]
    assert middle["step"] == 400
    assert middle["train/exploration_rate"] == pytest.approx(
        1.0 + (options.exploration_final_eps - 1.0) * 400 / 600
    )
    assert last["train/exploration_rate"] == options.exploration_final_eps
    assert last["train/learning_rate"] == pytest.approx(options.learning_rate_final)

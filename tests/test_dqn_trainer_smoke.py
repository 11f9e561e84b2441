"""train_dqn, from config to checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training import load_config
from rl_training.errors import ConfigError
from rl_training.runtime.curves import read_metrics
from rl_training.runtime.dqn_trainer import train_dqn

SMALL = {
    "total_timesteps": 1_200,
    "env.num_envs": 2,
    "algo_kwargs.learning_starts": 200,
    "algo_kwargs.train_freq": 4,
    "algo_kwargs.gradient_steps": 1,
    "network.hidden_sizes": [32],
    "evaluation.frequency": 400,
    "evaluation.episodes": 2,
    "evaluation.final_episodes": 3,
    "logging.frequency": 200,
    "checkpoint.frequency": 500,
}


def test_train_dqn_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    result = train_dqn(load_config("dqn/cartpole", SMALL), run_dir=tmp_path / "run", console=False)

    assert result.steps == 1_200
    assert result.updates == (1_200 - 200) // 4
    assert result.metrics["train/n_updates"] == result.updates
    assert result.metrics["train/loss"] > 0
    assert result.evaluation is not None
    assert len(result.evaluation.returns) == 3
    assert (result.checkpoint / "manifest.json").is_file()

    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if "train/n_updates" in row] == [200, 400, 600, 800, 1_000, 1_200]
    assert [row["step"] for row in rows if "eval/mean_reward" in row] == [400, 800, 1_200, 1_200]
    written = {path.name for path in (tmp_path / "run").iterdir()}
    assert {
        "config.yaml",
        "metadata.json",
        "metrics.csv",
        "curve.png",
        "result.json",
        "tensorboard",
    } <= written
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 1_200


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

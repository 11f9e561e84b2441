"""What tests of the trainers share: a small run, and a look at everything that it writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rl_training import load_config
from rl_training.runtime.curves import read_metrics
from rl_training.runtime.session import TrainResult

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


def check_train_writes_checkpoint_and_metrics(
    train: Callable[..., TrainResult],
    name: str,
    run_dir: Path,
    total: int,
    names: Sequence[str] = ("loss", "q_value_mean", "target_mean", "td_error_mean"),
) -> dict[str, float]:
    """Train for ``total`` steps, a multiple of 200, and look at all that comes out; return the last metrics."""
    config = load_config(name, {**SMALL, "total_timesteps": total})
    result = train(config, run_dir=run_dir, console=False)

    assert result.steps == total
    assert result.updates == (total - 200) // 4
    assert result.metrics["train/n_updates"] == result.updates
    assert all(np.isfinite(value) for value in result.metrics.values())
    assert {f"train/{name}" for name in names} <= result.metrics.keys()
    assert result.evaluation is not None
    assert len(result.evaluation.returns) == 3
    assert (result.checkpoint / "manifest.json").is_file()

    rows = read_metrics(run_dir / "metrics.jsonl")
    assert [row["step"] for row in rows if "train/n_updates" in row] == list(range(200, total + 1, 200))
    evaluated = list(range(0, total + 1, 400))
    assert [row["step"] for row in rows if "eval/mean_reward" in row] == evaluated
    assert [row["step"] for row in rows if "final/mean_reward" in row] == [total]
    written = {path.name for path in run_dir.iterdir()}
    assert {
        "config.yaml",
        "metadata.json",
        "metrics.csv",
        "curve.png",
        "result.json",
        "tensorboard",
    } <= written
    written_result = json.loads((run_dir / "result.json").read_text())
    assert (written_result["algo"], written_result["steps"]) == (config.algo, total)
    return result.metrics

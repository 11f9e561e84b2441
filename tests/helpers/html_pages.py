"""Run folders for reports and live pages, made without training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_training.config.loading import dump_yaml
from rl_training.experiment.configs import load_config

MP4 = b"\0\0\0\x18ftypmp42" + bytes(100)
"""Enough of a video to be taken for one."""


def put_log(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def put_run(
    path: Path,
    mean: float | None = 100.0,
    *,
    seed: int = 0,
    steps: int = 2_000,
    config: str = "dqn/cartpole",
    **more: Any,
) -> Path:
    """Make the folder of a run; without a ``mean`` it is not finished."""
    experiment = load_config(config, {"seed": seed, "total_timesteps": steps, **more})
    path.mkdir(parents=True)
    (path / "checkpoints").mkdir()
    (path / "run.lock").touch()
    (path / "config.yaml").write_text(dump_yaml(experiment))
    facts = {"rl_training": "0.1.0", "torch": "2.13.0", "cpu": "Some CPU"}
    (path / "metadata.json").write_text(json.dumps({"title": "DQN", "environment": facts}))
    end = 50.0 if mean is None else mean
    rows: list[dict[str, Any]] = []
    for step in range(100, steps + 1, 100):
        done = step / steps
        rows.append(
            {
                "step": step,
                "rollout/ep_rew_mean": end * done / 2,
                "train/loss": 1 - done,
                "time/time_elapsed": step / 100,
            }
        )
        rows.append({"step": step, "eval/mean_reward": end * done, "eval/std_reward": 1.0})
    put_log(path / "metrics.jsonl", rows)
    if mean is not None:
        split = {"environment": 1.0, "learning": 3.0}
        evaluation = {"mean": mean, "std": 2.0, "returns": [mean - 1, mean + 1]}
        result = {
            "algo": experiment.algo,
            "env": experiment.env.id,
            "seed": seed,
            "steps": steps,
            "seconds": 4.0,
        }
        (path / "result.json").write_text(
            json.dumps({**result, "time_split": split, "evaluation": evaluation})
        )
    return path


def put_seeds(folder: Path, scores: Sequence[float | None], **options: Any) -> Path:
    for seed, score in enumerate(scores):
        put_run(folder / f"seed-{seed}", score, seed=seed, **options)
    return folder

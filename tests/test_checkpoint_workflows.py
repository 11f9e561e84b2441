"""What one does with checkpoints: best and latest, retention, loading without an environment, falling back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import load_config
from rl_training.errors import CheckpointError, ConfigError, EnvError
from rl_training.experiment import registry
from rl_training.runtime.checkpoint import read_checkpoint, read_hint
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run
from rl_training.runtime.session import TrainResult
from rl_training.runtime.workflows import load_checkpoint, load_policy

TINY: dict[str, Any] = {
    "total_timesteps": 1_000,
    "algo_kwargs.learning_starts": 50,
    "algo_kwargs.train_freq": 4,
    "algo_kwargs.gradient_steps": 1,
    "network.hidden_sizes": [8],
    "evaluation.frequency": 250,
    "evaluation.episodes": 3,
    "evaluation.final_episodes": 2,
    "checkpoint.frequency": 100,
    "checkpoint.keep": 3,
    "logging.tensorboard": False,
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    path = tmp_path_factory.mktemp("workflows") / "run"
    return registry.train(load_config("dqn/cartpole", TINY), run_dir=path, console=False)


def test_newest_and_best_are_kept(result: TrainResult) -> None:
    folder = result.run_dir / "checkpoints"
    best = read_hint(folder, "best")
    assert best is not None
    kept = {path.name for path in folder.glob("step-*")}
    assert kept == {"step-000000800", "step-000000900", "step-000001000", best.name}
    assert read_hint(folder, "latest") == folder / "step-000001000"


def test_best_is_the_best_evaluation(result: TrainResult) -> None:
    rows = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    evaluations = [(row["eval/mean_reward"], -row["step"]) for row in rows if "eval/mean_reward" in row][1:]
    assert load_checkpoint(result.run_dir, best=True).step == -max(evaluations)[1]
    with pytest.raises(ConfigError, match=r"^--best: goes with a run folder; .* is one checkpoint$"):
        load_checkpoint(result.checkpoint, best=True)


def test_an_agent_is_loaded_without_its_environment(
    result: TrainResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gymnasium as gym

    monkeypatch.setattr(gym, "make", lambda *a, **k: pytest.fail("an environment was made"))
    policy, _ = load_policy(load_checkpoint(result.run_dir))
    assert policy.predict([0.0, 0.0, 0.0, 0.0])[0] in (0, 1)


def test_the_manifest_says_how_the_environments_come_back(result: TrainResult) -> None:
    info = read_checkpoint(result.checkpoint).info
    assert info["env_restore"] == "replayed"
    assert {"torch", "numpy", "gymnasium", "cpu", "threads"} <= info["versions"].keys()


def test_a_native_vector_env_trains_and_restarts(tmp_path: Path) -> None:
    overrides = {**TINY, "env.num_envs": 4, "env.vectorization": "native"}
    done = registry.train(load_config("dqn/cartpole", overrides), run_dir=tmp_path / "run", console=False)
    assert 1_000 <= done.steps < 1_004, (
        "a step of native envs may overshoot the budget, by less than their number"
    )
    assert read_checkpoint(done.checkpoint).info["env_restore"] == "restarted"
    more = registry.resume(tmp_path / "run", overrides=["total_timesteps=1200"], console=False)
    assert more.steps >= 1_200


def test_a_missing_part_is_an_error_not_a_default(result: TrainResult) -> None:
    checkpoint = load_checkpoint(result.run_dir)
    for section, part in (
        ("model", "target"),
        ("optimizer", "exp_avg"),
        ("loop", "learner"),
        ("spaces", "n"),
    ):
        tree = {name: dict(content) for name, content in checkpoint.tree.items()}
        del tree[section][part]
        damaged = type(checkpoint)(checkpoint.path, checkpoint.step, tree, checkpoint.info)
        with pytest.raises(CheckpointError):
            load_policy(damaged)


def test_a_native_env_that_returns_nan_is_caught_before_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(load_config("dqn/cartpole", {**TINY, "env.vectorization": "native"}))
    real_step = run.collector.envs.step

    def poisoned(actions: Any) -> Any:
        obs, *rest = real_step(actions)
        obs[0, 2] = np.nan
        return obs, *rest

    monkeypatch.setattr(run.collector.envs, "step", poisoned)
    with pytest.raises(EnvError, match="observations: expected finite numbers"):
        next(train(run))
    assert len(run.experience.state_dict()["buffer"]["rows"]) == 0

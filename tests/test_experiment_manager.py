"""One config over several seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training import ExperimentManager, load_config
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.statistics import bootstrap_interval, iqm

TINY = {
    "total_timesteps": 300,
    "algo_kwargs.learning_starts": 50,
    "algo_kwargs.train_freq": 4,
    "algo_kwargs.gradient_steps": 1,
    "network.hidden_sizes": [8],
    "evaluation.frequency": 100,
    "evaluation.episodes": 1,
    "evaluation.final_episodes": 3,
    "logging.tensorboard": False,
}


def test_scores_are_the_final_evaluations_of_each_seed(tmp_path: Path) -> None:
    summary = ExperimentManager(load_config("dqn/cartpole", TINY), seeds=3, folder=tmp_path).run(
        console=False
    )
    means = [
        json.loads((tmp_path / f"seed-{seed}" / "result.json").read_text())["evaluation"]["mean"]
        for seed in (0, 1, 2)
    ]
    assert list(summary.scores) == means
    assert len(set(means)) > 1
    assert summary.iqm == iqm(means)
    assert summary.interval == bootstrap_interval(means)
    assert json.loads((tmp_path / "summary.json").read_text())["iqm"] == summary.iqm
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_finished_seeds_are_kept_and_missing_ones_run(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole", TINY)
    ExperimentManager(config, seeds=1, folder=tmp_path).run(console=False)
    stamp = (tmp_path / "seed-0" / "result.json").stat().st_mtime_ns
    summary = ExperimentManager(config, seeds=2, folder=tmp_path).run(console=False)
    assert (tmp_path / "seed-0" / "result.json").stat().st_mtime_ns == stamp
    assert summary.seeds == (0, 1)


def test_an_interrupted_seed_is_resumed(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole", TINY)
    whole = ExperimentManager(config, seeds=1, folder=tmp_path / "whole").run(console=False)
    ExperimentManager(
        config.model_copy(update={"total_timesteps": 200}), seeds=1, folder=tmp_path / "cut"
    ).run(console=False)
    # The folder of a run that was killed: its config asks for more than its newest checkpoint has.
    for name in ("config.yaml",):
        (tmp_path / "cut" / "seed-0" / name).write_text((tmp_path / "whole" / "seed-0" / name).read_text())
    resumed = ExperimentManager(config, seeds=1, folder=tmp_path / "cut").run(console=False)
    assert len(whole.scores) == len(resumed.scores) == 1
    assert json.loads((tmp_path / "cut" / "seed-0" / "result.json").read_text())["steps"] == 300


def test_a_failing_seed_is_named(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole", {**TINY, "env.id": "Pendulum-v1"})
    with pytest.raises(RLTrainingError, match="seed 0: algo: 'dqn' takes discrete"):
        ExperimentManager(config, seeds=2, jobs=2, folder=tmp_path).run(console=False)


def test_nothing_to_compare_by_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.final_episodes"):
        ExperimentManager(
            load_config("dqn/cartpole", {**TINY, "evaluation.final_episodes": 0}), folder=tmp_path
        )

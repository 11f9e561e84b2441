"""Schedules of runs that go further than planned: they stay as they were, unless somebody stretches them."""

from __future__ import annotations

import functools
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import rl_training
from helpers.children import Child
from helpers.runs import learned, outcome, rows, stop_at
from rl_training.errors import ConfigError
from rl_training.experiment.configs import load_config
from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime import workflows
from rl_training.runtime.checkpoint import newest_checkpoint, read_checkpoint, save_checkpoint
from rl_training.runtime.run import Run
from rl_training.runtime.session import Interrupted

REPLAY = {
    "learning_starts": 50,
    "buffer_size": 300,
    "batch_size": 8,
    "train_freq": 8,
    "learning_rate_final": 1e-5,
}
ROLLOUT = {"n_steps": 25, "batch_size": 25, "learning_rate_final": 1e-5}
KINDS: dict[str, dict[str, Any]] = {
    "dqn": {"algo": "dqn", "algo_kwargs": {**REPLAY, "exploration_fraction": 1.0}},
    "rainbow": {"algo": "rainbow", "algo_kwargs": {**REPLAY, "v_min": 0, "v_max": 50, "noisy": False}},
    "r2d2": {
        "algo": "r2d2",
        "algo_kwargs": {**REPLAY, "sequence_length": 8, "burn_in": 2, "core_size": 4, "beta_final": 1.0},
    },
    "ppo": {"algo": "ppo", "algo_kwargs": {**ROLLOUT, "n_epochs": 2, "clip_range_final": 0.05}},
    "trpo": {"algo": "trpo", "algo_kwargs": {**ROLLOUT, "target_kl_final": 1e-3}},
    "sac": {
        "algo": "sac",
        "env": {"id": "Pendulum-v1", "num_envs": 2},
        "algo_kwargs": {**REPLAY, "prioritized": True},
    },
}
SHARED = {
    "env": {"id": "CartPole-v1", "num_envs": 2},
    "seed": 5,
    "total_timesteps": 400,
    "network": {"hidden_sizes": [8]},
    "evaluation": {"frequency": 0, "final_episodes": 0},
    "checkpoint": {"frequency": 100, "keep": 20},
    "logging": {"frequency": 50, "csv": False, "tensorboard": False},
}
SCHEDULED = ("exploration_rate", "learning_rate", "clip_range", "target_kl")


def configured(name: str = "dqn", **settings: Any) -> Any:
    return load_config({**SHARED, **KINDS[name], **settings})


def start(path: Path, name: str = "dqn", callback: Any = None, **settings: Any) -> None:
    workflows.start(configured(name, **settings), run_dir=path, callback=callback, console=False)


def resume(path: Path, *overrides: str, callback: Any = None) -> None:
    workflows.resume(path, overrides=overrides, callback=callback, trust=True, console=False)


def values(run: Run, steps: int) -> dict[str, float]:
    """What is scheduled, at that step."""
    run.algorithm.advance(steps)
    found = {key: value for key, value in run.algorithm.status().items() if key in SCHEDULED}
    experience: Any = run.experience
    if hasattr(experience, "beta"):
        experience._env_steps = steps
        found["beta"] = experience.beta
    return found


@pytest.mark.parametrize("name", KINDS)
def test_whatever_is_scheduled_runs_over_the_length_that_the_config_says(name: str) -> None:
    plain, short = Run(configured(name)), Run(configured(name, total_timesteps=1000, schedule_timesteps=400))
    moved = False
    for steps in range(0, 401, 50):
        assert values(short, steps) == values(plain, steps)
        moved |= values(short, steps) != values(short, 0)
    final = values(plain, 451)  # rollouts have what was due when they began
    assert moved
    for steps in (451, 700, 1000):
        assert values(short, steps) == final
    options: Any = plain.config.algo_kwargs
    assert final["learning_rate"] == 1e-5
    for key, option in (
        ("clip_range", "clip_range_final"),
        ("target_kl", "target_kl_final"),
        ("beta", "beta_final"),
    ):
        assert final.get(key) == getattr(options, option, None) or key not in final
    plain.close()
    short.close()


@pytest.mark.parametrize("name", KINDS)
def test_a_run_that_is_prolonged_goes_on_with_the_final_values(tmp_path: Path, name: str) -> None:
    start(tmp_path / "run", name)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    resume(tmp_path / "run", "total_timesteps=700")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes().startswith(before)
    assert load_config(tmp_path / "run" / "config.yaml").schedule_timesteps == 400
    logged = [row for row in rows(tmp_path / "run") if row["step"] > 450]
    keys = [f"train/{key}" for key in SCHEDULED if f"train/{key}" in logged[0]]
    assert "train/learning_rate" in keys
    assert len({tuple(row[key] for key in keys) for row in logged}) == 1
    assert logged[0]["train/learning_rate"] == pytest.approx(1e-5)


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_it_equals_the_run_that_had_these_schedules_and_this_budget_from_the_start(
    tmp_path: Path, name: str
) -> None:
    start(tmp_path / "run", name)
    resume(tmp_path / "run", "total_timesteps=700")
    start(tmp_path / "whole", name, total_timesteps=700, schedule_timesteps=400)
    assert learned(tmp_path / "run") == learned(tmp_path / "whole")


def test_a_larger_budget_in_the_middle_leaves_what_is_left_of_the_schedules(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        start(tmp_path / "run", callback=stop_at(200))
    resume(tmp_path / "run", "total_timesteps=700")
    start(tmp_path / "whole", total_timesteps=700, schedule_timesteps=400)
    assert learned(tmp_path / "run") == learned(tmp_path / "whole")
    rates = {row["step"]: row["train/exploration_rate"] for row in rows(tmp_path / "whole")}
    assert 0.05 < rates[350] < rates[250] < 1.0
    assert {rates[step] for step in range(400, 701, 50)} == {0.05}


def killed(path: Path, step: int, *overrides: str) -> None:
    resume(path, *overrides, callback=stop_at(step, signal.SIGKILL))


@pytest.mark.parametrize("words", [(), ("schedule_timesteps=700",), ("schedule_timesteps=null",)])
def test_a_prolonged_run_that_is_killed_ends_with_the_same_bits(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    start(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "cut")
    resume(tmp_path / "run", "total_timesteps=700", *words)
    # Before and after the first checkpoint that knows of the new budget.
    for step, overrides in ((450, ("total_timesteps=700", *words)), (600, ())):
        child = Child(tmp_path, functools.partial(killed, tmp_path / "cut", step, *overrides))
        assert child.wait() == -signal.SIGKILL, child.err
    resume(tmp_path / "cut")
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "run")
    assert load_config(tmp_path / "cut" / "config.yaml").schedule_timesteps == (700 if words else 400)


def test_a_run_killed_before_its_first_checkpoint_keeps_its_schedules_as_well(tmp_path: Path) -> None:
    begin = functools.partial(start, tmp_path / "run", callback=stop_at(50, signal.SIGKILL))
    child = Child(tmp_path, begin)
    assert child.wait() == -signal.SIGKILL, child.err
    resume(tmp_path / "run", "total_timesteps=700")
    start(tmp_path / "whole", total_timesteps=700, schedule_timesteps=400)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_schedules_are_stretched_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(tmp_path / "run")
    resume(tmp_path / "run", "total_timesteps=800", "schedule_timesteps=800")
    assert (
        capsys.readouterr().err
        == "total_timesteps 400 → 800: schedules are from here on those of 800 steps\n"
    )
    rates = {row["step"]: row["train/exploration_rate"] for row in rows(tmp_path / "run")}
    assert rates[400] == 0.05
    assert rates[500] == pytest.approx(1 - 0.95 * 500 / 800)
    assert rates[800] == 0.05


def test_what_is_said_of_schedules_is_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(tmp_path / "run")
    for words, said in (
        (
            ["total_timesteps=500"],
            "total_timesteps 400 → 500: schedules stay those of 400 steps; schedule_timesteps=500 stretches them",
        ),
        (
            ["total_timesteps=600", "schedule_timesteps=700"],
            "total_timesteps 500 → 600: schedules are from here on those of 700 steps",
        ),
        (["total_timesteps=700"], "total_timesteps 600 → 700: schedules stay those of 700 steps"),
        (
            ["total_timesteps=800"],
            "total_timesteps 700 → 800: schedules stay those of 700 steps; schedule_timesteps=800 stretches them",
        ),
    ):
        resume(tmp_path / "run", *words)
        assert capsys.readouterr().err == f"{said}\n"
    with pytest.raises(ConfigError, match="schedule_timesteps: has no effect, because the run is complete"):
        resume(tmp_path / "run", "schedule_timesteps=900")


def test_a_checkpoint_without_the_key_has_the_schedules_of_its_budget(tmp_path: Path) -> None:
    start(tmp_path / "run")
    checkpoint = newest_checkpoint(tmp_path / "run" / "checkpoints")[0]
    tree = checkpoint.tree
    del tree["config"]["schedule_timesteps"]
    old = save_checkpoint(tmp_path / "old", checkpoint.step, tree, checkpoint.info)
    assert "schedule_timesteps" not in read_checkpoint(old).tree["config"]
    workflows.load_policy(workflows.load_checkpoint(old))
    resume(old, "total_timesteps=700")
    resume(tmp_path / "run", "total_timesteps=700")
    (branch,) = (tmp_path / "old").glob("*-run")
    assert learned(branch) == learned(tmp_path / "run")


# The managed API, the command line, several seeds


def test_learning_again_goes_on_with_the_final_values(tmp_path: Path) -> None:
    options = {**KINDS["dqn"]["algo_kwargs"], "exploration_fraction": 0.5}
    agent = rl_training.DQN("CartPole-v1", config={k: v for k, v in SHARED.items() if k != "env"}, **options)
    agent._run_dir = tmp_path / "run"
    agent.learn(400, progress_bar=False)
    agent.learn(200, progress_bar=False)
    assert agent.config is not None
    assert (agent.config.total_timesteps, agent.config.schedule_timesteps) == (600, 400)
    agent.learn(200, progress_bar=False, schedule_timesteps=2000)
    assert (agent.config.total_timesteps, agent.config.schedule_timesteps) == (800, 2000)
    agent.resume(900, progress_bar=False, schedule_timesteps=900)
    rates = {row["step"]: row["train/exploration_rate"] for row in rows(tmp_path / "run")}
    assert (rates[400], rates[600], rates[800]) == (0.05, 0.05, pytest.approx(1 - 0.95 * 0.8))
    assert rates[900] == 0.05
    assert (agent.config.total_timesteps, agent.config.schedule_timesteps) == (900, 900)


def test_the_first_budget_may_be_a_part_of_what_schedules_are_meant_for(tmp_path: Path) -> None:
    agent = rl_training.DQN(config=configured(), run_dir=tmp_path / "run")
    agent.learn(200, progress_bar=False, schedule_timesteps=400)
    agent.learn(200, progress_bar=False)
    start(tmp_path / "whole")
    assert learned(tmp_path / "run") == learned(tmp_path / "whole")


def test_the_length_of_schedules_is_checked_like_any_number(tmp_path: Path, cli: Any) -> None:
    start(tmp_path / "run")
    done = cli("resume", tmp_path / "run", "total_timesteps=800", "schedule_timesteps=0")
    assert (done.code, done.err) == (
        2,
        "error: schedule_timesteps: 0 is not allowed: should be greater than or equal to 1\n",
    )


def test_seeds_that_are_carried_on_and_those_that_begin_then_have_the_same_schedules(tmp_path: Path) -> None:
    evaluation = {"frequency": 0, "final_episodes": 2}
    ExperimentManager(configured(evaluation=evaluation), seeds=1, folder=tmp_path).run(console=False)
    longer = configured(evaluation=evaluation, total_timesteps=600)
    for _ in range(2):
        ExperimentManager(longer, seeds=2, folder=tmp_path).run(console=False)
    for name in ("", "seed-5", "seed-6"):
        held = load_config(tmp_path / name / "config.yaml")
        assert (held.total_timesteps, held.schedule_timesteps) == (600, 400)
    fresh = {row["step"]: row for row in rows(tmp_path / "seed-6")}
    assert fresh[500]["train/exploration_rate"] == 0.05
    other = configured(evaluation=evaluation, total_timesteps=600, schedule_timesteps=600)
    with pytest.raises(ConfigError, match="is of another experiment: schedule_timesteps differs"):
        ExperimentManager(other, seeds=2, folder=tmp_path).run(console=False)
    assert json.loads((tmp_path / "summary.json").read_text())["total_timesteps"] == 600

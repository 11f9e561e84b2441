"""One config over several seeds."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from helpers.children import Child, command, wait_for
from rl_training import ExperimentManager, load_config
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment import registry
from rl_training.runtime.session import Interrupted
from rl_training.statistics import iqm

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
    assert summary.interval is None  # of three seeds it would be too narrow
    written = json.loads((tmp_path / "summary.json").read_text())
    assert (written["iqm"], written["interval"]) == (summary.iqm, None)
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_finished_seeds_are_kept_and_missing_ones_run(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole", TINY)
    ExperimentManager(config, seeds=1, folder=tmp_path).run(console=False)
    stamp = (tmp_path / "seed-0" / "result.json").stat().st_mtime_ns
    summary = ExperimentManager(config, seeds=2, folder=tmp_path).run(console=False)
    assert (tmp_path / "seed-0" / "result.json").stat().st_mtime_ns == stamp
    assert summary.seeds == (0, 1)


class SelfStopping(CartPoleEnv):
    """Sends its own process a signal at one step of all that were made in training."""

    made, at = 0, -1

    def step(self, action: Any) -> Any:
        SelfStopping.made += 1
        if SelfStopping.made == self.at:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().step(action)


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> type[SelfStopping]:
    monkeypatch.setattr(SelfStopping, "made", 0)
    return SelfStopping


def seed_result(folder: Path, name: str = "seed-0") -> Any:
    return json.loads((folder / name / "result.json").read_text())


def test_an_interruption_ends_all_seeds_and_the_next_run_completes_them(
    tmp_path: Path, stopping: type[SelfStopping]
) -> None:
    config = load_config("dqn/cartpole", {**TINY, "evaluation.frequency": 0})
    whole = ExperimentManager(config, seeds=2, folder=tmp_path / "whole", env=stopping).run(console=False)
    stopping.made, stopping.at = 0, 150
    cut = ExperimentManager(config, seeds=2, folder=tmp_path / "cut", env=stopping)
    with pytest.raises(Interrupted) as stopped:
        cut.run(console=False)
    assert str(stopped.value) == (
        f"SIGTERM: stopped; running the same command again with --run-dir {tmp_path / 'cut'} completes it"
    )
    assert stopped.value.exit_code == 143
    assert [path.name for path in (tmp_path / "cut" / "seed-0" / "checkpoints").glob("step-*")] == [
        "step-000000150"
    ]
    assert not (tmp_path / "cut" / "seed-0" / "result.json").exists()
    assert not (tmp_path / "cut" / "seed-1").exists()
    assert cut.run(console=False).scores == whole.scores
    for name in ("seed-0", "seed-1"):
        one, other = (seed_result(tmp_path / folder, name) for folder in ("whole", "cut"))
        assert one["evaluation"] == other["evaluation"]
        assert (other["steps"], other["updates"]) == (300, one["updates"])
    segments = json.loads((tmp_path / "cut" / "seed-0" / "metadata.json").read_text())["segments"]
    assert [segment["from_step"] for segment in segments] == [0, 150]


def test_a_signal_between_two_seeds_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = ExperimentManager(load_config("dqn/cartpole", TINY), seeds=2, folder=tmp_path)
    monkeypatch.setattr(manager, "_tell", lambda seed, console: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted, match="SIGINT"):
        manager.run(console=False)
    assert not (tmp_path / "seed-1").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_larger_budget_carries_finished_seeds_on(tmp_path: Path, jobs: int) -> None:
    config = load_config("dqn/cartpole", TINY)
    ExperimentManager(config, seeds=1, folder=tmp_path).run(console=False)
    longer = config.model_copy(update={"total_timesteps": 500})
    summary = ExperimentManager(longer, seeds=1, folder=tmp_path, jobs=jobs).run(console=False)
    assert seed_result(tmp_path)["steps"] == 500
    assert summary.scores == (seed_result(tmp_path)["evaluation"]["mean"],)
    for path in (tmp_path, tmp_path / "seed-0"):
        assert load_config(path / "config.yaml").total_timesteps == 500


def test_a_seed_that_was_stopped_is_only_evaluated_if_that_is_missing(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole", {**TINY, "evaluation.stop_at": 1.0})
    first = ExperimentManager(config, seeds=1, folder=tmp_path).run(console=False)
    assert seed_result(tmp_path)["steps"] == 100
    (tmp_path / "seed-0" / "result.json").unlink()
    assert ExperimentManager(config, seeds=1, folder=tmp_path).run(console=False).scores == first.scores
    assert seed_result(tmp_path)["steps"] == 100


def test_scores_of_more_steps_than_asked_for_are_refused(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole", TINY)
    ExperimentManager(config, seeds=1, folder=tmp_path).run(console=False)
    shorter = config.model_copy(update={"total_timesteps": 200})
    with pytest.raises(ConfigError, match=r"seed-0: is beyond total_timesteps=200 already"):
        ExperimentManager(shorter, seeds=1, folder=tmp_path).run(console=False)


@pytest.mark.parametrize(
    ("key", "value"), [("algo_kwargs.gamma", 0.5), ("env.id", "Acrobot-v1"), ("env.kwargs.sutton", True)]
)
def test_another_config_is_refused_before_anything_is_written(tmp_path: Path, key: str, value: Any) -> None:
    config = load_config("dqn/cartpole", TINY)
    registry.train(config, run_dir=tmp_path / "seed-0", console=False)
    other = ExperimentManager(load_config("dqn/cartpole", {**TINY, key: value}), seeds=2, folder=tmp_path)
    with pytest.raises(ConfigError) as refused:
        other.run(console=False)
    reason = f"is of another experiment: {key} differs; choose another folder with --run-dir"
    assert str(refused.value) == f"{tmp_path / 'seed-0'}: {reason}"
    assert [path.name for path in tmp_path.iterdir()] == ["seed-0"]
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.yaml").write_text("# mine\nalgo: dqn\nenv: {id: Pendulum-v1}\ntotal_timesteps: 5000\n")
    with pytest.raises(ConfigError, match=r"own: is of another experiment: env\.id differs"):
        ExperimentManager(config, seeds=1, folder=own).run(console=False)
    assert (own / "config.yaml").read_text().startswith("# mine")


def test_a_folder_that_holds_a_run_and_a_file_are_refused(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole", TINY)
    registry.train(config, run_dir=tmp_path / "run", console=False)
    (tmp_path / "file").write_text("text")
    for name, reason in (("run", "holds a single run"), ("file", "cannot hold an experiment: File exists")):
        with pytest.raises(ConfigError, match=f"{name}: {reason}"):
            ExperimentManager(config, seeds=2, folder=tmp_path / name).run(console=False)
    assert not list((tmp_path / "run").glob("seed-*"))


LONG = [
    f"{key}={value}" for key, value in {**TINY, "total_timesteps": "100M", "evaluation.frequency": 0}.items()
]


def start_seeds(tmp_path: Path, *options: str) -> tuple[Child, list[int]]:
    """Start two seeds that would go on for hours; return the parent and the pids of the seeds in training."""
    words = ["train", "--config", "dqn/cartpole", "--seeds", 3, "--jobs", 2, "--run-dir", tmp_path / "all"]
    parent = command(tmp_path, *words, "--quiet", *options, "logging.frequency=100", *LONG)
    logs = [tmp_path / "all" / f"seed-{seed}" / "metrics.jsonl" for seed in (0, 1)]
    wait_for(lambda: all(log.exists() and log.stat().st_size for log in logs), 60.0)
    return parent, [int((log.parent / "run.lock").read_text().split()[1]) for log in logs]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_saves_and_ends_every_seed(tmp_path: Path, number: signal.Signals) -> None:
    parent, seeds = start_seeds(tmp_path)
    parent.send(number)
    assert parent.wait() == 128 + number
    assert parent.err == (
        f"{number.name}: stopped; running the same command again with --run-dir {tmp_path / 'all'} completes it\n"
    )
    assert not any(alive(pid) for pid in seeds)
    for seed in (0, 1):
        assert len(list((tmp_path / "all" / f"seed-{seed}" / "checkpoints").glob("step-*"))) == 1
    assert not (tmp_path / "all" / "seed-2").exists()


def test_seeds_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent, seeds = start_seeds(tmp_path)
    parent.send(signal.SIGKILL)
    assert parent.wait() == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in seeds) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(pid) for pid in seeds)
    assert list((tmp_path / "all" / "seed-0" / "checkpoints").glob("step-*"))


def test_a_failing_seed_is_named(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole", {**TINY, "env.id": "Pendulum-v1"})
    with pytest.raises(RLTrainingError, match="seed 0: algo: 'dqn' takes discrete"):
        ExperimentManager(config, seeds=2, jobs=2, folder=tmp_path).run(console=False)


def test_nothing_to_compare_by_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.final_episodes"):
        ExperimentManager(
            load_config("dqn/cartpole", {**TINY, "evaluation.final_episodes": 0}), folder=tmp_path
        )

"""Runs that start in the same second, in processes or in threads of one, each get a folder of their own."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from helpers.children import Child, command
from helpers.runs import learned
from rl_training import DQN, ExperimentManager, load_config
from rl_training.errors import ConfigError
from rl_training.runtime.folder import new_run_path

TINY = {
    "total_timesteps": 150,
    "algo_kwargs.learning_starts": 50,
    "algo_kwargs.train_freq": 8,
    "algo_kwargs.gradient_steps": 1,
    "network.hidden_sizes": [8],
    "evaluation.frequency": 0,
    "evaluation.final_episodes": 1,
    "logging.csv": False,
    "logging.tensorboard": False,
}
WORDS = tuple(f"{key}={value}".lower().replace("'", "") for key, value in TINY.items())


@pytest.fixture(autouse=True)
def same_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: "20260101-000000")
    monkeypatch.chdir(tmp_path)


def runs() -> list[Path]:
    return sorted(path.parent for path in Path("runs").glob("*/*/*/result.json"))


def test_ten_commands_at_once_lose_no_run(tmp_path: Path) -> None:
    children = [command(tmp_path, "train", "--config", "dqn/cartpole", "--quiet", *WORDS) for _ in range(10)]
    codes = [child.wait() for child in children]
    assert codes == [0] * 10, [child.err for child in children]
    told = {line.split()[1] for child in children for line in child.out.splitlines() if "Folder" in line}
    assert told == {str(path) for path in runs()}
    assert len(told) == 10
    assert len({str(learned(path)) for path in runs()}) == 1, "their seeds are equal, so they are, too"


def train_one(seed: int) -> str:
    agent = DQN(config=load_config("dqn/cartpole", TINY), seed=seed).learn(progress_bar=False)
    return str(agent.run_dir)


def test_a_pool_of_four_processes_loses_no_run(tmp_path: Path) -> None:
    def pool_of_four() -> None:
        with multiprocessing.get_context("fork").Pool(4) as pool:
            print(*pool.map(train_one, [0] * 4, chunksize=1))

    child = Child(tmp_path, pool_of_four)
    assert child.wait() == 0, child.err
    assert sorted(Path(path).name for path in child.out.split()) == [path.name for path in runs()]
    assert len(runs()) == 4


def test_threads_of_one_process_train_as_one_after_the_other_does() -> None:
    with ThreadPoolExecutor(4) as pool:
        together = [learned(Path(path)) for path in pool.map(train_one, [0, 1, 0, 1])]
    alone = [learned(Path(train_one(seed))) for seed in (0, 1)]
    assert together == alone * 2
    assert len(runs()) == 6


def test_several_seeds_started_twice_get_two_folders() -> None:
    config = load_config("dqn/cartpole", TINY)
    managers = [ExperimentManager(config, seeds=2) for _ in range(3)]
    names = [manager.folder.name for manager in managers]
    assert names == [
        "20260101-000000_s0-2seeds",
        "20260101-000000_s0-2seeds-2",
        "20260101-000000_s0-2seeds-3",
    ]
    assert all(manager.run(console=False).scores for manager in managers[:2])


def test_a_folder_is_claimed_once_however_many_ask() -> None:
    config, barrier = load_config("dqn/cartpole", TINY), threading.Barrier(16)

    def ask(_: int) -> Path:
        barrier.wait()
        return new_run_path(config)

    with ThreadPoolExecutor(16) as pool:
        paths = list(pool.map(ask, range(16)))
    assert len(set(paths)) == 16
    assert all(path.is_dir() for path in paths)


def test_a_run_that_is_refused_leaves_no_folder(cli: Callable[..., Any], tmp_path: Path) -> None:
    assert cli("train", "--config", "dqn/cartpole", "env.id=NoSuchEnv-v0").code == 2
    with pytest.raises(ConfigError):
        DQN("Pendulum-v1").learn(100, progress_bar=False)
    assert not (tmp_path / "runs").exists()


def test_runs_that_cannot_be_made_here_say_so(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    done = cli("train", "--config", "dqn/cartpole", *WORDS)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "runs/dqn/CartPole-v1" in done.err


def test_hyperparameter_search_with_two_jobs_loses_no_trial() -> None:
    import optuna  # here, as it takes longer to import than everything else in this file

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def score(trial: Any) -> float:
        rate = trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)
        agent = DQN(config=load_config("dqn/cartpole", TINY), learning_rate=rate).learn(progress_bar=False)
        assert agent.result is not None
        assert agent.result.evaluation is not None
        return agent.result.evaluation.mean

    study = optuna.create_study(direction="maximize")
    study.optimize(score, n_trials=4, n_jobs=2)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4
    assert len(runs()) == 4

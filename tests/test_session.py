"""What a run does around its loop: signals at its end, stops, callbacks, branches, and disks that refuse."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from helpers.runs import outcome, rows
from rl_training.envs import make_vector_env
from rl_training.errors import ConfigError, EnvError, StorageError
from rl_training.experiment.configs import load_config
from rl_training.runtime import console, evaluator, report, resuming, saving, session, workflows
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoint import (
    Saved,
    SaveFailed,
    list_checkpoints,
    newest_checkpoint,
    read_hint,
    write_checkpoint,
)
from rl_training.runtime.evaluator import Evaluation
from rl_training.runtime.folder import environment_facts
from rl_training.runtime.loggers import CsvLogger, JsonLinesLogger
from rl_training.runtime.run import Run
from rl_training.runtime.session import Interrupted, Session, TrainResult
from rl_training.runtime.storage import DiskStorage

SMALL = {
    "algo": "dqn",
    "env": {"id": "CartPole-v1", "num_envs": 2},
    "total_timesteps": 400,
    "algo_kwargs": {"buffer_size": 300, "learning_starts": 50, "batch_size": 8},
    "network": {"hidden_sizes": [8]},
    "evaluation": {"frequency": 100, "episodes": 2, "final_episodes": 2},
    "checkpoint": {"frequency": 100, "keep": 9},
    "logging": {"frequency": 100, "csv": False, "tensorboard": False},
}
Patch = pytest.MonkeyPatch


def start(path: Path, callback: Any = None, **settings: Any) -> TrainResult:
    config = load_config(SMALL, {name.replace("__", "."): value for name, value in settings.items()})
    return workflows.start(config, run_dir=path, callback=callback, console=False)


def resume(path: Path, *overrides: str, callback: Any = None) -> TrainResult:
    return workflows.resume(path, overrides=overrides, callback=callback, console=False)


def saved(path: Path) -> list[str]:
    return [found.name for found in list_checkpoints(path / "checkpoints")]


def session_state(path: Path) -> dict[str, Any]:
    return newest_checkpoint(path / "checkpoints")[0].tree["session"]


def evaluated(path: Path) -> list[int]:
    """The steps of the evaluations that were logged, without the one before training, which every run has."""
    steps = [row["step"] for row in rows(path) if {"eval/mean_reward", "final/mean_reward"} & row.keys()]
    assert steps.pop(0) == 0
    return steps


# Signals


def signal_in_evaluation(patch: Patch, number: int) -> None:
    """Let SIGTERM come while the given evaluation, counted from that before training, which is 0, begins."""
    real, count = make_vector_env, iter(range(100))

    def make(*args: Any) -> Any:
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args)

    patch.setattr(evaluator, "make_vector_env", make)


@pytest.mark.parametrize("number", [1, 3, 4])
def test_a_signal_in_an_evaluation_abandons_it_and_a_resume_repeats_it(
    tmp_path: Path, monkeypatch: Patch, number: int
) -> None:
    start(tmp_path / "straight")
    with monkeypatch.context() as patch:
        signal_in_evaluation(patch, number)
        with pytest.raises(Interrupted, match="SIGTERM: stopped, saved") as stop:
            start(tmp_path / "run")
    assert stop.value.exit_code == 143
    assert saved(tmp_path / "run")[0] == f"step-{100 * number:09d}"
    assert session_state(tmp_path / "run")["evaluation_due"] is True
    assert evaluated(tmp_path / "run") == list(range(100, 100 * number, 100))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "straight")


def test_a_signal_in_the_final_evaluation_ends_it(tmp_path: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        signal_in_evaluation(patch, 5)
        with pytest.raises(Interrupted):
            start(tmp_path / "run")
    assert saved(tmp_path / "run")[0] == "step-000000400"
    assert evaluated(tmp_path / "run") == [100, 200, 300, 400]
    assert not (tmp_path / "run" / "result.json").exists()
    resume(tmp_path / "run")
    assert evaluated(tmp_path / "run") == [100, 200, 300, 400, 400]
    assert saved(tmp_path / "run")[0] == "step-000000400", "the state was saved already"


class SignalAtTheEnd(Callback):
    def on_end(self, training: Session) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_after_the_last_step_decides_the_exit_code(tmp_path: Path, monkeypatch: Patch) -> None:
    with pytest.raises(Interrupted) as stop:
        start(tmp_path / "run", SignalAtTheEnd())
    assert stop.value.exit_code == 130
    assert evaluated(tmp_path / "run") == [100, 200, 300, 400]
    monkeypatch.setattr(report, "plot_run", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted):
        resume(tmp_path / "run")
    assert (tmp_path / "run" / "result.json").exists()


# Evaluation

ENDLESS = {
    "evaluation__num_envs": 4,
    "evaluation__final_episodes": 12,
    "evaluation__frequency": 0,
    "env__id": "helpers.faulty_envs:Endless",
}


def test_episodes_that_never_end_are_not_played_for_ever(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluator, "MAX_EPISODE_STEPS", 50)
    monkeypatch.setattr(session, "FINAL_STEPS", 300)
    result = start(tmp_path / "run", total_timesteps=100, **ENDLESS)
    assert result.evaluation == Evaluation((50.0,) * 8, (50,) * 8), "300 steps are over in the second round"
    told = "final evaluation: 8 of 12 episodes, as they took 400 steps; none begins after 300\n"
    assert capsys.readouterr().err.endswith(told)
    more = start(tmp_path / "more", total_timesteps=500, **ENDLESS)
    assert more.evaluation is not None
    assert len(more.evaluation.returns) == 12, "training took more steps than all of them"


def test_the_final_evaluation_is_announced(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_PLAIN_INTERVAL", 0.0)
    config = load_config(SMALL, {"evaluation.final_episodes": 3, "evaluation.frequency": 0})
    workflows.start(config, run_dir=tmp_path / "run")
    said = capsys.readouterr().err.splitlines()
    begun = said.index("final evaluation: 3 episodes")
    assert re.fullmatch(r"final evaluation: 0/3 episodes, 3 steps", said[begun + 1])
    assert re.fullmatch(r"final evaluation: 3/3 episodes, \d+ steps", said[-1])
    assert "400/400 steps" in said[begun - 1], "training is through"


def test_what_is_there_before_training_is_the_first_point(tmp_path: Path) -> None:
    start(tmp_path / "run", Rising(9.0, 5.0, 3.0, 4.0, first=10.0))
    assert rows(tmp_path / "run")[0] == {"step": 0, **Evaluation((10.0,) * 2, (1,) * 2).row()}
    best = read_hint(tmp_path / "run" / "checkpoints", "best")
    assert best is not None
    assert best.name == "step-000000100", "the best of what was learned"
    start(
        tmp_path / "short", total_timesteps=50, evaluation__final_episodes=0, algo_kwargs__learning_starts=10
    )
    assert not any("eval/mean_reward" in row for row in rows(tmp_path / "short")), (
        "nothing to compare it with"
    )


# Resuming


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != "run.lock"
    }


def test_a_budget_below_the_steps_made_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    start(tmp_path / "run")
    before = contents(tmp_path)
    for path in (tmp_path / "run", tmp_path / "run" / "checkpoints" / "step-000000300"):
        with pytest.raises(
            ConfigError, match=r"total_timesteps: 200 is less than the \d00 steps already made"
        ):
            resume(path, "total_timesteps=200")
    assert contents(tmp_path) == before


def test_resuming_a_finished_run_saves_nothing_and_knows_its_last_row(tmp_path: Path) -> None:
    first = start(tmp_path / "run")
    names = saved(tmp_path / "run")
    again = resume(tmp_path / "run")
    assert saved(tmp_path / "run") == names
    assert again.metrics == pytest.approx(first.metrics)
    assert again.checkpoint == first.checkpoint


def test_what_is_not_exact_is_said(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(tmp_path / "run")
    resume(tmp_path / "run")
    assert capsys.readouterr().err == ""
    facts = environment_facts(1, "cpu")
    monkeypatch.setattr(resuming, "environment_facts", lambda *_: {**facts, "torch": "99.0"})
    resume(tmp_path / "run", "total_timesteps=500")
    assert capsys.readouterr().err == (
        f"torch {facts['torch']} → 99.0: continuing, but not bit for bit\n"
        "total_timesteps 400 → 500: schedules stay those of 400 steps; schedule_timesteps=500 stretches them\n"
    )


def test_the_manifest_says_what_the_state_holds(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("rl_training.envs.journal.MAX_JOURNAL", 0)
    start(tmp_path / "run")
    checkpoint = newest_checkpoint(tmp_path / "run" / "checkpoints")[0]
    assert checkpoint.tree["envs"]["restore"] == checkpoint.info["env_restore"] == "restarted"


def test_a_folder_that_another_run_took_meanwhile_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    class Slow(Run):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "config.yaml").write_text("of the other")

    monkeypatch.setattr(workflows, "Run", Slow)
    with pytest.raises(ConfigError, match="holds a run already"):
        start(tmp_path / "run")
    assert (tmp_path / "run" / "config.yaml").read_text() == "of the other"


def test_a_loaded_agent_has_the_threads_of_its_config(tmp_path: Path) -> None:
    start(tmp_path / "run")
    torch.set_num_threads(2)
    workflows.load_policy(workflows.load_checkpoint(tmp_path / "run"))
    assert torch.get_num_threads() == 1


# Stops and callbacks


def stopping(training: Session) -> bool:
    return training.steps < 200


def test_a_stop_is_remembered_until_more_is_asked_for(tmp_path: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        signal_in_evaluation(patch, 3)  # the final one: nothing but the checkpoint tells of the stop
        with pytest.raises(Interrupted):
            start(tmp_path / "run", stopping)
    again = resume(tmp_path / "run")
    assert (again.steps, again.stop_reason) == (200, "a callback returned False")
    assert evaluated(tmp_path / "run") == [100, 200, 200]
    further = resume(tmp_path / "run", "total_timesteps=300")
    assert (further.steps, further.stop_reason) == (300, None)


class Counting(Callback):
    def __init__(self) -> None:
        self.count = 0

    def on_step(self, training: Session) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Any) -> None:
        self.count = state["count"]


def test_a_callback_keeps_its_state_when_a_setting_brings_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(tmp_path / "run", Counting())
    counting = Counting()
    resume(tmp_path / "run", "total_timesteps=600", "evaluation.stop_at=1e6", callback=counting)
    assert counting.count == 300
    capsys.readouterr()
    resume(tmp_path / "run")
    assert capsys.readouterr().err == "warning: saved state of callbacks that are not given: Counting-1\n"


# Evaluation


@pytest.mark.parametrize("kind", ["sync", "subprocess"])
def test_an_episode_without_end_is_cut(tmp_path: Path, monkeypatch: Patch, kind: str) -> None:
    monkeypatch.setattr(evaluator, "MAX_EPISODE_STEPS", 5)
    result = start(tmp_path / "run", total_timesteps=100, env__vectorization=kind)
    assert result.evaluation is not None
    assert result.evaluation.lengths == (5, 5)


# Branches


def test_a_branch_finds_its_own_best(tmp_path: Path) -> None:
    start(tmp_path / "run", Rising(20.0, 10.0, 5.0, 4.0))
    assert session_state(tmp_path / "run")["best_at"] == 100
    resume(tmp_path / "run" / "checkpoints" / "step-000000300", callback=Rising(3.0))
    branch = tmp_path / "run_from-step-000000300"
    best = read_hint(branch / "checkpoints", "best")
    assert best is not None
    assert best.name == "step-000000400"


def test_a_torn_branch_does_not_block_the_next_try(tmp_path: Path, monkeypatch: Patch) -> None:
    start(tmp_path / "run")
    source = tmp_path / "run" / "checkpoints" / "step-000000300"
    leftover = tmp_path / ".run_from-step-000000300.partial" / "checkpoints" / "step-000000300"
    leftover.mkdir(parents=True)
    (leftover / "torn").write_text("half")

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("rl_training.runtime.saving.shutil.copyfileobj", refuse)
        with pytest.raises(StorageError, match="not made: No space left"):
            resume(source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    leftover.mkdir(parents=True)
    (leftover / "torn").write_text("half")
    assert resume(source).steps == 400
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run_from-step-000000300"]


# Disks that refuse


class Rising(Callback):
    """Gives the evaluations these means."""

    def __init__(self, *means: float, first: float = 0.0) -> None:
        self._means = iter((first, *means))  # the first is asked for before training

    def on_start(self, training: Session) -> None:
        def fake(episodes: int, **_: Any) -> Evaluation:
            return Evaluation((next(self._means, 0.0),) * episodes, (1,) * episodes)

        training.evaluate = fake  # type: ignore[method-assign]


@pytest.fixture
def warnings(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    return lambda: capsys.readouterr().err.splitlines()


def test_a_best_that_could_not_be_saved_does_not_keep_out_the_next(
    tmp_path: Path, monkeypatch: Patch, warnings: Callable[[], list[str]]
) -> None:
    def save(folder: Path, step: int, *args: Any, **kwargs: Any) -> Saved:
        if step == 200:
            raise SaveFailed("no")
        return write_checkpoint(folder, step, *args, **kwargs)

    monkeypatch.setattr(saving, "write_checkpoint", save)
    start(tmp_path / "run", Rising(1.0, 9.0, 5.0, 2.0))
    assert warnings() == ["warning: no; training goes on, step-000000100 is the newest checkpoint"]
    best = read_hint(tmp_path / "run" / "checkpoints", "best")
    assert best is not None
    assert best.name == "step-000000300"


def test_old_checkpoints_that_cannot_be_removed_cost_a_warning_only(
    tmp_path: Path, monkeypatch: Patch, warnings: Callable[[], list[str]]
) -> None:
    def refuse(self: DiskStorage, path: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(DiskStorage, "remove_folder", refuse)
    assert start(tmp_path / "run", checkpoint__keep=1, evaluation__frequency=0).steps == 400
    said = warnings()
    assert len(said) == 3
    assert all("old checkpoints not removed" in line for line in said)


@pytest.mark.parametrize("hint", ["latest", "best"])
def test_a_hint_that_cannot_be_written_costs_a_warning_only(
    tmp_path: Path, monkeypatch: Patch, warnings: Callable[[], list[str]], hint: str
) -> None:
    rename = DiskStorage.rename

    def refuse(self: DiskStorage, source: Path, target: Path) -> None:
        if target.name == hint:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(self, source, target)

    monkeypatch.setattr(DiskStorage, "rename", refuse)
    result = start(tmp_path / "run", Rising(1.0, 2.0, 3.0, 4.0))
    assert result.checkpoint.name == "step-000000400"
    said = warnings()
    assert len(said) == 4
    assert all(line.endswith("itself is saved") for line in said)


def test_a_wider_table_is_made_from_the_log(tmp_path: Path) -> None:
    log = JsonLinesLogger(tmp_path / "metrics.jsonl")
    table = CsvLogger(tmp_path / "metrics.csv", tmp_path / "metrics.jsonl")
    for step, row in enumerate([{"a": 1.0}, {"a": float("nan")}, {"a": 2.0, "b": 3.0}, {"b": 4.0}]):
        log.write(step, row)
        table.write(step, row)
    log.close()
    text = (tmp_path / "metrics.csv").read_text()
    assert text.split() == ["step,a,b", "0,1.0,", "1,,", "2,2.0,3.0", "3,,4.0"]
    assert not any(isinstance(value, list) and len(value) > 3 for value in vars(table).values())


def test_the_first_point_is_logged_once_though_the_first_step_failed(tmp_path: Path) -> None:
    stepped: list[gym.Env[Any, Any]] = []
    broken = [True]

    def make() -> gym.Env[Any, Any]:
        env = gym.make("CartPole-v1")
        step = env.unwrapped.step

        def fail_once(action: Any) -> Any:
            if env not in stepped:
                stepped.append(env)
                if broken[0] and len(stepped) == 2:  # the first one is that of the evaluation
                    raise RuntimeError("not yet")
            return step(action)

        env.unwrapped.step = fail_once  # type: ignore[method-assign]
        return env

    evaluation = {"frequency": 100, "episodes": 1, "final_episodes": 0, "num_envs": 1}
    config = load_config({**SMALL, "env": {"id": "CartPole-v1"}, "evaluation": evaluation})
    with pytest.raises(EnvError, match="not yet"):
        workflows.start(config, run_dir=tmp_path / "run", env=make, console=False)
    assert [row["step"] for row in rows(tmp_path / "run")] == [0]
    broken[0] = False
    workflows.resume(tmp_path / "run", env=make, console=False)
    evaluated = [row["step"] for row in rows(tmp_path / "run") if "eval/mean_reward" in row]
    assert evaluated == [0, 100, 200, 300, 400]

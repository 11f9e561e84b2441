"""What happens when something goes wrong: the line that is printed, the exit code, and what is left to go on from."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.children import command, wait_for
from helpers.runs import learned, rows
from rl_training.envs.journal import EpisodeSeeds
from rl_training.runtime import saving
from rl_training.runtime.checkpoint import list_checkpoints, newest_checkpoint, read_hint
from rl_training.runtime.folder import RunFolder
from rl_training.runtime.storage import DiskStorage
from rl_training.runtime.streams import seed_sequence

Cli = Callable[..., Any]
SHORT = (
    "total_timesteps=600",
    "algo_kwargs.learning_starts=100",
    "algo_kwargs.train_freq=2",
    "algo_kwargs.gradient_steps=1",
    "algo_kwargs.batch_size=16",
    "algo_kwargs.n_step_return=3",
    "network.hidden_sizes=[16]",
    "evaluation.frequency=0",
    "evaluation.final_episodes=0",
    "checkpoint.frequency=100",
    "logging.frequency=100",
    "logging.csv=false",
    "logging.tensorboard=false",
)
ENDLESS = "total_timesteps=1M"


def train(run: Path, *overrides: str) -> tuple[str, ...]:
    return ("train", "--config", "dqn/cartpole", "--quiet", "--run-dir", str(run), *SHORT, *overrides)


def steps_saved(run: Path) -> int:
    return newest_checkpoint(run / "checkpoints")[0].step


def rows_logged(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 600 steps with checkpoints of steps 500 and 600; tests copy it before they change it."""
    folder = tmp_path_factory.mktemp("finished")
    child = command(folder, *train(folder / "run"))
    assert child.wait() == 0, child.err
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


# Signals


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_saves_the_current_step_and_exits(
    cli: Cli, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    child = command(tmp_path, *train(run, ENDLESS, "checkpoint.frequency=0"))
    wait_for(lambda: rows_logged(run) >= 2)
    child.send(number)
    assert child.wait() == code
    step = steps_saved(run)
    assert child.err == (
        f"{number.name}: stopped, saved at step {step}; go on with: rl-training resume {run}\n"
    )
    assert step >= 200
    assert cli("resume", run, f"total_timesteps={step + 100}").code == 0
    assert steps_saved(run) == step + 100


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_all_processes_of_a_job_changes_no_bit(
    cli: Cli, tmp_path: Path, vectorization: str, number: signal.Signals
) -> None:
    """As timeout, systemd and Slurm send it."""
    words = (f"env.vectorization={vectorization}", "env.num_envs=2", "total_timesteps=4_000")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert cli(*train(whole, *words)).code == 0
    child = command(tmp_path, *train(cut, *words, "checkpoint.frequency=0"), prepare=os.setpgrp)
    wait_for(lambda: rows_logged(cut) >= 2)
    os.killpg(child.pid, number)
    assert child.wait() == 128 + number, child.err
    step = steps_saved(cut)
    assert 200 <= step < 4_000
    code, _, err = cli("resume", cut)
    assert code == 0
    assert "restarted" not in err
    assert learned(cut) == learned(whole)
    assert rows(cut) == rows(whole)


def test_a_signal_that_reaches_a_run_twice_counts_once(cli: Cli, tmp_path: Path) -> None:
    """Directly, and handed on by the process that has started it."""
    run = tmp_path / "run"
    child = command(tmp_path, *train(run, ENDLESS, "checkpoint.frequency=0"))
    wait_for(lambda: rows_logged(run) >= 2)
    child.send(signal.SIGTERM)
    time.sleep(0.02)
    child.send(signal.SIGTERM)
    assert child.wait() == 143
    assert "saved at step" in child.err


def test_under_nohup_a_run_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ignored = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    child = command(tmp_path, *train(run, ENDLESS, "checkpoint.frequency=0"), prepare=ignored)
    wait_for(lambda: rows_logged(run) >= 2)
    child.send(signal.SIGHUP)
    rows = rows_logged(run)
    wait_for(lambda: rows_logged(run) > rows + 1)
    child.send(signal.SIGTERM)
    assert child.wait() == 143


def slow_saves(flag: Path) -> None:
    """Let every file of a checkpoint take half a minute once ``flag`` exists."""
    fast = DiskStorage.sync

    def sync(self: DiskStorage, handle: int) -> None:
        fast(self, handle)
        if flag.exists():
            flag.with_suffix(".saving").touch()
            time.sleep(30.0)

    DiskStorage.sync = sync  # type: ignore[method-assign]


def test_a_second_signal_stops_at_once_and_leaves_the_older_checkpoint(cli: Cli, tmp_path: Path) -> None:
    run, flag = tmp_path / "run", tmp_path / "slow"
    child = command(tmp_path, *train(run, ENDLESS), prepare=lambda: slow_saves(flag))
    wait_for(lambda: read_hint(run / "checkpoints", "latest"))
    flag.touch()
    wait_for(flag.with_suffix(".saving").exists)
    before = steps_saved(run)
    child.send(signal.SIGTERM)
    time.sleep(0.3)
    assert os.waitpid(child.pid, os.WNOHANG) == (0, 0), "the first signal has to wait for the save"
    child.send(signal.SIGTERM)
    assert child.wait(seconds=2.0) == 143
    assert steps_saved(run) == before
    assert cli("resume", run, f"total_timesteps={before + 100}").code == 0
    assert not list((run / "checkpoints").glob(".tmp-*")), "what the cut save left should be gone"


def test_a_run_that_opened_pygame_video_still_honours_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    run = tmp_path / "run"
    child = command(tmp_path, *train(run, ENDLESS, "env.id=helpers.faulty_envs:Rendering"))
    wait_for(lambda: rows_logged(run) >= 1)
    child.send(signal.SIGTERM)
    assert child.wait(seconds=10.0) == 143
    assert steps_saved(run) >= 100


# The disk


def full_disk(*saves: int) -> None:
    """Let the given saves, counted from 1, meet a full disk in the middle of a file."""
    count = 0
    make_folder, write = DiskStorage.make_folder, DiskStorage.write

    def counting(self: DiskStorage, path: Path) -> None:
        nonlocal count
        count += path.name.startswith(".tmp-")
        make_folder(self, path)

    def refusing(self: DiskStorage, handle: int, data: memoryview) -> int:
        if count in saves and len(data) > 1000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, handle, data)

    DiskStorage.make_folder, DiskStorage.write = counting, refusing  # type: ignore[method-assign]


def test_a_full_disk_costs_a_warning_and_training_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = command(tmp_path, *train(run), prepare=lambda: full_disk(2, 3, 5))
    assert child.wait() == 0, child.err
    lines = child.err.splitlines()
    assert [line.count("No space left on device; training goes on") for line in lines] == [1, 1, 1]
    assert all(line.startswith("warning: ") for line in lines)
    assert steps_saved(run) == 600
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [
        "latest",
        "step-000000400",
        "step-000000600",
    ]


def impatient(then: Callable[[], Any]) -> Callable[[], Any]:
    """Let three failed saves end a run however soon they follow each other, and do something else."""

    def prepare() -> None:
        saving.MAX_FAILING_SECONDS = 0.0
        then()

    return prepare


def test_three_failed_saves_in_a_row_end_the_run_and_keep_the_last_good_one(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = command(tmp_path, *train(run, ENDLESS), prepare=impatient(lambda: full_disk(*range(3, 100))))
    assert child.wait() == 5
    assert [line.partition(":")[0] for line in child.err.splitlines()] == ["warning", "warning", "error"]
    assert "3 checkpoints in a row could not be saved" in last_line(child.err)
    assert steps_saved(run) == 200
    assert not list((run / "checkpoints").glob(".tmp-*")), "what a failed save left is removed at once"
    assert cli("resume", run, "total_timesteps=300").code == 0


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_short_writes_of_a_real_file_system_are_failed_saves(tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = command(tmp_path, *train(run, ENDLESS), prepare=impatient(lambda: limit_files(20_000)))
    assert child.wait() == 5
    assert "File too large" in last_line(child.err)
    assert 200 <= steps_saved(run) < 500


def test_a_log_that_cannot_be_written_costs_one_warning_each(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("logging.csv=true", "logging.frequency=1", "checkpoint.frequency=0", "total_timesteps=200")
    child = command(tmp_path, *train(run, *words), prepare=lambda: limit_files(4000))
    assert child.wait() == 5, "the last checkpoint is too large as well"
    said = [line.partition(": ")[::2] for line in child.err.splitlines()]
    assert [kind for kind, _ in said] == ["warning", "warning", "error"]
    assert sorted(text.partition(":")[0] for _, text in said[:2]) == ["CsvLogger", "JsonLinesLogger"]
    assert rows_logged(run) > 5


def test_a_full_disk_ends_in_lines_whatever_is_logged_to(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("logging.csv=true", "logging.tensorboard=true", "logging.frequency=1", ENDLESS)
    child = command(tmp_path, *train(run, *words), prepare=impatient(lambda: limit_files(20_000)))
    assert child.wait() == 5
    kinds = [line.partition(": ")[0] for line in child.err.splitlines()]
    assert kinds == ["warning"] * (len(kinds) - 1) + ["error"], child.err
    named = sorted(re.findall(r"^warning: (\w+Logger): step", child.err, re.MULTILINE))
    assert named == ["CsvLogger", "JsonLinesLogger", "TensorBoardLogger"]
    assert all(json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())


def test_a_disk_that_is_full_from_the_start_is_one_line(tmp_path: Path) -> None:
    child = command(tmp_path, *train(tmp_path / "run"), prepare=lambda: limit_files(500))
    assert child.wait() == 5
    assert child.err == f"error: {tmp_path / 'run' / 'config.yaml'}: not written: File too large\n"


def test_a_last_checkpoint_that_cannot_be_saved_is_no_success(tmp_path: Path) -> None:
    child = command(tmp_path, *train(tmp_path / "run"), prepare=lambda: full_disk(6, 7))
    assert child.wait() == 5
    assert last_line(child.err).endswith("the checkpoint of the last step could not be saved")
    assert steps_saved(tmp_path / "run") == 500


# Damaged, foreign and newer checkpoints


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_resume_falls_back_from_a_damaged_checkpoint_and_says_so(cli: Cli, run: Path) -> None:
    damaged = run / "checkpoints" / "step-000000600" / "replay.safetensors"
    flip_a_bit(damaged)
    code, _, err = cli("resume", run, "total_timesteps=700")
    assert code == 0
    assert f"warning: {damaged}: its content does not match the manifest's sha256\n" in err
    assert "going on from step-000000500, the newest intact checkpoint\n" in err
    assert "resuming at step 500 of 700" in err
    assert steps_saved(run) == 700


def test_a_run_with_only_damaged_checkpoints_is_refused_in_one_line(cli: Cli, run: Path) -> None:
    for path in list_checkpoints(run / "checkpoints"):
        flip_a_bit(path / "model.safetensors")
    for verb in (["resume", run], ["eval", run], ["predict", run, "--obs", "[0, 0, 0, 0]"]):
        code, out, err = cli(*verb)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"error: {run / 'checkpoints'}: no checkpoint that verifies; the newest one: ")


def test_a_newer_format_is_refused_in_one_line(cli: Cli, run: Path) -> None:
    path = run / "checkpoints" / "step-000000600"
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format_version": 99}))
    code, _, err = cli("eval", path)
    assert code == 1
    assert (
        err == f"error: {path / 'manifest.json'}: format 99 is newer than 1, the newest this version reads\n"
    )


def edit_state(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change ``state.json`` and make the manifest agree, as another program could."""
    import hashlib

    from rl_training.runtime import strict_json
    from rl_training.runtime.checkpoint_format import manifest_digest

    state = json.loads((path / "state.json").read_text())
    edit(state)
    data = strict_json.encode(state)
    (path / "state.json").write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["sha256"] = manifest_digest(manifest)
    (path / "manifest.json").write_bytes(strict_json.encode(manifest))


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no session": lambda state: state.pop("session"),
    "no best": lambda state: state["session"].pop("best"),
    "no clock": lambda state: state["loop"].pop("clock"),
    "no counter": lambda state: state["loop"]["clock"].pop("updates"),
    "no cadence": lambda state: state["replay"].pop("env_steps"),
    "no stop reason": lambda state: state["session"].pop("stop_reason"),
    "no metrics": lambda state: state["loop"].pop("metrics"),
    "no config": lambda state: state.pop("config"),
    "another algorithm": lambda state: state["config"].update(algo="sarsa"),
    "no time": lambda state: state.pop("time"),
    "text for a counter": lambda state: state["loop"]["clock"].update(steps="many"),
    "text for the log's length": lambda state: state["session"].update(log_offset="long"),
    "a negative log": lambda state: state["session"].update(log_offset=-5),
    "no callbacks": lambda state: state["session"].pop("callbacks"),
    "a list for a section": lambda state: state["loop"].update(metrics=[]),
    "another capacity": lambda state: state["replay"]["buffer"].update(capacity=5),
    "a journal without its seed": lambda state: state["envs"]["journals"]["0"].pop("seed"),
}


def test_a_run_from_before_a_key_existed_goes_on_without_a_word_about_it(cli: Cli, run: Path) -> None:
    edit_state(
        run / "checkpoints" / "step-000000600", lambda state: state["config"]["network"].pop("layer_norm")
    )
    lines = (run / "config.yaml").read_text().splitlines(keepends=True)
    (run / "config.yaml").write_text("".join(line for line in lines if "layer_norm" not in line))
    code, _, err = cli("resume", run, "logging.frequency=50")
    assert (code, err) == (
        2,
        "error: logging.frequency: has no effect, because the run is complete; total_timesteps=N trains longer\n",
    )
    code, _, err = cli("resume", run, "total_timesteps=700")
    assert code == 0
    assert "resuming at step 600 of 700" in err
    assert "changed" not in err


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_part_that_is_missing_or_malformed_is_one_line(cli: Cli, run: Path, forgery: str) -> None:
    shutil.rmtree(run / "checkpoints" / "step-000000500")
    edit_state(run / "checkpoints" / "step-000000600", FORGERIES[forgery])
    log = (run / "metrics.jsonl").read_bytes()
    code, out, err = cli("resume", run, "--quiet")
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert err.startswith("error: ")
    assert (run / "metrics.jsonl").read_bytes() == log


VERBS = {"eval": ("eval",), "resume": ("resume",), "predict": ("predict", "--obs", "[0, 0, 0, 0]")}


@pytest.mark.parametrize("verb", VERBS)
def test_a_path_that_holds_no_run_is_one_line(cli: Cli, tmp_path: Path, verb: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "no checkpoints" / "checkpoints").mkdir(parents=True)
    foreign = tmp_path / "foreign" / "checkpoints" / "step-000000100"
    foreign.mkdir(parents=True)
    (foreign / "manifest.json").write_text('{"weights": "model.pt"}')
    (foreign / "model.pt").write_bytes(os.urandom(100))
    (tmp_path / "loop").symlink_to("loop")
    names = [
        "file",
        "empty",
        "missing",
        "no checkpoints",
        "foreign",
        "foreign/checkpoints/step-000000100",
        "loop",
    ]
    for name in [*names, "x" * 300, "line\nbreak"]:
        code, out, err = cli(*VERBS[verb], tmp_path / name)
        assert (code, out, err.count("\n")) == (1, "", 1), (name, err)
        assert err.startswith(f"error: {tmp_path}/"), (name, err)


# Environments

RAISED = "ValueError: the pole is gone"
FAULTS = {
    "raise": RAISED,
    "nan obs": "observation: expected finite numbers, got 4 NaN or infinite",
    "wrong shape": "observation shape: expected (4,), got (5,)",
    "wrong dtype": "observation dtype: expected float32, got int64",
    "dict obs": "observation shape: expected (4,), got ()",
    "nan reward": "reward: expected a finite number, got nan",
    "infinite reward": "reward: expected a finite number, got inf",
    "huge reward": "reward: expected at most 3.40282e+38, got 1e+39",
    "text reward": "reward: expected a number, got 'much'",
    "text number": "reward: expected a number, got '1'",
    "several rewards": "reward: expected a number, got array([1., 1.])",
    "nan terminated": "terminated: expected true or false, got nan",
    "leave": "SystemExit: the window was closed",
    "base": "BaseException: whatever",
    "interrupt": "KeyboardInterrupt:",
}


def first_seed(index: int, seed: int = 0) -> int:
    """The seed of the first episode of one environment."""
    return next(EpisodeSeeds(seed_sequence(seed, "env", index)))


def faulty(fault: str, *overrides: str, when: int = 5) -> tuple[str, ...]:
    kwargs = {"fault": fault, "episode_seed": first_seed(1), "when": when}
    return (
        "env.id=helpers.faulty_envs:Faulty",
        f"env.kwargs={json.dumps(kwargs)}",
        "env.num_envs=2",
        *overrides,
    )


def check_env_error(cli: Cli, run: Path, words: tuple[str, ...], line: str) -> None:
    """Train into a fault in the second env: its line, its traceback, and a run that goes on with new episodes."""
    code, out, err = cli(*train(run, *words))
    assert (code, out) == (3, "")
    said = err.splitlines()
    assert len(said) == 2
    way_on = f"step-000000008 is the newest checkpoint; go on with: rl-training resume {run} --trust"
    assert said[1] == f"error: {line}; {way_on}"
    traceback = Path(said[0].removeprefix("traceback: "))
    assert traceback.parent == run / "errors"
    assert "Traceback" in traceback.read_text()
    checkpoint = newest_checkpoint(run / "checkpoints")[0]
    assert checkpoint.step == 8, "each env made four steps that were sound"
    assert checkpoint.tree["envs"]["restore"] == checkpoint.info["env_restore"] == "restarted"
    code, _, err = cli("resume", run, "--trust", "total_timesteps=150")
    assert code == 0, err
    assert "resuming at step 8 of 150; environments restarted with new episodes" in err
    assert steps_saved(run) == 150


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_env_that_errs_is_named_with_its_episode_and_step(
    cli: Cli, tmp_path: Path, fault: str, vectorization: str
) -> None:
    words = faulty(fault, f"env.vectorization={vectorization}")
    line = f"env 1: {FAULTS[fault]} (episode seed {first_seed(1)}, step 5)"
    check_env_error(cli, tmp_path / "run", words, line)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("hang", "env 1: step took longer than 0.5 s; worker ended"),
        ("die", "env 1: worker killed by SIGKILL, perhaps out of memory"),
        ("exit", "env 1: worker exited with code 7"),
    ],
)
def test_a_worker_that_hangs_or_dies_is_named(cli: Cli, tmp_path: Path, fault: str, line: str) -> None:
    words = faulty(fault, "env.vectorization=subprocess", "env.step_timeout=0.5", "env.worker_restarts=0")
    check_env_error(cli, tmp_path / "run", words, line)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("old reset", "reset(): expected (obs, info), got ndarray (episode seed {seed}, step 0)"),
        (
            "no seed",
            "reset(): expected reset(self, *, seed=None, options=None) that returns (obs, info), got "
            "Old.reset() got an unexpected keyword argument 'seed' (episode seed {seed}, step 0)",
        ),
        (
            "old step",
            "step(): expected (obs, reward, terminated, truncated, info), got 4 values (episode seed {seed}, step 1)",
        ),
    ],
)
def test_an_environment_of_the_old_api_is_told_what_is_expected(
    cli: Cli, tmp_path: Path, fault: str, line: str
) -> None:
    words = ("env.id=helpers.faulty_envs:old", f"env.kwargs.fault={fault}")
    code, _, err = cli(*train(tmp_path / "run", *words))
    assert code == 3
    assert last_line(err).startswith(f"error: env 0: {line.format(seed=first_seed(0))}; ")


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_an_env_that_cannot_begin_an_episode(cli: Cli, tmp_path: Path, vectorization: str) -> None:
    words = faulty("raise in reset", f"env.vectorization={vectorization}")
    code, _, err = cli(*train(tmp_path / "run", *words))
    assert code == 3
    told = (
        f"error: env 1: ValueError: no such level (episode seed {first_seed(1)}, step 0); step-000000000 is "
    )
    assert last_line(err).startswith(told)


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize("fault", ["exit in reset", "exit at once"])
def test_an_env_that_exits_before_its_first_step_ends_nothing_else(
    cli: Cli, tmp_path: Path, fault: str, vectorization: str
) -> None:
    code, out, err = cli(*train(tmp_path / "run", *faulty(fault, f"env.vectorization={vectorization}")))
    assert (code, out) == (3, "")
    assert "SystemExit" in last_line(err)
    assert last_line(err).startswith("error: env")


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_an_error_of_megabytes_is_a_short_line(cli: Cli, tmp_path: Path, vectorization: str) -> None:
    code, _, err = cli(*train(tmp_path / "run", *faulty("long", f"env.vectorization={vectorization}")))
    assert code == 3
    assert len(err) < 5_000
    assert "characters)" in last_line(err)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise in close", "warning: env 0: close: SystemExit: not yet"),
        ("hang in close", "warning: env 0: close took longer than 0.2 s"),
    ],
)
def test_an_env_that_does_not_close_costs_a_warning(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    """Of the run; the one that is made to look at its spaces is refused before anything is trained."""
    monkeypatch.setattr("rl_training.envs.closing.CLOSE_SECONDS", 0.2)
    monkeypatch.setattr("rl_training.envs.factory.close_all", lambda envs: None)
    code, _, err = cli(*train(tmp_path / "run", *faulty(fault)))
    assert (code, last_line(err)) == (0, said)
    assert steps_saved(tmp_path / "run") == 600


def test_nothing_malformed_reaches_the_replay(cli: Cli, tmp_path: Path) -> None:
    cli(*train(tmp_path / "run", *faulty("nan obs", when=7)))
    state = newest_checkpoint(tmp_path / "run" / "checkpoints")[0].tree
    assert state["loop"]["clock"]["steps"] == 12
    assert len(state["replay"]["buffer"]["rows"]) == 2 * 4, "six steps of each env are four windows of three"


def test_n_step_windows_of_lost_episodes_do_not_go_on(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cli(*train(run, *faulty("raise", when=7)))
    saved = newest_checkpoint(run / "checkpoints")[0].tree["replay"]["n_step"]["open"]
    assert saved.tolist() == [2, 2]
    # Two steps of each env in new episodes complete no window of three.
    assert (
        cli(
            "resume",
            run,
            "--trust",
            "total_timesteps=16",
            "algo_kwargs.learning_starts=15",
            "algo_kwargs.train_freq=1",
        ).code
        == 0
    )
    replay = newest_checkpoint(run / "checkpoints")[0].tree["replay"]
    assert replay["n_step"]["open"].tolist() == [2, 2]
    assert len(replay["buffer"]["rows"]) == 2 * 4


def fails_in_evaluation(fault: str) -> tuple[str, ...]:
    seed = next(EpisodeSeeds(seed_sequence(0, "evaluation")))
    kwargs = {"fault": fault, "episode_seed": seed, "when": 3}
    return ("env.id=helpers.faulty_envs:Faulty", f"env.kwargs={json.dumps(kwargs)}")


def test_an_env_that_fails_in_evaluation_ends_the_run_with_a_sound_checkpoint(
    cli: Cli, tmp_path: Path
) -> None:
    run, seed = tmp_path / "run", next(EpisodeSeeds(seed_sequence(0, "evaluation")))
    assert cli(*train(run, *fails_in_evaluation("raise"), "total_timesteps=200")).code == 0
    code, _, err = cli("resume", run, "--trust", "--quiet", "total_timesteps=600", "evaluation.frequency=250")
    assert code == 3
    assert err.splitlines()[-2].startswith("traceback: ")
    way_on = f"step-000000250 is the newest checkpoint; go on with: rl-training resume {run} --trust"
    assert last_line(err) == f"error: env 0: {RAISED} (episode seed {seed}, step 3); {way_on}"
    kept = newest_checkpoint(run / "checkpoints")[0]
    assert (kept.step, kept.info["env_restore"]) == (250, "replayed")
    assert kept.tree["session"]["evaluation_due"] is True


def test_a_failed_final_evaluation_puts_no_checkpoint_on_top(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cli(*train(run, *fails_in_evaluation("raise"), "evaluation.final_episodes=2")).code == 3
    assert [path.name for path in list_checkpoints(run / "checkpoints")] == [
        "step-000000600",
        "step-000000500",
    ]


def test_an_env_that_dies_in_evaluation_does_not_take_the_run_along(tmp_path: Path) -> None:
    words = (*fails_in_evaluation("die"), "env.vectorization=subprocess", "evaluation.frequency=250")
    child = command(tmp_path, *train(tmp_path / "run", *words))
    assert child.wait() == 3
    told = "error: env 0: worker killed by SIGKILL, perhaps out of memory; step-000000000 is the newest checkpoint"
    assert last_line(child.err).startswith(told)
    assert steps_saved(tmp_path / "run") == 0, "it came in the evaluation before training"


def test_a_traceback_that_cannot_be_kept_does_not_cost_the_checkpoint(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: RunFolder, text: str) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RunFolder, "write_error", refuse)
    code, _, err = cli(*train(tmp_path / "run", *faulty("raise")))
    assert code == 3
    assert err.startswith("warning: the traceback could not be kept: No space left on device\n")
    assert steps_saved(tmp_path / "run") == 8


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_an_env_that_does_not_obey_its_seed_is_restarted_and_that_is_said(
    cli: Cli, tmp_path: Path, vectorization: str
) -> None:
    run = tmp_path / "run"
    words = (
        "env.id=helpers.faulty_envs:Unrepeatable",
        f"env.vectorization={vectorization}",
        "env.num_envs=2",
    )
    assert cli(*train(run, *words)).code == 0
    code, _, err = cli("resume", run, "--trust", "total_timesteps=700")
    assert code == 0
    assert "resuming at step 600 of 700; environments restarted with new episodes" in err


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_an_env_that_cannot_be_led_back_is_restarted(
    cli: Cli, tmp_path: Path, vectorization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    words = ("env.id=helpers.faulty_envs:Unsteady", f"env.vectorization={vectorization}", "env.num_envs=2")
    assert cli(*train(run, *words)).code == 0
    journal = newest_checkpoint(run / "checkpoints")[0].tree["envs"]["journals"]["1"]
    assert len(journal["actions"])
    monkeypatch.setenv("BROKEN_EPISODE", str(journal["seed"]))
    code, _, err = cli("resume", run, "--trust", "total_timesteps=700")
    assert code == 0, err
    assert "environments restarted with new episodes" in err


# Learning


def test_a_loss_that_is_not_finite_stops_the_run_with_finite_weights(tmp_path: Path, cli: Cli) -> None:
    run = tmp_path / "run"
    code, out, err = cli(*train(run, "env.id=helpers.faulty_envs:Generous"))
    assert (code, out, err.count("\n")) == (4, "", 1)
    kept = newest_checkpoint(run / "checkpoints")[0]
    assert re.fullmatch(
        rf"error: step 2\d\d: loss is inf .* not applied; {kept.path} is the last checkpoint\n", err
    )
    assert kept.step == 200
    for network in ("online", "target"):
        assert all(torch.isfinite(value).all() for value in kept.tree["model"][network].values())


def test_a_gradient_that_is_not_finite_stops_the_run_although_the_loss_is(tmp_path: Path, cli: Cli) -> None:
    run = tmp_path / "run"
    code, out, err = cli(*train(run, "network.factory=helpers.faulty_envs:Kinked"))
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert re.match(
        r"error: step 102: loss is \d\S* and its gradient's norm nan; the update was not applied; ", err
    )
    tree = newest_checkpoint(run / "checkpoints")[0].tree
    assert (tree["loop"]["clock"]["steps"], tree["loop"]["clock"]["updates"]) == (100, 0)


def test_a_replay_beyond_memory_is_refused_with_the_largest_that_fits(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli(*train(tmp_path / "run", "algo_kwargs.buffer_size=1e12"))
    assert code == 2
    match = re.fullmatch(
        r"error: algo_kwargs.buffer_size: 1000000000000 transitions need \d+\.\d GiB, \d+\.\d GiB are free; "
        r"the largest that fits is (\d+)\n",
        err,
    )
    assert match
    fits = int(match[1])
    assert fits > 1000
    assert not (tmp_path / "run").exists(), "a refused run leaves no folder"
    assert cli(*train(tmp_path / "run", f"algo_kwargs.buffer_size={fits // 4}")).code == 0


def test_continuous_actions_are_refused_naming_who_can(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli(*train(tmp_path / "run", "env.id=Pendulum-v1"))
    assert code == 2
    assert re.fullmatch(r"error: algo: 'dqn' takes discrete actions, not continuous ones; .* can.*\n", err)
    assert not (tmp_path / "run").exists()


# Two runs in one folder


def test_a_second_run_in_the_folder_is_refused_naming_the_first(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = command(tmp_path, *train(run, ENDLESS, "checkpoint.frequency=0"))
    wait_for(lambda: rows_logged(run) >= 1)
    for words in (("resume", run, "total_timesteps=300"), train(run)):
        code, out, err = cli(*words)
        assert (code, out) == (2, "")
        assert err == f"error: {run}: in use by pid {child.pid} on {socket.gethostname()}\n"
    child.send(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert cli("resume", run, "total_timesteps=300").code == 0


def test_the_lock_is_free_after_a_kill_also_with_subprocess_envs(cli: Cli, run: Path, tmp_path: Path) -> None:
    vectorized = tmp_path / "vectorized"
    assert cli(*train(vectorized, "env.vectorization=subprocess")).code == 0
    child = command(tmp_path, "resume", vectorized, ENDLESS)
    wait_for(lambda: rows_logged(vectorized) >= 8)
    child.send(signal.SIGKILL)
    child.wait()
    time.sleep(0.2)
    assert cli("resume", vectorized, f"total_timesteps={steps_saved(vectorized) + 100}").code == 0


# Predictions


@pytest.mark.parametrize(
    ("obs", "line"),
    [
        ("[1, 2, 3]", "obs: expected shape (4,), or a batch of them, got (3,)"),
        ("[[1, 2, 3]]", "obs: expected shape (4,), or a batch of them, got (1, 3)"),
        ("[]", "obs: expected shape (4,), or a batch of them, got (0,)"),
        ("[[], []]", "obs: expected shape (4,), or a batch of them, got (2, 0)"),
        ("1.5", "obs: expected shape (4,), or a batch of them, got ()"),
        ("[NaN, 0, 0, 0]", "obs: contains NaN or infinity"),
        ("[Infinity, 0, 0, 0]", "obs: contains NaN or infinity"),
        ("[1e400, 0, 0, 0]", "obs: contains NaN or infinity"),
        ("[1e39, 0, 0, 0]", "obs: values do not fit float32"),
        ("[" + "9" * 400 + ", 0, 0, 0]", "obs: not an array of numbers"),
        ('["1", "2", "3", "4"]', "obs: not an array of numbers"),
        ("[[1, 2, 3, 4], [1]]", "obs: not an array of numbers"),
        ("[null, 0, 0, 0]", "obs: not an array of numbers"),
        ("null", "obs: not an array of numbers"),
        ('{"obs": 1}', "obs: not an array of numbers"),
        ("[" * 70 + "]" * 70, "obs: not an array of numbers"),
        ("one two", "--obs: not valid JSON: 'one two'"),
        ("", "--obs: is missing; give an observation as JSON, such as '[0.1, 0, 0, 0]'"),
        ("[0, 0, 0,", "--obs: not valid JSON: '[0, 0, 0,'"),
        ("[" * 100_000, "--obs: not valid JSON: '" + "[" * 60 + "'"),
    ],
    ids=lambda text: repr(text[:30]),
)
def test_predict_refuses_a_bad_observation_in_one_line(cli: Cli, finished: Path, obs: str, line: str) -> None:
    assert tuple(cli("predict", finished, "--obs", obs)) == (2, "", f"error: {line}\n")

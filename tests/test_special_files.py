"""A run folder with links, pipes, devices and endless files: nothing outside is written, and nothing waits."""

from __future__ import annotations

import csv
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.attacks import change_state, copied, with_config
from rl_training import load_config
from rl_training.experiment import registry

Cli = Callable[..., Any]
TINY = {
    "total_timesteps": 200,
    "algo_kwargs.learning_starts": 100,
    "algo_kwargs.train_freq": 50,
    "algo_kwargs.buffer_size": 1_000,
    "network.hidden_sizes": [4],
    "evaluation.frequency": 0,
    "evaluation.final_episodes": 2,
    "evaluation.num_envs": 1,
}
FILES = (
    "run.lock",
    "config.yaml",
    "metadata.json",
    "metrics.jsonl",
    "metrics.csv",
    "result.json",
    "curve.png",
    "checkpoints/latest",
    "checkpoints/best",
)
FOLDERS = ("checkpoints", "tensorboard", "errors")


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("special") / "run"
    return registry.train(load_config("dqn/cartpole", TINY), run_dir=path, console=False).run_dir


@pytest.fixture(autouse=True)
def no_longer_than_ten_seconds() -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError("more than ten seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def special(path: Path, kind: str, outside: Path) -> None:
    """Put something there that is no file of a run."""
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "dangling link":
        path.symlink_to(outside.with_name("new"))
    elif kind == "hard link":
        os.link(outside, path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:  # endless: larger than any memory, and no block of it on the disk
        with path.open("wb") as file:
            file.truncate(2**40)


KINDS = ("link", "dangling link", "hard link", "pipe", "device", "folder", "endless")


def commands(run: Path) -> list[tuple[object, ...]]:
    return [
        ("show", run),
        ("predict", run, "--obs", "[0, 0, 0, 0]"),
        ("eval", run, "--episodes", 1, "--best"),
        ("compare", f"a={run}", f"b={run}", "--out", run.parent / "compare.png"),
        ("train", "--config", "dqn/cartpole", "--run-dir", run, "--quiet"),
        ("resume", run, "total_timesteps=250", "--quiet"),
        ("resume", run / "checkpoints" / "step-000000200", "total_timesteps=300", "--quiet"),
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_a_special_file_in_a_run(plain_run: Path, tmp_path: Path, cli: Cli, name: str, kind: str) -> None:
    run, outside = copied(plain_run, tmp_path / "run"), tmp_path / "outside" / "precious"
    outside.parent.mkdir()
    outside.write_text("precious")
    special(run / name, kind, outside)
    for words in commands(run):
        done = cli(*words)
        assert done.code in (0, 1, 2, 5), words
        assert "Traceback" not in done.err, words
    assert outside.read_text() == "precious"
    assert os.listdir(outside.parent) == ["precious"]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_a_link(plain_run: Path, tmp_path: Path, cli: Cli, name: str) -> None:
    run, outside = copied(plain_run, tmp_path / "run"), tmp_path / "outside"
    outside.mkdir()
    if (run / name).exists():
        for file in (run / name).iterdir():
            file.rename(outside / file.name)
        (run / name).rmdir()
    (run / name).symlink_to(outside)
    before = sorted(outside.rglob("*"))
    for words in commands(run):
        done = cli(*words)
        assert done.code in (0, 1, 2, 5)
        assert "Traceback" not in done.err
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_of_predict(tmp_path: Path, cli: Cli, kind: str) -> None:
    small = {
        "total_timesteps": 100,
        "algo_kwargs.learning_starts": 90,
        "algo_kwargs.train_freq": 10,
        "network.hidden_sizes": [4],
        "evaluation.frequency": 0,
        "evaluation.final_episodes": 0,
    }
    run = registry.train(
        load_config("drqn/cartpole_no_velocity", small), run_dir=tmp_path / "run", console=False
    )
    outside, state = tmp_path / "outside", tmp_path / "m.json"
    predict = ("predict", run.run_dir, "--obs", "[0, 0]", "--state", state)
    outside.write_text("precious")
    for target in (state, tmp_path / ".m.json.partial"):
        special(target, kind, outside)
        done = cli(*predict)
        assert done.code in (0, 2)
        assert "Traceback" not in done.err
        assert outside.read_text() == "precious"
        if target.is_dir() and not target.is_symlink():
            target.rmdir()
        target.unlink(missing_ok=True)
    assert cli(*predict).code == 0


ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt\r\n"


def test_no_name_of_a_checkpoint_controls_the_terminal(plain_run: Path, tmp_path: Path, cli: Cli) -> None:
    def write(state: dict[str, Any]) -> None:
        state["session"]["callbacks"] = {ESCAPE: {"x": 1}}
        state["session"]["stop_reason"] = ESCAPE

    run = with_config(
        plain_run, tmp_path / "run", lambda config: config["env"].update(kwargs={ESCAPE: ESCAPE})
    )
    other = with_config(plain_run, tmp_path / "other", lambda config: config["env"].update(id=ESCAPE))
    third = copied(plain_run, tmp_path / "third")
    for checkpoint in (third / "checkpoints").glob("step-*"):
        change_state(checkpoint, write)
    for folder in (run, other, third):
        result = json.loads((folder / "result.json").read_text())
        (folder / "result.json").write_text(json.dumps({**result, "env": ESCAPE, "stop_reason": ESCAPE}))
        for words in commands(folder):
            done = cli(*words)
            assert "Traceback" not in done.err
            text = (done.out + done.err).replace("\n", "")
            assert text.isprintable(), (words, text)


def test_a_spreadsheet_meets_no_formula(plain_run: Path, tmp_path: Path, cli: Cli) -> None:
    run = copied(plain_run, tmp_path / "run")
    for checkpoint in (run / "checkpoints").glob("step-*"):
        change_state(checkpoint, lambda state: state["session"].update(log_offset=10**6))
    with (run / "metrics.jsonl").open("a") as file:
        for start in "=+-@\t\r":
            file.write(
                json.dumps({"step": 200, f"{start}cmd|' /C calc'!A0": f"{start}1+1", "x": -1.5}) + "\n"
            )
    done = cli("resume", run, "total_timesteps=300", "--quiet")
    assert done.code == 0, done.err
    cells = [cell for row in csv.reader((run / "metrics.csv").read_text().splitlines()) for cell in row]
    assert any(cell.startswith("'=cmd") for cell in cells)
    assert "-1.5" in cells
    assert not [cell for cell in cells if cell[:1] in {*"=+-@\t\r"} - {""} and not _is_number(cell)]


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False

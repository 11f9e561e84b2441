"""Long and unreadable names, streams that are closed or full, too much of everything: one line each."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.children import command
from rl_training import load_config
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.experiment.manager import MAX_SEEDS, ExperimentManager
from rl_training.runtime import network_memory
from rl_training.shell import command as as_command

Cli = Callable[..., Any]
SMALL = {
    "total_timesteps": 200,
    "algo_kwargs.learning_starts": 100,
    "algo_kwargs.train_freq": 50,
    "algo_kwargs.buffer_size": 1_000,
    "network.hidden_sizes": [4],
    "evaluation.frequency": 0,
    "evaluation.final_episodes": 1,
    "evaluation.num_envs": 1,
    "logging.tensorboard": False,
}
WORDS = [f"{key}={value}" for key, value in SMALL.items()]


def train_words(run: Path, *more: str) -> tuple[object, ...]:
    return "train", "--config", "dqn/cartpole", "--run-dir", run, "--quiet", *WORDS, *more


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "run"
    return registry.train(load_config("dqn/cartpole", SMALL), run_dir=path, console=False).run_dir


# Names

NOT_UTF8 = os.fsdecode(b"bad \xff\xfe name")


def test_a_run_in_a_folder_whose_name_is_no_text(cli: Cli, run: Path, tmp_path: Path) -> None:
    path = tmp_path / NOT_UTF8
    trained = cli(*train_words(path))
    assert trained.code == 0, trained
    assert r"bad \xff\xfe name'" in trained.out
    assert cli("eval", path).code == 0
    assert cli("predict", path, "--obs", "[0, 0, 0, 0]").code == 0
    assert cli("resume", path, "total_timesteps=300", "--quiet").code == 0
    picture = tmp_path / f"{NOT_UTF8}.png"
    compared = cli("compare", path, run, "--out", picture)
    assert compared.code == 0, compared
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--config", "dqn/cartpole", "--run-dir", "LONG", *WORDS),
        ("train", "--config", "LONG"),
        ("eval", "LONG"),
        ("eval", "RUN", "--video", "LONG.mp4"),
        ("resume", "LONG"),
        ("predict", "LONG", "--obs", "[0]"),
        ("predict", "RUN", "--obs", "[0, 0, 0, 0]", "--state", "LONG"),
        ("show", "LONG"),
        ("compare", "LONG", "RUN"),
        ("compare", "a=RUN", "b=RUN", "--out", "LONG.png"),
        ("benchmark", "LONG"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_names_of_300_characters(
    cli: Cli, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [word.replace("LONG", "x" * 300).replace("RUN", str(run)) for word in words]
    done = cli(*given)
    assert done.code in (1, 2)
    assert done.err.splitlines()[-1].startswith("error: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("eval", Path("plain")), "eval plain"),
        (("eval", Path("two words")), "eval 'two words'"),
        (("eval", Path("$(reboot)")), "eval '$(reboot)'"),
        (("eval", Path("it's")), """eval 'it'"'"'s'"""),
        (("eval", Path("-rf")), "eval ./-rf"),
        (("eval", Path("a\nb")), r"eval $'a\x0ab'"),
        (("eval", Path("\x1b[31m")), r"eval $'\x1b[31m'"),
        (("eval", Path(os.fsdecode(b"\xff"))), r"eval $'\xff'"),
        (("eval", Path("a;b&c|d")), "eval 'a;b&c|d'"),
    ],
    ids=str,
)
def test_printed_commands_can_be_pasted(words: tuple[object, ...], printed: str) -> None:
    assert as_command(*words) == printed


def test_what_is_printed_after_training_can_be_pasted(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "two words; $HOME"
    printed = cli(*train_words(path)).out
    assert f"eval '{path}'\n" in printed
    assert f"resume '{path}' total_timesteps=400\n" in printed
    again = cli(*train_words(path))
    assert again.err.endswith(f"go on with: rl-training resume '{path}'\n")


# Streams


@pytest.fixture
def streams(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Run a command whose standard streams are what ``prepare`` makes of them; return its code and its errors."""

    def act(prepare: Callable[[], Any], *words: object) -> tuple[int, str]:
        child = command(tmp_path, *words, prepare=prepare)
        code = child.wait()
        return code, child.err

    return act


def full(*numbers: int) -> None:
    for number in numbers:
        os.dup2(os.open("/dev/full", os.O_WRONLY), number)


def closed(*numbers: int) -> None:
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if number in numbers:
            os.close(number)
            setattr(sys, name, None)  # as Python begins then


def ascii_only() -> None:
    sys.stdout.reconfigure(encoding="ascii", errors="strict")  # type: ignore[union-attr]
    sys.stderr.reconfigure(encoding="ascii", errors="strict")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("prepare", "errors"),
    [
        (
            lambda: full(1),
            "warning: standard output: No space left on device; the results are in the folder anyway\n",
        ),
        (lambda: full(1, 2), ""),
        (lambda: closed(1), ""),
        (lambda: closed(2), ""),
        (lambda: closed(0, 1, 2), ""),
        (ascii_only, ""),
    ],
    ids=["full", "both full", "no stdout", "no stderr", "nothing", "ascii"],
)
def test_a_finished_training_is_a_success_whatever_becomes_of_what_it_prints(
    streams: Callable[..., tuple[int, str]], tmp_path: Path, prepare: Callable[[], Any], errors: str
) -> None:
    path = tmp_path / "rün → ±"
    assert streams(prepare, *train_words(path)) == (0, errors)
    assert (path / "result.json").is_file()
    assert not [name for name in os.listdir(path / "checkpoints") if name.startswith(".tmp")]


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("show", "dqn/cartpole"),
        ("eval", "RUN"),
        ("eval", "RUN", "--json"),
        ("--version",),
        ("--help",),
    ],
    ids=" ".join,
)
def test_what_cannot_be_printed_is_no_success(
    streams: Callable[..., tuple[int, str]], run: Path, words: tuple[str, ...]
) -> None:
    given = [str(run) if word == "RUN" else word for word in words]
    assert streams(lambda: full(1), *given) == (1, "error: standard output: No space left on device\n")


def test_a_reader_that_has_had_enough_is_no_error_to_speak_of() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "rl_training", "list"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


# Too much


@pytest.mark.parametrize("seeds", [0, -1, MAX_SEEDS + 1, 10**9, 10**30])
def test_seeds_beyond_reason(cli: Cli, tmp_path: Path, seeds: int) -> None:
    with pytest.raises(ConfigError, match=f"seeds: {seeds} is not allowed: should be from 1 to 10000"):
        ExperimentManager(load_config("dqn/cartpole", SMALL), seeds=seeds, folder=tmp_path / "many")
    done = cli(*train_words(tmp_path / "many"), "--seeds", seeds)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert not (tmp_path / "many").exists()


def test_seeds_beyond_the_largest_one(tmp_path: Path) -> None:
    config = load_config("dqn/cartpole", {**SMALL, "seed": 2**63 - 2})
    assert ExperimentManager(config, seeds=2, folder=tmp_path / "fit").seeds == (2**63 - 2, 2**63 - 1)
    with pytest.raises(
        ConfigError, match="seed: 3 seeds from 9223372036854775806 on go beyond the largest one"
    ):
        ExperimentManager(config, seeds=3, folder=tmp_path / "more")


@pytest.mark.parametrize("sizes", ["[1000000,1000000]", "[60000,60000]", "[30000,30000,30000,30000]"])
@pytest.mark.parametrize("config", ["dqn/cartpole", "ppo/cartpole", "sac/pendulum"])
def test_networks_beyond_memory(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, sizes: str
) -> None:
    monkeypatch.setattr(network_memory, "available_memory", lambda: 8 * 2**30)
    done = cli("train", "--config", config, "--run-dir", tmp_path / "run", f"network.hidden_sizes={sizes}")
    assert (done.code, done.err.count("\n")) == (2, 1), done
    assert "error: network: weights, gradients and the optimizer's moments need at least " in done.err
    assert "GiB, 8.0 GiB are free; smaller layers fit" in done.err
    assert not (tmp_path / "run").exists()


def test_networks_that_fit_are_counted_right(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Four inputs, 512 units, two actions: 4 numbers of 4 bytes for each of 512 * 7 + 2 parameters."""
    needed = 4 * 4 * (512 * 7 + 2)
    config = load_config("dqn/cartpole", {**SMALL, "network.hidden_sizes": [512]})
    monkeypatch.setattr(network_memory, "available_memory", lambda: int(needed / 0.9) + 2)
    registry.train(config, run_dir=tmp_path / "fits", console=False)
    monkeypatch.setattr(network_memory, "available_memory", lambda: int(needed / 0.9) - 2)
    with pytest.raises(ConfigError, match="network: weights"):
        registry.train(config, run_dir=tmp_path / "not", console=False)


def limit_descriptors(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_too_few_file_descriptors(tmp_path: Path, vectorization: str) -> None:
    """Whatever the number, it is a line or a success; which of them depends on what this process holds open."""
    held = len(os.listdir("/proc/self/fd"))
    codes = []
    for more in (0, 1, 2, 3, 5, 8, 12, 40):
        limit = held + more
        words = train_words(tmp_path / str(more), f"env.vectorization={vectorization}", "env.num_envs=4")
        child = command(tmp_path, *words, prepare=partial(limit_descriptors, limit))
        codes.append(child.wait())
        assert "Traceback" not in child.err, (more, child.err)
        assert codes[-1] == 0 or child.err.splitlines()[-1].startswith("error: "), (more, child.err)
    assert codes[0] in (1, 5)
    assert codes[-1] == 0

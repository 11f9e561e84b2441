"""Checkpoints whose hashes are right and whose content makes no sense: one line, and soon."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.attacks import change_state, copied, rehash, with_config
from helpers.children import command
from helpers.contracts import small_config
from helpers.mutants import mutant_of
from rl_training.errors import CheckpointError
from rl_training.experiment import registry
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run

ALGORITHMS = (
    "dqn",
    "prioritized_dqn",
    "drqn",
    "r2d2",
    "drqv2",
    "ppo",
    "recurrent_ppo",
    "sac",
    "rainbow",
    "trpo",
)
LIMIT = 10.0
"""Seconds that any command may take for a checkpoint, without those in which other processes kept it waiting."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return, for an algorithm, a run that is over in a second or two; each is made once."""
    made: dict[str, Path] = {}

    def run(algo: str) -> Path:
        if algo not in made:
            folder = tmp_path_factory.mktemp(algo) / "run"
            overrides = {
                "evaluation.final_episodes": 1,
                "evaluation.num_envs": 1,
                "logging.tensorboard": False,
            }
            config = small_config(algo, **{key.replace(".", "__"): value for key, value in overrides.items()})
            made[algo] = registry.train(config, run_dir=folder, console=False).run_dir
        return made[algo]

    return run


def words_for(run: Path, number: int) -> tuple[object, ...]:
    """Return one of three commands; resuming, which reads all of it, most often."""
    if number % 4 == 0:
        return "eval", run, "--episodes", 1
    if number % 4 == 1:
        spaces = json.loads(next((run / "checkpoints").glob("step-*/state.json")).read_text()).get(
            "spaces", {}
        )
        shape = spaces.get("obs_shape", [1]) if isinstance(spaces, dict) else [1]
        shape = (
            shape if isinstance(shape, list) and all(type(n) is int and 0 < n < 100 for n in shape) else [1]
        )
        return "predict", run, "--obs", json.dumps(torch.zeros(shape[:4], dtype=torch.int64).tolist())
    config = run / "config.yaml"
    total = next(line for line in config.read_text().splitlines() if line.startswith("total_timesteps:"))
    return (
        "resume",
        run,
        f"total_timesteps={int(total.split()[1]) + 16}",
        "logging.tensorboard=false",
        "--quiet",
    )


def try_mutant(run: Path, folder: Path, number: int) -> tuple[str, str]:
    """Use one mutant in a process of its own; say what became of it, and what it was."""
    target = folder / "run"
    shutil.rmtree(target, ignore_errors=True)
    said = mutant_of(run, target, number)
    words = words_for(target, number)
    child = command(folder, *words)
    try:
        code = child.wait(12 * LIMIT)
    except AssertionError:
        return "hang", f"{words[0]} {said}"
    about = f"{words[0]} {said}: {code} {child.err[-400:]}"
    if child.seconds > LIMIT:
        return "slow", about
    if code < 0 or code == 70 or "Traceback (most recent" in child.err:
        return "traceback", about
    if code == 0:
        return "accepted", about
    lines = child.err.splitlines()
    return ("refused" if lines and lines[-1].startswith("error: ") else "unsaid"), about


def try_many(run: Path, folder: Path, numbers: range) -> Counter[str]:
    found: Counter[str] = Counter()
    wrong = []
    for number in numbers:
        outcome, about = try_mutant(run, folder, number)
        found[outcome] += 1
        if log := os.environ.get("MUTANTS_LOG"):
            with open(log, "a") as file:
                file.write(f"{outcome}\t{run.parent.name}\t{number}\t{about!r}\n")
        if outcome not in ("refused", "accepted"):
            wrong.append(f"{number}: {outcome}: {about}")
    assert wrong == []
    return found


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_mutants(runs: Callable[[str], Path], tmp_path: Path, slow: bool, algo: str) -> None:
    count = int(os.environ.get("MUTANTS", 320 if slow else 8))
    first = 10_000 * ALGORITHMS.index(algo)  # other mutants for each
    found = try_many(runs(algo), tmp_path, range(first, first + count))
    assert found["refused"] > count // 4


@pytest.fixture
def dqn(runs: Callable[[str], Path], tmp_path: Path) -> Path:
    return copied(runs("dqn"), tmp_path / "dqn")


def checkpoint_of(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def change_tensor(checkpoint: Path, section: str, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    file = checkpoint / f"{section}.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    change(tensors)
    file.unlink()
    save_file(tensors, file)
    rehash(checkpoint)


def refusals(cli: Callable[..., Any], run: Path, *commands: str) -> list[str]:
    """Return the one line with which each of the commands refuses a run."""
    words = {
        "eval": ("eval", run, "--episodes", 1),
        "predict": ("predict", run, "--obs", "[0, 0, 0, 0]"),
        "resume": ("resume", run, "total_timesteps=300", "--quiet"),
    }
    lines = []
    for name in commands or words:
        done = cli(*words[name])
        assert done.code in (1, 2), (name, done)
        assert done.err.splitlines()[-1].startswith("error: ")
        lines.append(done.err.splitlines()[-1])
    return lines


def test_weights_that_are_no_numbers(cli: Callable[..., Any], dqn: Path) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
        tensors[name].view(-1)[0] = float("nan")

    change_tensor(checkpoint_of(dqn), "model", spoil)
    assert all("NaN or infinity" in line for line in refusals(cli, dqn))


def test_a_clock_that_differs_from_the_manifest(cli: Callable[..., Any], dqn: Path) -> None:
    change_state(checkpoint_of(dqn), lambda state: state["loop"]["clock"].update(steps=7))
    assert all("its clock is at step 7" in line for line in refusals(cli, dqn))


@pytest.mark.parametrize("section", ["spaces", "time", "loop", "session"])
def test_a_section_that_is_missing(cli: Callable[..., Any], dqn: Path, section: str) -> None:
    change_state(checkpoint_of(dqn), lambda state: state.pop(section) and None)
    for file in checkpoint_of(dqn).glob(f"{section}.safetensors"):
        file.unlink()
        rehash(checkpoint_of(dqn))
    assert all(f"'{section}' is missing" in line for line in refusals(cli, dqn))


def test_tensors_that_nobody_asked_for(cli: Callable[..., Any], dqn: Path) -> None:
    change_tensor(checkpoint_of(dqn), "optimizer", lambda tensors: tensors.update(junk=torch.zeros(1)))
    refusals(cli, dqn)


def test_updates_that_were_never_due(cli: Callable[..., Any], dqn: Path) -> None:
    change_state(checkpoint_of(dqn), lambda state: state["replay"].update(owed=10**9))
    assert "1000000000 updates owed" in refusals(cli, dqn, "resume")[0]


def test_a_journal_beyond_its_episode(cli: Callable[..., Any], dqn: Path) -> None:
    def extend(tensors: dict[str, torch.Tensor]) -> None:
        tensors["journals/0/actions"] = torch.zeros(3_000_000, dtype=tensors["journals/0/actions"].dtype)

    change_tensor(checkpoint_of(dqn), "envs", extend)
    assert "a journal of 3000000 actions" in refusals(cli, dqn, "resume")[0]


def test_an_environment_with_other_spaces(cli: Callable[..., Any], runs: Any, tmp_path: Path) -> None:
    for env in ("Acrobot-v1", "MountainCar-v0", "FrozenLake-v1", "Pendulum-v1"):

        def name(config: Any, env: str = env) -> None:
            config["env"].update(id=env)

        run = with_config(runs("dqn"), tmp_path / env, name)
        refusals(cli, run, "eval", "resume")


def _impossible(actions: Any) -> None:
    for kept in actions:
        kept[...] = np.nan if kept.dtype.kind == "f" else 2**31


@pytest.mark.parametrize("algo", ["dqn", "ppo", "drqn", "sac", "drqv2", "a2c"])
def test_actions_that_there_are_not(tmp_path: Path, algo: str) -> None:
    """One algorithm for each way to keep actions, in the middle of a rollout if it keeps any."""
    with closing(Run(small_config(algo))) as run:
        training = train(run)
        while sum(map(np.size, run.experience.actions())) == 0 or run.clock.steps < 6:
            next(training)
        _impossible(run.experience.actions())
        state = run.state_dict()
        with pytest.raises(CheckpointError, match="actions that the environment does not have"):
            run.load_state_dict(state)

"""Checkpoints whose hashes are right and whose content makes no sense: one line, and soon."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from helpers.children import command
from helpers.contracts import small_config
from helpers.mutants import mutant_of
from rl_training.experiment import registry

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
"""Seconds that any command may take for a checkpoint."""


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
        f"total_timesteps={int(total.split()[1]) + 64}",
        "logging.tensorboard=false",
        "--quiet",
    )


def try_mutant(run: Path, folder: Path, number: int) -> tuple[str, str]:
    """Use one mutant in a process of its own; say what became of it, and what it was."""
    target = folder / "run"
    shutil.rmtree(target, ignore_errors=True)
    said = mutant_of(run, target, number)
    words = words_for(target, number)
    began = time.monotonic()
    child = command(folder, *words)
    try:
        code = child.wait(4 * LIMIT)
    except AssertionError:
        return "hang", f"{words[0]} {said}"
    about = f"{words[0]} {said}: {code} {child.err[-400:]}"
    if time.monotonic() - began > LIMIT:
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
    found = try_many(runs(algo), tmp_path, range(count))
    assert found["refused"] > count // 4

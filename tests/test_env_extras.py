"""Environments by their names: which package each needs, what is said without it, and what MiniGrid needs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.command_line import command
from helpers.runs import outcome, stop_at
from rl_training.experiment.configs import load_config
from rl_training.runtime import workflows
from rl_training.runtime.session import Interrupted

NATIVE = "env.vectorization=native"
PREPROCESSING = 'env.wrappers=["AtariPreprocessing"]'
SUITE = "dm_control/cartpole-balance-v0"


@pytest.mark.parametrize(
    ("hidden", "words", "needs", "extra"),
    [
        ("ale_py", ["env.id=ALE/Pong-v5"], "env.id: 'ALE/Pong-v5' needs ale-py", "atari"),
        ("ale_py", ["env.id=ALE/Pong-v5", NATIVE], "env.id: 'ALE/Pong-v5' needs ale-py", "atari"),
        (
            "cv2",
            ["env.id=ALE/Pong-v5", PREPROCESSING],
            "env.wrappers.0: 'AtariPreprocessing' needs OpenCV",
            "atari",
        ),
        ("minatar", ["env.id=MinAtar/Freeway-v1"], "env.id: 'MinAtar/Freeway-v1' needs MinAtar", "minatar"),
        (
            "minigrid",
            ["env.id=MiniGrid-Empty-5x5-v0"],
            "env.id: 'MiniGrid-Empty-5x5-v0' needs minigrid",
            "minigrid",
        ),
        ("minigrid", ["env.id=BabyAI-GoToObj-v0"], "env.id: 'BabyAI-GoToObj-v0' needs minigrid", "minigrid"),
        ("mujoco", ["env.id=HalfCheetah-v5"], "env.id: 'HalfCheetah-v5' needs MuJoCo", "mujoco"),
        ("Box2D", ["env.id=LunarLander-v3"], "env.id: 'LunarLander-v3' needs Box2D", "box2d"),
        ("dm_control", [f"env.id={SUITE}"], f"env.id: '{SUITE}' needs dm_control", "dm-control"),
    ],
)
def test_a_missing_package_is_one_line_that_says_how_to_install_it(
    hidden: str, words: list[str], needs: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if hidden == "cv2":
        pytest.importorskip("ale_py")
    found_already = (hidden, "gymnasium.envs.mujoco", "gymnasium.envs.box2d")
    for name in list(sys.modules):
        if name.startswith(found_already):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, hidden, None)
    code, _, err = command("train", "--config", "dqn/cartpole", "--run-dir", tmp_path / "run", *words)
    assert (code, err) == (2, f'error: {needs}: pip install "rl_training[{extra}]"\n')
    assert not (tmp_path / "run").exists()


def test_a_package_that_is_broken_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.import_module

    def broken(name: str, package: str | None = None) -> Any:
        if name == "minigrid":
            raise ModuleNotFoundError("No module named 'pygame'", name="pygame")
        return found(name, package)

    monkeypatch.setattr("rl_training.envs.extras.importlib.import_module", broken)
    code, _, err = command("train", "--config", "dqn/cartpole", "env.id=MiniGrid-Empty-5x5-v0")
    lacks = "env.id: 'MiniGrid-Empty-5x5-v0': minigrid cannot be imported: No module named 'pygame'"
    assert (code, err) == (2, f"error: {lacks}\n")


# MiniGrid

MINIGRID = {
    "algo": "dqn",
    "env": {"id": "MiniGrid-Empty-Random-5x5-v0", "num_envs": 2},
    "total_timesteps": 300,
    "algo_kwargs": {"buffer_size": 200, "learning_starts": 60, "batch_size": 4},
    "network": {"hidden_sizes": [16]},
    "evaluation": {"frequency": 0, "final_episodes": 0},
    "checkpoint": {"frequency": 100},
    "logging": {"frequency": 60, "csv": False, "tensorboard": False},
}


def test_a_mission_in_words_names_the_wrappers_that_help() -> None:
    pytest.importorskip("minigrid")
    code, _, err = command("train", "--config", "dqn/cartpole", "env.id=MiniGrid-Empty-5x5-v0")
    assert code == 2
    assert err == (
        "error: env: the part 'mission' of observations is of MissionSpace, which no encoder takes; "
        "env.wrappers: ['minigrid.wrappers:ImgObsWrapper'] leaves it out, and minigrid.wrappers:FlatObsWrapper makes "
        "numbers of it\n"
    )


@pytest.mark.parametrize("wrapper", ["minigrid.wrappers:ImgObsWrapper", "minigrid.wrappers:FlatObsWrapper"])
def test_with_such_a_wrapper_it_is_learned_and_resumed_exactly(tmp_path: Path, wrapper: str) -> None:
    pytest.importorskip("minigrid")
    config = load_config(MINIGRID, {"env.wrappers": [wrapper]})
    workflows.start(config, run_dir=tmp_path / "straight", console=False)
    with pytest.raises(Interrupted):
        workflows.start(config, run_dir=tmp_path / "stopped", callback=stop_at(154), console=False)
    workflows.resume(tmp_path / "stopped", console=False)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")
    assert workflows.load_checkpoint(tmp_path / "stopped").info["env_restore"] == "replayed"

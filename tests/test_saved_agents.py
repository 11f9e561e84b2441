"""Agents that are saved to a folder or to one file, and how they go on: where, in which environment, with what."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rl_training
from helpers.command_line import command
from helpers.runs import outcome
from rl_training import DQN, PPO
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.runtime.checkpoint import newest_checkpoint
from rl_training.runtime.checkpoint_format import LEFT_OUT

SHORT: dict[str, Any] = {
    "learning_starts": 20,
    "batch_size": 8,
    "network": {"hidden_sizes": [8]},
    "evaluation": {"frequency": 0, "final_episodes": 0},
    "logging": {"csv": False, "tensorboard": False},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 60 steps, of which nobody may change anything."""
    path = tmp_path_factory.mktemp("saved") / "run"
    DQN("CartPole-v1", run_dir=path, **SHORT).learn(60, progress_bar=False)
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


OBS = np.random.default_rng(0).normal(size=(16, 4))


@pytest.mark.parametrize("name", ["agent", "agent.zip"])
def test_a_saved_agent_knows_what_it_knew_and_replaces_an_older_save(
    run: Path, tmp_path: Path, name: str
) -> None:
    agent = DQN.load(run)
    path = agent.save(tmp_path / name)
    assert path.is_file() == name.endswith(".zip")
    for loaded in (DQN.load(path), rl_training.load(path)):
        assert np.array_equal(loaded.predict(OBS)[0], agent.predict(OBS)[0])
    further = DQN.load(path).learn(30, progress_bar=False)
    assert further.save(path) == path, "an older save of the same name is replaced"
    assert DQN.load(path).num_timesteps == 90
    assert {file.name for file in tmp_path.iterdir()} == {name, "agent-run"}
    code, out, _ = command("predict", path, "--obs", "[0, 0, 0, 0]")
    assert (code, out.strip() in ("0", "1")) == (0, True)
    assert command("eval", path, "--episodes", 1)[0] == 0


def test_a_single_file_resumes_as_the_run_does(run: Path, tmp_path: Path) -> None:
    straight = DQN.load(run, run_dir=tmp_path / "straight").resume(90, progress_bar=False)
    saved = DQN.load(run).save(tmp_path / "agent.zip")
    other = DQN.load(saved, run_dir=tmp_path / "other").resume(90, progress_bar=False)
    assert straight.run_dir is not None
    assert other.run_dir == tmp_path / "other"
    ours, theirs = outcome(straight.run_dir), outcome(tmp_path / "other")
    assert ours["digests"] == theirs["digests"]


def test_a_save_without_the_replay_is_small_and_says_what_is_lost(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = DQN.load(run)
    whole, small = agent.save(tmp_path / "a.zip"), agent.save(tmp_path / "b.zip", replay=False)
    assert small.stat().st_size < whole.stat().st_size
    loaded = DQN.load(small)
    assert np.array_equal(loaded.predict(OBS)[0], agent.predict(OBS)[0])
    capsys.readouterr()
    loaded.learn(40, progress_bar=False)
    told = "step-000000060 was saved without its replay: it begins empty, and new episodes do, so learning begins again"
    assert f"{told} in 20 steps" in capsys.readouterr().err
    assert loaded.result is not None
    assert loaded.result.updates > 0


def test_checkpoints_may_do_without_the_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**SHORT, "checkpoint": {"replay": False}}
    agent = DQN("CartPole-v1", run_dir=tmp_path / "run", **settings).learn(60, progress_bar=False)
    checkpoint = newest_checkpoint(tmp_path / "run" / "checkpoints")[0]
    assert (checkpoint.tree["replay"], checkpoint.info["left_out"]) == (LEFT_OUT, ["replay"])
    capsys.readouterr()
    assert agent.learn(60, progress_bar=False).num_timesteps == 120
    assert "step-000000060 was saved without its replay" in capsys.readouterr().err
    rollout = {**settings, "n_steps": 16}
    del rollout["learning_starts"]
    ppo = PPO("CartPole-v1", run_dir=tmp_path / "ppo", **rollout).learn(40, progress_bar=False)
    assert ppo.learn(40, progress_bar=False).num_timesteps == 80


def test_another_environment_is_learned_in_a_run_of_its_own(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run)
    other = gym.make("CartPole-v1", sutton_barto_reward=True)
    agent = DQN.load(run, env=other, run_dir=tmp_path / "further").learn(30, progress_bar=False)
    assert agent.run_dir == tmp_path / "further"
    assert rl_training.load_config(agent.run_dir).env.kwargs == {"sutton_barto_reward": True}
    assert "what the replay holds of the old one stays in it" in capsys.readouterr().err
    assert contents(run) == before
    for env in ("Acrobot-v1", "Pendulum-v1", lambda: gym.make("Acrobot-v1")):
        for use in (
            lambda env=env: DQN.load(run, env=env),
            lambda env=env: DQN.load(run).evaluate(1, env=env),
            lambda env=env: DQN.load(run).set_env(env),
        ):
            with pytest.raises(
                CheckpointError, match=r"^env: has a vector of \d and .* but the agent was made for"
            ) as told:
                use()
            assert "\n" not in str(told.value)


def test_a_saved_agent_is_continued_more_than_once(run: Path, tmp_path: Path) -> None:
    saved = DQN.load(run).save(tmp_path / "agent")
    folders = [DQN.load(saved).learn(20, progress_bar=False).run_dir for _ in range(2)]
    assert folders == [tmp_path / "agent-run", tmp_path / "agent-run-2"]
    assert DQN.load(saved).num_timesteps == 60
    one, other = DQN.load(saved), DQN.load(saved)
    one.learn(10, progress_bar=False).save(saved)
    with pytest.raises(ConfigError, match="agent: is not what was loaded any more; load it again"):
        other.learn(10, progress_bar=False)


def test_settings_may_change_when_an_agent_goes_on(run: Path, tmp_path: Path) -> None:
    agent = DQN.load(run, run_dir=tmp_path / "a", device="auto", learning_rate=1e-5)
    config = agent.resume(80, progress_bar=False, config=["checkpoint.keep=5"], batch_size=4).config
    assert config is not None
    assert (config.device, config.checkpoint.keep) == ("auto", 5)
    assert (config.algo_kwargs.learning_rate, config.algo_kwargs.batch_size) == (1e-5, 4)
    assert config.algo_kwargs.learning_starts == 20
    changes: list[dict[str, Any]] = [{"seed": 3}, {"num_envs": 2}, {"network": {}}]
    for change in changes:
        with pytest.raises(ConfigError, match=f"^{next(iter(change))}: cannot change when a run goes on"):
            DQN.load(run).resume(90, **change)
    with pytest.raises(ConfigError, match=r"buffer_size: cannot change"):
        DQN.load(run, buffer_size=70)
    with pytest.raises(ConfigError, match="a: is not empty"):
        DQN.load(run, run_dir=tmp_path / "a").learn(10)


def test_only_saves_are_replaced(run: Path, tmp_path: Path) -> None:
    agent = DQN.load(run)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("years")
    (tmp_path / "file.zip").write_text("years")
    for name in ("folder", "file.zip"):
        with pytest.raises(
            ConfigError, match=f"{name}: exists already and is no saved agent, so it is not over"
        ):
            agent.save(tmp_path / name)
    with pytest.raises(ConfigError, match="belongs to a run; save to another path"):
        agent.save(newest_checkpoint(run / "checkpoints")[0].path)
    assert (tmp_path / "folder" / "thesis.tex").read_text() == "years"


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (lambda file: file.writestr("../evil", "x"), "is no name of a checkpoint file"),
        (lambda file: file.writestr("/etc/evil", "x"), "is no name of a checkpoint file"),
        (lambda file: file.writestr("data.pkl", "x"), "is no name of a checkpoint file"),
        (lambda file: file.writestr("_stable_baselines3_version", "2"), "a model of Stable-Baselines3"),
        (
            lambda file: file.writestr("state.json", "x" * 99, zipfile.ZIP_DEFLATED),
            "is compressed or encrypted",
        ),
    ],
)
def test_a_file_that_save_has_not_written_is_refused_in_a_line(
    run: Path, tmp_path: Path, forge: Any, reason: str
) -> None:
    path = DQN.load(run).save(tmp_path / "agent.zip")
    with zipfile.ZipFile(path, "a") as file:
        forge(file)
    with pytest.raises(CheckpointError, match=reason) as told:
        DQN.load(path)
    assert "\n" not in str(told.value)
    assert {found.name for found in tmp_path.iterdir()} == {"agent.zip"}


def test_a_damaged_file_is_refused_wherever_it_is_damaged(run: Path, tmp_path: Path) -> None:
    path = DQN.load(run).save(tmp_path / "agent.zip", replay=False)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for place in random.integers(0, len(whole), 25).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << random.integers(8)]) + whole[place + 1 :])
        with pytest.raises(RLTrainingError):
            DQN.load(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RLTrainingError):
        DQN.load(path)
    path.write_bytes(whole)
    DQN.load(path)

"""MinAtar's games under Gymnasium's rules: seeds, sticky actions, time limits, pictures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("minatar")

import minatar

from helpers.command_line import command
from helpers.runs import outcome, stop_at
from rl_training.config import EnvConfig
from rl_training.envs import make_env
from rl_training.envs.minatar import GAMES
from rl_training.errors import ConfigError
from rl_training.experiment.configs import load_config
from rl_training.observations import ObsSpec
from rl_training.runtime import workflows
from rl_training.runtime.session import Interrupted


def game(name: str = "Breakout-v1", **kwargs: Any) -> gym.Env[Any, Any]:
    return make_env(EnvConfig(id=f"MinAtar/{name}", kwargs=kwargs))


def played(env: gym.Env[Any, Any], seed: int | None, steps: int = 400) -> list[Any]:
    """Play an episode at random; return what happened as comparable values."""
    rng = np.random.default_rng(3)
    happened: list[Any] = [env.reset(seed=seed)[0].tobytes()]
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(int(rng.integers(0, env.action_space.n)))  # type: ignore[attr-defined]
        happened.append((obs.tobytes(), reward, terminated, truncated))
        if terminated or truncated:
            break
    return happened


@pytest.mark.parametrize("name", GAMES)
def test_spaces_and_observations(name: str) -> None:
    for version, count in (("v0", 6), ("v1", None)):
        env = game(f"{name}-{version}")
        original = minatar.Environment(GAMES[name])
        assert env.action_space == gym.spaces.Discrete(count or len(original.minimal_action_set()))
        assert env.observation_space.shape == tuple(original.state_shape())
        obs, _ = env.reset(seed=1)
        assert obs.dtype == np.bool_
        assert env.observation_space.contains(obs)
        spec = ObsSpec(obs.shape, obs.dtype)
        assert spec.parts[0].frame == (original.n_channels, 10, 10)


@pytest.mark.parametrize("name", GAMES)
def test_it_is_the_game_of_the_package(name: str) -> None:
    env, original = game(f"{name}-v1"), minatar.Environment(GAMES[name])
    obs, _ = env.reset(seed=7)
    original.seed(int(np.random.Generator(np.random.PCG64(np.random.SeedSequence(7))).integers(2**31)))
    original.reset()
    actions = original.minimal_action_set()
    rng = np.random.default_rng(0)
    assert np.array_equal(obs, original.state())
    for _ in range(300):
        action = int(rng.integers(0, len(actions)))
        obs, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated or truncated) == original.act(actions[action])
        assert np.array_equal(obs, original.state())
        if terminated or truncated:
            break


@pytest.mark.parametrize("name", GAMES)
def test_a_seeded_episode_depends_on_nothing_before_it(name: str) -> None:
    env = game(f"{name}-v1", sticky_action_prob=0.5)
    first = [played(env, seed) for seed in range(11, 16)]
    for last in range(env.action_space.n):  # type: ignore[attr-defined]
        for seed, expected in zip(range(11, 16), first, strict=True):
            env.reset(seed=5)
            for _ in range(5):  # so that it is done at least once
                env.step(last)
            assert played(env, seed) == expected
    assert played(game(f"{name}-v1", sticky_action_prob=0.5), 11) == first[0]
    assert first[0] != first[1]
    assert played(env, None) != played(env, None), "episodes without seeds differ"


def test_freeway_is_cut_by_the_clock_and_others_terminate() -> None:
    env = game("Freeway-v1")
    env.reset(seed=0)
    ends = [env.step(1)[2:4] for _ in range(2501)]
    assert ends[-1] == (False, True)
    assert set(ends[:-1]) == {(False, False)}
    *_, (_, _, terminated, truncated) = played(game("Breakout-v1"), 0, 5000)
    assert (terminated, truncated) == (True, False)


def test_actions_stick_with_their_probability() -> None:
    env = game("Freeway-v1", sticky_action_prob=1.0)
    obs, _ = env.reset(seed=0)
    for _ in range(20):  # the first "last action" does nothing
        obs = env.step(1)[0]
    assert obs[9, 4, 0]
    env = game("Freeway-v1", sticky_action_prob=0.0)
    env.reset(seed=0)
    for _ in range(6):
        obs = env.step(1)[0]
    assert not obs[9, 4, 0]


def test_difficulty_ramps_unless_told_otherwise() -> None:
    env: Any = game("SpaceInvaders-v1").unwrapped
    assert env._game.env.ramping
    calm: Any = game("SpaceInvaders-v1", difficulty_ramping=False).unwrapped
    calm.reset(seed=0)
    assert not calm._game.env.ramping


def test_pictures_show_every_kind_in_a_colour_of_its_own() -> None:
    env = game("Breakout-v1", render_mode="rgb_array")
    obs, _ = env.reset(seed=0)
    picture: Any = env.render()
    assert (picture.shape, picture.dtype) == ((160, 160, 3), np.uint8)
    cells = picture[8::16, 8::16]
    kinds = (obs * np.arange(1, obs.shape[2] + 1)).max(2)
    colours = {
        int(kind): {tuple(cells[at]) for at in zip(*np.nonzero(kinds == kind), strict=True)}
        for kind in np.unique(kinds)
    }
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == len(colours)
    assert game("Breakout-v1").render() is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": "MinAtar/Brekout-v1"}, "did you mean 'MinAtar/Breakout-v1'"),
        ({"kwargs": {"sticky_action_prob": 2.0}}, "sticky_action_prob: expected a probability, got 2.0"),
        ({"kwargs": {"render_mode": "ansi"}}, "render_mode: expected rgb_array, got 'ansi'"),
        ({"kwargs": {"game": "pong"}}, "game: expected one of asterix, "),
        ({"kwargs": {"ramping": True}}, "env.kwargs.ramping: 'MinAtar/Breakout-v1' takes no such argument"),
    ],
)
def test_mistakes_are_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"^env") as error:
        make_env(EnvConfig(**{"id": "MinAtar/Breakout-v1", **settings}))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_package_is_only_imported_when_a_game_is_made() -> None:
    code = "import sys, rl_training.envs; assert not {'minatar', 'ale_py', 'seaborn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_a_run_that_is_stopped_goes_on_exactly(tmp_path: Path, vectorization: str) -> None:
    settings = {
        "algo": "dqn",
        "env": {"id": "MinAtar/Breakout-v1", "num_envs": 2, "vectorization": vectorization},
        "total_timesteps": 300,
        "algo_kwargs": {"buffer_size": 200, "learning_starts": 60, "batch_size": 4},
        "network": {"hidden_sizes": [16]},
        "evaluation": {"frequency": 0, "final_episodes": 0},
        "checkpoint": {"frequency": 100},
        "logging": {"frequency": 60, "csv": False, "tensorboard": False},
    }
    config = load_config(settings)
    workflows.start(config, run_dir=tmp_path / "straight", console=False)
    with pytest.raises(Interrupted):
        workflows.start(config, run_dir=tmp_path / "stopped", callback=stop_at(154), console=False)
    workflows.resume(tmp_path / "stopped", console=False)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")
    assert workflows.load_checkpoint(tmp_path / "stopped").info["env_restore"] == "replayed"
    if vectorization == "sync":
        code, _, err = command(
            "eval", tmp_path / "stopped", "--episodes", 1, "--video", tmp_path / "film.mp4"
        )
        assert code == 0, err
        assert (tmp_path / "film.mp4").stat().st_size > 0

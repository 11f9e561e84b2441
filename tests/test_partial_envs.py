"""The environments that do not show everything, and the wrapper behind them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rl_training.envs
from rl_training import load_config
from rl_training.envs import make_env
from rl_training.envs.partial import SelectObservation, TMaze
from rl_training.errors import ConfigError

assert rl_training.envs  # importing it registers the environments


@pytest.mark.parametrize(
    ("partial", "whole", "shown", "limit"),
    [
        ("rl_training/CartPoleNoVelocity-v0", "CartPole-v1", [0, 2], 500),
        ("rl_training/PendulumNoVelocity-v0", "Pendulum-v1", [0, 1], 200),
    ],
)
def test_velocities_are_hidden_and_nothing_else_is_changed(
    partial: str, whole: str, shown: list[int], limit: int
) -> None:
    hidden, full = gym.make(partial), gym.make(whole)
    assert hidden.observation_space == gym.spaces.Box(
        full.observation_space.low[shown],  # type: ignore[attr-defined]
        full.observation_space.high[shown],  # type: ignore[attr-defined]
    )
    assert hidden.spec is not None
    assert hidden.spec.max_episode_steps == limit
    assert np.array_equal(hidden.reset(seed=3)[0], full.reset(seed=3)[0][shown])
    full.action_space.seed(0)
    for _ in range(60):
        action = full.action_space.sample()
        seen, *outcome, _ = hidden.step(action)
        expected, *other, _ = full.step(action)
        assert np.array_equal(seen, expected[shown])
        assert seen.dtype == np.float32
        assert outcome == other
        if outcome[1] or outcome[2]:
            break
    hidden.close()
    full.close()


@pytest.mark.filterwarnings("ignore::UserWarning")  # about wrappers, which are what is looked at here
@pytest.mark.parametrize("env_id", ["CartPoleNoVelocity", "PendulumNoVelocity", "TMaze"])
def test_gymnasium_finds_no_fault(env_id: str) -> None:
    env = gym.make(f"rl_training/{env_id}-v0")
    check_env(env.unwrapped if env_id == "TMaze" else env, skip_render_check=True)
    env.close()


def test_rendering_still_works() -> None:
    env = gym.make("rl_training/CartPoleNoVelocity-v0", render_mode="rgb_array")
    env.reset(seed=0)
    frame: Any = env.render()
    assert frame.shape == (400, 600, 3)
    env.close()


@pytest.mark.parametrize("indices", [[], [4], [-1], [0, 7]])
def test_entries_that_are_not_there_cannot_be_shown(indices: list[int]) -> None:
    with pytest.raises(ValueError, match="indices: expected some of 0 to 3"):
        SelectObservation(gym.make("CartPole-v1"), indices)


def test_the_wrapper_can_be_named_in_a_config() -> None:
    wrapper = {"id": "rl_training.envs.partial:SelectObservation", "kwargs": {"indices": [2, 0]}}
    env = make_env(load_config("dqn/cartpole", {"env.wrappers": [wrapper]}).env)
    assert env.observation_space.shape == (2,)
    env.close()
    wrapper["kwargs"] = {"indices": [9]}
    with pytest.raises(ConfigError, match=r"env.wrappers.0: .* expected some of 0 to 3"):
        make_env(load_config("dqn/cartpole", {"env.wrappers": [wrapper]}).env)


# T-maze


def walk(maze: TMaze, actions: list[int]) -> tuple[list[list[float]], list[float], bool, dict[str, Any]]:
    seen, rewards, over = [], [], False
    info: dict[str, Any] = {}
    for action in actions:
        assert not over
        obs, reward, over, truncated, info = maze.step(np.int64(action))
        assert not truncated
        seen.append(obs.tolist())
        rewards.append(float(reward))
    return seen, rewards, over, info


@pytest.mark.parametrize("length", [1, 3, 10])
def test_the_cue_is_shown_once_and_decides(length: int) -> None:
    maze, cues = TMaze(length), set()
    for seed in range(20):
        first, _ = maze.reset(seed=seed)
        cue = first[0]
        cues.add(float(cue))
        assert first.tolist() == [cue, 1.0, 0.0]
        seen, rewards, over, _ = walk(maze, [0] * length)
        assert seen == [[0.0, 1.0, 0.0]] * (length - 1) + [[0.0, 0.0, 1.0]]
        assert not any(rewards)
        assert not over
        turn = 1 if (cue > 0) == (seed % 2 == 0) else 2  # the right way for even seeds
        _, (reward,), over, info = walk(maze, [turn])
        assert over
        assert reward == (1.0 if seed % 2 == 0 else -1.0)
        assert info["is_success"] == (seed % 2 == 0)
    assert cues == {-1.0, 1.0}


def test_walls_cost_a_little_and_stop() -> None:
    maze = TMaze(2)
    first, _ = maze.reset(seed=0)
    seen, rewards, _, _ = walk(maze, [1, 2, 0, 1, 0, 0])
    assert rewards == [-0.1, -0.1, 0.0, -0.1, 0.0, -0.1]
    assert seen[:2] == [first.tolist()] * 2
    assert seen[-2:] == [[0.0, 0.0, 1.0]] * 2


@pytest.mark.parametrize("length", [0, -1, 2.5, True, "10"])
def test_a_length_that_is_none_is_refused(length: Any) -> None:
    with pytest.raises(ValueError, match="length: expected a whole number"):
        TMaze(length)
    overrides = {"env.kwargs": {"length": length}}
    with pytest.raises(ConfigError, match="length"):
        make_env(load_config("drqn/tmaze", overrides).env)


def test_a_maze_of_any_length_can_be_finished_and_ends() -> None:
    for length in (1, 10, 250):
        maze = gym.make("rl_training/TMaze-v0", length=length)
        maze.reset(seed=0)
        for _ in range(length):
            assert maze.step(0)[2:4] == (False, False)
        assert maze.step(1)[2]
        maze.reset(seed=0)
        ends = [maze.step(1)[3] for _ in range(20 * length)]
        assert ends == [False] * (20 * length - 1) + [True]


def test_an_action_that_there_is_not_is_an_error() -> None:
    maze = TMaze(3)
    maze.reset(seed=0)
    with pytest.raises(ValueError, match="expected 0, 1 or 2, got 3"):
        maze.step(3)  # type: ignore[arg-type]

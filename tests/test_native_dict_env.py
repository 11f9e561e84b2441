"""Vector environments that others registered, with observations of several parts, in every autoreset mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from helpers.runs import final_tree
from rl_training.algorithms import Decision
from rl_training.config import EnvConfig
from rl_training.envs import make_vector_env
from rl_training.envs.journal import EpisodeSeeds
from rl_training.envs.spaces import describe_observations
from rl_training.errors import EnvError
from rl_training.experiment.configs import load_config
from rl_training.runtime import workflows
from rl_training.runtime.collector import Collector
from rl_training.spaces import DiscreteActions

ID = "rl_training_tests/DictCounter-v0"
SPACE = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (6, 6, 3), np.uint8),
        "where": spaces.Tuple((spaces.Discrete(50), spaces.Box(0.0, 100.0, (2,), np.float32))),
    }
)


class DictCounter(gym.Env[Any, Any]):
    """Says in each part of its observations which env, episode and step this is; two kinds of ends take turns."""

    observation_space = SPACE
    action_space = spaces.Discrete(3)

    def __init__(self, index: int, wrong_at: int) -> None:
        self.index, self.episode, self.wrong_at, self.total = index, -1, wrong_at, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episode, self.steps = self.episode + 1, 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps, self.total = self.steps + 1, self.total + 1
        over = self.steps == 2 + (self.index + self.episode) % 4
        return (
            self.seen(),
            self.steps + 0.1 * int(action),
            over and not self.episode % 2,
            over and bool(self.episode % 2),
            {},
        )

    def seen(self) -> Any:
        place = np.array([self.episode, self.steps], np.float32)
        if self.total == self.wrong_at:
            place[1] = np.nan
        return {
            "camera": np.full((6, 6, 3), 10 * self.index + self.steps, np.uint8),
            "where": (self.episode, place),
        }


def vector_of(num_envs: int, mode: str = "NextStep", wrong_at: int = -1) -> Any:
    fns = [lambda i=i: DictCounter(i, wrong_at) for i in range(num_envs)]
    return gym.vector.SyncVectorEnv(fns, autoreset_mode=AutoresetMode(mode))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    made: Any = vector_of
    gym.register(ID, vector_entry_point=made)
    yield
    del gym.registry[ID]


class Walking:
    """Acts by the number of the step that the observation shows."""

    def __init__(self) -> None:
        self.spec = describe_observations(SPACE)

    def observe(self, obs: Any) -> None:
        pass

    def act(self, obs: Any, carry: Any = None, *, explore: bool) -> Decision:
        return Decision(self.place(obs)[:, 1].astype(np.int64) % 3)

    def place(self, rows: Any) -> Any:
        return self.spec.take(rows, next(part for part in self.spec.parts if part.path == ("where", 1)))


def collected(mode: str, steps: int) -> set[tuple[Any, ...]]:
    config = EnvConfig(id=ID, num_envs=3, vectorization="native", kwargs={"mode": mode})
    envs = make_vector_env(config, [EpisodeSeeds(np.random.SeedSequence(i)) for i in range(3)])
    agent: Any = Walking()
    collector, rows = Collector(envs, DiscreteActions(3)), set()
    for _ in range(steps):
        step, _ = collector.step(agent)
        for k, index in enumerate(step.env_ids):
            before, after = (dict_of(agent.spec, obs[k]) for obs in (step.obs, step.next_obs))
            for seen in (before, after):  # every part tells the same
                episode, count = seen["where.1"]
                assert seen["where.0"] == episode
                assert (seen["camera"] == 10 * index + count).all()
            assert before["where.0"] == after["where.0"], "an observation of the next episode"
            assert before["where.1"][1] + 1 == after["where.1"][1]
            ends = bool(step.terminated[k]), bool(step.truncated[k])
            rows.add(
                (int(index), *before["where.1"].tolist(), int(step.action[k]), float(step.reward[k]), *ends)
            )
    return rows


def dict_of(spec: Any, row: Any) -> dict[str, Any]:
    return {part.name: spec.take(row[None], part)[0] for part in spec.parts}


def happened(episodes: int) -> set[tuple[Any, ...]]:
    rows = set()
    for index in range(3):
        for episode in range(episodes):
            length = 2 + (index + episode) % 4
            for count in range(length):
                last, action = count + 1 == length, count % 3
                ends = last and not episode % 2, last and bool(episode % 2)
                rows.add((index, episode, count, action, count + 1 + 0.1 * action, *ends))
    return rows


@pytest.mark.parametrize("mode", [mode.value for mode in AutoresetMode])
def test_what_is_collected_is_what_happened(mode: str) -> None:
    rows = collected(mode, 40)
    assert happened(6) <= rows <= happened(40)


@pytest.mark.parametrize("mode", [mode.value for mode in AutoresetMode])
def test_an_algorithm_learns_from_it_and_the_run_goes_on(tmp_path: Path, mode: str) -> None:
    settings = {
        "algo": "dqn",
        "env": {"id": ID, "num_envs": 3, "vectorization": "native", "kwargs": {"mode": mode}},
        "total_timesteps": 90,
        "algo_kwargs": {"buffer_size": 60, "learning_starts": 30, "batch_size": 4, "n_step_return": 3},
        "network": {"hidden_sizes": [8]},
        "evaluation": {"frequency": 0, "final_episodes": 0},
        "logging": {"csv": False, "tensorboard": False},
    }
    workflows.start(load_config(settings), run_dir=tmp_path / "run", console=False)
    assert final_tree(tmp_path / "run")["envs"]["restore"] == "restarted"
    workflows.resume(tmp_path / "run", overrides=["total_timesteps=150"], trust=True, console=False)
    assert final_tree(tmp_path / "run")["loop"]["clock"]["steps"] >= 150


@pytest.mark.parametrize("mode", [mode.value for mode in AutoresetMode])
def test_a_part_that_is_not_finite_is_named(mode: str) -> None:
    config = EnvConfig(id=ID, num_envs=2, vectorization="native", kwargs={"mode": mode, "wrong_at": 5})
    envs = make_vector_env(config, [EpisodeSeeds(np.random.SeedSequence(i)) for i in range(2)])
    collector, agent = Collector(envs, DiscreteActions(3)), Walking()
    collect: Any = collector.step
    message = r"observation 'where.1': expected finite numbers, got \d NaN or infinite"
    with pytest.raises(EnvError, match=message):
        repeatedly(collect, agent)


def repeatedly(collect: Callable[[Any], Any], agent: Any) -> None:
    for _ in range(30):
        collect(agent)

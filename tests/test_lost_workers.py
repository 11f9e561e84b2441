"""Subprocess environments that crash or hang while a run goes: replaced, counted, bounded, and told in one line."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from helpers.contracts import small_config
from helpers.runs import outcome, stop_at
from rl_training.algorithms.protocol import Decision
from rl_training.config import EnvConfig
from rl_training.envs import make_vector_env
from rl_training.envs.journal import EpisodeSeeds
from rl_training.errors import EnvError
from rl_training.runtime import workflows
from rl_training.runtime.checkpoint import newest_checkpoint, tree_digest
from rl_training.runtime.collector import Collector
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run
from rl_training.runtime.session import Interrupted
from rl_training.runtime.streams import seed_sequence
from rl_training.spaces import DiscreteActions

SHORT = {
    "env.num_envs": 2,
    "env.vectorization": "subprocess",
    "env.step_timeout": 0.5,
    "total_timesteps": 120,
    "algo_kwargs.n_step_return": 3,
    "checkpoint.frequency": 0,
}


def seed_of(index: int, episode: int = 0) -> int:
    """The seed of an episode of one environment."""
    return next(EpisodeSeeds(seed_sequence(0, "env", index), offset=episode))


def config_of(fault: str, **overrides: Any) -> Any:
    kwargs = {"fault": fault, "episode_seed": seed_of(1), "when": 5}
    named = {"env.id": "helpers.faulty_envs:Faulty", "env.kwargs": kwargs}
    settings = {**SHORT, **named, **{name.replace("__", "."): value for name, value in overrides.items()}}
    return small_config("dqn", **{name.replace(".", "__"): value for name, value in settings.items()})


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("die", "worker killed by SIGKILL, perhaps out of memory"),
        ("exit", "worker exited with code 7"),
        ("hang", "step took longer than 0.5 s; worker ended"),
    ],
)
def test_a_lost_worker_costs_its_episode_and_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str, line: str
) -> None:
    result = workflows.start(config_of(fault), run_dir=tmp_path / "run", console=False)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"warning: env 1: {line}; its episode is lost and a new one begins (worker 1 of at most 10 that are "
        "replaced); such a run does not repeat bit for bit"
    ]
    assert result.steps == 121, "one step of two brought nothing, and both envs step together"
    assert json.loads((tmp_path / "run" / "result.json").read_text())["lost_episodes"] == 1
    assert result.metrics["rollout/lost_episodes"] == 1
    assert newest_checkpoint(tmp_path / "run" / "checkpoints")[0].info["lost_episodes"] == 1


def test_a_run_with_a_lost_worker_is_resumed_exactly(tmp_path: Path) -> None:
    config = config_of("exit")
    workflows.start(config, run_dir=tmp_path / "straight", console=False)
    with pytest.raises(Interrupted):
        workflows.start(config, run_dir=tmp_path / "stopped", callback=stop_at(61), console=False)
    workflows.resume(tmp_path / "stopped", console=False, trust=True)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


def test_windows_of_a_lost_episode_do_not_go_on() -> None:
    run = Run(config_of("exit"))
    experience: Any = run.experience
    opened = [experience.state_dict()["n_step"]["open"].tolist() for _ in islice(train(run), 6)]
    run.close()
    assert opened == [[1, 1], [2, 2], [2, 2], [2, 2], [2, 0], [2, 1]]


class Mortal(CartPoleEnv):
    """CartPole whose process ends in the third step of each episode, or as it resets to the episode of that seed."""

    def __init__(self, reset: int = 0) -> None:
        super().__init__()
        self.fatal, self.steps = reset, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed == self.fatal:
            os._exit(3)
        self.steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 3 and not self.fatal:
            os._exit(3)
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, self.steps == 3, truncated, info


def test_there_is_an_end_to_replacing(tmp_path: Path) -> None:
    config = config_of("", env__id="test_lost_workers:Mortal", env__kwargs={}, env__worker_restarts=3)
    told = (
        r"^env 1: worker exited with code 3; the 3 workers that env.worker_restarts allows were replaced before; "
        r"step-000000008 is the newest checkpoint; go on with: rl-training resume .*/run --trust$"
    )
    with pytest.raises(EnvError, match=told):
        workflows.start(config, run_dir=tmp_path / "run", console=False)


class Still:
    """Always the first action."""

    def observe(self, obs: Any) -> None: ...

    def act(self, obs: Any, carry: Any = None, **_: Any) -> Decision:
        return Decision(np.zeros(len(obs), np.int64))


def collected(kwargs: dict[str, Any], steps: int, make: Callable[..., Any]) -> tuple[Collector, list[Any]]:
    env = EnvConfig(id="test_lost_workers:Mortal", num_envs=2, vectorization="subprocess", kwargs=kwargs)
    seeds = [EpisodeSeeds(seed_sequence(0, "env", i)) for i in range(2)]
    collector = Collector(make_vector_env(env, seeds, make), DiscreteActions(2))
    return collector, [collector.step(Still())[0] for _ in range(steps)]  # type: ignore[arg-type]


def test_the_step_of_a_lost_worker_is_nobodys_and_the_next_episode_begins() -> None:
    def make(reset: int) -> CartPoleEnv:
        return Mortal(reset)

    fatal = seed_of(1, episode=1)
    collector, steps = collected({"reset": fatal}, 5, make)
    envs: Any = collector.envs
    # The first episode of env 1 ends in its third step; in the reset after that, its worker dies.
    assert [step.env_ids.tolist() for step in steps] == [[0, 1], [0, 1], [0], [0, 1], [0, 1]]
    assert [step.terminated.tolist() for step in steps[2:]] == [[True], [False, False], [False, False]]
    assert [journal["seed"] for journal in envs.call_each("journal")] == [seed_of(0, 1), seed_of(1, 2)]
    assert (collector.episodes_lost, len(collector.lost), envs.replaced) == (1, 0, 1)
    state = collector.state_dict()
    again = CartPoleEnv()
    first, _ = again.reset(seed=seed_of(1, 2))
    np.testing.assert_array_equal(steps[3].obs[1], first)
    np.testing.assert_array_equal(steps[3].next_obs[1], again.step(0)[0])
    envs.close()
    other, _ = collected({"reset": fatal}, 0, make)
    assert other.load_state_dict(state) == "replayed"
    assert other.episodes_lost == 1
    other.envs.close()


@pytest.mark.parametrize(
    "algo", ["dqn", "prioritized_dqn", "drqn", "r2d2", "drqv2", "ppo", "recurrent_ppo", "toy_policy_gradient"]
)
def test_episodes_of_one_environment_are_given_up_alone(algo: str) -> None:
    digests = {}
    for given in ([], [None], [[0, 1]], [[0], [1]], [[1]]):
        extra = {"algo_kwargs__n_step_return": 3} if algo.endswith("dqn") else {}
        run = Run(small_config(algo, env__num_envs=2, **extra))
        deque(islice(train(run), 12), maxlen=0)
        for envs in given:
            run.experience.interrupt(None if envs is None else np.array(envs))
        digests[str(given)] = tree_digest({"experience": run.experience.state_dict()})
        run.close()
    everything = digests["[None]"]
    assert digests["[[0, 1]]"] == digests["[[0], [1]]"] == everything
    assert len({everything, digests["[]"], digests["[[1]]"]}) == 3

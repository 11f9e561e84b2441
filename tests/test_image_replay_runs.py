"""Runs that learn from images: which replay they get, what it takes, and that they resume to the same bits."""

from __future__ import annotations

import itertools
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from helpers.contracts import small_config
from helpers.observation_envs import SPACES
from helpers.runs import outcome, stop_at
from helpers.survey import survey
from rl_training.algorithms.building import replay_experience
from rl_training.algorithms.spec import BuildContext
from rl_training.data import (
    ImageReplayBuffer,
    PrioritizedImageReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
)
from rl_training.envs.spaces import describe_observations
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.observations import ObsSpec
from rl_training.runtime.checkpoint import (
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    save_checkpoint,
)
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run
from rl_training.runtime.session import Interrupted
from rl_training.runtime.streams import Streams
from rl_training.spaces import DiscreteActions

ZEROS = {"id": "FrameStackObservation", "kwargs": {"stack_size": 3, "padding_type": "zero"}}
RESET = {"id": "FrameStackObservation", "kwargs": {"stack_size": 3}}
RUNS: dict[str, dict[str, Any]] = {
    "dqn": {"kind": "image_last", "wrappers": [RESET], "algo_kwargs__n_step_return": 3},
    "dqn_dict": {"algo": "dqn", "kind": "dict", "wrappers": []},
    "rainbow": {"kind": "grey_image", "wrappers": [ZEROS]},
    "discrete_sac": {"kind": "small_bool_image", "wrappers": [], "algo_kwargs__prioritized": True},
    "sac": {"kind": "grey_image", "wrappers": [RESET], "algo_kwargs__n_step_return": 2},
    "drqn": {"kind": "grey_image", "wrappers": [ZEROS]},
    "r2d2": {"kind": "image_last", "wrappers": [RESET]},
}


def config_of(name: str, **settings: Any) -> Any:
    own = {"algo": name, **RUNS[name]}
    algo, kind = own.pop("algo"), own.pop("kind")
    continuous = algo == "sac"
    env = "Shown" if continuous else "ShownMasked"
    return small_config(
        algo,
        env={"id": f"helpers.observation_envs:{env}", "num_envs": 2, "wrappers": own.pop("wrappers")},
        env__kwargs={"kind": kind, "continuous": continuous},
        **{"algo_kwargs__learning_starts": 40, "algo_kwargs__buffer_size": 150, **own, **settings},
    )


@pytest.mark.parametrize("name", RUNS)
def test_a_stopped_run_goes_on_to_the_same_bits(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config = config_of(name, evaluation__frequency=100, evaluation__episodes=2, logging__frequency=50)
    registry.train(config, run_dir=tmp_path / "straight", console=False)
    with pytest.raises(Interrupted):
        registry.train(config, run_dir=tmp_path / "stopped", callback=stop_at(174), console=False)
    registry.resume(tmp_path / "stopped", trust=True, console=False)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


@pytest.mark.parametrize("name", RUNS)
def test_every_live_value_is_restored(name: str, tmp_path: Path) -> None:
    config = config_of(name, algo_kwargs__buffer_size=600)
    trained, resumed = Run(config), Run(config)
    deque(itertools.islice(train(trained), 57), maxlen=0)
    saved = save_checkpoint(tmp_path / "c", 114, trained.state_dict(), {})
    resumed.load_state_dict(newest_checkpoint(saved.parent)[0].tree)
    want, got = survey(trained), survey(resumed)
    assert [path for path in want.keys() | got.keys() if want.get(path) != got.get(path)] == []
    for run in (trained, resumed):
        run.close()


def test_a_checkpoint_writes_what_is_new(tmp_path: Path) -> None:
    settings = {"algo_kwargs__buffer_size": 1_000, "total_timesteps": 500}
    registry.train(config_of("rainbow", **settings), run_dir=tmp_path / "run", console=False)
    before = list_checkpoints(tmp_path / "run" / "checkpoints")[0]
    registry.resume(tmp_path / "run", overrides=["total_timesteps=560"], trust=True, console=False)
    path = list_checkpoints(tmp_path / "run" / "checkpoints")[0]
    assert (before.name, path.name) == ("step-000000500", "step-000000560")
    old = {file.stat().st_ino for file in before.glob("replay.buffer.segments.*")}
    assert len(old) > 60
    assert old <= {file.stat().st_ino for file in path.glob("replay.buffer.segments.*")}
    state = read_checkpoint(path).tree["replay"]["buffer"]
    assert state["padding"] == "zeros"
    assert "masks" in state["segments"]["e0_0"]


def test_masks_come_back_with_what_they_allow() -> None:
    run = Run(config_of("discrete_sac", algo_kwargs__buffer_size=600))
    for _ in train(run):
        pass
    buffer: Any = run.experience.buffer  # type: ignore[attr-defined]
    batch = buffer.sample(200)
    for mask in (batch.mask, batch.next_mask):
        assert mask.shape == (200, 3)
        assert mask[:, 1:].all()
        assert 0 < mask[:, 0].sum() < 200
    assert batch.mask[range(200), batch.action].all(), "what was done was allowed"
    run.close()


# Which replay


def context_of(obs: ObsSpec, **options: Any) -> BuildContext:
    settings = {f"algo_kwargs__{name}": value for name, value in options.items()}
    config = small_config("dqn", env__num_envs=2, **settings)
    return BuildContext(config, obs, DiscreteActions(3), Streams(0), torch.device("cpu"))


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("kind", [*SPACES, "stacked"])
def test_images_are_kept_once_and_everything_else_as_before(kind: str, prioritized: bool) -> None:
    space = gym.spaces.Box(0, 255, (4, 20, 20), np.uint8) if kind == "stacked" else SPACES[kind]
    obs = describe_observations(space).with_stack(4 if kind == "stacked" else 1)
    buffer = replay_experience(context_of(obs, prioritized=prioritized, n_step_return=3)).buffer
    if not obs.images:
        assert type(buffer) is (PrioritizedReplayBuffer if prioritized else ReplayBuffer)
        return
    assert type(buffer) is (PrioritizedImageReplayBuffer if prioritized else ImageReplayBuffer)
    assert buffer._rings.frames.dtype == obs.dtype
    assert buffer._rings.frames.shape[1:] == (obs.shape[1:] if kind == "stacked" else obs.shape)
    assert (buffer.n_step, buffer.num_envs, buffer.capacity) == (3, 2, 500)


@pytest.mark.parametrize("prioritized", [False, True])
def test_replay_of_dqn_takes_a_third_of_whole_transitions_at_most(prioritized: bool) -> None:
    obs = describe_observations(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)).with_stack(4)
    buffer = replay_experience(context_of(obs, buffer_size=100_000, prioritized=prioritized)).buffer
    arrays = [buffer._rings.frames, buffer._rings.rows, buffer._heads]
    if prioritized:
        arrays.append(buffer.priorities.tree._nodes)
    assert buffer.nbytes == sum(array.nbytes for array in arrays)
    assert buffer.nbytes <= 100_000 * 2 * 4 * 84 * 84 / 3
    assert len(buffer._rings.frames) >= 100_000


def test_what_only_looks_like_a_stack_is_refused_by_name() -> None:
    class Cameras(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(0, 255, (2, 12, 12, 3), np.uint8)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            return self._seen(), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return self._seen(), 0.0, False, False, {}

        def _seen(self) -> Any:
            return self.np_random.integers(0, 256, (2, 12, 12, 3)).astype(np.uint8)

    gym.register("test/Cameras-v0", Cameras)  # type: ignore[arg-type]
    for algo in ("dqn", "ppo"):
        with pytest.raises(ConfigError, match=r"^env: .*\(2, 12, 12, 3\): four dimensions .* into a Dict"):
            Run(small_config(algo, env={"id": "test/Cameras-v0"}))

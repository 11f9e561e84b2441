"""train_drqv2 from pixels to checkpoint, and everything that a run does besides."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from helpers.image_envs import FRAMES, Track
from rl_training import DrQv2, load_config
from rl_training.data.image_replay_buffer import segments_of
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.runtime.checkpoint import list_checkpoints, read_checkpoint
from rl_training.runtime.curves import read_metrics
from rl_training.runtime.drqv2_trainer import train_drqv2

gym.register("test/Track-v0", "helpers.image_envs:Track")
SMALL: dict[str, Any] = {
    "algo": "drqv2",
    "env": {"id": "test/Track-v0", "num_envs": 2, "wrappers": [FRAMES]},
    "total_timesteps": 300,
    "algo_kwargs": {
        "learning_rate": 1e-3,
        "buffer_size": 400,
        "learning_starts": 100,
        "batch_size": 16,
        "std_duration": 200,
        "shift_pad": 1,
        "feature_dim": 8,
    },
    "network": {"hidden_sizes": [32]},
    "evaluation": {"frequency": 100, "episodes": 2, "final_episodes": 3},
    "checkpoint": {"frequency": 100, "keep": 3},
    "logging": {"frequency": 100},
}


def test_train_drqv2_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    result = train_drqv2(load_config(SMALL), run_dir=tmp_path / "run", console=False)
    assert result.steps == 300
    assert result.updates == 100
    metrics = result.metrics
    assert metrics["train/n_updates"] == metrics["train/actor_updates"] == 100
    assert metrics["train/critic_loss"] > 0
    assert {"train/actor_loss", "train/target_q_mean", "train/q_value_mean"} <= metrics.keys()
    assert metrics["train/exploration_std"] == pytest.approx(0.1)
    assert result.evaluation is not None
    assert len(result.evaluation.returns) == 3
    assert (result.checkpoint / "manifest.json").is_file()
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if "eval/mean_reward" in row] == [0, 100, 200, 300]
    assert [row["step"] for row in rows if "final/mean_reward" in row] == [300]


def test_train_drqv2_refuses_another_algorithm(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not trained by train_drqv2; it trains drqv2"):
        train_drqv2(load_config("dqn/cartpole"), run_dir=tmp_path / "run")


def test_settings_of_the_paper_are_the_defaults() -> None:
    config = load_config({"algo": "drqv2", "env": {"id": "test/Track-v0"}, "total_timesteps": "1M"})
    assert config.network.hidden_sizes == (1024, 1024)
    options = config.algo_kwargs
    assert (options.learning_rate, options.batch_size, options.n_step_return) == (1e-4, 256, 3)
    assert (options.gamma, options.tau, options.train_freq, options.learning_starts) == (0.99, 0.01, 2, 2_000)
    assert (options.std_initial, options.std_final, options.std_clip) == (1.0, 0.1, 0.3)
    assert (options.shift_pad, options.feature_dim, options.buffer_size) == (4, 50, 1_000_000)
    assert options.reward_scale == 1.0
    smaller = load_config(
        {"algo": "drqv2", "env": {"id": "x"}, "total_timesteps": "1M", "network": {"hidden_sizes": [8]}}
    )
    assert smaller.network.hidden_sizes == (8,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"env.id": "Pendulum-v1", "env.wrappers": []},
            r"learns from images, not from vectors \(vector of 3\); the wrapper",
        ),
        ({"env.id": "helpers.image_envs:Numbers"}, "images of uint8, not of float32"),
        ({"env.id": "helpers.image_envs:ChannelLast", "env.wrappers": []}, "look channel-last"),
        ({"env.id": "helpers.image_envs:Free"}, "unbounded action space"),
        ({"env.id": "CartPole-v1", "env.wrappers": []}, "'drqv2' takes continuous actions, not discrete"),
        ({"network.normalize_obs": True}, "network.normalize_obs: images"),
        ({"network.layer_norm": True}, "network.layer_norm: not for DrQ-v2"),
        ({"network.hidden_sizes": []}, "network.hidden_sizes: "),
        (
            {"algo_kwargs.shift_pad": 16},
            "shift_pad: shifts of up to 16 pixels would move images of 16 x 16 out",
        ),
        ({"algo_kwargs.buffer_size": 10**9}, r"frames need .* the largest that fits is \d+"),
        ({"algo_kwargs.buffer_size": 16, "env.num_envs": 4}, "stacks of 2 frames; the least is 20"),
        (
            {"network.cnn": "impala"},
            "^network.cnn: impala is not for DrQ-v2, which has an encoder of its own",
        ),
        ({"algo_kwargs.policy_freq": 2}, "did you mean 'policy_delay'"),
        ({"algo_kwargs.stddev_clip": 0.3}, "std_clip"),
        ({"algo_kwargs.double": True}, "algo_kwargs.double: unknown key"),
        (
            {"env.id": "Pendulum-v1", "env.wrappers": ["rl_training.envs.pixels:PixelObservation"]},
            "render_mode: rgb_array",
        ),
        (
            {
                "env.id": "rl_training/TMaze-v0",
                "env.wrappers": ["rl_training.envs.pixels:PixelObservation"],
            },
            "no 'rgb_array'",
        ),
        (
            {
                "env.id": "rl_training/TMaze-v0",
                "env.kwargs": {"render_mode": "rgb_array"},
                "env.wrappers": ["rl_training.envs.pixels:PixelObservation"],
            },
            "'rl_training/TMaze-v0' cannot render images: it takes no render_mode",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        train_drqv2(load_config(SMALL, settings), run_dir=tmp_path / "run", console=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_images_too_small_for_the_encoder_are_refused(tmp_path: Path) -> None:
    wrapper = {"id": "rl_training.envs.pixels:PixelObservation", "kwargs": {"size": 14}}
    settings = {
        "env.id": "Pendulum-v1",
        "env.kwargs": {"render_mode": "rgb_array"},
        "env.wrappers": [wrapper],
    }
    with pytest.raises(ConfigError, match="14 x 14 are too small for drqv2: 15 x 15 at least"):
        train_drqv2(load_config(SMALL, settings), run_dir=tmp_path / "run", console=False)


def test_an_own_encoder_takes_the_place_of_the_convolutions(tmp_path: Path) -> None:
    class Mean(nn.Module):
        def __init__(self, shape: tuple[int, ...], features: int) -> None:
            super().__init__()
            self.linear = nn.Linear(shape[0] * shape[1], features)

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.linear(obs.float().mean((-1, -2)).flatten(1)))

    config = load_config(SMALL, {"algo_kwargs.encoder_dim": 7})
    result = registry.train(config, run_dir=tmp_path / "run", network=Mean, console=False)
    assert result.updates == 100
    with pytest.raises(ConfigError, match=r"expected outputs of shape \(2, 7\)"):
        registry.train(config, run_dir=tmp_path / "other", network=lambda s, n: Mean(s, n + 1), console=False)


def test_api_learns_saves_loads_and_predicts_in_the_envs_own_bounds(tmp_path: Path) -> None:
    agent = DrQv2(config=SMALL, run_dir=tmp_path / "run").learn(progress_bar=False)
    loaded = DrQv2.load(agent.save(tmp_path / "exported"))
    obs = np.random.default_rng(0).integers(0, 256, (20, 2, 3, 16, 16)).astype(np.uint8)
    for deterministic in (True, False):
        actions, state = loaded.predict(obs, deterministic=deterministic)
        assert state is None
        assert actions.shape == (20, 2)
        assert all(Track.action_space.contains(action) for action in actions)
    alone = loaded.predict(obs[0])[0]
    assert np.allclose(alone, agent.predict(obs)[0][0], atol=1e-5)
    with pytest.raises(ConfigError, match="values do not fit uint8"):
        loaded.predict(obs[0].astype(float) / 255)


def test_command_line(cli: Callable[..., Any], tmp_path: Path) -> None:
    run, config = tmp_path / "run", tmp_path / "config.yaml"
    config.write_text(json.dumps(SMALL))
    done = cli("train", "--config", config, "--run-dir", run, "--quiet")
    assert done.code == 0, done.err
    expected = json.loads((run / "result.json").read_text())["evaluation"]["returns"]
    assert json.loads(cli("eval", run, "--json").out)["returns"] == expected
    obs = json.dumps(np.zeros((2, 3, 16, 16), int).tolist())
    action = json.loads(cli("predict", run, "--obs", obs).out)
    assert Track.action_space.contains(np.float32(action))
    assert "Trained 400 steps" in cli("resume", run, "total_timesteps=400").out
    for option in ("feature_dim=9", "reward_scale=2"):
        assert "cannot change" in cli("resume", run, "total_timesteps=500", f"algo_kwargs.{option}").err


# What a save costs


def new_bytes(path: Path, before: Path) -> int:
    """Return how many bytes of a checkpoint are not those of the one before it."""
    old = {file.stat().st_ino for file in before.iterdir()}
    return sum(file.stat().st_size for file in path.iterdir() if file.stat().st_ino not in old)


@pytest.mark.parametrize("capacity", [1_500, 15_000])
def test_a_save_writes_what_is_new(tmp_path: Path, capacity: int) -> None:
    settings = {
        "algo_kwargs.buffer_size": capacity,
        "algo_kwargs.learning_starts": 1_190,
        "total_timesteps": 1_200,
        "evaluation.frequency": 0,
        "checkpoint.keep": 20,
    }
    train_drqv2(load_config(SMALL, settings), run_dir=tmp_path / "run", console=False)
    saves = list_checkpoints(tmp_path / "run" / "checkpoints")[::-1]
    assert len(saves) == 12
    frame = 3 * 16 * 16
    other = sum(
        (saves[1] / name).stat().st_size
        for name in ("model.safetensors", "optimizer.safetensors", "state.json")
    )
    for before, path in pairwise(saves):
        # 100 steps and the ends of their episodes, what was not complete before, headers, and the other files.
        frames = 100 + 2 * 20 + 2 * (segments_of(capacity // 2)[0] + 1)
        assert new_bytes(path, before) < other + frames * frame + 60_000
    held = sum(file.stat().st_size for file in saves[-1].glob("replay*"))
    assert held > 1_200 * frame, "all frames are there"


def test_a_resumed_run_writes_what_is_new(tmp_path: Path) -> None:
    settings = {"algo_kwargs.buffer_size": 1_000, "evaluation.frequency": 0, "total_timesteps": 600}
    train_drqv2(load_config(SMALL, settings), run_dir=tmp_path / "run", console=False)
    before = list_checkpoints(tmp_path / "run" / "checkpoints")[0]
    registry.resume(tmp_path / "run", overrides=["total_timesteps=700"], console=False)
    path = list_checkpoints(tmp_path / "run" / "checkpoints")[0]
    assert (before.name, path.name) == ("step-000000600", "step-000000700")
    old = {file.stat().st_ino for file in before.glob("replay.buffer.*")}
    assert len(old) > 60
    assert len(old - {file.stat().st_ino for file in path.glob("replay.buffer.*")}) == 0
    assert set(read_checkpoint(path).tree["replay"]["buffer"]["segments"]) >= {"e0_0", "e1_0"}

"""train_drqn, from config to checkpoint, and what a memory is good for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.trainer_checks import SMALL, check_train_writes_checkpoint_and_metrics
from rl_training import load_config
from rl_training.data import RecurrentReplayBuffer
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.runtime.checkpoint import read_checkpoint
from rl_training.runtime.drqn_trainer import train_drqn


def test_train_drqn_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    check_train_writes_checkpoint_and_metrics(train_drqn, "drqn/cartpole", tmp_path / "run", 600)


def test_train_r2d2_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    check_train_writes_checkpoint_and_metrics(train_drqn, "r2d2/cartpole_no_velocity", tmp_path / "run", 600)
    (path,) = (tmp_path / "run" / "checkpoints").glob("step-000000600*")
    priorities = np.asarray(read_checkpoint(path).tree["replay"]["buffer"]["priorities"])
    assert priorities[priorities > 0].std() > 0, "updates should have fed their errors back"


def test_train_drqn_refuses_another_algorithm(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not trained by train_drqn; it trains drqn, r2d2"):
        train_drqn(load_config("dqn/cartpole"), run_dir=tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"algo_kwargs.sequence_length": 1},
            "algo_kwargs.sequence_length: ",
        ),
        ({"algo_kwargs.burn_in": 20}, "algo_kwargs.burn_in: 20 is not below algo_kwargs.sequence_length=20"),
        (
            {"algo_kwargs.burn_in": 8, "algo_kwargs.sequence_period": 13},
            "13 is more than the 12 steps learned",
        ),
        ({"algo_kwargs.buffer_size": 40, "env.num_envs": 2}, "leaves each of 2 environments 20 observations"),
        ({"algo_kwargs.n_step_return": 21}, "algo_kwargs.n_step_return: 21 is more than the 20 steps"),
        ({"algo_kwargs.core": "rnn"}, "algo_kwargs.core: "),
        ({"algo_kwargs.core_size": 0}, "algo_kwargs.core_size: "),
        ({"algo_kwargs.noisy": True}, "algo_kwargs.noisy"),
        ({"algo_kwargs.lstm_hidden_size": 32}, "core_size"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(
            "drqn/cartpole", {"algo_kwargs.sequence_length": 20, "algo_kwargs.batch_size": 16, **settings}
        )
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


PIXELS = {"id": "ResizeObservation", "kwargs": {"shape": [36, 40]}}


@pytest.mark.parametrize(
    "wrappers",
    [
        [{"id": "ReshapeObservation", "kwargs": {"shape": [2, 2]}}],
        [{"id": "AddRenderObservation", "kwargs": {"render_only": True}}, PIXELS],
    ],
)
def test_tables_and_images_are_learned_from(tmp_path: Path, wrappers: list[Any]) -> None:
    overrides = {**SMALL, "env.wrappers": wrappers, "env.kwargs": {"render_mode": "rgb_array"}}
    overrides |= {"algo_kwargs.buffer_size": 200, "evaluation.final_episodes": 1, "total_timesteps": 150}
    overrides |= {"algo_kwargs.learning_starts": 100, "algo_kwargs.sequence_length": 8}
    result = train_drqn(load_config("drqn/cartpole", overrides), run_dir=tmp_path / "run", console=False)
    assert read_checkpoint(result.checkpoint).tree["loop"]["clock"]["updates"] > 0


def test_an_own_network_takes_the_place_of_the_encoder(tmp_path: Path) -> None:
    """Which lets DRQN see what is not a vector."""
    import torch
    from torch import nn

    class Flat(nn.Module):
        def __init__(self, obs_shape: tuple[int, ...], num_outputs: int) -> None:
            super().__init__()
            self.linear = nn.Linear(int(np.prod(obs_shape)), num_outputs)

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.linear(obs.flatten(1)))

    wrappers = [{"id": "ReshapeObservation", "kwargs": {"shape": [2, 2]}}]
    config = load_config("drqn/cartpole", {**SMALL, "env.wrappers": wrappers, "total_timesteps": 300})
    result = registry.train(config, run_dir=tmp_path / "run", network=Flat, console=False)
    assert result.updates == 25
    with pytest.raises(
        ConfigError, match=r"expected outputs of shape \(2, 32\) \(observations, features: the last of"
    ):
        registry.train(
            config, run_dir=tmp_path / "other", network=lambda shape, n: Flat(shape, n + 1), console=False
        )


# What a memory is good for


def share_correct(result: Any) -> float:
    """Return how many episodes in a T-maze ended with the right turn; bumping into walls costs less than 1."""
    returns = np.array(result.evaluation.returns)
    return float((returns > 0).mean())


def test_drqn_remembers_which_way_to_turn(tmp_path: Path) -> None:
    config = load_config("drqn/tmaze", {"evaluation.frequency": 0})
    result = train_drqn(config, run_dir=tmp_path / "run", console=False)
    assert share_correct(result) >= 0.95


def test_without_a_memory_it_is_a_guess(tmp_path: Path) -> None:
    overrides = {"evaluation.frequency": 0, "evaluation.final_episodes": 400}
    tmaze = load_config("drqn/tmaze", overrides).model_dump(mode="json")
    options = {key: tmaze["algo_kwargs"][key] for key in ("learning_rate", "gamma", "exploration_fraction")}
    config = load_config({**tmaze, "algo": "dqn", "algo_kwargs": options})
    result = registry.train(config, run_dir=tmp_path / "run", console=False)
    returns = np.array(result.evaluation.returns) if result.evaluation else np.zeros(1)
    assert (np.abs(returns) > 0.4).all(), "it should get to the fork and turn"
    assert 0.42 <= share_correct(result) <= 0.58


@pytest.mark.slow
def test_a_cue_older_than_a_chunk_is_known_only_by_the_stored_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of six steps in a maze of ten: trained from an empty memory, it is a guess again."""
    short = {"algo_kwargs.sequence_length": 6, "evaluation.frequency": 0, "evaluation.final_episodes": 400}
    config = load_config("drqn/tmaze", short)
    stored = train_drqn(config, run_dir=tmp_path / "stored", console=False)
    begin = RecurrentReplayBuffer._begin

    def forgetful(self: Any, env: int, row: int, begins: bool, carry: Any, index: int) -> None:
        begin(self, env, row, begins, None, index)

    monkeypatch.setattr(RecurrentReplayBuffer, "_begin", forgetful)
    empty = train_drqn(config, run_dir=tmp_path / "empty", console=False)
    assert share_correct(stored) >= 0.95
    assert share_correct(empty) <= 0.65


def test_an_own_encoder_must_not_explore_by_noise_or_expect_normalised_observations(tmp_path: Path) -> None:
    from rl_training.models import NoisyLinear

    config = load_config("drqn/cartpole", {**SMALL, "network.hidden_sizes": [8]})
    with pytest.raises(ConfigError, match="explores by epsilon"):
        registry.train(
            config, run_dir=tmp_path / "run", network=lambda shape, n: NoisyLinear(shape[0], n), console=False
        )
    for name in ("normalize_obs", "layer_norm"):
        config = load_config("drqn/cartpole", {**SMALL, f"network.{name}": True})
        with pytest.raises(ConfigError, match=f"^network.{name}: belongs to the packaged encoder"):
            registry.train(config, run_dir=tmp_path / "run", network=lambda shape, n: None, console=False)

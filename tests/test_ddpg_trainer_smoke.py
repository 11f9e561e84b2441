"""train_ddpg from config to checkpoint: what it writes, what it refuses, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from helpers import actor_critic_runs as runs
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run


def test_train_ddpg_writes_checkpoint_and_metrics(tmp_path: Path) -> None:
    metrics = runs.check_trains("ddpg", tmp_path / "run")
    assert metrics["train/actor_updates"] == metrics["train/n_updates"] // 1


def test_actions_keep_to_uneven_bounds(tmp_path: Path) -> None:
    runs.check_bounded_actions("ddpg", tmp_path)


def test_other_spaces_are_refused_by_name(tmp_path: Path) -> None:
    runs.check_unfit_spaces("ddpg", tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            {"algo_kwargs__action_noise_std": 1.5},
            "algo_kwargs.action_noise_std: 1.5 is not allowed: should be less than or equal to 1",
        ),
        (
            {"algo_kwargs__ou_theta": 0.3},
            "algo_kwargs.ou_theta: only has a meaning with algo_kwargs.action_noise=ou",
        ),
        (
            {"algo_kwargs__action_noise": "none", "algo_kwargs__action_noise_std": 0.2},
            "algo_kwargs.action_noise_std: has no effect with algo_kwargs.action_noise=none",
        ),
        ({"algo_kwargs__action_noise": "pink"}, "algo_kwargs.action_noise: "),
        ({"algo_kwargs__ent_coef": 0.1}, "algo_kwargs.ent_coef: unknown key"),
        ({"algo_kwargs__actor_lr": 0.1}, "algo_kwargs.actor_lr: unknown key; did you mean"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    runs.check_refused("ddpg", tmp_path / "run", said, **overrides)


def test_noise_goes_on_exactly(tmp_path: Path) -> None:
    runs.check_goes_on_exactly(
        runs.small("ddpg/pendulum", algo_kwargs__action_noise="ou", algo_kwargs__ou_dt=0.1), tmp_path
    )


def test_noise_begins_anew_with_each_episode_of_each_environment() -> None:
    options = {"action_noise": "ou", "action_noise_std": 0.2, "ou_dt": 0.1}
    config = runs.small(
        "ddpg/pendulum",
        env__id="BoundedSigns-v0",
        total_timesteps=160,
        algo_kwargs__learning_starts=0,
        **{f"algo_kwargs__{name}": value for name, value in options.items()},
    )
    run = Run(config)
    remembered = []
    for clock in train(run):
        carry = run.collector.state_dict()["carry"]
        remembered.append((clock.steps, np.abs(np.asarray(carry["noise"])).sum(1)))
    run.close()
    begun = [step for step, noise in remembered if (noise == 0).any()]
    assert begun
    assert all((noise > 0).all() for step, noise in remembered if step not in begun)
    assert len(begun) <= 2 * len(remembered) // 10, "an episode has ten steps"


def test_the_noisy_action_is_what_is_played_and_stored() -> None:
    played: list[Any] = []
    gym.register("test/Spied-v0", lambda: runs.Spy(gym.make("Pendulum-v1"), played))  # type: ignore[arg-type]
    config = runs.small(
        "ddpg/pendulum", env__id="test/Spied-v0", env__num_envs=1, algo_kwargs__action_noise_std=0.5
    )
    run = Run(config)
    for _ in train(run):
        pass
    experience: Any = run.experience
    stored = experience.buffer.gather(np.arange(400)).action.numpy()
    run.close()
    assert np.allclose(stored * 2.0, np.stack(played[:400]), atol=1e-6)
    assert len(np.unique(stored[100:])) > 100

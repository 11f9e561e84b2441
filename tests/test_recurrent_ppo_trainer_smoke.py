"""train_recurrent_ppo, from config to checkpoint, and what a memory is good for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rl_training
from helpers import rollout_checks as checks
from helpers.rollout_checks import CLIPPED, KINDS, SMALL, small
from rl_training import load_config
from rl_training.algorithms import RecurrentPPO
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.runtime.recurrent_ppo_trainer import train_recurrent_ppo

NAME = "recurrent_ppo/cartpole_no_velocity"
BRIEF: dict[str, Any] = {
    "algo_kwargs__batch_size": 64,
    "algo_kwargs__n_epochs": 2,
    "algo_kwargs__core_size": 8,
}


def brief(**overrides: Any) -> Any:
    return small(NAME, **{**BRIEF, **overrides})


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_train_recurrent_ppo_writes_checkpoint_and_metrics(tmp_path: Path, core: str) -> None:
    options = {"algo_kwargs.batch_size": None, "algo_kwargs.n_epochs": 2, "algo_kwargs.core": core}
    config = load_config(NAME, {**SMALL, **options})
    result, rows = checks.check_train_writes_checkpoint_and_metrics(
        train_recurrent_ppo, config, tmp_path / "run", CLIPPED
    )
    assert [row["train/n_updates"] for row in rows] == [*range(2, 21, 2)], "whole rollouts, two epochs"
    assert result.updates == 20


@pytest.mark.parametrize("length", [None, 7])
def test_a_minibatch_is_made_of_whole_sequences(tmp_path: Path, length: int | None) -> None:
    config = brief(algo_kwargs__batch_size=32, algo_kwargs__sequence_length=length)
    result = train_recurrent_ppo(config, run_dir=tmp_path / "run", console=False)
    # Each has 32 steps or more, but the last of an epoch may have fewer: one to four in a rollout of 128, and of 48
    # one or two.
    assert 2 * 10 <= result.updates <= 2 * (9 * 4 + 2)
    if length is not None:  # then each is of 32 to 38 steps
        assert result.updates == 2 * (9 * 4 + 2)


def test_a_budget_is_kept_to_exactly_and_every_step_learned_from_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks.check_makes_exactly_the_steps_of_its_budget(monkeypatch, brief(), RecurrentPPO, tmp_path / "run")


def test_train_recurrent_ppo_refuses_another_algorithm(tmp_path: Path) -> None:
    for name in ("drqn/cartpole", "ppo/cartpole"):
        with pytest.raises(ConfigError, match="not trained by train_recurrent_ppo; it trains recurrent_ppo"):
            train_recurrent_ppo(load_config(name), run_dir=tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"algo_kwargs__n_steps": 700}, "algo_kwargs.n_steps: 700 steps of 2 environments are more than"),
        (
            {"env__id": "BoundedSigns-v0", "algo_kwargs__prev_action": True},
            "algo_kwargs.prev_action: only discrete actions can be an input",
        ),
        (
            {"env__id": "MultiDiscreteSigns-v0", "algo_kwargs__prev_action": True},
            "algo_kwargs.prev_action: only discrete actions can be an input",
        ),
        (
            {"env__id": "UnboundedSigns-v0", "algo_kwargs__action_distribution": "tanh_gaussian"},
            "algo_kwargs.action_distribution: tanh_gaussian needs bounds",
        ),
        ({"algo_kwargs__action_distribution": "gaussian"}, "algo_kwargs.action_distribution: gaussian is for cont"),
        ({"env__id": "PairSigns-v0"}, "env: actions of Tuple(Discrete(2), Discrete(2)) are not supported"),
        ({"env__id": "MatrixSigns-v0", "network__cnn": "nature"}, "network.cnn: nature has no effect"),
        ({"network__layer_norm": True}, "network.layer_norm: "),
        ({"algo_kwargs__core": "rnn"}, "algo_kwargs.core: "),
        ({"algo_kwargs__sequence_length": 0}, "algo_kwargs.sequence_length: "),
        ({"algo_kwargs__lstm_hidden_size": 32}, "algo_kwargs.lstm_hidden_size: unknown key; did you mean 'core_size'"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    checks.check_refused(train_recurrent_ppo, lambda: brief(**overrides), tmp_path / "run", said)


# Actions


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_actions_train_and_are_predicted(tmp_path: Path, kind: str, shared: bool) -> None:
    config = brief(env__id=f"{kind}Signs-v0", algo_kwargs__shared_trunk=shared)
    checks.check_trains_and_predicts(train_recurrent_ppo, config, tmp_path / "run")


@pytest.mark.parametrize("prev_action", [False, True])
@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_what_is_forbidden_is_neither_played_nor_predicted(
    tmp_path: Path, vectorization: str, prev_action: bool
) -> None:
    config = brief(
        env__id="Forbidding-v0",
        env__vectorization=vectorization,
        algo_kwargs__prev_action=prev_action,
        evaluation__final_episodes=20,
    )
    checks.check_masks_are_kept_to(train_recurrent_ppo, config, tmp_path / "run")


def test_one_allowed_action_leaves_no_choice(tmp_path: Path) -> None:
    config = brief(env__id="Forbidding-v0", env__kwargs={"allowed": 1})
    checks.check_one_allowed_action_leaves_no_choice(train_recurrent_ppo, config, tmp_path / "run")


# Statistics


@pytest.mark.parametrize("shared", [False, True])
def test_statistics_are_those_of_what_was_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    config = brief(
        network__normalize_obs=True, algo_kwargs__normalize_reward=True, algo_kwargs__shared_trunk=shared
    )
    checks.check_statistics(train_recurrent_ppo, config, tmp_path / "run", monkeypatch)


@pytest.mark.parametrize("shared", [False, True])
def test_predict_applies_the_statistics(tmp_path: Path, shared: bool) -> None:
    options = {"network__normalize_obs": True, "algo_kwargs__shared_trunk": shared}
    config = brief(env__id="UnboundedSigns-v0", **options)
    result = train_recurrent_ppo(config, run_dir=tmp_path / "run", console=False)
    checks.check_predict_normalises(result.checkpoint)


# Memory


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"algo_kwargs__prev_action": True},
        {"algo_kwargs__prev_reward": True},
        {"algo_kwargs__core": "gru"},
    ],
)
def test_each_environment_has_a_memory_of_its_own(tmp_path: Path, inputs: dict[str, Any]) -> None:
    """Several at once, episodes ending at different times, are predicted as they are one by one."""
    config = brief(
        env__id="UnboundedSigns-v0" if not inputs else "rl_training/CartPoleNoVelocity-v0", **inputs
    )
    train_recurrent_ppo(config, run_dir=tmp_path / "run", console=False)
    agent = rl_training.load(tmp_path / "run")
    rng = np.random.default_rng(0)
    shape = gym.make(config.env.id).observation_space.shape
    assert shape is not None
    obs, begins = rng.normal(size=(12, 3, *shape)).astype(np.float32), rng.random((12, 3)) < 0.2
    rewards: dict[str, Any] = {"reward": 1.0} if "algo_kwargs__prev_reward" in inputs else {}
    begins[0] = True
    together, state = [], None
    for seen, new in zip(obs, begins, strict=True):
        action, state = agent.predict(seen, state, episode_start=new, **rewards)
        together.append(action)
    for env in range(3):
        state = None
        for t in range(12):
            one, new = obs[t, env], bool(begins[t, env])
            action, state = agent.predict(one, None if new else state, **rewards)
            assert action == pytest.approx(together[t][env], abs=1e-5)


def test_recurrent_ppo_remembers_which_way_to_turn(tmp_path: Path) -> None:
    result = train_recurrent_ppo(tmaze(), run_dir=tmp_path / "run", console=False)
    assert result.evaluation is not None
    assert np.mean(np.array(result.evaluation.returns) > 0) >= 0.95


def test_without_a_memory_it_is_a_guess(tmp_path: Path) -> None:
    plain = tmaze().model_dump(mode="json")
    own = {*load_config("ppo/cartpole").algo_kwargs.model_dump()}
    options = {key: value for key, value in plain["algo_kwargs"].items() if key in own}
    config = load_config({**plain, "algo": "ppo", "algo_kwargs": options})
    result = registry.train(config, run_dir=tmp_path / "run", console=False)
    assert result.evaluation is not None
    assert 0.35 <= np.mean(np.array(result.evaluation.returns) > 0) <= 0.65


def tmaze() -> Any:
    return load_config(
        {
            "algo": "recurrent_ppo",
            "env": {"id": "rl_training/TMaze-v0", "num_envs": 8, "kwargs": {"length": 4}},
            "total_timesteps": 24_000,
            "algo_kwargs": {
                "n_steps": 64,
                "batch_size": 256,
                "learning_rate": 3e-3,
                "n_epochs": 10,
                "ent_coef": 0.05,
                "core_size": 16,
                "shared_trunk": True,
            },
            "network": {"hidden_sizes": [16]},
            "evaluation": {"frequency": 0, "final_episodes": 200},
            "logging": {"tensorboard": False},
        }
    )

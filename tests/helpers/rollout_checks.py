"""What tests of the on-policy trainers share: small runs, and a look at everything that comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rl_training
from helpers.action_envs import SPACES
from rl_training import load_config
from rl_training.config import ExperimentConfig
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.models import RunningNormalizer
from rl_training.runtime.checkpoint import read_checkpoint, tree_digest
from rl_training.runtime.curves import read_metrics
from rl_training.runtime.report import TrainResult
from rl_training.runtime.workflows import load_checkpoint, load_policy

Train = Callable[..., TrainResult]

TOTAL, ROLLOUT, ROLLOUTS = 1_200, 128, 10
"""Nine whole rollouts, and one of 24 steps of both environments."""
SMALL = {
    "total_timesteps": TOTAL,
    "env.num_envs": 2,
    "algo_kwargs.n_steps": 64,
    "network.hidden_sizes": [16],
    "evaluation.frequency": 400,
    "evaluation.episodes": 2,
    "evaluation.final_episodes": 3,
    "logging.frequency": ROLLOUT,
    "checkpoint.frequency": 500,
}
QUIET = {**SMALL, "evaluation.frequency": 0, "evaluation.final_episodes": 0, "logging.tensorboard": False}
METRICS = {"policy_loss", "value_loss", "entropy", "explained_variance", "learning_rate", "n_updates"}
CLIPPED = {*METRICS, "loss", "grad_norm", "approx_kl", "clip_fraction", "clip_range", "epochs"}


def small(name: str, **overrides: Any) -> ExperimentConfig[Any]:
    """Return a packaged config, made small and without evaluations; in keys, __ stands for a dot."""
    return load_config(name, {**QUIET, **{key.replace("__", "."): value for key, value in overrides.items()}})


def check_train_writes_checkpoint_and_metrics(
    train: Train, config: ExperimentConfig[Any], run_dir: Path, names: set[str]
) -> tuple[TrainResult, list[dict[str, float]]]:
    """Train by a config that is ``SMALL``, and look at all that comes out; return the result and a row per rollout."""
    result = train(config, run_dir=run_dir, console=False)
    assert result.steps == TOTAL
    assert {f"train/{name}" for name in names} <= result.metrics.keys()
    assert result.evaluation is not None
    assert len(result.evaluation.returns) == 3
    assert (result.checkpoint / "manifest.json").is_file()
    assert read_checkpoint(result.checkpoint).step == TOTAL

    every = read_metrics(run_dir / "metrics.jsonl")
    rows = [row for row in every if "train/n_updates" in row]
    assert [row["step"] for row in rows] == [*range(ROLLOUT, TOTAL, ROLLOUT), TOTAL]
    assert all("train/policy_loss" in row for row in rows), (
        "an update for every rollout, the short one included"
    )
    assert all(np.isfinite(list(row.values())).all() for row in rows)
    assert [row["step"] for row in every if "eval/mean_reward" in row] == [0, 400, 800, 1_200]
    assert [row["step"] for row in every if "final/mean_reward" in row] == [1_200]
    written = {path.name for path in run_dir.iterdir()}
    assert {"config.yaml", "metadata.json", "metrics.csv", "curve.png", "result.json"} <= written
    plain = json.loads((run_dir / "result.json").read_text())
    assert (plain["algo"], plain["steps"]) == (config.algo, TOTAL)
    assert result.updates == rows[-1]["train/n_updates"]
    return result, rows


def check_makes_exactly_the_steps_of_its_budget(
    monkeypatch: pytest.MonkeyPatch, config: ExperimentConfig[Any], learner: type[Any], run_dir: Path
) -> None:
    """Count steps in the environments, and steps that are learned from: each once, none beyond the budget."""
    made, learned = [], []
    update = learner.update

    def counting(self: Any, batch: Any) -> Any:
        learned.append(batch.obs.copy())
        return update(self, batch)

    class Counting(gym.Wrapper[Any, Any, Any, Any]):
        def reset(self, **options: Any) -> Any:
            obs, info = super().reset(**options)
            self.seen = obs
            return obs, info

        def step(self, action: Any) -> Any:
            made.append(self.seen)
            outcome = super().step(action)
            self.seen = outcome[0]
            return outcome

    monkeypatch.setattr(learner, "update", counting)
    env_id = config.env.id
    result = registry.train(config, env=lambda: Counting(gym.make(env_id)), run_dir=run_dir, console=False)
    assert result.steps == len(made) == TOTAL
    assert [batch.shape[:2] for batch in learned] == [(64, 2)] * 9 + [(24, 2)]
    assert np.array_equal(np.concatenate([batch.reshape(-1, batch.shape[-1]) for batch in learned]), made)


def check_refused(
    train: Train, config: Callable[[], ExperimentConfig[Any]], run_dir: Path, said: str
) -> None:
    """See that a config is refused in one line that says what and where, before there is a run."""
    with pytest.raises(ConfigError) as caught:
        train(config(), run_dir=run_dir, console=False)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert not run_dir.exists()


# Actions

KINDS = ("MultiDiscrete", "MultiBinary", "Bounded", "Unbounded", "HalfBounded", "Matrix")


def check_trains_and_predicts(train: Train, config: ExperimentConfig[Any], run_dir: Path) -> TrainResult:
    """Train in an environment of ``action_envs``, which raises at what is no action; so would predictions be."""
    result = train(config, run_dir=run_dir, console=False)
    assert result.steps == config.total_timesteps
    assert np.isfinite(list(result.metrics.values())).all()
    space, policy = SPACES[config.env.id.removesuffix("Signs-v0")], rl_training.load(run_dir)
    obs = np.random.default_rng(0).choice([-1.0, 1.0], (50, 2)).astype(np.float32)
    for deterministic in (True, False):
        one, _ = policy.predict(obs[0], deterministic=deterministic)
        assert space.contains(one)
        many, _ = policy.predict(obs, deterministic=deterministic)
        assert len(many) == 50
        assert all(space.contains(action) for action in many)
    again = [policy.predict(obs)[0] for _ in range(2)]
    assert np.array_equal(*again), "without exploration, the same each time"
    assert len(np.unique(np.asarray(policy.predict(obs, deterministic=False)[0]), axis=0)) > 1
    return result


def check_masks_are_kept_to(train: Train, config: ExperimentConfig[Any], run_dir: Path) -> None:
    """Train where what is forbidden raises, evaluations included, and try predictions by every single mask."""
    result = train(config, run_dir=run_dir, console=False)
    assert np.isfinite(list(result.metrics.values())).all()
    policy = rl_training.load(run_dir)
    obs, single = np.zeros((5, 6), np.float32), np.eye(5, dtype=bool)
    for deterministic in (True, False):
        options = {"deterministic": deterministic}
        assert policy.predict(obs, action_mask=single, **options)[0].tolist() == [3, 4, 5, 6, 7]
        assert policy.predict(obs[0], action_mask=single[2], **options)[0] == 5
        masks = np.random.default_rng(0).random((200, 5)) < 0.4
        masks[~masks.any(1)] = True
        actions, _ = policy.predict(np.zeros((200, 6), np.float32), action_mask=masks, **options)
        assert masks[np.arange(200), actions - 3].all()


def check_one_allowed_action_leaves_no_choice(
    train: Train, config: ExperimentConfig[Any], run_dir: Path
) -> None:
    """Where only one action is allowed, there is no entropy, and a policy does not move."""
    result = train(config, run_dir=run_dir, console=False)
    rows = [row for row in read_metrics(run_dir / "metrics.jsonl") if "train/entropy" in row]
    moved = [row.get("train/approx_kl", row.get("train/kl")) for row in rows]
    assert [row["train/entropy"] for row in rows] == [0.0] * len(rows)
    assert moved == [0.0] * len(rows)
    assert result.metrics["rollout/ep_rew_mean"] == 9.0
    assert all(row["train/value_loss"] > 0 for row in rows)


# Statistics


def check_statistics(
    train: Train, config: ExperimentConfig[Any], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train with statistics of observations and rewards; see that only what was learned from moves them."""
    from rl_training.data.rollout_buffer import RolloutBuffer

    seen: list[Any] = []
    add = RolloutBuffer.add

    def adding(self: Any, step: Any) -> None:
        seen.append((step.obs.copy(), step.reward.copy()))
        add(self, step)

    monkeypatch.setattr(RolloutBuffer, "add", adding)
    result = train(config, run_dir=run_dir, console=False)
    monkeypatch.undo()
    tree = read_checkpoint(result.checkpoint).tree
    model = {name: np.asarray(value) for name, value in tree["model"]["online"].items()}
    obs = np.concatenate([step[0] for step in seen]).astype(np.float64)
    for name, value in model.items():
        if name.endswith("normalizer.count"):
            assert value == len(obs) == TOTAL
        elif name.endswith("normalizer.mean"):
            assert value == pytest.approx(obs.mean(0), abs=1e-9)
        elif name.endswith("normalizer.var"):
            assert value == pytest.approx(obs.var(0), rel=1e-9)
    assert any(name.endswith("normalizer.mean") for name in model)
    scale = tree["model"]["reward_scale"]
    assert float(scale["count"]) == TOTAL
    assert float(scale["var"]) > 1
    # What is reported is as the environment gave it.
    assert result.metrics["rollout/ep_rew_mean"] == pytest.approx(result.metrics["rollout/ep_len_mean"])

    # Evaluations leave no trace: with many of them, the same comes out.
    often = {"frequency": 100, "episodes": 3, "final_episodes": 5}
    evaluated = config.model_copy(update={"evaluation": config.evaluation.model_copy(update=often)})
    other = train(evaluated, run_dir=run_dir.with_name("evaluated"), console=False)
    again = read_checkpoint(other.checkpoint).tree
    for section in ("model", "optimizer", "rng"):
        assert tree_digest({section: tree[section]}) == tree_digest({section: again[section]})


def check_predict_normalises(path: Path) -> None:
    """Shift the statistics of an agent: a shifted observation is then to it what the raw one was before."""
    policy, _ = load_policy(load_checkpoint(path))
    learner: Any = policy.algorithm
    normalizers = [m for m in learner.network.modules() if isinstance(m, RunningNormalizer)]
    obs = np.random.default_rng(0).normal(0.0, [0.5, 0.3], (64, 2)).astype(np.float32)
    for batch in (obs[:1], obs):  # few are seen by a copy of the network in NumPy
        before = policy.predict(batch)[0]
        assert np.abs(policy.predict(batch + 2)[0] - before).max() > 1e-4
        assert np.array_equal(policy.predict(batch)[0], before), "predictions leave the statistics alone"
        for normalizer in normalizers:
            normalizer.mean += 2.0
        assert policy.predict(batch + 2)[0] == pytest.approx(before, abs=1e-5)
        for normalizer in normalizers:
            normalizer.mean -= 2.0

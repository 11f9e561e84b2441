"""What tests of the trainers of actor-critics share: small runs, what they refuse, and how they go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from helpers import rollout_checks
from helpers.actor_critic import trainer
from helpers.runs import outcome, stop_at
from helpers.trainer_checks import check_train_writes_checkpoint_and_metrics
from rl_training import load_config
from rl_training.experiment import registry
from rl_training.runtime.session import Interrupted

METRICS = ("critic_loss", "q_value_mean", "target_q_mean", "critic_grad_norm", "actor_loss", "actor_updates")
QUIET: dict[str, Any] = {
    "total_timesteps": 400,
    "env.num_envs": 2,
    "algo_kwargs.learning_starts": 100,
    "algo_kwargs.batch_size": 16,
    "algo_kwargs.train_freq": 2,
    "algo_kwargs.gradient_steps": 1,
    "network.hidden_sizes": [16],
    "evaluation.frequency": 0,
    "evaluation.final_episodes": 0,
    "logging.frequency": 100,
    "logging.tensorboard": False,
}
UNFIT = {
    "UnboundedSigns-v0": "env: unbounded action space; '{algo}' takes continuous ones with bounds on both sides; ",
    "HalfBoundedSigns-v0": "env: unbounded action space; '{algo}' takes continuous ones with bounds on both sides; ",
    "CartPole-v1": "algo: '{algo}' takes continuous actions, not discrete ones; ",
    "MultiBinarySigns-v0": "algo: '{algo}' takes continuous actions, not multi-binary ones; ",
}
"""Spaces that are not for continuous control, and what is said of them."""


def small(name: str, **overrides: Any) -> Any:
    """Return a packaged config, made small; in keys, __ stands for a dot."""
    return load_config(name, {**QUIET, **{key.replace("__", "."): value for key, value in overrides.items()}})


def check_trains(algo: str, run_dir: Path, *extra: str, env: str = "pendulum") -> dict[str, float]:
    """Train for 600 steps and look at all that comes out; return the last metrics."""
    names = (*METRICS, *extra)
    return check_train_writes_checkpoint_and_metrics(trainer(algo), f"{algo}/{env}", run_dir, 600, names)


def check_refused(algo: str, run_dir: Path, said: str, env: str = "pendulum", **overrides: Any) -> None:
    """See that a config is refused in one line, before there is a run."""
    rollout_checks.check_refused(trainer(algo), lambda: small(f"{algo}/{env}", **overrides), run_dir, said)


def check_unfit_spaces(algo: str, run_dir: Path) -> None:
    """See that spaces without bounds, and discrete ones, are refused with the names of algorithms that take them."""
    for env_id, said in UNFIT.items():
        with pytest.raises(Exception, match="ppo") as caught:
            trainer(algo)(small(f"{algo}/pendulum", env__id=env_id), run_dir=run_dir, console=False)
        assert str(caught.value).startswith(said.format(algo=algo))
        assert "\n" not in str(caught.value)
        assert not run_dir.exists()


def check_bounded_actions(algo: str, folder: Path) -> None:
    """Train where actions outside of uneven bounds raise, and where an action is a matrix."""
    for kind in ("Bounded", "Matrix"):
        config = small(f"{algo}/pendulum", env__id=f"{kind}Signs-v0")
        rollout_checks.check_trains_and_predicts(trainer(algo), config, folder / kind)


def check_goes_on_exactly(config: Any, folder: Path) -> None:
    """Stop a run in the middle of an episode and resume it: it ends as the one that was not stopped."""
    registry.train(config, run_dir=folder / "straight", console=False)
    with pytest.raises(Interrupted):
        registry.train(config, run_dir=folder / "stopped", callback=stop_at(234), console=False)
    registry.resume(folder / "stopped", console=False)
    assert outcome(folder / "stopped") == outcome(folder / "straight")


class Spy(gym.Wrapper[Any, Any, Any, Any]):
    """Remembers the actions that an environment is given."""

    actions: list[Any]

    def __init__(self, env: Any, actions: list[Any]) -> None:
        super().__init__(env)
        self.actions = actions

    def step(self, action: Any) -> Any:
        """Remember and play."""
        self.actions.append(np.array(action))
        return super().step(action)

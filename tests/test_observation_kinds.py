"""Every algorithm with every kind of observation: what it takes works throughout, what it refuses it names."""

from __future__ import annotations

import copy
import itertools
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from helpers.contracts import ALGORITHMS, small_config
from helpers.observation_envs import SPACES, Shown, drawn
from rl_training.envs.spaces import describe_observations
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.runtime.checkpoint import newest_checkpoint, save_checkpoint, tree_digest
from rl_training.runtime.loop import train
from rl_training.runtime.policy import Policy
from rl_training.runtime.run import Run
from rl_training.runtime.workflows import load_policy

STACKED = {"id": "FrameStackObservation", "kwargs": {"stack_size": 3}}
CASES = {
    **{kind: (kind, []) for kind in SPACES},
    "stacked_grey": ("grey_image", [STACKED]),
    "stacked_last": ("image_last", [STACKED]),
}


def run_of(algo: str, kind: str, **overrides: Any) -> Run:
    shown, wrappers = CASES[kind]
    continuous = "discrete" not in registry.get(algo).action_kinds
    settings = {
        "env": {"id": "helpers.observation_envs:Shown", "wrappers": wrappers},
        "env__kwargs": {"kind": shown, "continuous": continuous},
        "total_timesteps": 80,
        **overrides,
    }
    if "learning_starts" in registry.get(algo).config.model_fields:
        settings["algo_kwargs__learning_starts"] = 40
    return Run(small_config(algo, **settings))


def takes(algo: str, kind: str) -> bool:
    spec = registry.get(algo)
    shown, wrappers = CASES[kind]
    env: gym.Env[Any, Any] = Shown(shown)
    seen = describe_observations(
        gym.wrappers.FrameStackObservation(env, 3).observation_space if wrappers else SPACES[shown]
    )
    if algo == "drqv2":
        return kind in ("image_first", "nature_image") and min(seen.parts[0].frame[1:]) >= 15
    return set(seen.kinds()) <= spec.obs_kinds


def same_actions(kind: str, *policies: Policy) -> None:
    """Act on a few observations by each policy, one by one and at once."""
    shown, wrappers = CASES[kind]
    rng = np.random.default_rng(0)
    raw = [drawn(SPACES[shown], rng, place) for place in (1, 4, 8)]
    if wrappers:
        raw = [np.stack([one] * 3) for one in raw]
    for obs in raw:
        actions = [policy.predict(obs)[0] for policy in policies]
        assert all(np.array_equal(actions[0], action) for action in actions)
        batch, single = policies[0].obs.from_user(obs)
        assert single
        assert batch.shape == (1, *policies[0].obs.shape)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_taken_throughout_or_refused_by_name(algo: str, kind: str, tmp_path: Path) -> None:
    if not takes(algo, kind):
        with pytest.raises(ConfigError, match=f"^env: .*{algo}"):
            run_of(algo, kind)
        return
    run = run_of(algo, kind)
    before = copy.deepcopy(run.algorithm.state_dict()["model"])
    deque(itertools.islice(train(run), 60), maxlen=0)
    name = "online" if "online" in before else next(iter(before))
    network, after = before[name], run.algorithm.state_dict()["model"][name]
    convolutions = [key for key in network if ".convs." in key and key.endswith("weight")]
    assert all(not np.array_equal(network[key], after[key]) for key in convolutions)
    assert any(not np.array_equal(network[key], after[key]) for key in network)

    # A checkpoint holds everything: what is loaded acts alike, with an environment or without, and goes on alike.
    saved = save_checkpoint(tmp_path, run.clock.steps, {**run.state_dict(), "session": {}}, {})
    checkpoint, _ = newest_checkpoint(saved.parent)
    again = run_of(algo, kind)
    assert again.load_state_dict(checkpoint.tree) == "replayed"
    same_actions(kind, run.policy, again.policy, load_policy(checkpoint)[0])
    ends = []
    for each in (run, again):
        assert sum(1 for _ in train(each)) == 20
        ends.append(tree_digest({**each.state_dict(), "time": {}}))
        each.close()
    assert ends[0] == ends[1]

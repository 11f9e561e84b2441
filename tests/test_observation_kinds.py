"""Every algorithm with every kind of observation: what it takes works throughout, what it refuses it names."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from helpers.contracts import ALGORITHMS, small_config
from helpers.observation_envs import SPACES, Shown, drawn
from rl_training.envs.spaces import describe_observations
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run

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


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_taken_throughout_or_refused_by_name(algo: str, kind: str) -> None:
    if not takes(algo, kind):
        with pytest.raises(ConfigError, match=f"^env: .*{algo}"):
            run_of(algo, kind)
        return
    run = run_of(algo, kind)
    before = copy.deepcopy(run.algorithm.state_dict()["model"])
    for _ in train(run):
        pass
    after = run.algorithm.state_dict()["model"]["online" if "online" in before else next(iter(before))]
    network = before["online" if "online" in before else next(iter(before))]
    convolutions = [name for name in network if ".convs." in name and name.endswith("weight")]
    assert all(not np.array_equal(network[name], after[name]) for name in convolutions)
    assert any(not np.array_equal(network[name], after[name]) for name in network)

    # A checkpoint holds everything: a fresh run takes it over and acts alike, on one observation and on several.
    again = run_of(algo, kind)
    again.load_state_dict(copy.deepcopy(run.state_dict()))
    space = run.policy.obs
    rng = np.random.default_rng(0)
    raw = [drawn(SPACES[CASES[kind][0]], rng, place) for place in (1, 4, 8)]
    if CASES[kind][1]:
        raw = [np.stack([one] * 3) for one in raw]
    for obs in raw:
        action, _ = run.policy.predict(obs)
        same, _ = again.policy.predict(obs)
        np.testing.assert_array_equal(action, same)
    batch, single = space.from_user(raw[0])
    assert single
    assert batch.shape == (1, *space.shape)
    run.close()
    again.close()

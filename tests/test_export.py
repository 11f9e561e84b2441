"""Exported agents do what ``predict`` does, with every algorithm, observation, action and memory."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import helpers.action_envs
from helpers.contracts import TOYS
from helpers.exported import Made, made, trained
from helpers.observation_envs import SPACES
from rl_training.algorithms.catalogue import PACKAGED
from rl_training.errors import ConfigError
from rl_training.experiment.export.parity import Different, Parity, compare
from rl_training.experiment.export.recording import Recording, drawn, played
from rl_training.spaces import Array

REMEMBERING: dict[str, dict[str, Any]] = {
    "drqn": {"algo_kwargs__core": "gru", "algo_kwargs__core_layers": 2, "algo_kwargs__dueling": True},
    "r2d2": {"algo_kwargs__restart_memory": True, "algo_kwargs__core_layers": 2},
    "recurrent_ppo": {
        "algo_kwargs__core": "gru",
        "algo_kwargs__prev_action": True,
        "algo_kwargs__prev_reward": True,
    },
}


def later(value: str) -> Any:
    """Leave a case that others nearly cover to the slow tests."""
    return pytest.param(value, marks=pytest.mark.slow)


@functools.cache
def exported(algo: str) -> Made:
    return made(trained(algo))


def recorded(one: Made, steps: int) -> Recording:
    return played(one.policy, one.run.config, steps, None, trust=True)


def check(one: Made, recording: Recording, **kinds: str) -> dict[str, Parity]:
    return {
        name: compare(one.policy, runner, one.graph.inputs, recording) for name, runner in one.runners.items()
    }


@pytest.mark.parametrize("algo", PACKAGED)
def test_every_algorithm_acts_alike(algo: str, slow: bool) -> None:
    one = exported(algo)
    remembers = one.policy.algorithm.initial_carry(1) is not None
    steps = 200 if slow or remembers else 30
    for parity in check(one, recorded(one, steps)).values():
        assert parity.observations == 5 * steps
        assert parity.memory_steps == (steps if remembers else 0)
        assert parity.ties == 0
        assert max(parity.largest.values()) < 1e-5
    assert str(Path(torch.__file__).parent).encode() not in one.onnx  # nothing of this machine


@pytest.mark.parametrize("algo", REMEMBERING)
def test_every_kind_of_memory(algo: str) -> None:
    one = made(trained(algo, **REMEMBERING[algo]))
    check(one, drawn(one.policy, 30, "this is a test"))


@pytest.mark.parametrize(
    "kind", ["dict", "nested", "discrete", "double", *map(later, ("multi_discrete", "small_bool_image"))]
)
def test_every_kind_of_observation(kind: str) -> None:
    env: dict[str, Any] = {"env": {"id": "helpers.observation_envs:Shown"}, "env__kwargs": {"kind": kind}}
    normalize = kind in ("dict", "double")
    one = made(trained("iqn", 60, **env, network__normalize_obs=normalize, algo_kwargs__learning_starts=40))
    for recording in (recorded(one, 20), drawn(one.policy, 20, "this is a test")):
        check(one, recording)
    # Inputs are what the environment gives.
    space: Any = SPACES[kind]
    first = one.graph.inputs[0]
    assert first.name == {"dict": "obs.camera", "nested": "obs.0"}.get(kind, "obs")
    if kind in ("double", "discrete", "multi_discrete"):
        assert (first.dtype, first.shape) == (str(space.dtype), space.shape)


@pytest.mark.parametrize("cnn", ["impala", *map(later, ("nature", "small"))])
def test_convolutions(cnn: str) -> None:
    wrappers = [{"id": "FrameStackObservation", "kwargs": {"stack_size": 3}}]
    env = {"id": "helpers.observation_envs:Shown", "wrappers": wrappers}
    settings = {"env": env, "env__kwargs": {"kind": "nature_image"}, "network__cnn": cnn}
    one = made(trained("ppo", 30, **settings, network__activation="gelu", network__layer_norm=True))
    check(one, drawn(one.policy, 4, "this is a test"))


@pytest.mark.parametrize("kind", ["MultiDiscrete", "MultiBinary", "HalfBounded", "Matrix", later("Bounded")])
def test_every_kind_of_action(kind: str) -> None:
    settings = {"env": {"id": f"helpers.action_envs:{kind}Signs-v0"}, "network__activation": "elu"}
    if kind == "Matrix":
        settings["algo_kwargs__action_distribution"] = "tanh_gaussian"
    one = made(trained("ppo", 60, **settings))
    given = {"obs": np.random.default_rng(0).uniform(-9, 9, (64, 2)).astype(np.float32)}
    space: Any = helpers.action_envs.SPACES[kind]
    for runner in one.runners.values():
        assert all(space.contains(action) for action in runner(given)["action"])
    check(one, drawn(one.policy, 20, "this is a test"))


def test_noisy_networks_are_their_means_and_masks_are_heeded() -> None:
    one = made(trained("rainbow", env={"id": "helpers.action_envs:Forbidding-v0"}))
    recording = recorded(one, 20)
    assert recording.mask is not None
    assert not recording.mask.all()
    check(one, recording)
    obs = np.zeros((3, 6), np.float32)
    for runner in one.runners.values():
        only = np.eye(5, dtype=np.bool_)[:3]
        assert runner({"obs": obs, "action_mask": only})["action"].tolist() == [3, 4, 5]
        # The input may be left out, or be one row for all.
        free = runner({"obs": obs})["action"]
        assert np.array_equal(free, runner({"obs": obs, "action_mask": np.ones((1, 5), np.bool_)})["action"])


def never_forgets(given: dict[str, Array]) -> None:
    given["episode_start"] = np.zeros_like(given["episode_start"])


def remembers_nothing(given: dict[str, Array]) -> None:
    given["memory.hidden"] = np.zeros_like(given["memory.hidden"])


def knows_no_reward(given: dict[str, Array]) -> None:
    given["reward"] = np.zeros_like(given["reward"])


def sees_more(given: dict[str, Array]) -> None:
    given["obs"] = given["obs"] * np.float32(1.001)


@pytest.mark.parametrize("wrong", [never_forgets, remembers_nothing, knows_no_reward, sees_more])
def test_what_does_something_else_is_noticed(wrong: Any) -> None:
    one = exported("r2d2")

    def runner(given: Mapping[str, Array]) -> dict[str, Array]:
        changed = dict(given)
        wrong(changed)
        return one.runners["onnx"](changed)

    with pytest.raises(Different, match="differs by"):
        compare(one.policy, runner, one.graph.inputs, recorded(one, 30))


@pytest.mark.parametrize("change", [1e-3, 1e-7])
def test_only_ties_may_be_broken_in_another_way(change: float) -> None:
    one = exported("dqn")
    recording = dataclasses.replace(drawn(one.policy, 4, "this is a test"), mask=None)

    def runner(given: Mapping[str, Array]) -> dict[str, Array]:
        found = one.runners["onnx"](given)
        return {**found, "action": 1 - found["action"]}

    class Close:
        """The same agent, whose two values are so far apart."""

        obs, actions, algorithm = one.policy.obs, one.policy.actions, one.policy.algorithm

        def scores(self, *told: Any) -> Array:
            return np.stack([one.policy.scores(*told)[:, 0]] * 2, 1) + np.array([0.0, change], np.float32)

        def predict(self, *told: Any, **more: Any) -> Any:
            return one.policy.predict(*told, **more)

    fields = [field for field in one.graph.inputs if field.name != "action_mask"]
    policy: Any = Close()

    def quiet(given: Mapping[str, Array]) -> dict[str, Array]:
        return {"action": runner(given)["action"]}

    if change < 1e-6:
        assert compare(policy, quiet, fields, recording).ties == 20
    else:
        with pytest.raises(Different, match="action is"):
            compare(policy, quiet, fields, recording)


def test_ranges_are_those_of_the_recording() -> None:
    one = exported("dqn")
    recording = drawn(one.policy, 4, "this is a test")
    low, high = recording.ranges(one.policy.obs)["obs"]
    assert (low, high) == (recording.obs.min(), recording.obs.max())


@pytest.mark.parametrize("algo", TOYS)
def test_a_learner_that_does_not_say_what_it_computes_is_refused(algo: str) -> None:
    algorithm: Any = trained(algo, 1).algorithm
    with pytest.raises(ConfigError, match=r"Toy\w+ has no scorer"):
        algorithm.scorer()

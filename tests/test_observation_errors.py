"""Observations that cannot be learned from: one line each, which names the part, before or while it trains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from helpers.command_line import command
from rl_training.envs.spaces import describe_observations
from rl_training.errors import ConfigError, EnvError

SMALL = (
    "total_timesteps=60",
    "algo_kwargs.learning_starts=20",
    "algo_kwargs.buffer_size=50",
    "algo_kwargs.batch_size=4",
    "network.hidden_sizes=[8]",
    "evaluation.frequency=0",
    "evaluation.final_episodes=0",
)


def trained(tmp_path: Path, env: str, kind: str, *words: str) -> tuple[int, str]:
    """Return the exit code and the last line of a training that goes wrong."""
    run = tmp_path / "run"
    named = (f"env.id=helpers.bad_observations:{env}", f"env.kwargs.kind={kind}")
    code, out, err = command("train", "--config", "dqn/cartpole", "--run-dir", run, *named, *SMALL, *words)
    last = err.strip().splitlines()[-1]
    assert "Traceback" not in err + out
    assert last.startswith("error: ")
    assert run.exists() == (code != 2), "what is wrong from the beginning leaves no run behind"
    return code, last.removeprefix("error: ")


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "float_image",
            "env: observations of shape (12, 12, 3): an image is made of uint8, from 0 to 255, not of float32",
        ),
        (
            "int_image",
            "env: observations of shape (12, 12, 3): an image is made of uint8, from 0 to 255, not of int64",
        ),
        (
            "five_dimensions",
            "env: observations of shape (2, 2, 12, 12, 3): images have three dimensions, or four",
        ),
        ("small_image", "env: observations of shape (4, 12, 3): too small for an image"),
        ("text", "env: observations are of Text, which no encoder takes; make it a Box"),
        ("sequence", "env: observations are of Sequence, which no encoder takes; make it a Box"),
        ("odd", "env: observations are of Odd, which no encoder takes"),
        ("none", "env.id: 'helpers.bad_observations:Bad' has no observation_space"),
        ("nothing", "env: observations of Dict() are empty"),
        ("empty", "env: observations of Box([], [], (0,), float32) are empty"),
        (
            "dict_with_text",
            "env: the part 'goal.words' of observations is of Text, which no encoder takes; leave it out",
        ),
        (
            "dict_with_float_image",
            "env: observation 'camera' of shape (12, 12, 3): an image is made of uint8",
        ),
        ("dict_with_small_image", "env: observation 'camera' of shape (12, 4, 3): too small for an image"),
        (
            "tuple_with_odd",
            "env: the part '1' of observations is of Odd, which no encoder takes; make it a Box",
        ),
        ("many_values", "env: observations: 1000000000 discrete values are too many for one-hot inputs"),
    ],
)
def test_what_cannot_be_encoded_is_named_before_training(
    tmp_path: Path, kind: str, message: str, vectorization: str
) -> None:
    code, line = trained(tmp_path, "Bad", kind, f"env.vectorization={vectorization}")
    assert code == 2
    assert line.startswith(message)


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("image", "observation shape: expected (12, 12, 3), got (12, 10, 3)"),
        ("image_dtype", "observation dtype: expected uint8, got float32"),
        ("part", "observation 'camera' shape: expected (12, 12, 3), got (11, 12, 3)"),
        ("part_missing", "observation: part 'gear' is missing"),
        ("part_outside", "observation 'gear': 3 is outside of its space"),
        ("number", "observation: expected whole numbers of shape (1,), got float64 ()"),
    ],
)
def test_what_turns_into_something_else_is_named_at_that_step(
    tmp_path: Path, kind: str, message: str, vectorization: str
) -> None:
    code, line = trained(tmp_path, "Changing", kind, f"env.vectorization={vectorization}")
    assert code == 3
    assert line.startswith(f"env 0: {message} (episode seed ")
    assert ", step 10); step-000000009 is the newest checkpoint; go on with: " in line


def test_bits_that_are_no_bits_are_refused() -> None:
    spec = describe_observations(spaces.MultiBinary(4))
    with pytest.raises(EnvError, match=r"\[1, 0, 1, 2\] should be zeros and ones"):
        spec.pack(np.array([1, 0, 1, 2], np.int8))
    for wrong in ([1, 0, 1, 2], [1, 0, 1, -1]):
        with pytest.raises(ConfigError, match="obs: should be zeros and ones"):
            spec.from_user(wrong)
    assert spec.from_user([1, 0, 1, 1])[0].tolist() == [[1, 0, 1, 1]]


def test_scaled_images_are_refused_when_predicting() -> None:
    """Even one of zeros and ones, which would fit bytes."""
    spec = describe_observations(spaces.Box(0, 255, (10, 10, 1), np.uint8))
    with pytest.raises(ConfigError, match="obs: images are uint8, from 0 to 255, not floats"):
        spec.from_user(np.ones((10, 10, 1), np.float32))
    assert spec.from_user(np.ones((10, 10, 1), np.int64).tolist())[1]


def test_something_else_than_a_dict_is_told_what_is_expected() -> None:
    spec = describe_observations(spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}))
    with pytest.raises(ConfigError, match=r"^obs: expected a dict with a, b$"):
        spec.from_user(3)

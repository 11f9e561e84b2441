"""Options explain themselves: what the declarations say reaches the command line."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from helpers.command_line import command
from rl_training.algorithms.catalogue import PACKAGED, packaged
from rl_training.config.explain import (
    REQUIRED,
    Option,
    algorithm_options,
    as_written,
    experiment_options,
    shared_options,
    value_of,
)
from rl_training.config.loading import parse_yaml
from rl_training.experiment.configs import load_config, packaged_configs


def option(algo: str, name: str) -> Option:
    return next(
        found for found in algorithm_options(packaged(algo).config) if found.key == f"algo_kwargs.{name}"
    )


@pytest.mark.parametrize("algo", PACKAGED)
def test_every_option_has_a_meaning_and_a_range(algo: str) -> None:
    options = experiment_options(packaged(algo).config)
    assert [found.key for found in options if not found.meaning] == []
    assert [found.key for found in options if not found.allowed] == []
    # A name that was taken out of a group is nowhere in a sentence without its marks.
    assert [found.key for found in options if not found.meaning.endswith((".", ".)"))] == []


@pytest.mark.parametrize("algo", PACKAGED)
def test_every_key_of_a_config_is_explained(algo: str) -> None:
    config = load_config(next(name for name in packaged_configs() if name.startswith(f"{algo}/")))
    shown = config.model_dump()
    explained = {found.key for found in experiment_options(packaged(algo).config)}
    for section in ("env", "algo_kwargs", "network", "checkpoint", "logging"):
        absent = packaged(algo).config.absent if section == "algo_kwargs" else ()
        assert {f"{section}.{key}" for key in shown[section] if key not in absent} == {
            key for key in explained if key.startswith(f"{section}.")
        }


def test_a_meaning_is_that_of_the_youngest_class_which_has_one() -> None:
    assert "sequences" in option("drqn", "batch_size").meaning.lower()
    assert "samples" in option("dqn", "batch_size").meaning.lower()
    assert option("rainbow", "alpha").meaning == option("dqn", "alpha").meaning
    assert (option("rainbow", "alpha").default, option("dqn", "alpha").default) == (0.5, 0.6)


@pytest.mark.parametrize(
    ("algo", "name", "allowed"),
    [
        ("dqn", "learning_rate", "number above 0"),
        ("dqn", "learning_rate_final", "number from 0 or `null`"),
        ("dqn", "gamma", "number from 0 to 1"),
        ("dqn", "tau", "number above 0, up to 1"),
        ("dqn", "adam_betas", "list of 2 numbers from 0, below 1"),
        ("dqn", "batch_size", "whole number from 1"),
        ("dqn", "double", "`true` or `false`"),
        ("dqn", "loss", "`huber` or `mse`"),
        ("a2c", "n_epochs", "only `1`"),
        ("a2c", "batch_size", "only `null`"),
        ("trpo", "shared_trunk", "only `false`"),
        ("sac", "ent_coef", "number or `auto`"),
        ("recurrent_ppo", "head_sizes", "list of whole numbers from 1 to 65_536, at most 8"),
    ],
)
def test_ranges_in_words(algo: str, name: str, allowed: str) -> None:
    assert option(algo, name).allowed == allowed


def test_ranges_of_shared_options() -> None:
    found = {option.key: option for option in shared_options()}
    assert found["device"].allowed == "text: `auto`, `cpu`, `cuda[:N]` or `mps`"
    assert found["env.wrappers"].allowed == "list of wrappers"
    assert found["network.hidden_sizes"].allowed == "list of whole numbers from 1, at most 32"
    assert found["env.id"].default is REQUIRED
    assert found["evaluation.env.kwargs"].default_text == "{}"
    assert not any(key.startswith("algo_kwargs") for key in found)


@pytest.mark.parametrize("algo", PACKAGED)
def test_ends_of_ranges_are_those_of_validation(algo: str) -> None:
    """What is said to be the end of a range is accepted, and the next number is not."""
    fields = packaged(algo).config.model_fields
    tried = 0
    for found in algorithm_options(packaged(algo).config):
        field, words = fields[found.name], found.allowed.split(" or ")[0]
        adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
        for side, step in (("from ", -1), ("to ", 1)):
            if not words.startswith(("number", "whole")) or side not in words:
                continue
            end = parse_yaml(words.partition(side)[2].split(",")[0].split(" ")[0], "test")
            adapter.validate_python(end)
            with pytest.raises(ValidationError):
                adapter.validate_python(end + step)
            tried += 1
    assert tried > 3


def test_networks_have_the_defaults_of_their_algorithm() -> None:
    sizes = {
        algo: next(o for o in experiment_options(packaged(algo).config) if o.key == "network.hidden_sizes")
        for algo in ("dqn", "ppo")
    }
    assert (sizes["dqn"].default_text, sizes["ppo"].default_text) == ("[128, 128]", "[64, 64]")


def test_what_an_algorithm_has_no_use_for_is_left_out() -> None:
    assert "tau" not in {found.name for found in algorithm_options(packaged("crossq").config)}
    assert "tau" in {found.name for found in algorithm_options(packaged("sac").config)}


def test_fixed_options_are_marked() -> None:
    assert option("dqn", "n_step_return").fixed
    assert not option("dqn", "learning_rate").fixed


@pytest.mark.parametrize("value", [None, True, 3, 12_345, 0.5, 1e-8, 2.0, (64, 64), {}, {"a": 1}, "sync"])
def test_values_are_written_as_configs_read_them(value: Any) -> None:
    read = parse_yaml(as_written(value), "test")
    assert read == (list(value) if isinstance(value, tuple) else value)


def test_values_are_found_by_their_key() -> None:
    config = load_config("dqn/cartpole", {"network.hidden_sizes": [7]})
    assert value_of(config, "network.hidden_sizes") == (7,)


def test_show_explains() -> None:
    code, out, err = command("show", "--explain", "dqn/cartpole", "algo_kwargs.gamma=0.5")
    assert (code, err) == (0, "")
    lines = out.split("\n")
    at = lines.index("algo_kwargs.gamma: 0.5")
    assert lines[at + 1 : at + 3] == [
        "    Discount factor per environment step.",
        "    number from 0 to 1; default 0.99",
    ]
    assert "algo: dqn" in lines
    assert lines[lines.index("env.num_envs: 1") + 2].endswith("; the default")
    assert "`" not in out


def test_show_explains_without_torch() -> None:
    program = (
        "import sys; from rl_training.cli import main; sys.argv = ['rl-training', 'show', '--explain', 'ppo/pong']\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)

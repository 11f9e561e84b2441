"""Configs: what is accepted, and that everything else is refused with one line that starts with its key."""

from __future__ import annotations

import copy
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import rl_training
from rl_training.algorithms.catalogue import experiment
from rl_training.config.loading import dump_yaml, parse_yaml
from rl_training.errors import ConfigError
from rl_training.experiment.configs import load_config, packaged_configs

CARTPOLE = packaged_configs()["dqn/cartpole"].read_text()
COMPLETE: dict[str, Any] = yaml.safe_load(dump_yaml(load_config("dqn/cartpole")))
NAN, INF = float("nan"), float("inf")

# Malformed mappings: every key misspelt, every value replaced by ones it must not have.

REQUIRED = ("algo", "env", "env.id", "total_timesteps")
MAY_BE_NONE = ("algo_kwargs", "algo_kwargs.learning_rate_final", "algo_kwargs.max_grad_norm")
CHOICES = ("algo", "device", "env.vectorization", "network.activation", "algo_kwargs.loss")
WRONG_NUMBERS = ["banana", "", NAN, INF, "1e400", "1e", -1, 10**400, True, [1], {"a": 1}]
WRONG_FLAGS = ["banana", 3, NAN, [1], {"a": 1}]
WRONG_TEXTS = [3, True, NAN, [1], {"a": 1}]
WRONG_SECTIONS = ["banana", 3, True, NAN, [1]]
WRONG_LISTS = {
    "logging.trackers": ["banana", 3, {"a": 1}, ["tensorboard"], [3], ["wandb", "wandb"]],
    "network.hidden_sizes": ["banana", 3, {"a": 1}, [[]], ["x"], [-1], [0], [NAN], [True], [8] * 33],
    "algo_kwargs.adam_betas": [
        "banana",
        3,
        {"a": 1},
        [0.9],
        [0.9, 1.0],
        [-0.1, 0.9],
        [0.9, "x"],
        [0.5, 0.5, 0.5],
    ],
    "env.wrappers": ["banana", 3, {"a": 1}, [3], [[]], [{}], [{"id": 1}], [{"id": "a", "kwarg": {}}]],
}
TOO_LARGE = {
    "env.num_envs": 4097,
    "threads": 1025,
    "seed": 2**63,
    "algo_kwargs.gamma": 1.01,
    "algo_kwargs.tau": 1.5,
}
TOO_SMALL = (
    "total_timesteps",
    "env.num_envs",
    "algo_kwargs.batch_size",
    "algo_kwargs.learning_rate",
    "checkpoint.keep",
)


def keys_of(mapping: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in mapping.items():
        yield above + name, value
        if isinstance(value, dict):
            yield from keys_of(value, f"{above}{name}.")


def wrong_values(key: str, value: Any) -> list[Any]:
    if key == "env.kwargs":
        return ["banana", 3, [1], {"a": NAN}, {"a": {"b": [INF]}}, {"a": 10**100}]
    if isinstance(value, dict):
        wrong: list[Any] = list(WRONG_SECTIONS)
    elif isinstance(value, list):
        wrong = list(WRONG_LISTS[key])
    elif isinstance(value, bool):
        wrong = list(WRONG_FLAGS)
    elif isinstance(value, int | float):
        wrong = [
            *WRONG_NUMBERS,
            *([TOO_LARGE[key]] if key in TOO_LARGE else []),
            *([0] if key in TOO_SMALL else []),
        ]
    elif value is None:
        return [{"a": 1}, [1], NAN]
    else:
        wrong = [*WRONG_TEXTS, *(["banana", ""] if key in CHOICES else [])]
    return wrong if key in MAY_BE_NONE else [*wrong, None]


def changed(key: str, new_key: str | None, value: Any = None) -> str:
    """Return the complete config as YAML with the value at ``key`` taken out and put at ``new_key``."""
    config = copy.deepcopy(COMPLETE)
    *parents, last = key.split(".")
    section = config
    for part in parents:
        section = section[part]
    del section[last]
    if new_key is not None:
        section[new_key] = value
    return yaml.safe_dump(config)


def malformed_mappings() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the keys that the error may start with, and the YAML text."""
    for key, value in keys_of(COMPLETE):
        above, _, name = key.rpartition(".")
        for misspelt in (name + "x", name[:-1], name.upper()):
            wrong = f"{above}.{misspelt}" if above else misspelt
            yield (key, wrong) if key in REQUIRED else (wrong,), changed(key, misspelt, value)
        for bad in wrong_values(key, value):
            yield (key,), changed(key, name, bad)
    for key in REQUIRED:
        yield (key,), changed(key, None)


MALFORMED_TEXTS: dict[str, str | bytes] = {
    "empty": "",
    "only a comment": "# nothing",
    "a list": "- algo: dqn",
    "a word": "dqn",
    "a number": "7",
    "a date": "2020-01-01",
    "tab": CARTPOLE + "network:\n\tactivation: tanh\n",
    "unclosed bracket": CARTPOLE + "x: [1, 2\n",
    "unclosed brace": CARTPOLE + "x: {a: 1\n",
    "unclosed quote": CARTPOLE + "x: 'abc\n",
    "two values": CARTPOLE + "x: a: b\n",
    "bad indent": CARTPOLE + "   x: 1\n",
    "duplicate key": CARTPOLE + "algo: dqn\n",
    "duplicate nested key": CARTPOLE.replace("  batch_size: 128", "  batch_size: 128\n  batch_size: 64"),
    "alias": CARTPOLE + "seed: &a 1\nthreads: *a\n",
    "undefined alias": CARTPOLE + "x: *a\n",
    "billion laughs": "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    "merge key": CARTPOLE + "<<: {seed: 1}\n",
    "number as a key": CARTPOLE + "1: 2\n",
    "list as a key": CARTPOLE + "? [a]\n: 1\n",
    "two documents": CARTPOLE + "---\nseed: 1\n",
    "python object": CARTPOLE + "seed: !!python/object/apply:os.getpid []\n",
    "python name": CARTPOLE + "seed: !!python/name:os.system\n",
    "python tuple": CARTPOLE + "seed: !!python/tuple [1]\n",
    "unknown tag": CARTPOLE + "seed: !env HOME\n",
    "malformed int": CARTPOLE + "seed: !!int abc\n",
    "empty int": CARTPOLE + "seed: !!int ''\n",
    "malformed float": CARTPOLE + "seed: !!float abc\n",
    "malformed bool": CARTPOLE + "seed: !!bool abc\n",
    "malformed date": CARTPOLE + "seed: 2020-13-45\n",
    "malformed timestamp": CARTPOLE + "seed: !!timestamp x\n",
    "malformed binary": CARTPOLE + "seed: !!binary é\n",
    "set": CARTPOLE + "seed: !!set {a}\n",
    "control character": CARTPOLE + "x: \x07\n",
    "null character": CARTPOLE + "x: \0\n",
    "binary": bytes(range(256)),
    "utf-16": CARTPOLE.encode("utf-16"),
    "latin-1": b"algo: dq\xe9\n",
    "too long": CARTPOLE + "#" * 1_000_001,
    "nested": CARTPOLE + "x: " + "[" * 40 + "]" * 40,
    "nested beyond the parser": CARTPOLE + "x: " + "[" * 20_000,
    "nested mappings": CARTPOLE + "x: " + "{a: " * 40 + "}" * 40,
    "digits": CARTPOLE + f"seed: {'9' * 5000}\n",
    "hexadecimal digits": CARTPOLE + f"seed: 0x{'F' * 6000}\n",
    "line break in a key": CARTPOLE + '"a\\nb": 1\n',
    "line break in a value": CARTPOLE.replace("algo: dqn", 'algo: "d\\nqn"'),
    "escape in a key": CARTPOLE + '"a\\eb": 1\n',
    "half a character as a key": CARTPOLE + '"\\ud800": 1\n',
    "wrong algo": CARTPOLE.replace("algo: dqn", "algo: dqm"),
    "algo in capitals": CARTPOLE.replace("algo: dqn", "algo: DQN"),
    "batch beyond the buffer": CARTPOLE.replace("batch_size: 128", "batch_size: 1M"),
    "words for a number": CARTPOLE.replace("50_000", "a lot"),
    "unit of another kind": CARTPOLE.replace("50_000", "5 GB"),
    "fraction of a step": CARTPOLE.replace("50_000", "0.5"),
    "number with stray underscores": CARTPOLE.replace("50_000", "'50__0_'"),
}
MALFORMED_OVERRIDES = {
    "seed": "'seed'",
    "=1": "'=1'",
    ".seed=1": "'.seed=1'",
    "env.=1": "'env.=1'",
    "env..id=1": "'env..id=1'",
    "line\nbreak": "'line break'",
    "seed=[1": "'seed=[1'",
    "seed=!!python/name:os.system": "'seed=",
    "seed=*a": "'seed=*a'",
    "seed=": "seed",
    "seed=x": "seed",
    "seed.a=1": "seed",
    "algo.a=1": "algo.a",
    "env.id.name=1": "env.id.name",
    "network.hidden_sizes.0=1": "network.hidden_sizes.0",
    "network.hidden_sizes=[1,": "'network.hidden_sizes=[1,'",
    "algo_kwargs.lr=1": "algo_kwargs.lr",
    "algo_kwargs.batch_size=1e6": "algo_kwargs.batch_size",
    "total_timesteps=1e300": "total_timesteps: 1e+300 is not allowed: should be less than or equal to",
    "algo_kwargs.learning_starts=50_000": "algo_kwargs.learning_starts",
    "env.num_envs=3": "total_timesteps",
    "total_timesteps=1": "algo_kwargs.learning_starts",
    "env=": "env",
    "logging.console=maybe": "logging.console",
    ".".join("a" * 3000) + "=1": "config",
}


def refusal(cli: Callable[..., Any], *words: str) -> str:
    code, out, err = cli("show", *words)
    assert (code, out) == (2, ""), (code, out[:80], err[-300:])
    assert err.startswith("error: "), err
    assert err.count("\n") == 1, err
    assert err.strip("\n").isprintable(), err
    return err.removeprefix("error: ")


def starts_with_key(line: str, keys: tuple[str, ...]) -> bool:
    return any(line.startswith((f"{key}:", f"{key}.", f"{key} ")) for key in keys)


def test_malformed_mappings_are_refused_by_key(cli: Callable[..., Any], tmp_path: Path, slow: bool) -> None:
    cases = list(malformed_mappings())
    assert len(cases) + len(MALFORMED_TEXTS) + len(MALFORMED_OVERRIDES) >= 500
    path = tmp_path / "bad.yaml"
    for keys, text in cases if slow else cases[::10]:
        path.write_text(text)
        line = refusal(cli, str(path))
        assert starts_with_key(line, keys), (keys, line)


def test_malformed_files_are_refused_by_file_or_key(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    for name, text in MALFORMED_TEXTS.items():
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        line = refusal(cli, str(path))
        first = line.split(":")[0].split(" line ")[0]
        known = {
            str(path),
            "config",
            "algo",
            "seed",
            "x",
            "y",
            "total_timesteps",
            "a b",
            "a?b",
            "algo_kwargs.batch_size",
        }
        assert first in known, (name, line)


@pytest.mark.parametrize("override", MALFORMED_OVERRIDES, ids=lambda text: repr(text[:40]))
def test_malformed_overrides_are_refused_by_key(cli: Callable[..., Any], override: str) -> None:
    line = refusal(cli, "dqn/cartpole", override)
    assert starts_with_key(line, (MALFORMED_OVERRIDES[override],)) or line.startswith(
        MALFORMED_OVERRIDES[override]
    )


@pytest.mark.parametrize(
    "name", ["nope", "nope.yaml", "dqn/cartpol", "", ".", "x" * 5000, "x" * 5000 + ".yaml"]
)
def test_a_config_that_is_no_file_is_refused(cli: Callable[..., Any], name: str) -> None:
    assert refusal(cli, name).startswith("config: ")


SCRIPT = """
import sys
from rl_training.cli import main
sys.argv = ["rl-training", "train", "--config", "dqn/cartpole", "algo_kwargs.gama=1"]
try:
    main()
finally:
    sys.stderr.write(f"heavy: {[name for name in ('torch', 'numpy', 'gymnasium') if name in sys.modules]}")
"""


def test_a_refusal_needs_nothing_heavy_and_no_half_second() -> None:
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        path = os.fspath(Path(rl_training.__file__).parents[1])
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 2
        assert done.stderr == "error: algo_kwargs.gama: unknown key; did you mean 'gamma'?\nheavy: []"
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5, seconds


# What is accepted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1000000", 1_000_000),
        ("1e6", 1_000_000),
        ("1.5e+6", 1_500_000),
        ("1_000_000", 1_000_000),
        ("1M", 1_000_000),
        ("1.5M", 1_500_000),
        ("10k", 10_000),
        ("2B", 2_000_000_000),
        ("'1e6'", 1_000_000),
        ("1000000.0", 1_000_000),
    ],
)
def test_forms_of_a_whole_number(text: str, value: int) -> None:
    total = load_config("dqn/cartpole", [f"total_timesteps={text}"]).total_timesteps
    assert total == value
    assert type(total) is int


@pytest.mark.parametrize("text", ["3e-4", "3.0e-4", "0.0003", ".0003", "'3e-4'", "+3E-4"])
def test_forms_of_a_fraction(text: str) -> None:
    assert (
        load_config("dqn/cartpole", [f"algo_kwargs.learning_rate={text}"]).algo_kwargs.learning_rate == 3e-4
    )


@pytest.mark.parametrize("name", packaged_configs())
def test_packaged_configs_build_and_come_back_from_yaml_as_they_were(name: str) -> None:
    config = load_config(name)
    assert experiment(parse_yaml(dump_yaml(config), "dump")) == config


def test_unusual_values_come_back_from_yaml_as_they_were() -> None:
    overrides = [
        "env.kwargs={text: 'no', number: 1e-7, tiny: 1.0e-300, none: null, nested: {list: [1, 2.5, 'ü', '1e6']}}",
        "env.wrappers=[TimeAwareObservation, {id: RescaleObservation, kwargs: {min_obs: 0}}]",
        "algo_kwargs.learning_rate=1e-7",
        "algo_kwargs.max_grad_norm=null",
        "evaluation.stop_at=-1e3",
        "seed=9223372036854775807",
    ]
    config = load_config("dqn/cartpole", overrides)
    assert experiment(parse_yaml(dump_yaml(config), "dump")) == config
    assert config.env.wrappers[0].id == "TimeAwareObservation"
    assert config.env.kwargs["text"] == "no"
    assert config.env.kwargs["number"] == 1e-7
    nested: Any = config.env.kwargs["nested"]
    assert nested["list"][-1] == "1e6"


@pytest.mark.parametrize(
    ("text", "value"), [("1e-9", 1e-9), ("-.5E3", -500.0), ("2.5e+2", 250.0), ("1e6x", "1e6x"), ("e5", "e5")]
)
def test_numbers_with_an_exponent_are_numbers_in_free_kwargs_too(text: str, value: object) -> None:
    kwargs = load_config("dqn/cartpole", [f"env.kwargs.a={text}"]).env.kwargs
    assert kwargs["a"] == value
    assert type(kwargs["a"]) is type(value)


def test_overrides_are_typed_as_yaml_and_leave_the_rest_alone() -> None:
    plain = load_config("dqn/cartpole")
    config = load_config(
        "dqn/cartpole",
        ["network.hidden_sizes=[8, 9]", "logging.csv=false", "env.kwargs.a.b=true", "algo_kwargs.tau=1"],
    )
    assert config.network.hidden_sizes == (8, 9)
    assert config.logging.csv is False
    assert config.env.kwargs == {"a": {"b": True}}
    assert config.algo_kwargs.tau == 1.0
    assert config.algo_kwargs.learning_rate == plain.algo_kwargs.learning_rate
    assert load_config("dqn/cartpole") == plain


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("algo_kwargs.lr", "learning_rate"),
        ("algo_kwargs.buffer_capacity", "buffer_size"),
        ("algo_kwargs.start_e", "exploration_initial_eps"),
        ("algo_kwargs.end_e", "exploration_final_eps"),
        ("algo_kwargs.train_frequency", "train_freq"),
        ("algo_kwargs.target_network_frequency", "target_update_interval"),
        ("algo_kwargs.n_steps", "n_step_return"),
        ("algo_kwargs.exploration_final_ep", "exploration_final_eps"),
        ("n_timesteps", "total_timesteps"),
        ("n_envs", "env.num_envs"),
        ("env_id", "env.id"),
        ("policy_kwargs", "network"),
        ("gamma", "algo_kwargs.gamma"),
        ("learning_rate", "algo_kwargs.learning_rate"),
        ("evaluation.freqency", "frequency"),
        ("layer_norm", "network.layer_norm"),
        ("algo_kwargs.layer_norm", "network.layer_norm"),
        ("network.double", "algo_kwargs.double"),
        ("algo_kwargs.threads", "threads"),
    ],
)
def test_names_of_other_packages_and_misspelt_ones_lead_to_ours(key: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key}: unknown key; did you mean '{ours}'\?$"):
        load_config("dqn/cartpole", [f"{key}=1"])


def test_a_key_that_several_sections_have_leads_to_none_of_them() -> None:
    with pytest.raises(ConfigError, match=r"^frequency: unknown key; known keys: algo, "):
        load_config("dqn/cartpole", ["frequency=1"])


@pytest.mark.parametrize(
    "overrides", [["network={layer_norm: true}"], {"network": {"layer_norm": True}}], ids=["texts", "mapping"]
)
def test_a_section_keeps_what_an_override_of_it_does_not_name(overrides: Any) -> None:
    plain, config = load_config("dqn/cartpole_quick"), load_config("dqn/cartpole_quick", overrides)
    assert config.network == plain.network.model_copy(update={"layer_norm": True})
    assert plain.network.hidden_sizes != type(plain.network)().hidden_sizes


def test_free_keywords_are_replaced_as_a_whole() -> None:
    config = load_config("dqn/cartpole", ["env.kwargs={a: 1, b: 2}", "env.kwargs={c: 3}"])
    assert config.env.kwargs == {"c": 3}


def test_a_config_is_frozen() -> None:
    config = load_config("dqn/cartpole")
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            ["foo=1", "total_timesteps=-1"],
            "foo: unknown key; known keys: .* \\(and 1 more: total_timesteps\\)",
        ),
        (["total_timesteps=-1", "foo=1"], "foo: unknown key; .* \\(and 1 more: total_timesteps\\)"),
        (["lr=1e-3"], "lr: unknown key; did you mean 'algo_kwargs.learning_rate'\\?"),
        (["hidden_size=[64]"], "hidden_size: unknown key; did you mean 'network.hidden_sizes'\\?"),
        (["gama=0.9"], "gama: unknown key; did you mean 'algo_kwargs.gamma'\\?"),
        (["device=gpu"], "device: 'gpu' is not allowed: should be auto, cpu, cuda\\[:N\\] or mps"),
    ],
)
def test_an_unknown_key_comes_first_and_leads_to_the_right_one(overrides: list[str], line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{line}$"):
        load_config("dqn/cartpole", overrides)


@pytest.mark.parametrize(
    ("name", "wrappers", "line"),
    [
        ("dqn/cartpole", "[NormalizeObservation]", "env.wrappers.0: .* use network.normalize_obs=true"),
        ("ppo/cartpole", "[NormalizeReward]", "env.wrappers.0: .* use algo_kwargs.normalize_reward=true"),
        ("dqn/cartpole", "[NormalizeReward]", "env.wrappers.0: .* dqn has no such option, but ClipReward .*"),
        (
            "dqn/cartpole",
            "[FlattenObservation, 'gymnasium.wrappers:ClipReward']",
            "env.wrappers.1: ClipReward .*: evaluation.env.wrappers=\\[FlattenObservation\\]",
        ),
    ],
)
def test_wrappers_by_which_evaluation_would_differ_are_refused(name: str, wrappers: str, line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{line}$"):
        load_config(name, [f"env.wrappers={wrappers}"])
    if "ClipReward" in wrappers:
        given = [f"env.wrappers={wrappers}", "evaluation.env.wrappers=[FlattenObservation]"]
        assert len(load_config(name, given).env.wrappers) == 2
    own = "[test_config:NormalizeObservation]"
    assert load_config(name, [f"env.wrappers={own}"]).env.wrappers[0].id == own[1:-1], "one of the user's"


@pytest.mark.parametrize("given", [{"network": {"layer_norm": True}}, ["network={layer_norm: true}"]])
def test_a_mapping_for_a_section_leaves_alone_what_it_does_not_name(given: Any) -> None:
    """Of three places that say something of a network, the last one says the least."""
    written = {"algo": "dqn", "env": {"id": "CartPole-v1"}, "total_timesteps": 100_000}
    before = load_config({**written, "network": {"hidden_sizes": [7, 5], "activation": "tanh"}}, {})
    network = load_config(before.model_dump(mode="json"), given).network
    assert (network.hidden_sizes, network.activation, network.layer_norm) == ((7, 5), "tanh", True)

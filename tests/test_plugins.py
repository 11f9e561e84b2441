"""An algorithm of another distribution, or registered by hand, reaches every surface that a packaged one reaches."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rl_training_toys.declared import ACTOR_CRITIC, POLICY_GRADIENT

import rl_training
from helpers.contracts import TOYS
from rl_training.algorithms import catalogue
from rl_training.algorithms.declared.dqn import SPEC as DQN_SPEC
from rl_training.algorithms.spec import AlgorithmSpec
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.runtime.dqn_trainer import train_dqn

OBS = {"toy_policy_gradient": [0.0, 0.1, 0.0, 0.1], "toy_actor_critic": [1.0, 0.0, 0.5]}


@pytest.fixture
def config(tmp_path: Path) -> Callable[[AlgorithmSpec], Path]:
    """Write the smallest config of a spec to a file, as a user would have one."""

    def write(spec: AlgorithmSpec) -> Path:
        path = tmp_path / f"{spec.name}.yaml"
        evaluation = {"evaluation": {"frequency": 100, "episodes": 2, "final_episodes": 2}}
        path.write_text(yaml.safe_dump({"algo": spec.name, **spec.smallest, **evaluation}))
        return path

    return write


def test_the_example_package_is_found_by_its_entry_points() -> None:
    known = registry.algorithms()
    assert known["toy_policy_gradient"] is POLICY_GRADIENT
    assert known["toy_actor_critic"] is ACTOR_CRITIC


@pytest.mark.parametrize("algo", TOYS)
def test_every_command_takes_it(
    cli: Callable[..., Any], config: Callable[[AlgorithmSpec], Path], tmp_path: Path, algo: str
) -> None:
    spec, run = registry.get(algo), tmp_path / "run"
    file = config(spec)
    assert f"{spec.title}: {spec.summary}" in cli("list").out
    assert algo in json.loads(cli("list", "--json").out)["algorithms"]
    for name in spec.config.model_fields:
        assert f"  {name}:" in cli("show", file).out
    assert "did you mean 'learning_rate'" in cli("show", file, "algo_kwargs.lr=1").err
    done = cli("train", "--config", file, "--run-dir", run)
    assert (done.code, "Trained 200 steps" in done.out) == (0, True), done.err
    assert json.loads((run / "result.json").read_text())["algo"] == algo
    assert json.loads(cli("eval", run, "--episodes", 2, "--json").out)["episodes"] == 2
    assert json.loads(cli("predict", run, "--obs", json.dumps(OBS[algo]), "--json").out).keys() == {"action"}
    done = cli("resume", run, "total_timesteps=300")
    assert (done.code, "Trained 300 steps" in done.out) == (0, True), done.err
    done = cli("train", "--config", file, "--run-dir", tmp_path / "seeds", "--seeds", 2)
    assert (done.code, "IQM" in done.out) == (0, True), done.err
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        yaml.safe_dump({"summary": "a toy", "entries": [{"config": str(file), "seeds": 1, "bar": -1e6}]})
    )
    done = cli("benchmark", suite, "--run-dir", tmp_path / "suite", "--quiet")
    assert done.code == 0, done.err
    done = cli("compare", f"a={run}", f"b={tmp_path / 'seeds'}", "--out", tmp_path / "compare.png")
    assert done.code == 0, done.err


@pytest.mark.parametrize("algo", TOYS)
def test_the_python_api_takes_it(tmp_path: Path, algo: str) -> None:
    spec = registry.get(algo)
    managed = getattr(rl_training, spec.class_name)
    assert spec.class_name in dir(rl_training)
    quiet = {"evaluation": {"frequency": 0, "final_episodes": 0}}
    agent = managed(config={**spec.smallest, **quiet}, run_dir=tmp_path / "run").learn(progress_bar=False)
    action, _ = agent.predict(np.array(OBS[algo], np.float32))
    saved = agent.save(tmp_path / "saved")
    again = rl_training.load(saved)
    assert type(again) is managed
    assert np.array_equal(again.predict(np.array(OBS[algo], np.float32))[0], action)
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        managed(spec.smallest["env"]["id"], lr=1.0)


@pytest.fixture
def fast_dqn(monkeypatch: pytest.MonkeyPatch) -> AlgorithmSpec:
    """An algorithm of one's own that is DQN with other defaults, registered by hand."""
    monkeypatch.setattr(catalogue, "_registered", {})

    class FastConfig(DQN_SPEC.config):  # type: ignore[name-defined,misc]
        """DQN's options."""

        train_freq: int = 1

    spec = dataclasses.replace(
        DQN_SPEC, name="fast_dqn", class_name="FastDQN", title="Fast DQN", config=FastConfig
    )
    return registry.register(spec)


def test_one_registered_by_hand_is_like_any_other(
    cli: Callable[..., Any],
    config: Callable[[AlgorithmSpec], Path],
    tmp_path: Path,
    fast_dqn: AlgorithmSpec,
) -> None:
    assert "Fast DQN" in cli("list").out
    done = cli("train", "--config", config(fast_dqn), "--run-dir", tmp_path / "run")
    assert (done.code, "150 updates" in done.out) == (0, True), done.err
    assert type(rl_training.load(tmp_path / "run")) is rl_training.FastDQN  # type: ignore[attr-defined]


def test_the_trainer_of_a_family_takes_one_of_somebody_else(tmp_path: Path, fast_dqn: AlgorithmSpec) -> None:
    quiet = {"evaluation": {"frequency": 0, "final_episodes": 0}}
    experiment = rl_training.load_config({"algo": "fast_dqn", **fast_dqn.smallest, **quiet})
    assert train_dqn(experiment, run_dir=tmp_path / "run", console=False).updates == 150
    other = rl_training.load_config({"algo": "toy_actor_critic", **ACTOR_CRITIC.smallest})
    with pytest.raises(
        ConfigError, match=r"'toy_actor_critic' is not trained by train_dqn; it trains .*, fast_dqn"
    ):
        train_dqn(other, run_dir=tmp_path / "other", console=False)


def test_a_name_that_is_taken_is_refused(fast_dqn: AlgorithmSpec) -> None:
    assert registry.register(fast_dqn) is fast_dqn
    with pytest.raises(ConfigError, match="'fast_dqn' is taken by Fast DQN"):
        registry.register(dataclasses.replace(fast_dqn))
    with pytest.raises(ConfigError, match="'dqn' is taken by DQN"):
        registry.register(dataclasses.replace(fast_dqn, name="dqn"))
    with pytest.raises(ConfigError, match="class name 'FastDQN' is taken by Fast DQN"):
        registry.register(dataclasses.replace(fast_dqn, name="faster_dqn"))
    with pytest.raises(ConfigError, match="takes an AlgorithmSpec, not str"):
        registry.register("fast_dqn")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'My 2' should be lower-case"):
        registry.register(dataclasses.replace(fast_dqn, name="My 2", class_name="Mine"))
    for name in ("load", "Learner", "not a name"):
        with pytest.raises(ConfigError, match=f"class name '{name}' is not to be had"):
            registry.register(dataclasses.replace(fast_dqn, name="faster_dqn", class_name=name))


class Point:
    """An entry point as ``importlib.metadata`` gives it."""

    def __init__(self, value: str, found: Any) -> None:
        self.value, self._found = value, found

    def load(self) -> Any:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (ImportError("no such module"), "ImportError: no such module"),
        ("a text", "TypeError: not an AlgorithmSpec"),
        (dataclasses.replace(DQN_SPEC, title="Imitation"), "'dqn' is taken by DQN"),
        (dataclasses.replace(DQN_SPEC, name="other"), "the class name 'DQN' is taken by DQN"),
    ],
    ids=["broken", "no spec", "name", "class name"],
)
def test_a_plugin_that_cannot_be_used_costs_a_warning_and_takes_nothing_away(
    monkeypatch: pytest.MonkeyPatch, found: Any, message: str
) -> None:
    monkeypatch.setattr(catalogue, "plugins", lambda group: [Point("a:b", found), Point("c:d", ACTOR_CRITIC)])
    catalogue._installed.cache_clear()
    try:
        with pytest.warns(UserWarning, match=message):
            known = registry.algorithms()
        assert known["dqn"] is DQN_SPEC
        assert "toy_actor_critic" in known
        assert "other" not in known
    finally:
        catalogue._installed.cache_clear()


def test_starter_configs_of_others_are_known_by_name(cli: Callable[..., Any]) -> None:
    assert "toy_policy_gradient/cartpole" in json.loads(cli("list", "--json").out)["configs"]
    assert "algo: toy_policy_gradient" in cli("show", "toy_policy_gradient/cartpole").out

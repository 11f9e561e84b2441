"""The layers, and what every registered algorithm has to keep."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.contracts import ALGORITHMS, small_config, trained_run
from helpers.runs import final_tree, outcome, stop_at
from helpers.survey import survey
from rl_training.algorithms.catalogue import PACKAGED
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.runtime.checkpoint import newest_checkpoint, save_checkpoint, tree_digest
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run
from rl_training.runtime.session import Interrupted
from rl_training.runtime.workflows import load_checkpoint, load_policy

SOURCE = Path(__file__).parent.parent / "src" / "rl_training"
LEAVES = {
    "errors",
    "current_folder",
    "importing",
    "installed",
    "version",
    "lazy",
    "observations",
    "plain_files",
    "segment",
    "shell",
    "spaces",
    "statistics",
    "config",
    "native",
}
BELOW = {
    "data": set(),
    "models": set(),
    "envs": set(),
    "algorithms": {"data", "models"},
    "runtime": {"algorithms", "data", "models", "envs"},
    "experiment": {"runtime", "algorithms", "data", "models", "envs"},
    "api": {"experiment", "runtime", "algorithms", "data", "models", "envs"},
    "cli_arguments": {"api", "experiment", "runtime"},
    "cli_options": set(),
    "cli_output": {"api", "experiment", "runtime"},
    "cli_streams": {"runtime"},
    "cli_results": {"cli_arguments", "cli_options", "cli_output", "cli_streams", "experiment", "runtime"},
    "cli": {
        *("cli_arguments", "cli_options", "cli_output", "cli_results", "cli_streams"),
        *("api", "experiment", "runtime"),
    },
}


def imported_parts(path: Path) -> set[str]:
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            deeper = node.module == "rl_training"
            names = [f"{node.module}.{alias.name}" for alias in node.names] if deeper else [node.module]
        parts |= {name.split(".")[1] for name in names if name.startswith("rl_training.")}
    return parts


def test_imports_go_one_way_only() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).with_suffix("").parts[0]
        if part in BELOW:
            above = imported_parts(path) - BELOW[part] - LEAVES - {part}
            wrong += [f"{path.relative_to(SOURCE)} imports {name}" for name in above]
        elif part in LEAVES:
            wrong += [f"{part} imports {name}" for name in imported_parts(path) - LEAVES]
    assert wrong == []


def test_every_module_has_its_layer() -> None:
    parts = {path.relative_to(SOURCE).with_suffix("").parts[0] for path in SOURCE.rglob("*.py")}
    assert parts <= BELOW.keys() | LEAVES | {"__init__", "__main__"}


def test_the_loop_asks_for_no_algorithm() -> None:
    for name in ("loop.py", "session.py", "run.py", "collector.py"):
        text = (SOURCE / "runtime" / name).read_text().lower()
        assert not any(algo in text for algo in registry.algorithms()), name


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_actions_have_shape_dtype_and_bounds(algo: str) -> None:
    run = Run(small_config(algo, env__num_envs=4))
    space = run.collector.envs.action_space
    for explore in (False, True):
        decision = run.algorithm.act(run.collector.obs, None, explore=explore)
        action = run.policy.actions.to_env(decision.action)
        assert action.dtype == space.dtype
        assert space.contains(action)
    run.close()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_training_moves_every_parameter(algo: str) -> None:
    run = Run(small_config(algo))
    model = run.algorithm.state_dict()["model"]
    # Networks with names that begin with "target" follow others, perhaps more slowly than this run is long.
    learned = [name for name in model if not name.startswith("target")]
    before = {(name, key): value.clone() for name in learned for key, value in model[name].items()}
    after = trained_run(algo).algorithm.state_dict()["model"]
    assert before
    assert all(not np.array_equal(value, after[name][key]) for (name, key), value in before.items())
    run.close()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_seed_decides_the_weights(algo: str) -> None:
    first, again, other = (
        tree_digest({"model": trained_run(algo, seed).algorithm.state_dict()["model"]}) for seed in (0, 0, 1)
    )
    assert first == again != other


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_save_and_load_give_the_same_actions(algo: str, tmp_path: Path) -> None:
    result = registry.train(small_config(algo), run_dir=tmp_path / "run", console=False)
    policy, _ = load_policy(load_checkpoint(result.run_dir))
    again, _ = load_policy(load_checkpoint(result.checkpoint))
    states: list[Any] = [None, None, [None] * 64]
    draw = np.random.default_rng(0)
    for _ in range(5 if policy.algorithm.initial_carry(1) else 1):
        obs = draw.normal(0.0, 10.0, (64, *policy.obs.shape)).astype(policy.obs.dtype)
        actions, states[0] = policy.predict(obs, states[0], reward=1.0)
        same, states[1] = again.predict(obs, states[1], reward=1.0)
        alone = [policy.predict(*one, reward=1.0) for one in zip(obs, states[2], strict=True)]
        states[2] = [state for _, state in alone]
        assert np.array_equal(actions, same)
        assert np.allclose(actions, np.stack([action for action, _ in alone]), rtol=0, atol=1e-5)
    # After so little training, a memory tells more about what was seen than actions do.
    told = actions if states[0] is None else states[0]["hidden"].reshape(64, -1)
    assert len(np.unique(told, axis=0)) > 1


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_stopped_run_goes_on_to_the_same_bits(algo: str, tmp_path: Path) -> None:
    config = small_config(algo, evaluation__frequency=80, evaluation__episodes=2, logging__frequency=40)
    registry.train(config, run_dir=tmp_path / "straight", console=False)
    with pytest.raises(Interrupted):
        registry.train(config, run_dir=tmp_path / "stopped", callback=stop_at(114), console=False)
    assert final_tree(tmp_path / "stopped")["loop"]["clock"]["steps"] == 114
    registry.resume(tmp_path / "stopped", console=False)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "straight")


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_live_value_is_restored(algo: str, tmp_path: Path) -> None:
    trained, resumed = Run(small_config(algo)), Run(small_config(algo))
    deque(itertools.islice(train(trained), 114), maxlen=0)
    fresh = survey(resumed)
    saved = save_checkpoint(tmp_path / "c", 114, trained.state_dict(), {})
    resumed.load_state_dict(newest_checkpoint(saved.parent)[0].tree)
    want, got = survey(trained), survey(resumed)
    assert [path for path in want.keys() | got.keys() if want.get(path) != got.get(path)] == []
    assert want.keys() != fresh.keys() or want != fresh
    for run in (trained, resumed):
        run.close()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_updates_count_gradient_steps(algo: str) -> None:
    run = trained_run(algo)
    assert run.clock.updates == run.algorithm.state_dict()["counters"]["updates"] > 0


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_an_unknown_option_is_refused_by_name(algo: str) -> None:
    with pytest.raises(ConfigError, match=r"algo_kwargs\.no_such_option: unknown key"):
        small_config(algo, algo_kwargs__no_such_option=1)


@pytest.mark.parametrize("algo", PACKAGED)
def test_every_algorithm_has_its_places(algo: str) -> None:
    root, spec = SOURCE.parent.parent, registry.get(algo)
    assert list((SOURCE / "assets" / "configs" / algo).glob("*.yaml"))
    assert list((root / "examples").glob(f"{algo}_*_reference.py"))
    assert (SOURCE / "algorithms" / "declared" / f"{algo}.py").is_file()
    assert f"`{algo}`" in (root / "README.md").read_text()
    assert spec.paper.partition(",")[0] in (root / "README.md").read_text()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_has_a_managed_class_and_a_learner_of_one_name(algo: str) -> None:
    import rl_training
    from rl_training import algorithms
    from rl_training.api import managed_class

    spec = registry.get(algo)
    managed, learner = getattr(rl_training, spec.class_name), getattr(algorithms, spec.class_name)
    assert managed is managed_class(algo)
    assert (managed.__name__, managed.algo_name) == (spec.class_name, algo)
    assert managed is not learner
    about = managed.__doc__ or ""
    assert spec.summary in about
    assert all(f"{name}=" in about for name in spec.config.model_fields)
    run = Run(small_config(algo))
    assert type(run.algorithm) is learner
    run.close()


def test_what_is_made_from_the_declarations_is_up_to_date() -> None:
    tool = SOURCE.parent.parent / "tools" / "generate.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

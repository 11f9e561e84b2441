"""The layers, and what every registered algorithm has to keep."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.experiment import registry
from rl_training.experiment.configs import load_config, packaged_configs
from rl_training.runtime.checkpoint import tree_digest
from rl_training.runtime.run import Run
from rl_training.runtime.workflows import load_checkpoint, load_policy

SOURCE = Path(__file__).parent.parent / "src" / "rl_training"
LEAVES = {"errors", "version", "lazy", "segment", "spaces", "statistics", "config", "native"}
BELOW = {
    "data": set(),
    "models": set(),
    "envs": set(),
    "algorithms": {"data", "models"},
    "runtime": {"algorithms", "data", "models", "envs"},
    "experiment": {"runtime", "algorithms", "data", "models", "envs"},
    "api": {"experiment", "runtime", "algorithms", "data", "models", "envs"},
    "cli": {"api", "experiment", "runtime"},
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


ALGORITHMS = sorted(registry.algorithms())


def small_config(algo: str, **overrides: Any) -> Any:
    usual = "pendulum_pixels" if algo == "drqv2" else "cartpole"
    name = next(name for name in packaged_configs() if name.startswith(f"{algo}/{usual}"))
    small: dict[str, Any] = {
        "total_timesteps": 200,
        "threads": 1,
        "algo_kwargs.learning_starts": 50,
        "algo_kwargs.train_freq": 4,
        "algo_kwargs.gradient_steps": 1,
        "algo_kwargs.batch_size": 16,
        "algo_kwargs.learning_rate": 1e-3,
        "algo_kwargs.buffer_size": 500,
        "network.hidden_sizes": [16],
        "evaluation.frequency": 0,
        "evaluation.final_episodes": 0,
        "logging.tensorboard": False,
    }
    if algo == "drqv2":
        pixels = {"id": "rl_training.envs.pixels:PixelObservation", "kwargs": {"size": 20}}
        small["env.wrappers"] = [pixels, {"id": "FrameStackObservation", "kwargs": {"stack_size": 2}}]
    return load_config(name, {**small, **overrides})


def trained_run(algo: str, seed: int = 0) -> Run:
    from rl_training.runtime.loop import train

    run = Run(small_config(algo, seed=seed), registry.get(algo))
    for _ in train(run):
        pass
    return run


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_actions_have_shape_dtype_and_bounds(algo: str) -> None:
    run = Run(small_config(algo, **{"env.num_envs": 4}), registry.get(algo))
    space = run.collector.envs.action_space
    for explore in (False, True):
        decision = run.algorithm.act(run.collector.obs, None, explore=explore)
        action = run.policy.actions.to_env(decision.action)
        assert action.dtype == space.dtype
        assert space.contains(action)
    run.close()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_training_moves_every_parameter(algo: str) -> None:
    run = Run(small_config(algo), registry.get(algo))
    before = {name: value.clone() for name, value in run.algorithm.state_dict()["model"]["online"].items()}
    after = trained_run(algo).algorithm.state_dict()["model"]["online"]
    assert all(not np.array_equal(before[name], after[name]) for name in before)
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
    policy, _ = load_policy(load_checkpoint(result.run_dir), registry.get)
    again, _ = load_policy(load_checkpoint(result.checkpoint), registry.get)
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
def test_every_algorithm_has_its_places(algo: str) -> None:
    import rl_training

    root = SOURCE.parent.parent
    assert list((SOURCE / "assets" / "configs" / algo).glob("*.yaml"))
    assert list((root / "examples").glob(f"{algo}_*_reference.py"))
    from rl_training.api.algorithms import CLASSES

    assert CLASSES[algo] is getattr(rl_training, CLASSES[algo].__name__)
    assert f"`{algo}`" in (root / "README.md").read_text()

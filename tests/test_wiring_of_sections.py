"""The options outside of ``algo_kwargs`` reach networks, environments, evaluations, checkpoints and logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from helpers.contracts import small_config
from helpers.wiring import modules, networks
from rl_training.algorithms.catalogue import PACKAGED, algorithms
from rl_training.config import schema
from rl_training.envs.subprocess import SubprocessVectorEnv
from rl_training.errors import ConfigError
from rl_training.models.encoders import Convolutions
from rl_training.models.mlp import ACTIVATIONS
from rl_training.models.normalizer import RunningNormalizer
from rl_training.runtime import console, evaluator, trackers, workflows
from rl_training.runtime.checkpoint import newest_checkpoint
from rl_training.runtime.checkpoint_format import LEFT_OUT
from rl_training.runtime.run import Run

# Networks


class Custom(nn.Module):
    """A network or an encoder that knows what it was asked for."""

    def __init__(self, obs_shape: tuple[int, ...], size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(torch.Size(obs_shape).numel(), size)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(obs.flatten(1).float())
        return out


def shapes(run: Run, part: str = "") -> set[tuple[int, ...]]:
    root = getattr(networks(run)[0], part) if part else networks(run)[0]
    return {tuple(parameter.shape) for parameter in root.parameters()}


def parts_of(run: Run) -> tuple[str, ...]:
    return (
        ("actor", "critic")
        if hasattr(networks(run)[0], "critic") and "recurrent" not in run.spec.name
        else ("",)
    )


def hidden_sizes(run: Run) -> list[int]:
    assert all((5, 7) in shapes(run, part) for part in parts_of(run)), "both of actor and critic"
    return [7, 5]


def critic_hidden_sizes(run: Run) -> list[int]:
    assert (9, 11) in shapes(run, "critic")
    assert (9, 11) not in shapes(run, "actor")
    assert (16, 16) not in shapes(run, "critic")
    return [11, 9]


def activation(run: Run) -> str:
    kinds = {kind: name for name, kind in ACTIVATIONS.items()}
    roots = [getattr(networks(run)[0], part) if part else networks(run)[0] for part in parts_of(run)]
    every = [module for root in roots for module in root.modules()]
    found = {module.activation for module in every if isinstance(getattr(module, "activation", None), str)}
    found |= {
        kinds[type(module)] for module in every if type(module) in kinds and type(module) is not nn.Tanh
    }
    assert len(found) == 1, found
    return str(found.pop())


def normalize_obs(run: Run) -> bool:
    live: Any = run.algorithm
    return bool(live._normalizers) and bool(modules(run, RunningNormalizer))


def layer_norm(run: Run) -> bool:
    roots = [getattr(networks(run)[0], part) if part else networks(run)[0] for part in parts_of(run)]
    return all(any(isinstance(module, nn.LayerNorm) for module in root.modules()) for root in roots)


def cnn(run: Run) -> str:
    (part,) = run.policy.obs.parts
    found = {tuple(tuple(p.shape) for p in module.parameters()) for module in modules(run, Convolutions)}
    assert len(found) == 1
    by_name: dict[Any, str] = {
        tuple(tuple(p.shape) for p in Convolutions(part, kind).parameters()): kind
        for kind in ("small", "impala")
    }
    return by_name[found.pop()]


def factory(run: Run) -> str:
    return f"{__name__}:Custom" if modules(run, Custom) else "another"


SMALL_IMAGES: dict[str, Any] = {
    "env.kwargs": {"render_mode": "rgb_array"},
    "env.wrappers": [{"id": "rl_training.envs.pixels:PixelObservation", "kwargs": {"size": 12}}],
    "algo_kwargs.buffer_size": 300,
}
NETWORK: dict[str, tuple[Any, Callable[[Run], Any]]] = {
    "hidden_sizes": ([7, 5], hidden_sizes),
    "critic_hidden_sizes": ([11, 9], critic_hidden_sizes),
    "activation": ("elu", activation),
    "normalize_obs": (True, normalize_obs),
    "layer_norm": (True, layer_norm),
    "cnn": ("impala", cnn),
    "factory": (f"{__name__}:Custom", factory),
}
"""An odd value of each option, and how it is read back."""
NO_CUSTOM = ("ppo", "a2c", "recurrent_ppo", "trpo", "ddpg", "td3", "sac", "tqc", "discrete_sac", "crossq")
OF_ANOTHER_SHAPE = ("c51", "qr_dqn", "iqn", "rainbow")
REFUSED = {
    *((algo, "critic_hidden_sizes") for algo in PACKAGED if not algorithms()[algo].config.separate_critic),
    *((algo, "factory") for algo in (*NO_CUSTOM, *OF_ANOTHER_SHAPE)),
    *(("drqv2", option) for option in ("normalize_obs", "layer_norm", "cnn")),
    *((algo, "layer_norm") for algo in ("crossq", "recurrent_ppo")),
}
"""What an algorithm does not take; it says so by name."""


@pytest.mark.parametrize("option", NETWORK)
@pytest.mark.parametrize("algo", PACKAGED)
def test_options_of_the_network_are_read_back_or_refused(algo: str, option: str) -> None:
    value, reader = NETWORK[option]
    overrides = {f"network.{option}": value}
    if option == "cnn" and algo != "drqv2":
        known = algorithms()[algo].config.model_fields
        images = {
            key: own
            for key, own in SMALL_IMAGES.items()
            if key.rpartition(".")[2] in {*known, "kwargs", "wrappers"}
        }
        overrides |= images
    if (algo, option) in REFUSED:
        said = (
            r"^algo_kwargs\.dueling: belongs"
            if (algo, option) == ("rainbow", "factory")
            else rf"^network(\.{option})?: "
        )
        with pytest.raises(ConfigError, match=said):
            Run(small_config(algo, **overrides))
        return
    run = Run(small_config(algo, **overrides))
    run.close()
    assert reader(run) == value


@pytest.mark.parametrize("algo", [name for name in algorithms() if name not in PACKAGED])
def test_algorithms_of_others_have_the_sizes_that_are_asked_for(algo: str) -> None:
    run = Run(small_config(algo, network__hidden_sizes=[7, 5]))
    run.close()
    assert any((5, 7) in {tuple(p.shape) for p in root.parameters()} for root in networks(run))


# Environments


def test_options_of_the_environments_are_read_back() -> None:
    settings: dict[str, Any] = {
        "num_envs": 3,
        "kwargs": {"sutton_barto_reward": True},
        "wrappers": [{"id": "TimeLimit", "kwargs": {"max_episode_steps": 17}}],
        "vectorization": "subprocess",
        "step_timeout": 31.5,
        "worker_restarts": 6,
        "reset_timeout": 77.5,
    }
    config = small_config("dqn", total_timesteps=300, **{f"env.{key}": own for key, own in settings.items()})
    assert {"id", *settings} == schema.EnvConfig.model_fields.keys()
    run = Run(config)
    try:
        envs: Any = run.collector.envs
        assert isinstance(envs, SubprocessVectorEnv)
        assert (envs.num_envs, envs._step_timeout, envs._reset_timeout, envs.restarts) == (3, 31.5, 77.5, 6)
        step, _ = run.collector.step(run.algorithm)
        assert step.reward.tolist() == [0.0, 0.0, 0.0], "of CartPole after Sutton and Barto"
        for _ in range(40):
            step, episodes = run.collector.step(run.algorithm)
            assert all(length <= 17 for _, length in episodes)
    finally:
        run.close()


# Around the learning


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, int, int]]:
    """What environments evaluations make: their config, how many, and the seed of their episodes."""
    seen: list[tuple[Any, int, int]] = []
    make = evaluator.make_vector_env  # type: ignore[attr-defined]

    def noting(env: Any, seeds: Any, *rest: Any) -> Any:
        seen.append((env, len(seeds), seeds[0]._root.entropy))
        return make(env, seeds, *rest)

    monkeypatch.setattr(evaluator, "make_vector_env", noting)
    return seen


AROUND: dict[str, dict[str, Any]] = {
    "evaluation": {
        "frequency": 35,
        "episodes": 4,
        "final_episodes": 6,
        "num_envs": 3,
        "seed": 41,
        "env": {"kwargs": {"sutton_barto_reward": True}},
        "stop_at": 1.0,
    },
    "checkpoint": {"frequency": 45, "keep": 3, "replay": False},
    "logging": {
        **{"frequency": 25, "window": 7, "console": False, "csv": True, "tensorboard": False},
        **{"trackers": ["mlflow"], "project": "poles"},
    },
}


class Silent(trackers.Tracker):
    """A tracker that notes its project and nothing else."""

    name = "silent"

    def __init__(self, projects: list[str], config: Any) -> None:
        projects.append(config.logging.project)

    def _write(self, step: int, row: dict[str, float]) -> None:
        pass

    def _close(self) -> None:
        pass


def test_options_around_the_learning_do_what_they_say(
    tmp_path: Path,
    played: list[tuple[Any, int, int]],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "_PLAIN_INTERVAL", 0.0)
    for section, model in (
        ("evaluation", schema.EvaluationConfig),
        ("checkpoint", schema.CheckpointConfig),
        ("logging", schema.LoggingConfig),
    ):
        assert AROUND[section].keys() == model.model_fields.keys(), "every option is looked at"
    projects: list[str] = []
    monkeypatch.setitem(trackers._MODULES, "mlflow", "json")  # as if it was installed
    monkeypatch.setitem(trackers.TRACKERS, "mlflow", lambda _, config, __: Silent(projects, config))
    config = small_config("dqn", **AROUND)
    result = workflows.start(config, run_dir=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "train/n_updates" in row] == list(range(25, 201, 25))
    assert [row["step"] for row in rows if "eval/mean_reward" in row] == list(range(0, 200, 35))
    assert [row["step"] for row in rows if "final/mean_reward" in row] == [200]
    # Each checkpoint but for those that a new best at the same time makes needless.
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert {"step-000000135", "step-000000180", "step-000000200"} <= set(kept)
    assert len(kept) <= 4, "three, and the best"
    assert newest_checkpoint(tmp_path / "run" / "checkpoints")[0].tree["replay"] == LEFT_OUT
    assert result.evaluation is not None
    assert len(result.evaluation.returns) == 6
    evaluations = [one for one in played if one[1] == 3]
    assert len(evaluations) == 7, "one before it trains, five while it does, and one at its end"
    assert {entropy for _, _, entropy in evaluations} == {41}
    assert all(env.kwargs["sutton_barto_reward"] for env, _, _ in evaluations)
    assert result.stop_reason is None, "of that reward, no episode comes to 1"
    assert (tmp_path / "run" / "metrics.csv").exists()
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert projects == ["poles"]
    assert capfd.readouterr() == ("", "")


def test_what_is_switched_off_is_not_there_and_training_stops_at_a_score(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_PLAIN_INTERVAL", 0.0)
    other: dict[str, dict[str, Any]] = {
        "evaluation": {"frequency": 35, "episodes": 4, "final_episodes": 0, "stop_at": 2.0},
        "checkpoint": {"frequency": 0, "keep": 1},
        "logging": {"frequency": 30, "console": True, "csv": False, "tensorboard": True},
    }
    result = workflows.start(small_config("dqn", **other), run_dir=tmp_path / "run")
    assert (result.steps, result.evaluation) == (35, None)
    assert result.stop_reason is not None
    assert not (tmp_path / "run" / "metrics.csv").exists()
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    out, err = capfd.readouterr()
    assert out == ""
    assert "30/200 steps" in err


def test_the_window_and_the_threads() -> None:
    before = torch.get_num_threads()
    try:
        run = Run(small_config("dqn", threads=2, logging__window=7))
        run.close()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    run.metrics.record_episodes([(float(i), 1) for i in range(20)])
    assert run.metrics.mean_return == 16.0, "of the last seven"
    assert run.algorithm.device.type == "cpu"  # type: ignore[attr-defined]
    assert run.clock.total == 200

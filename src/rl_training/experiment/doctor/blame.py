"""Which of the user's settings makes a probe fail: with it at its default, the probe passes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic_core import PydanticUndefined

from rl_training.algorithms.catalogue import experiment
from rl_training.config import ExperimentConfig
from rl_training.config.explain import as_written
from rl_training.errors import RLTrainingError
from rl_training.experiment.doctor.probe_env import Kind
from rl_training.experiment.doctor.probes import Plan, run_probe

_GROUPS: dict[str, tuple[str, ...]] = {
    "learning_rate": ("learning_rate", "learning_rate_final", "actor_learning_rate"),
    "target": ("target_update_interval", "tau"),
    "gamma": ("gamma",),
    "exploration": (
        *("exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "noisy", "noisy_sigma"),
        *("action_noise", "action_noise_std", "log_std_init", "std_initial", "std_final", "std_duration"),
    ),
    "optimizer": ("adam_eps", "adam_betas", "max_grad_norm"),
    "entropy": ("ent_coef", "ent_coef_init", "target_entropy", "target_entropy_ratio"),
    "support": ("v_min", "v_max", "num_atoms"),
    "replay": (
        "train_freq",
        "gradient_steps",
        "learning_starts",
        "buffer_size",
        "batch_size",
        "n_step_return",
    ),
}
"""Settings that are tried together, by what they are about."""


def blame(plan: Plan, kind: Kind, deadline: float) -> tuple[str, str, str] | None:
    """Return the cause, what was found, and a remedy; none if no single setting explains a failed probe."""
    for cause, keys, config in alternatives(plan.config):
        if time.monotonic() > deadline:
            return None
        observations = None if cause == "network" else plan.observations
        changed = replace(plan, config=config, observations=observations)
        if run_probe(changed, kind, deadline=deadline).verdict == "passed":
            own = ", ".join(f"{key}={_value(plan.config, key)}" for key in keys)
            usual = " ".join(f"{key}={_value(config, key)}" for key in keys)
            return cause, f"it passes once {own} is left at its default", usual
    return None


def alternatives(
    config: ExperimentConfig[Any],
) -> Iterator[tuple[str, tuple[str, ...], ExperimentConfig[Any]]]:
    """Yield what the config would be with some of the settings that differ from the defaults left out."""
    data = config.model_dump(mode="json")
    fields = type(config.algo_kwargs).model_fields
    differ = [
        name
        for name, value in config.algo_kwargs
        if fields[name].default is not PydanticUndefined and value != fields[name].default
    ]
    usual = type(config.network)(**config.algo_kwargs.network_defaults)
    off = tuple(f"network.{name}" for name, value in config.network if value != getattr(usual, name))
    groups = [(cause, [name for name in names if name in differ]) for cause, names in _GROUPS.items()]
    grouped = {name for _, names in groups for name in names}
    groups += [(name, [name]) for name in differ if name not in grouped]
    for cause, names in [groups[0], ("network", []), *groups[1:]]:
        if not names and not (cause == "network" and off):
            continue
        without = {**data, "algo_kwargs": {k: v for k, v in data["algo_kwargs"].items() if k not in names}}
        if cause == "network":
            without.pop("network")
        try:
            yield cause, tuple(f"algo_kwargs.{name}" for name in names) or off, experiment(without)
        except RLTrainingError:  # settings that only go together
            continue


def _value(config: ExperimentConfig[Any], key: str) -> str:
    section, _, name = key.partition(".")
    return as_written(getattr(getattr(config, section), name))

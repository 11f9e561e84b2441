"""The rules of resuming: which run goes on, what may change, and what is said about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rl_training.algorithms import catalogue
from rl_training.config import ExperimentConfig
from rl_training.config.loading import apply_overrides, changed_keys, read_mapping
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime.checkpoint import Checkpoint, newest_checkpoint, read_checkpoint
from rl_training.runtime.console import notice
from rl_training.runtime.folder import environment_facts
from rl_training.runtime.saving import copy_run

_FIXED = ("algo", "seed", "env", "network")
"""Sections that decide what the saved state means, so that a resumed run cannot change them."""


def checkpoint_config(checkpoint: Checkpoint) -> ExperimentConfig[Any]:
    """Return the config that a checkpoint carries."""
    try:
        return catalogue.experiment(checkpoint.tree["config"])
    except (KeyError, ConfigError) as error:
        raise CheckpointError(f"{checkpoint.path}: its config: {error}") from error


def resumed_config(
    written: Path, checkpoint: Checkpoint, saved: ExperimentConfig[Any], overrides: Sequence[str]
) -> ExperimentConfig[Any]:
    """Return the config with which a run goes on, or refuse what cannot change.

    ``written`` is the file of the run's folder, which is newer than the checkpoint if a resume with overrides was
    killed early; ``saved`` is what the checkpoint carries.
    """
    data = read_mapping(written, follow=False) if os.path.lexists(written) else saved.model_dump(mode="json")
    data = apply_overrides(data, overrides)
    if data.get("algo") != saved.algo:  # before its options are looked at, which are those of another
        raise ConfigError("algo: cannot change when a run is resumed; start a new one for that")
    config = catalogue.experiment(data)
    for key in changes(saved, config):
        if key.partition(".")[0] in _FIXED:
            raise ConfigError(f"{key}: cannot change when a run is resumed; start a new one for that")
    for name in config.algo_kwargs.fixed:
        if getattr(config.algo_kwargs, name) != getattr(saved.algo_kwargs, name):
            raise ConfigError(
                f"algo_kwargs.{name}: cannot change when a run is resumed; start a new one for that"
            )
    # Native environments may have gone beyond the budget, which is then no new one.
    if config.total_timesteps < min(checkpoint.step, saved.total_timesteps):
        raise ConfigError(
            f"total_timesteps: {config.total_timesteps} is less than the {checkpoint.step} steps already made"
        )
    return config


def changes(before: ExperimentConfig[Any], config: ExperimentConfig[Any]) -> list[str]:
    """Return the keys that are not as they were, except the budget."""
    changed = changed_keys(before.model_dump(mode="json"), config.model_dump(mode="json"))
    return [key for key in changed if key != "total_timesteps"]


def asks_for_more(
    config: ExperimentConfig[Any], saved: ExperimentConfig[Any], overrides: Sequence[str]
) -> bool:
    """Say whether a run that was stopped before the end of its budget should go on."""
    if any(override.partition("=")[0].strip() == "total_timesteps" for override in overrides):
        return True
    return (config.total_timesteps, config.evaluation.stop_at) != (
        saved.total_timesteps,
        saved.evaluation.stop_at,
    )


def owner_or_branch(
    path: Path, overrides: Sequence[str], check: Callable[[ExperimentConfig[Any]], None]
) -> Path:
    """Return the run that a checkpoint is the newest of, or a new run branched off it; ``check`` may refuse that."""
    path = path.absolute()
    checkpoint = read_checkpoint(path)
    owner = path.parent.parent
    if not (owner / "config.yaml").exists():
        branch = path.with_name(f"{path.name}-run")
    elif newest_checkpoint(owner / "checkpoints")[0].path.name == path.name:
        return owner
    else:
        branch = owner.with_name(f"{owner.name}_from-{path.name}")
    if branch.exists():
        raise ConfigError(f"{branch}: exists already; resume that one or remove it")
    # May refuse, before anything is written.
    check(resumed_config(branch / "config.yaml", checkpoint, checkpoint_config(checkpoint), overrides))
    copy_run(checkpoint, owner / "metrics.jsonl", branch)
    notice(f"branching off {path.name} into {branch}")
    return branch


def announce(
    checkpoint: Checkpoint,
    before: ExperimentConfig[Any],
    config: ExperimentConfig[Any],
    restored: str,
    console: bool,
) -> None:
    """Say where the run goes on, and what keeps it from doing so bit for bit."""
    facts = environment_facts(config.threads, config.device)
    saved = checkpoint.info.get("versions")
    known = saved if isinstance(saved, dict) else {}
    other = [
        f"{name} {known.get(name, 'unknown')} → {fact}"
        for name, fact in facts.items()
        if known.get(name) != fact
    ]
    if other:
        notice(f"{', '.join(other)}: going on, but not bit for bit")
    budget = before.total_timesteps
    if budget != config.total_timesteps:
        notice(f"total_timesteps {budget} → {config.total_timesteps}: schedules stretch to the new budget")
    changed = changes(before, config)
    if changed and checkpoint.step < config.total_timesteps:
        notice(f"changed from here on: {', '.join(changed)}")
    if console and checkpoint.step >= config.total_timesteps:
        notice("the budget is used up; total_timesteps=N goes further")
    if console:
        how = "replayed to where they were" if restored == "replayed" else "restarted with new episodes"
        notice(f"resuming at step {checkpoint.step} of {config.total_timesteps}; environments {how}")

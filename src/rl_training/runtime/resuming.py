"""The rules of resuming: which run goes on, what may change, and what is said about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.algorithms import catalogue
from rl_training.config import ExperimentConfig
from rl_training.config.loading import apply_overrides, changed_keys, read_mapping
from rl_training.config.schema import parse_number
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
    data = with_overrides(data, saved, overrides)
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


def config_of_new_start(written: Path, overrides: Sequence[str]) -> ExperimentConfig[Any]:
    """Return the config of a run that has no checkpoint yet, so that it has to start again."""
    data = read_mapping(written, follow=False)
    return catalogue.experiment(with_overrides(data, catalogue.experiment(data), overrides))


def with_overrides(
    data: Mapping[str, Any], before: ExperimentConfig[Any], overrides: Sequence[str]
) -> dict[str, Any]:
    """Return a config with overrides in which schedules are those of ``before``, unless it names their length.

    The length is written down as soon as the budget is another one: a run that is resumed once more must not take it
    for that of the new budget.
    """
    changed = apply_overrides(data, overrides)
    if changed.get("schedule_timesteps") is not None:
        return changed
    if any(_key(override) == "schedule_timesteps" for override in overrides):  # null: the new budget's
        return {**changed, "schedule_timesteps": changed.get("total_timesteps")}
    if before.schedule_timesteps is None and _is_count(
        changed.get("total_timesteps"), before.total_timesteps
    ):
        return changed
    return {**changed, "schedule_timesteps": before.schedule_length}


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def _is_count(given: Any, count: int) -> bool:
    """Say whether a value of a config means this number."""
    try:
        return bool(parse_number(given) == count)
    except ValueError:
        return False


def changes(before: ExperimentConfig[Any], config: ExperimentConfig[Any]) -> list[str]:
    """Return the keys that are not as they were, except the budget."""
    was, now = (
        {**each.model_dump(mode="json"), "schedule_timesteps": each.schedule_length}
        for each in (before, config)
    )
    return [key for key in changed_keys(was, now) if key != "total_timesteps"]


def asks_for_more(
    config: ExperimentConfig[Any], saved: ExperimentConfig[Any], overrides: Sequence[str]
) -> bool:
    """Say whether a run that was stopped before the end of its budget should go on."""
    if any(_key(override) == "total_timesteps" for override in overrides):
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
    changed = changes(before, config)
    budget, length = config.total_timesteps, config.schedule_length
    if before.total_timesteps != budget:
        schedules = f"schedules stay those of {length} steps; schedule_timesteps={budget} stretches them"
        if "schedule_timesteps" in changed:
            changed.remove("schedule_timesteps")
            schedules = f"schedules are from here on those of {length} steps"
        elif length == budget:
            schedules = f"schedules stay those of {length} steps"
        notice(f"total_timesteps {before.total_timesteps} → {budget}: {schedules}")
    if changed and checkpoint.step < config.total_timesteps:
        notice(f"changed from here on: {', '.join(changed)}")
    if console and checkpoint.step >= config.total_timesteps:
        notice("the budget is used up; total_timesteps=N goes further")
    if console:
        how = "replayed to where they were" if restored == "replayed" else "restarted with new episodes"
        notice(f"resuming at step {checkpoint.step} of {config.total_timesteps}; environments {how}")

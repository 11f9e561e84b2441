"""The rules of resuming: which run goes on, what may change, and what is said about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.algorithms import catalogue
from rl_training.config import ExperimentConfig
from rl_training.config.loading import apply_overrides, changed_keys, put, read_mapping
from rl_training.config.schema import parse_number
from rl_training.envs import EnvFactory, make_vector_env
from rl_training.envs.journal import EpisodeSeeds
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime import closing
from rl_training.runtime.archive import read_any
from rl_training.runtime.checkpoint import Checkpoint, newest_checkpoint
from rl_training.runtime.checkpoint_format import LEFT_OUT
from rl_training.runtime.console import notice
from rl_training.runtime.evaluator import refuse_other_spaces
from rl_training.runtime.folder import environment_facts, is_archive, locate
from rl_training.runtime.left_out import with_new_episodes
from rl_training.runtime.policy import spaces_from_plain
from rl_training.runtime.saving import copy_run
from rl_training.runtime.soundness import sound
from rl_training.runtime.streams import seed_sequence

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
    checkpoint = read_any(path)
    owner = path.parent.parent
    if not (owner / "config.yaml").exists():
        wanted = path.with_name(f"{path.stem if is_archive(path) else path.name}-run")
    elif newest_checkpoint(owner / "checkpoints")[0].path.name == path.name:
        return owner
    else:
        wanted = owner.with_name(f"{owner.name}_from-{path.name}")
    branch = _free(wanted)
    # May refuse, before anything is written.
    check(resumed_config(branch / "config.yaml", checkpoint, checkpoint_config(checkpoint), overrides))
    copy_run(checkpoint, owner / "metrics.jsonl", branch)
    notice(f"branching off {path.name} into {branch}")
    return branch


def elsewhere(
    path: Path,
    overrides: Sequence[str],
    check: Callable[[ExperimentConfig[Any]], None],
    *,
    run_dir: Path | None,
    env_settings: Mapping[str, Any],
    env: EnvFactory | None,
) -> Path:
    """Return a new run that goes on from a run or a checkpoint in a folder, or an environment, of its own."""
    path, is_run = locate(path.absolute())
    checkpoint = newest_checkpoint(path / "checkpoints")[0] if is_run else read_any(path)
    owner = path if is_run else path.parent.parent
    owned = (owner / "config.yaml").exists()
    stem = f"{owner.name}_from-{checkpoint.path.name}" if owned else f"{path.stem}-run"
    target = _free((owner if owned else path).with_name(stem)) if run_dir is None else run_dir.absolute()
    if run_dir is not None and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{run_dir}: is not empty; a run that goes on elsewhere needs a folder of its own")
    saved = checkpoint_config(checkpoint)
    changed = elsewhere_config(saved, env_settings, checkpoint, env)
    # May refuse, before anything is written.
    check(resumed_config(target / "config.yaml", checkpoint, changed, overrides))
    tree = None
    if env_settings:
        tree = with_new_episodes({**checkpoint.tree, "config": changed.model_dump(mode="json")})
    if target.exists():
        target.rmdir()
    copy_run(checkpoint, owner / "metrics.jsonl", target, tree)
    notice(f"branching off {checkpoint.path.name} into {target}")
    if env_settings:
        notice(f"env: {saved.env.id} → {changed.env.id}; what the replay holds of the old one stays in it")
    return target


def elsewhere_config(
    config: ExperimentConfig[Any],
    env_settings: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
    env: EnvFactory | None = None,
) -> ExperimentConfig[Any]:
    """Return a config with another environment, which has to be one for the agent of a checkpoint if that is given."""
    data = config.model_dump(mode="json")
    for key, value in env_settings.items():
        data = put(data, key, value)
    changed = catalogue.experiment(data)
    if checkpoint is not None and changed != config:
        _refuse_unlike(changed, env, checkpoint)
    return changed


def _free(wanted: Path) -> Path:
    """Return a name that nothing has yet: the one that is wanted, or that and a number."""
    path, number = wanted, 2
    while os.path.lexists(path):
        path, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
    return path


def _refuse_unlike(config: ExperimentConfig[Any], env: EnvFactory | None, checkpoint: Checkpoint) -> None:
    """Refuse an environment that the agent of a checkpoint was not made for."""
    alone = config.env.model_copy(update={"vectorization": "sync"})
    envs = make_vector_env(alone, [EpisodeSeeds(seed_sequence(config.seed, "probe"))], env)
    try:
        with sound(str(checkpoint.path)):
            refuse_other_spaces(envs, *spaces_from_plain(checkpoint.tree["spaces"]))
    finally:
        closing.close(envs)


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
        notice(f"{', '.join(other)}: continuing, but not bit for bit")
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
        notice("the run is complete; total_timesteps=N trains longer")
    if checkpoint.tree["replay"] == LEFT_OUT:
        begins = getattr(config.algo_kwargs, "learning_starts", 0)
        after = f", so learning begins again in {begins:,} steps" if begins else ""
        notice(
            f"{checkpoint.path.name} was saved without its replay: it begins empty, and new episodes do{after}"
        )
    if console:
        how = "replayed to where they were" if restored == "replayed" else "restarted with new episodes"
        notice(f"resuming at step {checkpoint.step} of {config.total_timesteps}; environments {how}")

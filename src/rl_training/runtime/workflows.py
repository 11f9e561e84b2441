"""The things one does with a run: start it, resume it, evaluate it, use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.spec import AlgorithmSpec, NetworkFactory
from rl_training.config import AlgorithmConfig, EvaluationConfig, ExperimentConfig
from rl_training.config.loading import apply_overrides, build_config, changed_keys, read_mapping
from rl_training.envs import EnvFactory
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.runtime.callbacks import CallbackLike, StopOnThreshold, as_callbacks
from rl_training.runtime.checkpoint import Checkpoint, list_checkpoints, newest_checkpoint, read_checkpoint
from rl_training.runtime.console import notice
from rl_training.runtime.curves import plot_run
from rl_training.runtime.evaluator import Evaluation, evaluate
from rl_training.runtime.folder import RunFolder, environment_facts, locate, new_run_path
from rl_training.runtime.loggers import write_result
from rl_training.runtime.policy import Policy, spaces_from_plain
from rl_training.runtime.run import Run, build_policy, load_learner
from rl_training.runtime.saving import copy_run
from rl_training.runtime.session import Session, TrainResult
from rl_training.runtime.signals import SignalGuard
from rl_training.runtime.streams import Streams
from rl_training.runtime.video import record

SpecLookup = Callable[[str], AlgorithmSpec]
_FIXED = ("algo", "seed", "env", "network")
"""Sections that decide what the saved state means, so that a resumed run cannot change them."""


def start(
    config: ExperimentConfig[Any],
    spec: AlgorithmSpec,
    *,
    run_dir: Path | None = None,
    callback: CallbackLike = None,
    env: EnvFactory | None = None,
    network: NetworkFactory | None = None,
    console: bool = True,
) -> TrainResult:
    """Train from scratch in a new run folder."""
    path = run_dir if run_dir is not None else new_run_path(config)
    if _is_used(path):
        if (path / "run.lock").exists():
            RunFolder(path).close()  # a run that is still going is refused as such
        raise _used(path)
    # The run before its folder: it may refuse, and then there is none yet.
    with (
        SignalGuard() as guard,
        closing(Run(config, spec, env=env, network=network)) as run,
        RunFolder(path) as folder,
    ):
        if _is_used(path):  # by one that was quicker while this run was put together
            raise _used(path)
        return _begin(run, folder, guard, callback, console)


def _begin(
    run: Run, folder: RunFolder, guard: SignalGuard, callback: CallbackLike, console: bool
) -> TrainResult:
    _describe(folder, run.config, run.spec, 0)
    return _conclude(_session(run, folder, guard, callback, console))


def resume(
    path: Path,
    lookup: SpecLookup,
    *,
    overrides: Sequence[str] = (),
    callback: CallbackLike = None,
    env: EnvFactory | None = None,
    network: NetworkFactory | None = None,
    console: bool = True,
) -> TrainResult:
    """Go on with a run from its newest checkpoint, or branch a new run off an older one."""
    path, is_run = locate(path)
    if not is_run:
        path = _owner_or_branch(path, lookup, overrides)
    with SignalGuard() as guard, RunFolder(path) as folder:
        if (path / "config.yaml").exists() and not list_checkpoints(folder.checkpoints):
            data = apply_overrides(read_mapping(path / "config.yaml"), overrides)
            config = build_config(data, _config_classes(lookup))
            notice(f"{path}: no checkpoint yet, so the run starts again")
            with closing(Run(config, lookup(config.algo), env=env, network=network)) as run:
                return _begin(run, folder, guard, callback, console)
        checkpoint, refused = newest_checkpoint(folder.checkpoints)
        for line in refused:
            notice(f"warning: {line}")
        if refused:
            notice(f"going on from {checkpoint.path.name}, the newest checkpoint that verifies")
        config = _resumed_config(path / "config.yaml", checkpoint, lookup, overrides)
        with closing(Run(config, lookup(config.algo), env=env, network=network)) as run:
            session = _session(run, folder, guard, callback, console)
            restored = session.load(checkpoint)
            saved = checkpoint_config(checkpoint, lookup)
            if _asks_for_more(config, saved, overrides):
                run.stop_reason = None
            if not run.clock.finished:
                _describe(folder, config, run.spec, run.clock.steps)
            elif overrides and (changed := _changes(saved, config)):
                raise ConfigError(
                    f"{changed[0]}: changes nothing, as the budget is used up; total_timesteps=N goes further"
                )
            _announce(checkpoint, saved, config, restored, console)
            return _conclude(session)


def _announce(
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
    changes = [
        f"{name} {known.get(name, 'unknown')} → {fact}"
        for name, fact in facts.items()
        if known.get(name) != fact
    ]
    if changes:
        notice(f"{', '.join(changes)}: going on, but not bit for bit")
    budget = before.total_timesteps
    if budget != config.total_timesteps:
        notice(f"total_timesteps {budget} → {config.total_timesteps}: schedules stretch to the new budget")
    changed = _changes(before, config)
    if changed and checkpoint.step < config.total_timesteps:
        notice(f"changed from here on: {', '.join(changed)}")
    if console and checkpoint.step >= config.total_timesteps:
        notice("the budget is used up; total_timesteps=N goes further")
    if console:
        how = "replayed to where they were" if restored == "replayed" else "restarted with new episodes"
        notice(f"resuming at step {checkpoint.step} of {config.total_timesteps}; environments {how}")


def _changes(before: ExperimentConfig[Any], config: ExperimentConfig[Any]) -> list[str]:
    """Return the keys that are not as they were, except the budget."""
    changed = changed_keys(before.model_dump(mode="json"), config.model_dump(mode="json"))
    return [key for key in changed if key != "total_timesteps"]


def load_checkpoint(path: Path, *, best: bool = False) -> Checkpoint:
    """Read a checkpoint, or the newest (or ``best``) one of a run folder, without locking the run."""
    from rl_training.runtime.checkpoint import read_hint

    path, is_run = locate(path)
    if not is_run:
        return read_checkpoint(path)
    if best:
        hinted = read_hint(path / "checkpoints", "best")
        if hinted is None:
            raise CheckpointError(f"{path}: no best checkpoint yet; it takes an evaluation during training")
        return read_checkpoint(hinted)
    checkpoint, refused = newest_checkpoint(path / "checkpoints")
    for line in refused:
        notice(f"warning: {line}")
    return checkpoint


def load_policy(
    checkpoint: Checkpoint, lookup: SpecLookup, network: NetworkFactory | None = None
) -> tuple[Policy, ExperimentConfig[Any]]:
    """Build the agent of a checkpoint; no environment is needed for that."""
    config = checkpoint_config(checkpoint, lookup)
    torch.set_num_threads(config.threads)
    try:
        obs, actions = spaces_from_plain(checkpoint.tree["spaces"])
        policy = build_policy(config, lookup(config.algo), obs, actions, Streams(config.seed), network)
        load_learner(policy.algorithm, checkpoint.tree)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{checkpoint.path}: part missing or malformed: {type(error).__name__}: {error}"
        ) from error
    return policy, config


def checkpoint_config(checkpoint: Checkpoint, lookup: SpecLookup) -> ExperimentConfig[Any]:
    """Return the config that a checkpoint carries."""
    try:
        return build_config(checkpoint.tree["config"], _config_classes(lookup))
    except (KeyError, ConfigError) as error:
        raise CheckpointError(f"{checkpoint.path}: its config: {error}") from error


def evaluate_policy(
    policy: Policy,
    config: ExperimentConfig[Any],
    episodes: int,
    *,
    seed: int | None = None,
    env: EnvFactory | None = None,
) -> Evaluation:
    """Play evaluation episodes; by default the same ones as at the end of training."""
    if episodes < 1:
        raise ConfigError(f"episodes: {episodes}; at least one has to be played")
    options = _evaluation_options(config, seed)
    return evaluate(policy.algorithm, config.env, policy.actions, options, episodes, env)


def record_policy(
    policy: Policy,
    config: ExperimentConfig[Any],
    path: Path,
    episodes: int = 1,
    *,
    seed: int | None = None,
    env: EnvFactory | None = None,
) -> Evaluation:
    """Write a video of the first evaluation episodes and return how they went."""
    options = _evaluation_options(config, seed)
    return record(policy.algorithm, config.env, policy.actions, options, episodes, path, env)


def _evaluation_options(config: ExperimentConfig[Any], seed: int | None) -> EvaluationConfig:
    return config.evaluation if seed is None else config.evaluation.model_copy(update={"seed": seed})


def _session(
    run: Run, folder: RunFolder, guard: SignalGuard, callback: CallbackLike, console: bool
) -> Session:
    threshold = run.config.evaluation.stop_at
    built_in = [] if threshold is None else [StopOnThreshold(threshold)]
    return Session(run, folder, guard, as_callbacks(callback), built_in=built_in, console=console)


def _is_used(path: Path) -> bool:
    held = ("config.yaml", "metrics.jsonl", "facts.json")  # the last of a benchmark
    return any((path / name).exists() for name in held)


def _used(path: Path) -> ConfigError:
    if not (path / "run.lock").exists():
        return ConfigError(f"{path}: holds several runs, or none of this package; choose another folder")
    return ConfigError(
        f"{path}: holds a run already; go on with 'rl-training resume {path}' or choose another folder"
    )


def _describe(folder: RunFolder, config: ExperimentConfig[Any], spec: AlgorithmSpec, step: int) -> None:
    metadata = folder.read_metadata()
    segments = [*metadata.get("segments", []), {"from_step": step, "total_timesteps": config.total_timesteps}]
    facts = environment_facts(config.threads, config.device)
    folder.write(config, {"algo": spec.name, "title": spec.title, "environment": facts, "segments": segments})


def _conclude(session: Session) -> TrainResult:
    """Run a session to its end and write down the outcome."""
    result = session.execute()
    run, evaluation = session.run, result.evaluation
    config = run.config
    write_result(
        result.run_dir / "result.json",
        {
            "algo": config.algo,
            "env": config.env.id,
            "seed": config.seed,
            "steps": result.steps,
            "updates": result.updates,
            "episodes": result.episodes,
            "seconds": result.seconds,
            "time_split": {name: round(seconds, 3) for name, seconds in run.timer.seconds.items()},
            "stop_reason": result.stop_reason,
            "checkpoint": result.checkpoint.name,
            "evaluation": None
            if evaluation is None
            else {"mean": evaluation.mean, "std": evaluation.std, "returns": list(evaluation.returns)},
        },
    )
    title = f"{run.spec.title} on {config.env.id}, seed {config.seed}"
    try:
        plot_run(session.folder.metrics, result.run_dir / "curve.png", title)
    except (OSError, RLTrainingError) as error:
        notice(f"warning: curve.png: not drawn: {getattr(error, 'strerror', None) or error}")
    session.heed_signal()  # one that came too late to stop anything still decides the exit code
    return result


def _resumed_config(
    written: Path, checkpoint: Checkpoint, lookup: SpecLookup, overrides: Sequence[str]
) -> ExperimentConfig[Any]:
    saved = checkpoint_config(checkpoint, lookup)
    # The folder's file is newer than the checkpoint if a resume with overrides was killed early.
    data = read_mapping(written) if written.exists() else saved.model_dump(mode="json")
    config = build_config(apply_overrides(data, overrides), _config_classes(lookup))
    for key in _changes(saved, config):
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


def _asks_for_more(
    config: ExperimentConfig[Any], saved: ExperimentConfig[Any], overrides: Sequence[str]
) -> bool:
    """Say whether a run that was stopped before the end of its budget should go on."""
    if any(override.partition("=")[0].strip() == "total_timesteps" for override in overrides):
        return True
    return (config.total_timesteps, config.evaluation.stop_at) != (
        saved.total_timesteps,
        saved.evaluation.stop_at,
    )


def _owner_or_branch(path: Path, lookup: SpecLookup, overrides: Sequence[str]) -> Path:
    """Return the run that a checkpoint is the newest of, or a new run branched off it."""
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
    _resumed_config(
        branch / "config.yaml", checkpoint, lookup, overrides
    )  # may refuse, before anything is written
    copy_run(checkpoint, owner / "metrics.jsonl", branch)
    notice(f"branching off {path.name} into {branch}")
    return branch


def _config_classes(lookup: SpecLookup) -> Callable[[str], type[AlgorithmConfig]]:
    return lambda name: lookup(name).config

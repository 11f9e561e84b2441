"""The things one does with a run: start it, resume it, evaluate it, use it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rl_training.algorithms.spec import AlgorithmSpec, NetworkFactory
from rl_training.config import AlgorithmConfig, ExperimentConfig
from rl_training.config.loading import apply_overrides, build_config, read_mapping
from rl_training.envs import EnvFactory
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime.callbacks import CallbackLike, StopOnThreshold, as_callbacks
from rl_training.runtime.checkpoint import Checkpoint, list_checkpoints, newest_checkpoint, read_checkpoint
from rl_training.runtime.console import notice
from rl_training.runtime.curves import plot_run
from rl_training.runtime.evaluator import Evaluation, evaluate
from rl_training.runtime.folder import RunFolder, environment_facts, locate, new_run_path
from rl_training.runtime.loggers import write_result
from rl_training.runtime.policy import Policy, spaces_from_plain
from rl_training.runtime.run import Run, build_policy, load_learner
from rl_training.runtime.session import Session, TrainResult
from rl_training.runtime.signals import SignalGuard
from rl_training.runtime.streams import Streams

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
    if (path / "config.yaml").exists() or (path / "metrics.jsonl").exists():
        RunFolder(path).close()  # a run that is still going is refused as such
        raise ConfigError(
            f"{path}: holds a run already; go on with 'rl-training resume {path}' or choose another folder"
        )
    return _begin(config, spec, path, callback, env, network, console)


def _begin(
    config: ExperimentConfig[Any],
    spec: AlgorithmSpec,
    path: Path,
    callback: CallbackLike,
    env: EnvFactory | None,
    network: NetworkFactory | None,
    console: bool,
) -> TrainResult:
    with SignalGuard() as guard:
        run = Run(config, spec, env=env, network=network)  # may refuse, and then there is no folder yet
        try:
            folder = RunFolder(path)
            try:
                _describe(folder, config, spec, 0)
                session = Session(run, folder, guard, _callbacks(config, callback), console=console)
                return _conclude(session, session.execute())
            finally:
                folder.close()
        finally:
            run.close()


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
    if is_run:
        RunFolder(path).close()  # a run that is still going retires what would be read here
        if (path / "config.yaml").exists() and not list_checkpoints(path / "checkpoints"):
            data = apply_overrides(read_mapping(path / "config.yaml"), overrides)
            config = build_config(data, _config_classes(lookup))
            notice(f"{path}: no checkpoint yet, so the run starts again")
            return _begin(config, lookup(config.algo), path, callback, env, network, console)
    checkpoint, refused = newest_checkpoint(path / "checkpoints") if is_run else (read_checkpoint(path), [])
    run_path = path if is_run else _owner_or_branch(path, checkpoint)
    for line in refused:
        notice(f"warning: {line}")
    if refused:
        notice(f"going on from {checkpoint.path.name}, the newest checkpoint that verifies")
    config = _resumed_config(run_path, checkpoint, lookup, overrides)
    spec = lookup(config.algo)
    with SignalGuard() as guard:
        folder = RunFolder(run_path)
        try:
            run = Run(config, spec, env=env, network=network)
            try:
                session = Session(run, folder, guard, _callbacks(config, callback), console=console)
                restored = session.load(checkpoint)
                _describe(folder, config, spec, run.clock.steps)
                if console:
                    how = (
                        "replayed to where they were"
                        if restored == "replayed"
                        else "restarted with new episodes"
                    )
                    notice(f"resuming at step {run.clock.steps} of {run.clock.total}; environments {how}")
                return _conclude(session, session.execute())
            finally:
                run.close()
        finally:
            folder.close()


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
    options = config.evaluation if seed is None else config.evaluation.model_copy(update={"seed": seed})
    return evaluate(policy.algorithm, config.env, policy.actions, options, episodes, env)


def _callbacks(config: ExperimentConfig[Any], callback: CallbackLike) -> list[Any]:
    built_in = [] if config.evaluation.stop_at is None else [StopOnThreshold(config.evaluation.stop_at)]
    return [*built_in, *as_callbacks(callback)]


def _describe(folder: RunFolder, config: ExperimentConfig[Any], spec: AlgorithmSpec, step: int) -> None:
    metadata = folder.read_metadata()
    segments = [*metadata.get("segments", []), {"from_step": step, "total_timesteps": config.total_timesteps}]
    facts = environment_facts(config.threads, config.device)
    folder.write(config, {"algo": spec.name, "title": spec.title, "environment": facts, "segments": segments})


def _conclude(session: Session, result: TrainResult) -> TrainResult:
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
    except OSError as error:
        notice(f"warning: curve.png: not drawn: {error.strerror}")
    return result


def _resumed_config(
    run_path: Path, checkpoint: Checkpoint, lookup: SpecLookup, overrides: Sequence[str]
) -> ExperimentConfig[Any]:
    saved = checkpoint_config(checkpoint, lookup)
    written = run_path / "config.yaml"
    # The folder's file is newer than the checkpoint if a resume with overrides was killed early.
    data = read_mapping(written) if written.exists() else saved.model_dump(mode="json")
    config = build_config(apply_overrides(data, overrides), _config_classes(lookup))
    for section in _FIXED:
        if getattr(config, section) != getattr(saved, section):
            raise ConfigError(f"{section}: cannot change when a run is resumed; start a new one for that")
    return config


def _owner_or_branch(path: Path, checkpoint: Checkpoint) -> Path:
    """Return the run that a checkpoint is the newest of, or a new run branched off it."""
    owner = path.absolute().parent.parent
    if (owner / "config.yaml").exists() and newest_checkpoint(owner / "checkpoints")[
        0
    ].path.name == path.name:
        return owner
    branch = (
        owner.with_name(f"{owner.name}_from-{path.name}")
        if (owner / "config.yaml").exists()
        else path.absolute()
    )
    branch = branch if branch != path.absolute() else branch.with_name(f"{path.name}-run")
    if branch.exists():
        raise ConfigError(f"{branch}: exists already; resume that one or remove it")
    (branch / "checkpoints").mkdir(parents=True)
    shutil.copytree(path, branch / "checkpoints" / f"step-{checkpoint.step:09d}")
    log = owner / "metrics.jsonl"
    if log.exists():
        shutil.copyfile(log, branch / "metrics.jsonl")
    notice(f"branching off {path.name} into {branch}")
    return branch


def _config_classes(lookup: SpecLookup) -> Callable[[str], type[AlgorithmConfig]]:
    return lambda name: lookup(name).config

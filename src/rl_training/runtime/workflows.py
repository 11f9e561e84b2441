"""The things one does with a run: start it, resume it, evaluate it, use it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms import catalogue
from rl_training.algorithms.spec import NetworkFactory
from rl_training.config import EvaluationConfig, ExperimentConfig
from rl_training.envs import EnvFactory
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime.archive import read_any
from rl_training.runtime.callbacks import CallbackLike, StopOnThreshold, as_callbacks
from rl_training.runtime.checkpoint import (
    Checkpoint,
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    read_hint,
)
from rl_training.runtime.console import EpisodeProgress, notice
from rl_training.runtime.evaluator import Evaluation, evaluate
from rl_training.runtime.folder import RunFolder, locate, new_run_path
from rl_training.runtime.policy import Policy, spaces_from_plain
from rl_training.runtime.report import TrainResult, write_report
from rl_training.runtime.resuming import (
    announce,
    asks_for_more,
    changes,
    checkpoint_config,
    config_of_new_start,
    elsewhere,
    owner_or_branch,
    resumed_config,
)
from rl_training.runtime.run import Run, build_policy, load_learner
from rl_training.runtime.session import Session
from rl_training.runtime.signals import SignalGuard
from rl_training.runtime.soundness import check_whole, sound
from rl_training.runtime.streams import Streams
from rl_training.runtime.trackers import check_trackers
from rl_training.runtime.trust import check_names
from rl_training.runtime.video import record
from rl_training.shell import command

__all__ = [
    "checkpoint_config",
    "evaluate_policy",
    "load_checkpoint",
    "load_policy",
    "record_policy",
    "resume",
    "start",
]


def start(
    config: ExperimentConfig[Any],
    *,
    run_dir: Path | str | None = None,
    new_folder: Callable[[ExperimentConfig[Any]], Path] = new_run_path,
    callback: CallbackLike = None,
    env: EnvFactory | None = None,
    network: NetworkFactory | None = None,
    console: bool = True,
) -> TrainResult:
    """Train from scratch in a new run folder; without a ``run_dir``, it is the one that ``new_folder`` makes."""
    check_trackers(config.logging)
    if run_dir is not None and _is_used(path := Path(run_dir)):
        if (path / "run.lock").exists():
            RunFolder(path).close()  # a run that is still going is refused as such
        raise _used(path)
    # The run before its folder: it may refuse, and then there is none yet.
    with (
        SignalGuard() as guard,
        closing(Run(config, env=env, network=network)) as run,
        RunFolder(Path(run_dir) if run_dir is not None else new_folder(config)) as folder,
    ):
        if _is_used(folder.path):  # by one that was quicker while this run was put together
            raise _used(folder.path)
        return _begin(run, folder, guard, callback, console)


def resume(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    callback: CallbackLike = None,
    env: EnvFactory | None = None,
    network: NetworkFactory | None = None,
    console: bool = True,
    trust: bool = False,
    run_dir: Path | None = None,
    env_settings: Mapping[str, Any] | None = None,
) -> TrainResult:
    """Go on with a run from its newest checkpoint, or branch a new run off an older one.

    It goes on in a new folder, too, if that is given as ``run_dir``, or if ``env_settings`` (dotted keys) change its
    environment. Without ``trust``, the run may name no code but that of installed packages (see ``runtime.trust``).
    """

    def check(config: ExperimentConfig[Any]) -> None:
        check_trackers(config.logging)
        check_names(config, trust, env=env is None, network=network is None)

    path, is_run = locate(path)
    if run_dir is not None or env_settings:
        path = elsewhere(path, overrides, check, run_dir=run_dir, env_settings=env_settings or {}, env=env)
    elif not is_run:
        path = owner_or_branch(path, overrides, check)
    with SignalGuard() as guard, RunFolder(path) as folder:
        if os.path.lexists(folder.config) and not list_checkpoints(folder.checkpoints):
            config = config_of_new_start(folder.config, overrides)
            check(config)
            notice(f"{path}: no checkpoint yet, so the run starts again")
            with closing(Run(config, env=env, network=network)) as run:
                return _begin(run, folder, guard, callback, console)
        checkpoint = _newest(folder)
        saved = checkpoint_config(checkpoint)
        config = resumed_config(folder.config, checkpoint, saved, overrides)
        check(config)
        with closing(Run(config, env=env, network=network)) as run:
            session = _session(run, folder, guard, callback, console)
            restored = session.load(checkpoint, forget_stop=asks_for_more(config, saved, overrides))
            if not run.clock.finished:
                folder.describe(config, run.spec.name, run.spec.title, run.clock.steps)
            elif overrides and (changed := changes(saved, config)):
                raise ConfigError(
                    f"{changed[0]}: has no effect, because the run is complete; total_timesteps=N trains longer"
                )
            announce(checkpoint, saved, config, restored, console)
            return _conclude(session)


def _begin(
    run: Run, folder: RunFolder, guard: SignalGuard, callback: CallbackLike, console: bool
) -> TrainResult:
    folder.describe(run.config, run.spec.name, run.spec.title, 0)
    if console and run.config.logging.console:
        notice(f"observations: {run.policy.obs.describe()}")
        if (pace := run.config.algo_kwargs.pace()) is not None:
            notice(pace)
    if run.config.threads > (cores := os.cpu_count() or 1):
        notice(
            f"warning: threads={run.config.threads} is more than the {cores} cores here, which makes learning slower"
        )
    return _conclude(_session(run, folder, guard, callback, console))


def _newest(folder: RunFolder) -> Checkpoint:
    checkpoint, refused = newest_checkpoint(folder.checkpoints)
    for line in refused:
        notice(f"warning: {line}")
    if refused:
        notice(f"going on from {checkpoint.path.name}, the newest intact checkpoint")
    return checkpoint


def _session(
    run: Run, folder: RunFolder, guard: SignalGuard, callback: CallbackLike, console: bool
) -> Session:
    threshold = run.config.evaluation.stop_at
    built_in = [] if threshold is None else [StopOnThreshold(threshold)]
    return Session(run, folder, guard, as_callbacks(callback), built_in=built_in, console=console)


def _conclude(session: Session) -> TrainResult:
    """Run a session to its end and write down the outcome."""
    result = session.execute()
    write_report(session.run, session.folder, result)
    session.heed_signal()  # one that came too late to stop anything still decides the exit code
    return result


def _is_used(path: Path) -> bool:
    held = ("config.yaml", "metrics.jsonl", "facts.json")  # the last of a benchmark
    return any(os.path.lexists(path / name) for name in held)


def _used(path: Path) -> ConfigError:
    if not (path / "run.lock").exists():
        return ConfigError(f"{path}: holds several runs, or none of this package; choose another folder")
    return ConfigError(
        f"{path}: holds a run already; choose another folder, or go on with: {command('rl-training', 'resume', path)}"
    )


def load_checkpoint(path: Path, *, best: bool = False) -> Checkpoint:
    """Read a checkpoint, or the newest (or ``best``) one of a run folder, without locking the run."""
    path, is_run = locate(path)
    if not is_run:
        if best:
            raise ConfigError(f"--best: goes with a run folder; {path} is one checkpoint")
        return read_any(path)
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
    checkpoint: Checkpoint,
    network: NetworkFactory | None = None,
    *,
    trust: bool = False,
    config: ExperimentConfig[Any] | None = None,
) -> tuple[Policy, ExperimentConfig[Any]]:
    """Build the agent of a checkpoint, no environment is needed for that; ``config`` replaces the one it carries."""
    check_whole(checkpoint)
    if config is None:
        config = checkpoint_config(checkpoint)
    check_names(config, trust, env=False, wrappers=False, network=network is None)
    torch.set_num_threads(config.threads)
    with sound(str(checkpoint.path)):
        obs, actions = spaces_from_plain(checkpoint.tree["spaces"])
        policy = build_policy(
            config, catalogue.find(config.algo), obs, actions, Streams(config.seed), network
        )
        load_learner(policy.algorithm, checkpoint.tree)
    return policy, config


def evaluate_policy(
    policy: Policy,
    config: ExperimentConfig[Any],
    episodes: int,
    *,
    seed: int | None = None,
    env: EnvFactory | None = None,
    trust: bool = False,
    console: bool = False,
) -> Evaluation:
    """Play evaluation episodes; by default the same ones as at the end of training.

    With ``console``, a terminal shows how far it is.
    """
    check_names(config, trust, env=env is None, network=False)
    if episodes < 1:
        raise ConfigError(f"episodes: {episodes}; at least one has to be played")
    options = _evaluation_options(config, seed)
    terminal = console and sys.stderr is not None and sys.stderr.isatty()
    with EpisodeProgress("evaluation", episodes, console=terminal) as progress:
        return evaluate(
            policy.algorithm,
            config.env,
            policy.actions,
            options,
            episodes,
            env,
            obs=policy.obs,
            tell=progress.tell,
        )


def record_policy(
    policy: Policy,
    config: ExperimentConfig[Any],
    path: Path,
    episodes: int = 1,
    *,
    seed: int | None = None,
    env: EnvFactory | None = None,
    trust: bool = False,
) -> Evaluation:
    """Write a video of the first evaluation episodes and return how they went."""
    check_names(config, trust, env=env is None, network=False)
    options = _evaluation_options(config, seed)
    return record(policy.algorithm, config.env, policy.actions, options, episodes, path, env, policy.obs)


def _evaluation_options(config: ExperimentConfig[Any], seed: int | None) -> EvaluationConfig:
    return config.evaluation if seed is None else config.evaluation.model_copy(update={"seed": seed})

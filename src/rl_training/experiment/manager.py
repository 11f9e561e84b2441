"""One config over several seeds, with one honest summary."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.algorithms.spec import NetworkFactory
from rl_training.config import ExperimentConfig
from rl_training.config.loading import changed_keys, dump_yaml
from rl_training.envs import EnvFactory
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment import registry
from rl_training.experiment.configs import load_config
from rl_training.experiment.processes import Job, run_jobs
from rl_training.experiment.progress import SuiteProgress
from rl_training.experiment.report.page import add_report
from rl_training.experiment.results import RunResult, read_result
from rl_training.runtime.checkpoint import list_checkpoints
from rl_training.runtime.checkpoint_format import parse_step_name
from rl_training.runtime.console import notice
from rl_training.runtime.curves import plot_seeds
from rl_training.runtime.folder import new_run_path, write_whole
from rl_training.runtime.report import steps_of
from rl_training.runtime.session import Interrupted
from rl_training.runtime.signals import SignalGuard
from rl_training.shell import quoted_path
from rl_training.statistics import iqm, seeds_interval

MAX_SEEDS = 10_000
"""Of one experiment; each has a folder."""
_Plan = dict[int, list[str] | None]  # seeds to run: None begins one, overrides resume it


@dataclass(frozen=True)
class Summary:
    """Scores of all seeds (means of the final evaluation), their interquartile mean and its 95 % bootstrap interval.

    There is no interval for fewer than five seeds.
    """

    folder: Path
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    iqm: float
    interval: tuple[float, float] | None


class ExperimentManager:
    """Runs one config with several seeds, ``config.seed, config.seed + 1, ...``, and gathers the results in a folder.

    Calling ``run`` again after an interruption completes the experiment: finished seeds are kept, the others are
    resumed. With a larger ``total_timesteps``, every seed trains longer, with the schedules of the first budget
    (unless ``extend`` is false). Any other change of the config needs another folder.

    :param config: The config, from ``load_config``.
    :param seeds: How many seeds.
    :param folder: The folder; by default a new one below ``runs``.
    :param jobs: How many seeds run at the same time, each in a process of its own.
    :param env: A callable that makes the environment, if the config cannot name it; only with one job.
    :param network: A callable that makes the network, in the same way.
    :param extend: Whether finished seeds train longer if ``total_timesteps`` has grown.
    """

    def __init__(
        self,
        config: ExperimentConfig[Any],
        *,
        seeds: int = 5,
        folder: str | Path | None = None,
        jobs: int = 1,
        env: EnvFactory | None = None,
        network: NetworkFactory | None = None,
        extend: bool = True,
    ) -> None:
        if not config.evaluation.final_episodes:
            raise ConfigError("evaluation.final_episodes: 0 leaves nothing to compare seeds by")
        if jobs > 1 and (env is not None or network is not None):
            raise ConfigError("jobs: an env or network given as an object runs in this process only: jobs=1")
        if not 1 <= seeds <= MAX_SEEDS:
            raise ConfigError(f"seeds: {seeds} is not allowed: should be from 1 to {MAX_SEEDS}")
        if config.seed + seeds > 2**63:
            raise ConfigError(
                f"seed: {seeds} seeds from {config.seed} on go beyond the largest one, 2**63 - 1"
            )
        self.config = config
        self.seeds = tuple(range(config.seed, config.seed + seeds))
        self.folder = Path(folder) if folder is not None else new_run_path(config, ending=f"-{seeds}seeds")
        self._jobs, self._extend = jobs, extend
        self._options: dict[str, Any] = {"env": env, "network": network}

    def run(self, *, console: bool = True) -> Summary:
        """Run what is missing and return the summary, which is also in ``summary.json`` and ``report.html``."""
        left = self._claim_folder()
        with SignalGuard() as guard:
            if self._jobs > 1:
                self._train_apart(left, guard, console)
            else:
                self._train_here(left, guard, console)
        summary = self.summarise()
        add_report(self.folder)
        return summary

    def jobs(self) -> list[Job]:
        """Claim the folder and return what has to be run for it, a job for each seed; its number is the key."""
        return self._jobs_of(self._claim_folder())

    def _claim_folder(self) -> _Plan:
        try:
            return self._claimed()
        except OSError as error:
            raise ConfigError(f"{self.folder}: cannot hold an experiment: {error.strerror}") from None

    def _claimed(self) -> _Plan:
        """Return the seeds to run; refuse what others left here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / "checkpoints").exists():
            raise ConfigError(f"{self.folder}: holds a single run; choose another folder for several seeds")
        if self._extend and self.config.schedule_timesteps is None:
            self._keep_schedules()
        begun = {seed: self._overrides(self.path(seed), seed) for seed in self.seeds}
        if self._overrides(self.folder, self.config.seed) != []:
            write_whole(self.folder / "config.yaml", dump_yaml(self.config))
        return {seed: how for seed, how in begun.items() if how is None or not self._finished(seed)}

    def _keep_schedules(self) -> None:
        """Give all seeds the schedules of what was begun here with another budget."""
        for path in (self.folder, *map(self.path, self.seeds)):
            held = _held(path)
            if held is not None:
                if held.schedule_length != self.config.schedule_length:
                    update = {"schedule_timesteps": held.schedule_length}
                    self.config = self.config.model_copy(update=update)
                return

    def _overrides(self, path: Path, seed: int) -> list[str] | None:
        """Return what the config in that folder lacks, None without one; refuse one of another experiment."""
        held = _held(path)
        if held is None:
            return None
        total = self.config.total_timesteps
        wanted = self.config.model_copy(update={"seed": seed})
        there = held.model_copy(update={"total_timesteps": total}) if self._extend else held
        changed = changed_keys(_plain(there, held.schedule_length), _plain(wanted, wanted.schedule_length))
        if changed:
            begun = path != self.folder or any(path.glob("seed-*"))
            way = "" if begun else "delete its config.yaml, with which no seed was begun, or "
            raise ConfigError(
                f"{path}: is of another experiment: {changed[0]} differs; {way}choose another folder with --run-dir"
            )
        made = [parse_step_name(path.name) or (0, 0) for path in list_checkpoints(path / "checkpoints")]
        # Environments that come in a batch may overshoot the budget by less than one step of all of them.
        if made and made[0][0] >= total + self.config.env.num_envs:
            raise ConfigError(f"{path}: is beyond total_timesteps={total} already; choose another folder")
        # Given anew, the same budget would carry on a seed that a threshold has stopped.
        return [] if held.total_timesteps == total else [f"total_timesteps={total}"]

    def _train_here(self, left: _Plan, guard: SignalGuard, console: bool) -> None:
        for seed, overrides in left.items():
            path, options = self.path(seed), {**self._options, "console": console}
            try:
                if overrides is None:
                    registry.train(self.config.model_copy(update={"seed": seed}), run_dir=path, **options)
                else:
                    registry.resume(path, overrides=overrides, trust=True, **options)
            except Interrupted as error:
                raise self._interrupted(error.exit_code - 128) from None
            self._tell(seed, console)
            if guard.received is not None:  # it came between two seeds
                raise self._interrupted(guard.received)

    def _train_apart(self, left: _Plan, guard: SignalGuard, console: bool) -> None:
        paths = {f"{self.config.algo} on {self.config.env.id}": [self.path(seed) for seed in self.seeds]}
        steps = dict.fromkeys(paths, self.config.total_timesteps)
        with SuiteProgress(paths, steps, len(self.seeds) - len(left), console) as progress:
            failures = run_jobs(
                self._jobs_of(left), self._jobs, guard, on_done=progress.done, on_tick=progress.tick
            )
        if guard.received is not None:
            raise self._interrupted(guard.received)
        if failures:
            raise failures[min(failures)]

    def _jobs_of(self, left: _Plan) -> list[Job]:
        return [Job(seed, f"seed {seed}", (*self._words(seed, how), "--quiet")) for seed, how in left.items()]

    def _words(self, seed: int, overrides: list[str] | None) -> list[str]:
        path, config = str(self.path(seed)), str(self.folder / "config.yaml")
        begin = ["train", "--config", config, "--run-dir", path, "--seed", str(seed)]
        # Its config was compared with the one that was given here, whose names are its user's.
        return begin if overrides is None else ["resume", path, "--trust", *overrides]

    def _interrupted(self, number: int) -> Interrupted:
        again = f"running the same command again with --run-dir {quoted_path(self.folder)} completes it"
        return Interrupted(f"{signal.Signals(number).name}: stopped; {again}", number)

    def _tell(self, seed: int, console: bool) -> None:
        if console:
            notice(f"seed {seed}: {self._score(seed):.2f}")

    def summarise(self) -> Summary:
        """Return the summary of seeds that are all finished, and write it to ``summary.json``."""
        scores = tuple(self._score(seed) for seed in self.seeds)
        summary = Summary(self.folder, self.seeds, scores, iqm(scores), seeds_interval(scores))
        logs = [self.path(seed) / "metrics.jsonl" for seed in self.seeds]
        title = f"{registry.get(self.config.algo).title} on {self.config.env.id}, {len(self.seeds)} seeds"
        try:
            plot_seeds(logs, self.folder / "curve.png", title, steps=steps_of(self.config.env))
        except (RLTrainingError, OSError) as error:  # a damaged log costs the picture, not the scores
            notice(f"warning: no curve.png: {error}")
        plain = {
            "algo": self.config.algo,
            "env": self.config.env.id,
            "total_timesteps": self.config.total_timesteps,
            "episodes": self.config.evaluation.final_episodes,
            "scores": {str(seed): score for seed, score in zip(self.seeds, scores, strict=True)},
            "iqm": summary.iqm,
            "interval": summary.interval,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S"),
        }
        write_whole(self.folder / "summary.json", json.dumps(plain, indent=2) + "\n")
        return summary

    def path(self, seed: int) -> Path:
        """Return the run folder of a seed."""
        return self.folder / f"seed-{seed}"

    def result(self, seed: int) -> RunResult | None:
        """Return what a seed came to, none if it is not finished; what is damaged has to be made again."""
        try:
            found = read_result(self.path(seed))
        except ConfigError:
            return None
        if found is None or found.mean is None:
            return None
        return found if found.stopped or found.steps >= self.config.total_timesteps else None

    def _finished(self, seed: int) -> bool:
        return self.result(seed) is not None

    def _score(self, seed: int) -> float:
        result = self.result(seed)
        assert result is not None
        assert result.mean is not None
        return result.mean


def _held(path: Path) -> ExperimentConfig[Any] | None:
    """Return the config in a folder, none if there is none."""
    if not (path / "config.yaml").exists():
        return None
    try:
        return load_config(path / "config.yaml")
    except ConfigError as error:
        raise ConfigError(f"{path}: its config.yaml: {error}") from None


def _plain(config: ExperimentConfig[Any], schedules: int) -> dict[str, Any]:
    """Return a config as it is compared, with schedules of that length."""
    return {**config.model_dump(mode="json"), "schedule_timesteps": schedules}

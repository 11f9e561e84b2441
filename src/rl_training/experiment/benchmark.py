"""A suite of experiments, run over all cores, with results for machines and a card for people."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError, RunLockedError
from rl_training.experiment.card import card
from rl_training.experiment.machine import cores, machine_facts
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.processes import Job, JobFailed, run_jobs
from rl_training.experiment.progress import SuiteProgress
from rl_training.experiment.report.page import REPORT, add_report
from rl_training.experiment.results import MAX_RESULT_BYTES
from rl_training.experiment.suite_results import BenchmarkResult, EntryResult
from rl_training.experiment.suites import Entry, Suite
from rl_training.plain_files import open_own, read_plain, reason
from rl_training.runtime.folder import write_whole
from rl_training.runtime.session import Interrupted
from rl_training.runtime.signals import SignalGuard
from rl_training.statistics import iqm, seeds_interval

RESULTS, CARD = "results.json", "card.md"
_FACTS = "facts.json"


class Benchmark:
    """Runs all seeds of all entries, ``at_once`` of them at a time, each in a process of its own.

    What is finished in the folder is not run again and what was cut short goes on, so that the same call
    completes a suite that was stopped. Results of another machine or of other versions are not mixed in.
    """

    def __init__(self, suite: Suite, *, folder: str | Path | None = None, at_once: int | None = None) -> None:
        self.suite = suite
        self.folder = Path(folder if folder is not None else Path("runs") / "benchmark" / suite.name)
        widest = max(entry.experiment.threads for entry in suite.entries)
        self.at_once = at_once if at_once is not None else max(1, cores() // widest)
        self._managers = {
            entry.name: ExperimentManager(
                entry.experiment, seeds=entry.plan.seeds, folder=self.folder / entry.folder, extend=False
            )
            for entry in suite.entries
        }

    def run(self, *, console: bool = True) -> BenchmarkResult:
        """Run what is missing; the result is also in ``results.json``, ``card.md`` and ``report.html``."""
        facts = self._claim_folder()
        with SignalGuard() as guard, _locked(self.folder):
            return self._run(facts, guard, console)

    def _run(self, facts: dict[str, Any], guard: SignalGuard, console: bool) -> BenchmarkResult:
        jobs = [job for entry in self.suite.entries for job in self._jobs(entry)]
        before = self._before() if not jobs else {}
        if jobs:
            for name in (RESULTS, CARD, REPORT):  # they are not of what is there from now on
                (self.folder / name).unlink(missing_ok=True)
        steps = {entry.name: entry.experiment.total_timesteps for entry in self.suite.entries}
        paths = {name: [m.path(seed) for seed in m.seeds] for name, m in self._managers.items()}
        there = sum(map(len, paths.values())) - len(jobs)
        with SuiteProgress(paths, steps, there, console) as progress:
            failures = run_jobs(
                jobs,
                self.at_once,
                guard,
                on_done=progress.done,
                on_failed=progress.failed,
                on_tick=progress.tick,
                keep_going=True,
            )
        if guard.received is not None:
            name = signal.Signals(guard.received).name
            raise Interrupted(f"{name}: stopped; the same command completes it", guard.received)
        if {"suite": self.suite.name, **machine_facts()} != facts:
            raise ConfigError(
                f"{self.folder}: the package was changed while this ran, so its runs may be of different versions; "
                "choose another folder with --run-dir"
            )
        result = self._gather(facts, failures, before)
        write_whole(self.folder / RESULTS, json.dumps(result.plain(), indent=2) + "\n")
        write_whole(self.folder / CARD, card(result))
        add_report(self.folder)
        return result

    def _before(self) -> dict[str, Any]:
        """Return what the results that are there already say; they stay true if nothing is run."""
        try:
            held = json.loads(read_plain(self.folder / RESULTS, MAX_RESULT_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return held if isinstance(held, dict) else {}

    def _claim_folder(self) -> dict[str, Any]:
        """Return what the machine is; refuse a folder of something else, or one that was begun elsewhere."""
        facts, path = {"suite": self.suite.name, **machine_facts()}, self.folder / _FACTS
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = json.loads(read_plain(path, MAX_RESULT_BYTES)) if os.path.lexists(path) else None
        except (OSError, ValueError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else "its facts.json is damaged"
            raise ConfigError(f"{self.folder}: cannot hold a benchmark: {reason}") from None
        if held is None:
            if (self.folder / "config.yaml").exists() or (self.folder / "checkpoints").exists():
                raise ConfigError(f"{self.folder}: holds something else; choose another folder")
            write_whole(path, json.dumps(facts, indent=2) + "\n")
        elif held != facts:
            known = held if isinstance(held, dict) else {}
            changed = next(name for name in {**facts, **known} if known.get(name) != facts.get(name))
            raise ConfigError(
                f"{self.folder}: was begun where {changed} was {known.get(changed)!r}, "
                f"here it is {facts.get(changed)!r}; choose another folder with --run-dir"
            )
        return facts

    def _jobs(self, entry: Entry) -> list[Job]:
        return [
            Job((entry.name, job.key), f"{entry.name}, {job.title}", job.words)
            for job in self._managers[entry.name].jobs()
        ]

    def _gather(
        self, facts: dict[str, Any], failures: dict[Any, JobFailed], before: dict[str, Any]
    ) -> BenchmarkResult:
        entries = tuple(
            _result(
                entry,
                self._managers[entry.name],
                tuple(str(error) for (name, _), error in sorted(failures.items()) if name == entry.name),
            )
            for entry in self.suite.entries
        )
        suite = self.suite
        stamp, at_once = before.get("finished"), before.get("at_once")
        if not (isinstance(stamp, str) and isinstance(at_once, int)):
            stamp, at_once = time.strftime("%Y-%m-%dT%H:%M:%S"), self.at_once
        return BenchmarkResult(
            suite.name, suite.source, suite.summary, self.folder, stamp, at_once, facts, entries
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder against another benchmark; the system frees it however this process ends."""
    try:
        lock = open_own(folder / "benchmark.lock", os.O_RDWR)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder}: benchmark.lock: {reason(error)}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunLockedError(f"{folder}: another benchmark is running there") from None
        yield
    finally:
        os.close(lock)


def _result(entry: Entry, manager: ExperimentManager, errors: tuple[str, ...]) -> EntryResult:
    plan, experiment = entry.plan, entry.experiment
    found = {seed: result for seed in manager.seeds if (result := manager.result(seed)) is not None}
    results = list(found.values())
    scores = tuple(result.mean for result in results if result.mean is not None)
    if not errors:
        manager.summarise()
    return EntryResult(
        name=entry.name,
        config=plan.config,
        digest=entry.digest,
        overrides=dict(plan.overrides),
        algo=experiment.algo,
        env=experiment.env.id,
        total_timesteps=experiment.total_timesteps,
        episodes=experiment.evaluation.final_episodes,
        seeds=manager.seeds,
        bar=plan.bar,
        below=plan.below,
        score_is=plan.score,
        finished_seeds=tuple(found),
        scores=scores,
        seconds=tuple(result.seconds for result in results),
        errors=errors,
        iqm=iqm(scores) if scores else None,
        interval=seeds_interval(scores),
        score=entry.score(scores) if scores else None,
        below_score=entry.below_score(scores) if scores else None,
    )

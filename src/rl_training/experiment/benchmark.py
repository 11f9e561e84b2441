"""A suite of experiments, run over all cores, with results for machines and a card for people."""

from __future__ import annotations

import json
import os
import platform
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError
from rl_training.experiment.manager import ExperimentManager, Summary
from rl_training.experiment.processes import Job, JobFailed, run_jobs
from rl_training.experiment.progress import SuiteProgress
from rl_training.experiment.suites import Entry, Suite
from rl_training.runtime.folder import environment_facts, write_whole
from rl_training.runtime.session import Interrupted
from rl_training.runtime.signals import SignalGuard

RESULTS, CARD = "results.json", "card.md"
_FACTS = "facts.json"


@dataclass(frozen=True)
class EntryResult:
    """What one entry came to; ``error`` instead of scores if a seed could not be run."""

    name: str
    config: str
    digest: str
    overrides: dict[str, Any]
    algo: str
    env: str
    total_timesteps: int
    episodes: int
    seeds: tuple[int, ...]
    bar: float | None
    score_is: str
    scores: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    iqm: float | None = None
    interval: tuple[float, float] | None = None
    score: float | None = None
    error: str | None = None

    @property
    def reached(self) -> bool:
        """Whether it ran, and came to its bar if it has one."""
        return self.score is not None and (self.bar is None or self.score >= self.bar)

    @property
    def line(self) -> str:
        """What came out, in one line."""
        if self.error is not None or self.iqm is None or self.interval is None:
            return f"not run: {self.error}"
        low, high = self.interval
        value = f"IQM {self.iqm:.2f}, 95 % interval {low:.2f} to {high:.2f}, {len(self.scores)} seeds"
        if self.bar is None:
            return value
        held = "" if self.score_is == "iqm" else f" by the worst seed, {self.score:.2f}"
        return f"{value}: bar {self.bar:g} {'reached' if self.reached else 'MISSED'}{held}"


@dataclass(frozen=True)
class BenchmarkResult:
    """What a suite came to, where, and with what."""

    suite: str
    source: str
    summary: str
    folder: Path
    finished: str
    at_once: int
    facts: dict[str, Any]
    entries: tuple[EntryResult, ...]

    @property
    def reached(self) -> bool:
        """Whether every entry ran and every bar was met."""
        return all(entry.reached for entry in self.entries)


class Benchmark:
    """Runs all seeds of all entries, ``at_once`` of them at a time, each in a process of its own.

    What is finished in the folder is not run again and what was cut short goes on, so that the same call
    completes a suite that was stopped. Results of another machine or of other versions are not mixed in.
    """

    def __init__(self, suite: Suite, *, folder: str | Path | None = None, at_once: int | None = None) -> None:
        self.suite = suite
        self.folder = Path(folder if folder is not None else Path("runs") / "benchmark" / suite.name)
        widest = max(entry.experiment.threads for entry in suite.entries)
        self.at_once = at_once if at_once is not None else max(1, _cores() // widest)
        self._managers = {
            entry.name: ExperimentManager(
                entry.experiment, seeds=entry.plan.seeds, folder=self.folder / entry.folder
            )
            for entry in suite.entries
        }

    def run(self, *, console: bool = True) -> BenchmarkResult:
        """Run what is missing; the result is also in ``results.json`` and, as a page, in ``card.md``."""
        facts = self._claim_folder()
        jobs = [job for entry in self.suite.entries for job in self._jobs(entry)]
        total = {name: len(manager.seeds) for name, manager in self._managers.items()}
        steps = {entry.name: entry.experiment.total_timesteps for entry in self.suite.entries}
        paths = {name: [m.path(seed) for seed in m.seeds] for name, m in self._managers.items()}
        with (
            SignalGuard() as guard,
            SuiteProgress(paths, steps, sum(total.values()) - len(jobs), console) as progress,
        ):
            failures = run_jobs(
                jobs, self.at_once, guard, on_done=progress.done, on_tick=progress.tick, keep_going=True
            )
            if guard.received is not None:
                name = signal.Signals(guard.received).name
                raise Interrupted(f"{name}: stopped; the same command completes it", guard.received)
        result = self._gather(facts, failures)
        write_whole(self.folder / RESULTS, json.dumps(_plain(result), indent=2) + "\n")
        write_whole(self.folder / CARD, card(result))
        return result

    def _claim_folder(self) -> dict[str, Any]:
        """Return what the machine is; refuse a folder that was begun on another."""
        facts, path = machine_facts(), self.folder / _FACTS
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "its facts.json is damaged"
            raise ConfigError(f"{self.folder}: cannot hold a benchmark: {reason}") from None
        if held is None:
            write_whole(path, json.dumps(facts, indent=2) + "\n")
        elif held != facts:
            names = [name for name in facts if not isinstance(held, dict) or held.get(name) != facts[name]]
            changed = names[0] if names else "something"
            raise ConfigError(
                f"{self.folder}: was begun where {changed} was another; choose another folder with --run-dir"
            )
        return facts

    def _jobs(self, entry: Entry) -> list[Job]:
        return [
            Job((entry.name, job.key), f"{entry.name}, {job.title}", job.words)
            for job in self._managers[entry.name].jobs()
        ]

    def _gather(self, facts: dict[str, Any], failures: dict[Any, JobFailed]) -> BenchmarkResult:
        entries = []
        for entry in self.suite.entries:
            errors = [str(error) for (name, _), error in failures.items() if name == entry.name]
            manager = self._managers[entry.name]
            entries.append(_result(entry, manager, errors[0] if errors else None))
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
        suite = self.suite
        return BenchmarkResult(
            suite.name,
            suite.source,
            suite.summary,
            self.folder,
            stamp,
            self.at_once,
            facts,
            tuple(entries),
        )


def machine_facts() -> dict[str, Any]:
    """Return versions, processor, cores and memory."""
    facts = environment_facts(0, "")
    plain = {name: fact for name, fact in facts.items() if name not in ("threads", "device")}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {**plain, "system": platform.system(), "cores": _cores(), "memory_gib": round(memory)}


def card(result: BenchmarkResult) -> str:
    """Return the results as a Markdown page."""
    facts = result.facts
    versions = ", ".join(f"{name} {facts[name]}" for name in ("python", "torch", "numpy", "gymnasium"))
    lines = [
        f"# Benchmark `{result.suite}`",
        "",
        result.summary,
        "",
        f"rl_training {facts['rl_training']}, {versions}; {facts['cpu']}, {facts['cores']} cores, "
        f"{facts['memory_gib']} GiB; {result.at_once} runs at a time. Finished {result.finished}.",
        "",
        "Score of a seed: mean return of the final policy, greedy, over the episodes named. Interval: 95 %,",
        "bootstrap over seeds. Seconds: median of a run, from its first step, others beside it.",
        "",
        "| run | steps | episodes | scores by seed | IQM | interval | bar | | seconds | config |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_row(entry) for entry in result.entries),
        "",
    ]
    for entry in result.entries:
        if entry.error is None:
            lines += [f"![{entry.name}]({entry.name.replace('/', '-')}/curve.png)", ""]
    lines += [f"Repeat: `rl-training benchmark {result.source}`", ""]
    return "\n".join(lines)


def _row(entry: EntryResult) -> str:
    left = f"| `{entry.name}` | {entry.total_timesteps:,} | {entry.episodes} |"
    bar = "none" if entry.bar is None else f"{entry.bar:g}" + (", worst seed" * (entry.score_is == "worst"))
    if entry.error is not None or entry.interval is None:
        return f"{left} not run: {entry.error} | | | {bar} | **missed** | | `{entry.digest}` |"
    scores = ", ".join(f"{score:.1f}" for score in entry.scores)
    low, high = entry.interval
    verdict = "" if entry.bar is None else "reached" if entry.reached else "**missed**"
    seconds = sorted(entry.seconds)[len(entry.seconds) // 2]
    return (
        f"{left} {scores} | {entry.iqm:.1f} | {low:.1f} to {high:.1f} | {bar} | {verdict} "
        f"| {seconds:.0f} | `{entry.digest}` |"
    )


def _result(entry: Entry, manager: ExperimentManager, error: str | None) -> EntryResult:
    plan, experiment = entry.plan, entry.experiment
    given: dict[str, Any] = {
        "name": entry.name,
        "config": plan.config,
        "digest": entry.digest,
        "overrides": dict(plan.overrides),
        "algo": experiment.algo,
        "env": experiment.env.id,
        "total_timesteps": experiment.total_timesteps,
        "episodes": experiment.evaluation.final_episodes,
        "seeds": manager.seeds,
        "bar": plan.bar,
        "score_is": plan.score,
    }
    if error is not None:
        return EntryResult(**given, error=error)
    summary: Summary = manager.summarise()
    seconds = tuple(float((manager.result(seed) or {})["seconds"]) for seed in manager.seeds)
    return EntryResult(
        **given,
        scores=summary.scores,
        seconds=seconds,
        iqm=summary.iqm,
        interval=summary.interval,
        score=entry.score(summary.scores),
    )


def _plain(result: BenchmarkResult) -> dict[str, Any]:
    plain = asdict(result)
    plain["folder"] = str(result.folder)
    for entry, held in zip(plain["entries"], result.entries, strict=True):
        entry["reached"] = held.reached
    return {**plain, "reached": result.reached}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

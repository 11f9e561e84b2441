"""A suite of experiments, run over all cores, with results for machines and a card for people."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError, RunLockedError
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.processes import Job, JobFailed, run_jobs
from rl_training.experiment.progress import SuiteProgress
from rl_training.experiment.suites import Entry, Suite
from rl_training.runtime.folder import environment_facts, write_whole
from rl_training.runtime.session import Interrupted
from rl_training.runtime.signals import SignalGuard
from rl_training.statistics import interval_text, iqm, seeds_interval

RESULTS, CARD = "results.json", "card.md"
_FACTS = "facts.json"
_ENVIRONMENT_PACKAGES = (
    "ale-py",
    "box2d",
    "dm-control",
    "dm_control",
    "mujoco",
    "pillow",
    "pygame",
    "pygame-ce",
)


@dataclass(frozen=True)
class EntryResult:
    """What one entry came to: the scores of its finished seeds, and why others failed."""

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
    below: float | None
    score_is: str
    finished_seeds: tuple[int, ...]
    """Those that ``scores`` and ``seconds`` are of, in this order."""
    scores: tuple[float, ...]
    seconds: tuple[float, ...]
    errors: tuple[str, ...]
    iqm: float | None = None
    interval: tuple[float, float] | None = None
    score: float | None = None
    """What is held against ``bar``; ``below_score`` against ``below``."""
    below_score: float | None = None

    @property
    def reached(self) -> bool:
        """Whether every seed ran, and the score is what it should be."""
        if self.score is None or self.below_score is None or self.errors:
            return False
        return (self.bar is None or self.score >= self.bar) and (
            self.below is None or self.below_score < self.below
        )

    @property
    def aim(self) -> str:
        """What the score should be, in words."""
        parts = [f"{self.bar:g}" if self.bar is not None else ""]
        parts.append(f"below {self.below:g}" if self.below is not None else "")
        said = ", ".join(part for part in parts if part)
        return said + (", worst seed" if said and self.score_is == "worst" else "")

    @property
    def verdict(self) -> str:
        """What became of it, in a word."""
        if self.errors:
            return "FAILED"
        if self.bar is None and self.below is not None:
            return "held" if self.reached else "EXCEEDED"
        return ("reached" if self.reached else "MISSED") if self.aim else ""

    @property
    def line(self) -> str:
        """What came out, in one line."""
        parts = []
        if self.iqm is not None:
            parts.append(f"IQM {self.iqm:.2f}, {interval_text(self.scores)}")
        if self.aim:
            parts.append(f"bar {self.aim} {self.verdict}")
        if self.errors:
            parts.append(f"{len(self.errors)} of {len(self.seeds)} seeds failed: {self.errors[0]}")
        return "; ".join(parts)


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
                entry.experiment, seeds=entry.plan.seeds, folder=self.folder / entry.folder, extend=False
            )
            for entry in suite.entries
        }

    def run(self, *, console: bool = True) -> BenchmarkResult:
        """Run what is missing; the result is also in ``results.json`` and, as a page, in ``card.md``."""
        facts = self._claim_folder()
        with SignalGuard() as guard, _locked(self.folder):
            return self._run(facts, guard, console)

    def _run(self, facts: dict[str, Any], guard: SignalGuard, console: bool) -> BenchmarkResult:
        jobs = [job for entry in self.suite.entries for job in self._jobs(entry)]
        before = self._before() if not jobs else {}
        if jobs:
            for name in (RESULTS, CARD):  # they are not of what is there from now on
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
                f"{self.folder}: the package was changed while this ran, so that its runs may be of different code; "
                "choose another folder with --run-dir"
            )
        result = self._gather(facts, failures, before)
        write_whole(self.folder / RESULTS, json.dumps(_plain(result), indent=2) + "\n")
        write_whole(self.folder / CARD, card(result))
        return result

    def _before(self) -> dict[str, Any]:
        """Return what the results that are there already say; they stay true if nothing is run."""
        try:
            held = json.loads((self.folder / RESULTS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return held if isinstance(held, dict) else {}

    def _claim_folder(self) -> dict[str, Any]:
        """Return what the machine is; refuse a folder of something else, or one that was begun elsewhere."""
        facts, path = {"suite": self.suite.name, **machine_facts()}, self.folder / _FACTS
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except (OSError, ValueError) as error:
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
    lock = os.open(folder / "benchmark.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunLockedError(f"{folder}: another benchmark is running there") from None
        yield
    finally:
        os.close(lock)


def machine_facts() -> dict[str, Any]:
    """Return versions, a hash of this package's own files, processor, cores and memory."""
    facts = environment_facts(0, "")
    plain = {name: fact for name, fact in facts.items() if name not in ("threads", "device")}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    own = {"source": source_digest(), "system": platform.system(), "cores": _cores()}
    return {**plain, **_environment_packages(), **own, "memory_gib": round(memory)}


def _environment_packages() -> dict[str, str]:
    """Return the versions of what packaged environments are made of, as far as it is installed."""
    return {
        found.name.lower(): found.version
        for found in distributions()
        if found.name and found.name.lower() in _ENVIRONMENT_PACKAGES
    }


def source_digest(root: Path = Path(__file__).parent.parent) -> str:
    """Return twelve characters that stand for the code in a folder, by default this package's own."""
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".c", ".h")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def card(result: BenchmarkResult) -> str:
    """Return the results as a Markdown page."""
    facts = result.facts
    versions = ", ".join(f"{name} {facts[name]}" for name in ("python", "torch", "numpy", "gymnasium"))
    lines = [
        f"# Benchmark `{result.suite}`",
        "",
        result.summary,
        "",
        f"rl_training {facts['rl_training']} (source {facts['source']}), {versions}; {facts['cpu']}, "
        f"{facts['cores']} cores, {facts['memory_gib']} GiB; runs at a time, in the last call: {result.at_once}. "
        f"Finished {result.finished}.",
        "",
        "Score of a seed: mean return of the final policy, greedy, over the episodes named. Interval: 95 %,",
        "bootstrap over seeds, from five on. Seconds: median of a run, from its first step, others beside it.",
        "",
        "| run | steps | episodes | scores by seed | IQM | interval | bar | | seconds | config |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_row(entry) for entry in result.entries),
        "",
        *(_what(entry) for entry in result.entries),
        "",
    ]
    for entry in result.entries:
        if entry.scores and not entry.errors:
            lines += [f"![{entry.name}]({entry.name.replace('/', '-')}/curve.png)", ""]
    lines += [f"Repeat: `rl-training benchmark {result.source}`", ""]
    return "\n".join(lines)


def _what(entry: EntryResult) -> str:
    changed = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in entry.overrides.items())
    own = f", with {changed}" if changed else ""
    return f"- `{entry.name}`: `{entry.algo}` on `{entry.env}`, config `{entry.config}`{own}"


def _row(entry: EntryResult) -> str:
    left = f"| `{entry.name}` | {entry.total_timesteps:,} | {entry.episodes} |"
    scores = ", ".join(f"{score:.1f}" for score in entry.scores)
    if entry.errors:
        scores = "; ".join(
            [*([scores] if scores else []), *(error.replace("|", "/") for error in entry.errors)]
        )
    mean = "" if entry.iqm is None else f"{entry.iqm:.1f}"
    interval = "" if entry.interval is None else "{:.1f} to {:.1f}".format(*entry.interval)
    verdict = entry.verdict if entry.verdict in ("", "reached", "held") else f"**{entry.verdict.lower()}**"
    seconds = f"{statistics.median(entry.seconds):.0f}" if entry.seconds else ""
    return (
        f"{left} {scores} | {mean} | {interval} | {entry.aim or 'none'} | {verdict} "
        f"| {seconds} | `{entry.digest}` |"
    )


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


def _plain(result: BenchmarkResult) -> dict[str, Any]:
    plain = asdict(result)
    plain["folder"] = str(result.folder)
    for entry, held in zip(plain["entries"], result.entries, strict=True):
        entry["reached"] = held.reached
    return {**plain, "reached": result.reached}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""Runs that are watched: what state they are in, how far they are, and their metrics as these are logged."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from rl_training.errors import ConfigError
from rl_training.experiment.report.folders import MAX_RUNS, list_runs
from rl_training.experiment.report.log import Log
from rl_training.experiment.report.runs import Run, open_run
from rl_training.experiment.report.scale import duration
from rl_training.plain_files import open_plain

_AT_ONCE = 2**20
"""Bytes of a log that are read in one turn."""
_LONG = 32 * 2**20
"""A log beyond that is looked into at some places first, and read in full afterwards."""
_QUIET = 120.0
"""Seconds without a new row after which that is mentioned."""
_RECENT = 20
_LOOK = 5.0
"""Seconds between two searches for new runs."""


@dataclass
class Watched:
    """A run that is watched. ``turn`` looks for what is new."""

    number: int
    run: Run
    running: bool = False
    version: int = 0
    """Rises with every change."""
    _full: Log = field(init=False)
    _seen: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        self._full = self.run.log

    def turn(self) -> bool:
        """Take up what is new; return whether there is more to read."""
        before = (self.running, self.run.log.rows, self.run.log.step, self.run.log.sampled)
        self.running = is_held(self.run.path / "run.lock")
        stamps = tuple(_stamp(self.run.path / n) for n in ("config.yaml", "metadata.json", "result.json"))
        if stamps != self._seen:
            self._seen = stamps
            self.run.describe()
            self.version += 1
        more = self._read()
        if before != (self.running, self.run.log.rows, self.run.log.step, self.run.log.sampled):
            self.version += 1
        return more

    def _read(self) -> bool:
        full = self._full
        try:
            if not full.rows and not self.run.log.sampled and os.stat(full.path).st_size > _LONG:
                self.run.log = Log(full.path)
                self.run.log.sample()
            done = full.update(_AT_ONCE)
        except (OSError, ValueError):  # not there yet, or no file that anybody should read
            return False
        if done:
            self.run.log = full
        return not done

    @property
    def reading(self) -> float | None:
        """The share that was read of a log of which only some places are shown so far."""
        return self._full.progress if self.run.log.sampled else None

    @property
    def share(self) -> float | None:
        """How much of the budget is used up."""
        return min(1.0, self.run.step / self.run.total) if self.run.total else None

    @property
    def rate(self) -> float | None:
        """Steps per second of late."""
        steps, seconds = self.run.log.series("time/time_elapsed")
        if steps.size < 2:
            return self.run.speed
        past = max(0, steps.size - 1 - _RECENT)
        spent = float(seconds[-1] - seconds[past])
        return float(steps[-1] - steps[past]) / spent if spent > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds until a running run will have used up its budget."""
        rate, total = self.rate, self.run.total
        if not self.running or not rate or total is None:
            return None
        since = max(0.0, time.time() - self.run.log.changed) if self.run.log.changed else 0.0
        return max(0.0, (total - self.run.step) / rate - since)

    @property
    def state(self) -> tuple[str, str]:
        """What the run is doing, in words, and whether that is ``good``, ``warn`` or nothing special."""
        log, run = self.run.log, self.run
        if self.running:
            quiet = time.time() - log.changed if log.changed else 0.0
            return (
                ("running", "good") if quiet < _QUIET else (f"running, no news for {duration(quiet)}", "warn")
            )
        if run.outcome is not None:
            why = run.stop_reason
            return (f"finished early: {why}" if why else "finished", "")
        return ("stopped before its end", "warn") if log.rows else ("nothing logged yet", "")


class Watcher:
    """All runs at a path: one of them, or those in a folder, also such as begin later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[Path, Watched] = {}
        self._looked = 0.0
        for run in list_runs(path):
            self._add(run)

    @property
    def several(self) -> bool:
        """Whether the path is that of a folder of runs."""
        return self.path not in self.runs

    @property
    def version(self) -> int:
        """A number that rises with every change."""
        return len(self.runs) + sum(run.version for run in self.runs.values())

    def turn(self) -> bool:
        """Look for what is new everywhere; return whether there is more to read."""
        if self.several and time.monotonic() - self._looked > _LOOK:
            self._look()
        turns = [run.turn() for run in self.runs.values()]
        return any(turns)

    def find(self, number: int) -> Watched | None:
        """Return a run by its number."""
        return next((run for run in self.runs.values() if run.number == number), None)

    def name(self, watched: Watched) -> str:
        """Return what a run is called here."""
        return str(watched.run.path.relative_to(self.path)) if self.several else self.path.resolve().name

    def _look(self) -> None:
        self._looked = time.monotonic()
        try:
            found = list_runs(self.path)
        except ConfigError:  # gone, or too many by now: those that are known stay
            return
        for path in found[: MAX_RUNS - len(self.runs)]:
            self._add(path)

    def _add(self, path: Path) -> None:
        if path not in self.runs:
            self.runs[path] = Watched(len(self.runs), open_run(path))


def is_held(lock: Path) -> bool:
    """Say whether a process holds a run's lock; the look takes microseconds, which who wants the lock waits for."""
    try:
        with open_plain(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    except (OSError, ValueError):
        return False


def _stamp(path: Path) -> object:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)

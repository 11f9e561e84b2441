"""One run as a page shows it: its files, each read with suspicion; what is damaged is told and left out."""

from __future__ import annotations

import itertools
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.algorithms.catalogue import experiment
from rl_training.config import ExperimentConfig
from rl_training.config.loading import MAX_CONFIG_BYTES, read_mapping
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment.report.log import LARGEST, Log
from rl_training.experiment.results import MAX_RESULT_BYTES, RunResult, read_result
from rl_training.plain_files import open_plain, read_plain, reason
from rl_training.runtime.curves import EVAL_MEAN, TRAIN_RETURN, Series
from rl_training.runtime.timing import ACCOUNTS

_MOST_FILES = 2_000
_LONGEST = 300


@dataclass
class Run:
    """What lies in the folder of a run."""

    path: Path
    log: Log
    config: ExperimentConfig[Any] | None = None
    raw: dict[str, Any] = field(default_factory=dict)
    """The config as it was written, be it valid or not."""
    facts: dict[str, str] = field(default_factory=dict)
    """Versions and machine."""
    title: str = ""
    """The algorithm, as it is written for people."""
    outcome: RunResult | None = None
    held: dict[str, Any] = field(default_factory=dict)
    """The content of ``result.json``."""
    problems: list[str] = field(default_factory=list)

    @property
    def algo(self) -> str:
        """The name of the algorithm, empty if nothing says it."""
        return _text(self.raw.get("algo") or self.held.get("algo"))

    @property
    def env(self) -> str:
        """The id of the environment, empty if nothing says it."""
        section = self.raw.get("env")
        written = section.get("id") if isinstance(section, Mapping) else section
        return _text(written or self.held.get("env"))

    @property
    def seed(self) -> int | None:
        """The seed, none if nothing says it."""
        found = self.raw.get("seed", self.held.get("seed"))
        return found if type(found) is int and 0 <= found < 2**63 else None

    @property
    def stop_reason(self) -> str:
        """What ended the run before its budget was used up, empty if nothing did."""
        return _text(self.held.get("stop_reason"))

    @property
    def total(self) -> int | None:
        """The budget of steps."""
        found = self.raw.get("total_timesteps")
        return int(found) if isinstance(found, int | float) and 0 < found < 2**53 else None

    @property
    def step(self) -> int:
        """The newest step that is known."""
        done = self.outcome.steps if self.outcome is not None else 0
        return max(self.log.step, done)

    @property
    def evaluation(self) -> Series:
        """The mean return of evaluations."""
        return self.log.series(EVAL_MEAN)

    @property
    def training(self) -> Series:
        """The mean return of training episodes."""
        return self.log.series(TRAIN_RETURN)

    @property
    def has_data(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.log.rows) or self.outcome is not None

    @property
    def time_split(self) -> dict[str, float]:
        """Seconds by account, empty if the run is not finished."""
        found = self.held.get("time_split")
        split = {name: number(found.get(name)) for name in ACCOUNTS} if isinstance(found, Mapping) else {}
        return {name: seconds for name, seconds in split.items() if seconds is not None and seconds >= 0}

    @property
    def speed(self) -> float | None:
        """Environment steps per second, with everything around them."""
        if self.outcome is not None and self.outcome.seconds > 0:
            return self.outcome.steps / self.outcome.seconds
        seconds = self.log.last.get("time/time_elapsed", 0.0)
        return self.log.step / seconds if seconds > 0 else None

    def describe(self) -> None:
        """Read everything but the log."""
        self.problems = []
        self._read_config()
        self.held = read_object(self.path / "result.json", MAX_RESULT_BYTES)
        metadata = read_object(self.path / "metadata.json", MAX_CONFIG_BYTES)
        self.title = _text(metadata.get("title")) or self.algo or "Run"
        found = metadata.get("environment")
        facts = found.items() if isinstance(found, Mapping) else ()
        self.facts = {_text(name): _text(fact) for name, fact in facts if isinstance(fact, str | int | float)}
        try:
            self.outcome = read_result(self.path)
            if self.outcome is not None:
                _check(self.path, self.outcome)
        except RLTrainingError as error:
            self.problems += [] if str(error) in self.problems else [str(error)]
            self.outcome, self.held = None, {}

    def read_log(self) -> None:
        """Read the log from its beginning to its end."""
        try:
            self.log.update()
        except FileNotFoundError:
            self.problems.append(f"{self.log.path}: no such file")
        except (OSError, ValueError) as error:
            self.problems.append(f"{self.log.path}: cannot be read: {reason(error)}")
        if self.log.damaged:
            lines = f"{self.log.damaged} damaged line{'s' if self.log.damaged > 1 else ''}"
            self.problems.append(f"{self.log.path}: {lines} left out")

    def _read_config(self) -> None:
        path = self.path / "config.yaml"
        if not os.path.lexists(path):
            return
        try:
            self.raw = read_mapping(path, follow=False)
            self.config = experiment(self.raw)
        except ConfigError as error:
            self.problems.append(str(error) if str(path) in str(error) else f"{path}: {error}")


def open_run(path: Path) -> Run:
    """Return a run, described, but without its metrics."""
    run = Run(path, Log(path / "metrics.jsonl"))
    run.describe()
    return run


def is_run(path: Path) -> bool:
    """Say whether a folder is that of a run."""
    names = ("metrics.jsonl", "result.json", "checkpoints")
    return any(os.path.lexists(path / name) for name in names) and path.is_dir()


def read_object(path: Path, limit: int) -> dict[str, Any]:
    """Return the object in a file of JSON, empty if there is none."""
    try:
        held = json.loads(read_plain(path, limit))
    except (OSError, ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}


def newest_video(folder: Path, limit: int) -> Path | None:
    """Return the newest MP4 file in a folder, or in its ``videos``, of at most ``limit`` bytes."""
    found: list[tuple[float, Path]] = []
    for place in (folder, folder / "videos"):
        if place != folder and place.is_symlink():
            continue  # what it leads to is none of the run's
        try:
            with os.scandir(place) as entries:
                for entry in itertools.islice(entries, _MOST_FILES):
                    if entry.name.endswith(".mp4") and not entry.name.startswith("."):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode) and 0 < status.st_size <= limit:
                            found.append((status.st_mtime, place / entry.name))
        except OSError:
            continue
    return next((path for _, path in sorted(found, reverse=True) if _is_mp4(path)), None)


def _is_mp4(path: Path) -> bool:
    try:
        with open_plain(path) as file:
            return file.read(12)[4:8] == b"ftyp"
    except (OSError, ValueError):
        return False


def _check(path: Path, outcome: RunResult) -> None:
    numbers = (outcome.steps, outcome.seconds, outcome.mean)
    if any(value is not None and number(value) is None for value in numbers):
        raise ConfigError(f"{path / 'result.json'}: damaged: its numbers are out of range")


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def number(value: object) -> float | None:
    """Return a number that can be computed with, none for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST < value < LARGEST:
        return None
    return float(value)

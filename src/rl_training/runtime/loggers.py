"""Where rows of metrics go: JSON lines, CSV, TensorBoard. The console has a file of its own."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rl_training.config import ExperimentConfig
from rl_training.errors import RLTrainingError, StorageError
from rl_training.plain_files import make_folder, open_own, reason
from rl_training.runtime.clock import Clock
from rl_training.runtime.console import ConsoleLogger, notice
from rl_training.runtime.curves import read_metrics
from rl_training.runtime.event_file import write_record
from rl_training.runtime.folder import RunFolder, write_whole
from rl_training.runtime.trackers import open_tracker

Row = Mapping[str, float]
_FAILURES = (OSError, ValueError, RLTrainingError)
_numbers = itertools.count()


class Logger(Protocol):
    """Takes rows; each belongs to a number of env steps."""

    def write(self, step: int, row: Row) -> None:
        """Log one row."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


class JsonLinesLogger:
    """``metrics.jsonl``: one object per row. A resumed run cuts it back to where its checkpoint was made."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._file = os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)
        # An agent that was saved elsewhere comes without its log, and truncating would fill it up with zeros.
        self._length = min(offset, os.fstat(self._file.fileno()).st_size)
        self._file.truncate(self._length)

    def write(self, step: int, row: Row) -> None:
        """Append one line, whole or not at all, and hand it to the system at once."""
        line = (json.dumps({"step": step, **_finite(row)}) + "\n").encode()
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self._length)
            raise
        self._length += len(line)

    def offset(self) -> int:
        """Make all rows durable and return the file's length."""
        os.fsync(self._file.fileno())
        return self._length

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class CsvLogger:
    """``metrics.csv``: the same rows as a table that gains a column when a new metric turns up."""

    def __init__(self, path: Path, jsonl: Path) -> None:
        self._path, self._jsonl = path, jsonl
        self._columns = ["step"]
        rows = read_metrics(jsonl)
        self._extend(name for row in rows for name in row)
        self._rewrite(rows)

    def write(self, step: int, row: Row) -> None:
        """Append one row, rewriting the table only if it has to become wider."""
        if self._extend(row):
            self._rewrite(read_metrics(self._jsonl))  # which holds this row already
            return
        handle = open_own(self._path, os.O_WRONLY | os.O_APPEND)
        with os.fdopen(handle, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns).writerow({"step": step, **_finite(row)})

    def close(self) -> None:
        """Nothing is held open."""

    def _extend(self, names: Iterable[str]) -> bool:
        new = list(dict.fromkeys(name for name in names if name not in self._columns))
        self._columns += new
        return bool(new)

    def _rewrite(self, rows: list[dict[str, Any]]) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns)
        writer.writerow({name: _as_text(name) for name in self._columns})
        writer.writerows({name: _as_text(value) for name, value in row.items()} for row in rows)
        write_whole(self._path, text.getvalue())


class TensorBoardLogger:
    """TensorBoard event files under ``tensorboard/``, with Stable-Baselines3's tags.

    They are written here and now: torch's and TensorBoard's writers do it in a thread, which dies with a
    traceback when the disk is full.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._event, self._summary = Event, Summary
        make_folder(folder)
        name = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(folder / f"events.out.tfevents.{name}", flags, 0o666), "wb")
        self._add(file_version="brain.Event:2")
        if step:
            # Events after the step we go on from are of a continuation that was lost.
            self._add(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, row: Row) -> None:
        """Write one scalar per value."""
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._add(step=step, summary=self._summary(value=values))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, **content: Any) -> None:
        write_record(self._file, self._event(wall_time=time.time(), **content).SerializeToString())
        self._file.flush()


class LogBook:
    """All loggers of a run: one that fails is left out after one warning, and training goes on."""

    def __init__(
        self, folder: RunFolder, config: ExperimentConfig[Any], clock: Clock, *, offset: int, console: bool
    ) -> None:
        options = config.logging
        try:
            self._jsonl = JsonLinesLogger(folder.metrics, offset)
        except (OSError, ValueError) as error:
            raise StorageError(f"{folder.metrics}: cannot be written: {reason(error)}") from error
        self._path = folder.metrics
        self._complained = False
        self._loggers: list[Logger] = [self._jsonl]
        if options.csv:
            self._open(lambda: CsvLogger(folder.table, folder.metrics), "CsvLogger")
        if options.tensorboard:
            self._open(lambda: TensorBoardLogger(folder.tensorboard, clock.steps), "TensorBoardLogger")
        for name in options.trackers:
            self._open(partial(open_tracker, name, folder, config), name)
        if console:
            self._open(lambda: ConsoleLogger(clock.total, clock.steps), "ConsoleLogger")

    def write(self, step: int, row: Row) -> None:
        """Give a row to every logger."""
        for logger in list(self._loggers):
            try:
                logger.write(step, row)
            except _FAILURES as error:  # noqa: PERF203 - one that fails must not keep the others
                self._failed(logger, step, error)

    def offset(self) -> int:
        """Make ``metrics.jsonl`` durable and return its length."""
        return self._jsonl.offset()

    def last_row(self) -> dict[str, float]:
        """Return the newest row of training, as it was logged, empty if there is none."""
        try:
            rows = [row for row in read_metrics(self._path) if "train/n_updates" in row]
        except _FAILURES:
            return {}
        latest = rows[-1] if rows else {}
        return {name: value for name, value in latest.items() if name != "step" and value is not None}

    def end_bar(self) -> None:
        """Close the progress bar of training, so that another one can be shown."""
        for logger in [logger for logger in self._loggers if isinstance(logger, ConsoleLogger)]:
            self._loggers.remove(logger)
            logger.close()

    def close(self) -> None:
        """Close every logger; what could not be written was reported when it was logged."""
        for logger in self._loggers:
            _close(logger)

    def _open(self, make: Callable[[], Logger], name: str) -> None:
        try:
            self._loggers.append(make())
        except _FAILURES as error:
            notice(f"warning: {name}: cannot be opened: {_reason(error)}; going on without it")

    def _failed(self, logger: Logger, step: int, error: Exception) -> None:
        line = f"warning: {type(logger).__name__}: step {step} not logged: {_reason(error)}"
        if logger is not self._jsonl:
            self._loggers.remove(logger)
            _close(logger)
            notice(f"{line}; going on without it")
        elif not self._complained:
            # The run's own record tries again with every row, as the disk may be free again by then.
            self._complained = True
            notice(f"{line}; training goes on")


def _finite(row: Row) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in row.items()}


def _as_text(value: Any) -> Any:
    """Return what a spreadsheet would take for a formula as plain text."""
    return (
        f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        else value
    )


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _close(logger: Logger) -> None:
    with contextlib.suppress(OSError, RLTrainingError):
        logger.close()

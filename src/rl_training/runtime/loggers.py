"""Where rows of metrics go: JSON lines, CSV, TensorBoard. The console has a file of its own."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from rl_training.runtime.curves import read_metrics
from rl_training.runtime.folder import write_whole

Row = Mapping[str, float]


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
        self._file = path.open("ab")
        self._file.seek(0, os.SEEK_END)
        # An agent that was saved elsewhere comes without its log, and truncating would fill it up with zeros.
        if self._file.tell() > offset:
            self._file.truncate(offset)
            self._file.seek(0, os.SEEK_END)

    def write(self, step: int, row: Row) -> None:
        """Append one line and hand it to the system at once."""
        values = {name: value if math.isfinite(value) else None for name, value in row.items()}
        self._file.write((json.dumps({"step": step, **values}) + "\n").encode())
        self._file.flush()

    def offset(self) -> int:
        """Make all rows durable and return the file's length."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file; rows that could not be written were reported when they were logged."""
        with contextlib.suppress(OSError):
            self._file.close()


class CsvLogger:
    """``metrics.csv``: the same rows as a table that gains a column when a new metric turns up."""

    def __init__(self, path: Path, jsonl: Path) -> None:
        self._path = path
        self._rows: list[dict[str, Any]] = [dict(row) for row in read_metrics(jsonl)]
        self._columns = ["step"]
        self._extend(name for row in self._rows for name in row)
        self._rewrite()

    def write(self, step: int, row: Row) -> None:
        """Append one row, rewriting the table only if it has to become wider."""
        record = {"step": step, **row}
        self._rows.append(record)
        if self._extend(record):
            self._rewrite()
            return
        with self._path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns).writerow(record)

    def close(self) -> None:
        """Nothing is held open."""

    def _extend(self, names: Any) -> bool:
        new = list(dict.fromkeys(name for name in names if name not in self._columns))
        self._columns += new
        return bool(new)

    def _rewrite(self) -> None:
        with self._path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(self._rows)


class TensorBoardLogger:
    """TensorBoard event files under ``tensorboard/``, with Stable-Baselines3's tags."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Events after the step we go on from are of a continuation that was lost.
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def write(self, step: int, row: Row) -> None:
        """Write one scalar per value."""
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write the outcome of a run as JSON for machines."""
    write_whole(path, json.dumps(result, indent=2) + "\n")

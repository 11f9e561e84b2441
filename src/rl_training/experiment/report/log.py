"""Reading ``metrics.jsonl`` of any length in bounded memory, also while it grows or is cut back."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rl_training.experiment.report.envelope import Envelope
from rl_training.plain_files import open_plain
from rl_training.runtime.curves import Series

BLOCK = 2**20
"""Bytes that are read at once; what has a longer line is no log."""
MAX_KEYS = 400
"""Metrics that are kept; a row of this package has about twenty."""
MAX_STEP = 2**53
LARGEST = 1e100
"""Values beyond, which 32-bit numbers never reach, are left out: sums of them would overflow."""
_LONGEST_KEY = 100
_TAIL = 256
"""Bytes before the end of what was read by which a log that was cut back and grew again is recognised."""
_SAMPLE = 8_192
_MOST_DAMAGED = 10_000


class Log:
    """The metrics of one run. ``update`` reads what is new; nothing is ever written.

    A last line without its end is left for the next time, and a line that is no row is counted in ``damaged``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.curves: dict[str, Envelope] = {}
        self.last: dict[str, float] = {}
        self.rows = self.damaged = self.step = self.size = 0
        self.sampled = False
        self.changed = 0.0
        self._offset = 0
        self._tail = b""

    @property
    def progress(self) -> float:
        """Which share of the file has been read."""
        return min(1.0, self._offset / self.size) if self.size else 1.0

    def series(self, key: str) -> Series:
        """Return one metric, empty if it was never logged."""
        return self.curves[key].series() if key in self.curves else Series(np.empty(0), np.empty(0))

    def update(self, most: int | None = None) -> bool:
        """Read what is new, about ``most`` bytes of it; return whether that was all. ``OSError``, ``ValueError``."""
        with open_plain(self.path) as file:
            found = os.fstat(file.fileno())
            if found.st_size < self._offset or not self._goes_on(file):
                self.forget()
            self.size, self.changed = found.st_size, found.st_mtime
            until = self.size if most is None else min(self.size, self._offset + most)
            file.seek(self._offset)
            while self._offset < until and self._read_block(file):
                if self.damaged > _MOST_DAMAGED:
                    raise ValueError(f"more than {_MOST_DAMAGED:,} damaged lines")
        return until == self.size

    def sample(self, places: int = 600) -> None:
        """Look into the file at some places only: a first picture of a log that would take long to read."""
        with open_plain(self.path) as file:
            found = os.fstat(file.fileno())
            self.forget()
            self.size, self.changed, self.sampled = found.st_size, found.st_mtime, True
            for place in np.linspace(0, max(0, self.size - _SAMPLE), places).astype(int):
                file.seek(place)
                block = file.read(_SAMPLE)
                first, last = (block.find(b"\n") + 1 if place else 0), block.rfind(b"\n") + 1
                self._take(block[first:last])
        self.damaged = 0

    def _goes_on(self, file: BinaryIO) -> bool:
        file.seek(self._offset - len(self._tail))
        return file.read(len(self._tail)) == self._tail

    def _read_block(self, file: BinaryIO) -> bool:
        """Read whole lines; return whether there may be more."""
        block = file.read(BLOCK)
        end = block.rfind(b"\n") + 1
        if not end and len(block) == BLOCK:
            raise ValueError(f"a line of more than {BLOCK:,} bytes")
        self._take(block[:end])
        self._offset += end
        if end:
            self._tail = block[max(0, end - _TAIL) : end]
            file.seek(self._offset)
        return end > 0

    def _take(self, block: bytes) -> None:
        """Put whole lines into the curves."""
        if not block:
            return
        rows = self._parsed(block)
        self.rows += len(rows)
        columns: dict[str, tuple[list[int], list[float]]] = {}
        for row in rows:
            step = row["step"]
            for key, value in row.items():
                if value is None:
                    continue
                try:
                    steps, values = columns[key]
                except KeyError:
                    steps, values = columns[key] = ([], [])
                steps.append(step)
                values.append(value)
        columns.pop("step", None)
        if rows:
            self.step = int(rows[-1]["step"])
        for key, (steps, values) in columns.items():
            self._add(key, np.array(steps, np.int64), values)

    def _add(self, key: str, steps: NDArray[np.int64], values: list[Any]) -> None:
        curve = self.curves.get(key)
        if curve is None:
            if len(self.curves) >= MAX_KEYS or len(key) > _LONGEST_KEY:
                return
            curve = self.curves[key] = Envelope()
        numbers = _numbers(values)
        good = np.abs(numbers) < LARGEST  # which NaN is not
        if good.any():
            curve.add(steps[good], numbers[good])
            self.last[key] = float(numbers[good][-1])

    def _parsed(self, block: bytes) -> list[dict[str, Any]]:
        try:  # all lines at once, which is faster
            rows = json.loads(b"[" + block.rstrip(b"\n").replace(b"\n", b",") + b"]")
            if all(type(row) is dict and _is_step(row.get("step")) for row in rows):
                return rows  # type: ignore[no-any-return]
        except (ValueError, RecursionError):
            pass
        good = []
        for line in block.splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if type(row) is dict and _is_step(row.get("step")):
                good.append(row)
            else:
                self.damaged += 1
        return good


def _is_step(value: object) -> bool:
    return type(value) is int and 0 <= value < MAX_STEP


def _numbers(values: list[Any]) -> NDArray[np.float64]:
    """Return what are numbers, and NaN for the rest."""
    try:
        if set(map(type, values)) <= {int, float}:
            return np.array(values, np.float64)
    except OverflowError:
        pass
    return np.array([_number(value) for value in values], np.float64)


def _number(value: object) -> float:
    try:
        return float(value) if type(value) in (int, float) else math.nan  # type: ignore[arg-type]
    except OverflowError:
        return math.nan

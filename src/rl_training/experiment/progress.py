"""What a person sees while a suite runs: a bar for each entry in a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.experiment.processes import Job, JobFailed
from rl_training.experiment.results import read_result
from rl_training.plain_files import open_plain
from rl_training.runtime.console import notice

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_INTERVAL = 1.0
"""Seconds between two looks at the logs."""
_PLAIN_INTERVAL = 10.0
"""Seconds between lines where there is no terminal."""
_TAIL = 8_192
"""Bytes at a log's end in which its last whole row is looked for."""


class SuiteProgress:
    """Shows how far the runs of each entry are; ``paths`` are their folders, ``steps`` what each run makes."""

    def __init__(
        self, paths: Mapping[str, Sequence[Path]], steps: Mapping[str, int], held: int, console: bool
    ) -> None:
        self._paths, self._steps, self._console = paths, steps, console
        self._runs, self._done = sum(len(folders) for folders in paths.values()), held
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._looked = 0.0
        self._last_line = time.monotonic()

    def __enter__(self) -> SuiteProgress:
        if self._console:
            held = f", {self._done} of them there already" if self._done else ""
            notice(f"{self._runs} run{'s' if self._runs != 1 else ''}{held}")
        if self._console and sys.stderr is not None and sys.stderr.isatty():
            self._open_bars()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._update()
            self._bars.stop()

    def done(self, job: Job) -> None:
        """Tell that a run has ended well."""
        self._done += 1
        name, seed = job.key if isinstance(job.key, tuple) else ("", job.key)
        if self._console:
            result = read_result(self._run_of(name or next(iter(self._paths)), seed))
            assert result is not None
            run = f"{name} seed {seed}".strip()
            self._say(f"[{self._done}/{self._runs}] {run}: {result.mean:.2f}, {result.seconds:.0f} s")

    def failed(self, error: JobFailed) -> None:
        """Tell that a run has ended with an error."""
        self._done += 1
        if self._console:
            self._say(f"[{self._done}/{self._runs}] FAILED {error}")

    def tick(self) -> None:
        """Look at the logs, now and then."""
        now = time.monotonic()
        if self._bars is not None and now - self._looked >= _INTERVAL:
            self._looked = now
            self._update()
        elif self._bars is None and self._console and now - self._last_line >= _PLAIN_INTERVAL:
            self._last_line = now
            made, total = 0, 0
            for name, folders in self._paths.items():
                made += sum(last_step(folder / "metrics.jsonl") for folder in folders)
                total += self._steps[name] * len(folders)
            notice(f"{made:,} of {total:,} steps, {self._done} of {self._runs} runs done")

    def _open_bars(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[seeds]} seeds"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            refresh_per_second=2,
        )
        for name, folders in self._paths.items():
            total = self._steps[name] * len(folders)
            self._tasks[name] = self._bars.add_task(name, total=total, seeds=f"0/{len(folders)}", start=False)
        self._bars.start()

    def _update(self) -> None:
        assert self._bars is not None
        for name, folders in self._paths.items():
            task, made = self._tasks[name], [last_step(folder / "metrics.jsonl") for folder in folders]
            ended = sum(step >= self._steps[name] for step in made)
            if any(made):
                self._bars.start_task(task)
            self._bars.update(task, completed=sum(made), seeds=f"{ended}/{len(folders)}")
            if ended == len(folders):
                self._bars.stop_task(task)

    def _run_of(self, name: str, seed: int) -> Path:
        return next(folder for folder in self._paths[name] if folder.name == f"seed-{seed}")

    def _say(self, text: str) -> None:
        if self._bars is not None:
            self._bars.console.print(text, highlight=False, markup=False)
        else:
            notice(text)


def last_step(log: Path) -> int:
    """Return the step of a log's last whole row, 0 if there is none; only its end is read."""
    try:
        with open_plain(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().split(b"\n")[:-1]
    except (OSError, ValueError):
        return 0
    for line in reversed(lines):
        try:
            step = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        return step if isinstance(step, int) else 0
    return 0

"""What a person sees while a run goes: a progress bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from rl_training.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from rl_training.runtime.loggers import Row

_PLAIN_INTERVAL = 10.0
"""Seconds between lines where there is no terminal."""


def notice(text: str) -> None:
    """Print one line for the person at the terminal, apart from a command's output."""
    # A terminal that is gone, or was never there, must not end the run; None would mean stdout.
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        print(printable(text), file=sys.stderr, flush=True)


class EpisodeProgress:
    """Shows how many episodes of an evaluation are through: a bar in a terminal, a line now and then elsewhere."""

    def __init__(self, title: str, episodes: int, *, console: bool = True) -> None:
        self._title, self._episodes, self._console = title, episodes, console
        self._last_line = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> EpisodeProgress:
        """Say what begins."""
        if not self._console:
            return self
        if sys.stderr is None or not sys.stderr.isatty():
            notice(f"{self._title}: {self._episodes} episode{'s' if self._episodes != 1 else ''}")
            return self
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("episodes  {task.fields[steps]:,} steps"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            refresh_per_second=4,
        )
        self._task = self._bar.add_task(self._title, total=self._episodes, steps=0)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()

    def tell(self, ended: int, steps: int) -> None:
        """Show how many episodes have ended, and how many steps that took."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=ended, steps=steps)
        elif self._console and (now := time.monotonic()) - self._last_line >= _PLAIN_INTERVAL:
            self._last_line = now
            notice(f"{self._title}: {ended}/{self._episodes} episodes, {steps:,} steps")


class ConsoleLogger:
    """Shows steps, steps per second, return and time left."""

    def __init__(self, total: int, steps: int = 0) -> None:
        self._total = total
        self._first = self._steps = steps
        self._start = time.monotonic()
        self._last_line = self._start
        self._return = self._eval = "-"
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if sys.stderr is not None and sys.stderr.isatty():
            self._open_bar()

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>6} steps/s"),
            TextColumn("return {task.fields[train]:>6}"),
            TextColumn("eval {task.fields[eval]:>6}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            refresh_per_second=4,
        )
        self._task = self._bar.add_task(
            "", total=self._total, completed=self._first, rate="-", train="-", eval="-"
        )
        self._bar.start()

    def write(self, step: int, row: Row) -> None:
        """Show the newest numbers."""
        self._steps = step
        if "rollout/ep_rew_mean" in row:
            self._return = f"{row['rollout/ep_rew_mean']:.1f}"
        if "eval/mean_reward" in row:
            self._eval = f"{row['eval/mean_reward']:.1f}"
        now = time.monotonic()
        rate = f"{(step - self._first) / max(now - self._start, 1e-9):.0f}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, rate=rate, train=self._return, eval=self._eval)
        elif now - self._last_line >= _PLAIN_INTERVAL:
            self._last_line = now
            notice(f"{step}/{self._total} steps, {rate} steps/s, return {self._return}, eval {self._eval}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

"""The same as the live page in a terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rl_training.errors import printable
from rl_training.experiment.report.metrics import ordered
from rl_training.experiment.report.scale import duration, short
from rl_training.experiment.watch.watched import Watched, Watcher
from rl_training.runtime.curves import Series
from rl_training.runtime.signals import Interrupted, SignalGuard

if TYPE_CHECKING:
    from rich.console import RenderableType

_EVERY = 2.0
_LEVELS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8
_STYLES = {"good": "green", "warn": "yellow", "": "bold"}


def show_text(path: Path) -> None:
    """Show runs until a signal comes; where there is no terminal, once."""
    from rich.console import Console
    from rich.live import Live

    watcher = Watcher(path)
    console = Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=False)
    if not console.is_terminal:
        while watcher.turn():
            pass
        console.print(view(watcher, console.width))
        return
    with SignalGuard() as guard:
        watcher.turn()
        with Live(view(watcher, console.width), console=console, auto_refresh=False) as live:
            due = time.monotonic() + _EVERY
            while guard.received is None:
                time.sleep(0.0 if watcher.turn() else 0.2)
                if time.monotonic() >= due:
                    live.update(view(watcher, console.width), refresh=True)
                    due = time.monotonic() + _EVERY
    raise Interrupted("stopped watching", guard.received)


def view(watcher: Watcher, width: int) -> RenderableType:
    """Return what a terminal of that width shows."""
    runs = list(watcher.runs.values())
    return _table(watcher, runs) if watcher.several else _one(watcher, runs[0], width)


def _table(watcher: Watcher, runs: list[Watched]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("run", overflow="fold")
    table.add_column("state", overflow="fold")
    for name in ("steps", "of", "left", "steps/s", "training", "eval", "best"):
        table.add_column(name, justify="right", no_wrap=True)
    for watched in sorted(runs, key=lambda run: not run.running):
        state, kind = watched.state
        numbers = _numbers(watched)
        table.add_row(
            Text(printable(watcher.name(watched))),
            Text(printable(state), style=_STYLES[kind]),
            *(Text(number) for number in numbers),
        )
    return table


def _one(watcher: Watcher, watched: Watched, width: int) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    run, (state, kind) = watched.run, watched.state
    head = Text(printable(f"{run.title} on {run.env or 'an unknown environment'}  "), style="bold")
    head.append(printable(state), style=_STYLES[kind])
    parts: list[RenderableType] = [head]
    if watched.share is not None:
        bar, done = min(width, 80), round(watched.share * min(width, 80))
        parts.append(Text.assemble(("━" * done, "green"), ("━" * (bar - done), "bright_black")))
    steps, total, left, rate, training, evaluation, best = _numbers(watched)
    words = [f"{steps} of {total} steps" if total else f"{steps} steps"]
    words += [f"{rate} steps/s"] if rate else []
    words += [f"{left} left"] if left else []
    words += [f"training {training}"] if training else []
    words += [f"evaluation {evaluation}, best {best}"] if evaluation else []
    parts.append(Text(", ".join(words)))
    if watched.reading is not None:
        parts.append(Text(f"reading the log, {watched.reading:.0%} done", style="yellow"))
    parts += [Text(printable(problem), style="yellow") for problem in run.problems]
    series = run.evaluation if run.evaluation.steps.size > 1 else run.training
    if series.steps.size > 1:
        name = "evaluation return" if run.evaluation.steps.size > 1 else "training return"
        parts += [
            Text(""),
            Text(f"{name}, step {int(series.steps[0]):,} to {int(series.steps[-1]):,}", style="dim"),
        ]
        parts += [Text(line) for line in drawn(series, min(width, 80))]
    last = [(m, run.log.last[m.key]) for m in ordered(set(run.log.last)) if m.telling]
    if last:
        grid = Table(box=None, pad_edge=False, show_header=False)
        for metric, value in last:
            grid.add_row(Text(metric.title, style="dim"), Text(short(value), justify="right"))
        parts += [Text(""), grid]
    return Group(*parts)


def _numbers(watched: Watched) -> list[str]:
    run, values = watched.run, watched.run.evaluation.values
    training = run.log.last.get("rollout/ep_rew_mean")
    return [
        f"{run.step:,}",
        f"{run.total:,}" if run.total else "",
        duration(watched.left) if watched.left is not None else "",
        f"{watched.rate:,.0f}" if watched.rate else "",
        short(training) if training is not None else "",
        short(float(values[-1])) if values.size else "",
        short(float(values.max())) if values.size else "",
    ]


def drawn(series: Series, width: int) -> list[str]:
    """Return a curve as lines of blocks, with its highest and lowest value before the first and the last."""
    low, high = float(series.values.min()), float(series.values.max())
    labels = [short(high), *[""] * (_HEIGHT - 2), short(low)]
    margin = max(map(len, labels)) + 1
    grid = np.linspace(series.steps[0], series.steps[-1], max(8, width - margin))
    shares = (np.interp(grid, *series) - low) / (high - low) if high > low else np.full(grid.size, 0.5)
    levels = np.round(shares * (8 * _HEIGHT - 1)).astype(int) + 1
    rows = []
    for row in range(_HEIGHT):
        filled = np.clip(levels - 8 * (_HEIGHT - 1 - row), 0, 8)
        rows.append(f"{labels[row]:>{margin - 1}} " + "".join(_LEVELS[level] for level in filled))
    return rows

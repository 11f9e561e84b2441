"""Learning curves: the pictures made from the ``metrics.jsonl`` of one run or of several seeds."""

from __future__ import annotations

import json
import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rl_training.errors import RLTrainingError, printable
from rl_training.plain_files import read_plain, replacing
from rl_training.statistics import MIN_SCORES, FloatArray, iqm, seeds_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = Mapping[str, Any]

TRAIN_RETURN = "rollout/ep_rew_mean"
EVAL_MEAN = "eval/mean_reward"
EVAL_STD = "eval/std_reward"

EVAL_MIN = "eval/min_reward"
EVAL_MAX = "eval/max_reward"
_AT_THE_END = {key: key.replace("eval/", "final/") for key in (EVAL_MEAN, EVAL_STD, EVAL_MIN, EVAL_MAX)}
"""Under which keys the evaluation after the last step is logged; in pictures it is the last point."""
TRAINED_STEPS = "environment steps"

EVAL_COLOR = "#1f5fa8"
TRAIN_COLOR = "#f0bd8b"
INK = "#333333"
PALETTE = (EVAL_COLOR, "#d1642c", "#2f8f5b", "#8c4fa3", "#b8952b", "#4aa5b8", "#7a5c48", "#c2477f")
"""One colour for each of several results; they differ in lightness, too."""

# A finer summary would take longer to compute and look the same at this width.
_MAX_POINTS = 500


MAX_LOG_BYTES = 128 * 2**20
"""Of a log that is read; it may grow beyond that."""


class Series(NamedTuple):
    """One metric over environment steps: strictly rising ``steps`` [N] and finite ``values`` [N]."""

    steps: FloatArray
    values: FloatArray


class SeedSummary(NamedTuple):
    """The interquartile mean over seeds and its 95 % bootstrap interval, each [N], at ``steps`` [N]."""

    steps: FloatArray
    center: FloatArray
    low: FloatArray
    high: FloatArray


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the records of a ``metrics.jsonl``, without the last one if a kill left it torn."""
    try:
        lines = read_plain(path, MAX_LOG_BYTES).splitlines()
    except ValueError as error:
        raise RLTrainingError(f"{path}: {error}") from None
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise RLTrainingError(f"{path}:{number}: not a JSON object") from error
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            raise RLTrainingError(f"{path}:{number}: not a JSON object with an integer 'step'")
        if any(isinstance(value, int) and abs(value) >= 2**63 for value in record.values()):
            raise RLTrainingError(f"{path}:{number}: a number out of range")
        records.append(record)
    return records


def extract_series(records: Sequence[Record], key: str) -> Series:
    """Return one metric's points, leaving out the records where it is missing or not finite."""
    steps: list[int] = []
    values: list[float] = []
    for record in records:
        value = record.get(key, record.get(_AT_THE_END.get(key, "")))
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            continue
        # A run resumed from an older checkpoint walks the same steps again: the later walk is the real one.
        while steps and steps[-1] >= record["step"]:
            steps.pop()
            values.pop()
        steps.append(record["step"])
        values.append(value)
    return Series(np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64))


def summarize_seeds(curves: Sequence[Series]) -> SeedSummary:
    """Return the summary on the union of all steps; a seed counts only from its first step to its last.

    The band is the 95 % interval of the interquartile mean, or the whole range where there are too few seeds for one.
    Steps with less than half as many seeds as the fullest step are left out.
    """
    grid = np.unique(np.concatenate([curve.steps for curve in curves]))
    grid = grid[np.linspace(0, grid.size - 1, min(grid.size, _MAX_POINTS)).round().astype(int)]
    on_grid = np.stack([np.interp(grid, *curve, left=np.nan, right=np.nan) for curve in curves], axis=1)
    # Where seeds end at unlike steps the last of them stands alone, and would pass for a change of the whole.
    seeds = np.isfinite(on_grid).sum(axis=1)
    covered = 2 * seeds >= seeds.max()
    present = [row[np.isfinite(row)] for row in on_grid[covered]]
    # Every step is resampled with the same random seed, so the band varies with the scores and not with luck.
    low, high = np.array([seeds_interval(s) or (s.min(), s.max()) for s in present]).T
    return SeedSummary(grid[covered], np.array([iqm(scores) for scores in present]), low, high)


def build_run_figure(
    records: Sequence[Record], title: str, *, window: int = 100, steps: str = TRAINED_STEPS
) -> Figure:
    """Return one run's picture: training return, and evaluation mean with its standard deviation.

    The training return is a mean over ``window`` episodes; ``steps`` is what the horizontal axis counts.
    """
    figure, axes = _new_figure(title)
    training, evaluation = extract_series(records, TRAIN_RETURN), extract_series(records, EVAL_MEAN)
    if training.steps.size:
        _draw_line(
            axes, training, TRAIN_COLOR, f"training return, mean of the last {window} episodes", width=1.5
        )
    if evaluation.steps.size:
        spread = _at(evaluation.steps, extract_series(records, EVAL_STD), 0.0)
        # No episode was worse than the worst, so a band that goes beyond it would show what never happened.
        worst = _at(evaluation.steps, extract_series(records, EVAL_MIN), -np.inf)
        best = _at(evaluation.steps, extract_series(records, EVAL_MAX), np.inf)
        low, high = evaluation.values - spread, evaluation.values + spread
        _draw_band(axes, evaluation.steps, np.maximum(low, worst), np.minimum(high, best))
        _draw_line(axes, evaluation, EVAL_COLOR, "evaluation return, mean ± std", width=2.0)
    _finish(axes, "no data yet: no finished episode, no evaluation", steps=steps)
    return figure


def _at(steps: FloatArray, series: Series, otherwise: float) -> FloatArray:
    """Return the values of a series at these steps."""
    known = dict(zip(*series, strict=True))
    return np.array([known.get(step, otherwise) for step in steps])


def build_seeds_figure(runs: Sequence[Sequence[Record]], title: str, *, steps: str = TRAINED_STEPS) -> Figure:
    """Return the picture of several seeds: a thin line for each, their IQM and its band."""
    figure, axes = _new_figure(title)
    curves = [curve for records in runs if (curve := extract_series(records, EVAL_MEAN)).steps.size]
    for index, curve in enumerate(curves):
        _draw_line(axes, curve, EVAL_COLOR, "" if index else "each seed", width=0.8, alpha=0.4)
    if curves:
        grid, center, low, high = summarize_seeds(curves)
        band = "95 % interval" if len(curves) >= MIN_SCORES else "their range"
        what = f"IQM of {len(curves)} seeds with {band}" if len(curves) > 1 else "one seed"
        _draw_band(axes, grid, low, high)
        _draw_line(axes, Series(grid, center), EVAL_COLOR, f"evaluation return, {what}", width=2.0)
    _finish(axes, "no data yet: no evaluation", steps=steps)
    return figure


def build_comparison_figure(results: Mapping[str, Sequence[Series]], title: str) -> Figure:
    """Return several results in one picture: for each, the IQM of its seeds and its band."""
    drawn = {name: kept for name, curves in results.items() if (kept := [c for c in curves if c.steps.size])}
    columns = 2 if max(map(len, drawn), default=0) < 40 else 1
    figure, axes = _new_figure(title, legend_rows=-(-len(drawn) // columns))
    for number, (name, curves) in enumerate(drawn.items()):
        color = PALETTE[number % len(PALETTE)]
        steps, center, low, high = summarize_seeds(curves)
        _draw_band(axes, steps, low, high, color)
        seeds = f"{len(curves)} seeds" if len(curves) > 1 else "one seed"
        _draw_line(axes, Series(steps, center), color, f"{name}, {seeds}", width=2.0)
    _finish(axes, "no data: no evaluations in these runs", columns)
    return figure


def plot_comparison(results: Mapping[str, Sequence[Series]], out: Path, title: str) -> None:
    """Write several results as one PNG picture, whole or not at all."""
    _write_png(build_comparison_figure(results, title), out)


def plot_run(metrics_path: Path, out: Path, title: str, **words: Any) -> None:
    """Write the learning curve of one run as a PNG picture, whole or not at all; ``words`` as for the figure."""
    _write_png(build_run_figure(read_metrics(metrics_path), title, **words), out)


def plot_seeds(metrics_paths: Sequence[Path], out: Path, title: str, **words: Any) -> None:
    """Write the learning curve over several seeds of one experiment as a PNG picture, whole or not at all.

    A log that is lost is left out.
    """
    logs = [read_metrics(path) for path in metrics_paths if os.path.lexists(path)]
    _write_png(build_seeds_figure(logs, title, **words), out)


def _new_figure(title: str, legend_rows: int = 1) -> tuple[Figure, Axes]:
    # Imported here because matplotlib takes longer to load than the rest of a command's start.
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15)
    figure = Figure(figsize=(10, 6), dpi=100, layout=layout, facecolor="white")
    axes = figure.add_subplot()
    # Titles carry names of users' environments, in which a dollar sign is no formula.
    pad = 14 + 20 * max(legend_rows, 1)
    axes.set_title(textwrap.fill(title, 90), loc="left", pad=pad, size=14, color=INK, parse_math=False)
    return figure, axes


def _draw_line(axes: Axes, series: Series, color: str, label: str, *, width: float, alpha: float = 1) -> None:
    # Names of folders may hold bytes that are no text, which fonts do not take.
    (line,) = axes.plot(*series, color=color, alpha=alpha, linewidth=width, label=printable(label))
    if series.steps.size == 1:
        # A line through a single point has no length and would be invisible.
        line.set(marker="o", markersize=4 * width)


def _draw_band(
    axes: Axes, steps: FloatArray, low: FloatArray, high: FloatArray, color: str = EVAL_COLOR
) -> None:
    if steps.size == 1:
        # So would an area over a single step.
        axes.vlines(steps, low, high, color=color, alpha=0.4, linewidth=2)
    else:
        axes.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)


def _finish(axes: Axes, empty_text: str, legend_columns: int = 2, steps: str = TRAINED_STEPS) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    if not axes.lines:
        axes.set_axis_off()
        axes.text(0.5, 0.5, empty_text, transform=axes.transAxes, ha="center", size=16, color="#888888")
        return
    axes.set_xlim(0, 1.02 * max(1.0, axes.dataLim.x1))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    # An offset or exponent would be written above the axis, over the legend.
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    axes.set_xlabel(steps, color=INK, size=12)
    axes.set_ylabel("return", color=INK, size=12)
    axes.tick_params(colors=INK, length=0, labelsize=11)
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#bbbbbb")
    # Above the axes, where no curve can run beneath it.
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=legend_columns, frameon=False, fontsize=11
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _write_png(figure: Figure, out: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    part = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with replacing(part) as file:
            FigureCanvasAgg(figure).print_png(file)  # type: ignore[no-untyped-call]
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)

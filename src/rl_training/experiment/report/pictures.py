"""Which charts show a group of runs: its learning curve, and its metrics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rl_training.experiment.report.charts import COLORS, Band, Chart, Line
from rl_training.experiment.report.envelope import thin
from rl_training.experiment.report.folders import Group
from rl_training.experiment.report.metrics import Metric, ordered
from rl_training.experiment.report.runs import Run, number
from rl_training.runtime.curves import EVAL_MEAN, EVAL_STD, TRAIN_RETURN, Series, summarize_seeds
from rl_training.statistics import MIN_SCORES, iqm

_MOST_POINTS = 60_000
"""Of all lines of a page together, which bounds its size whatever is shown on it."""
_MOST_SEEDS = 30
"""Lines of single seeds in one chart."""


def learning_chart(groups: Sequence[Group], title: str = "Learning curve", buckets: int = 300) -> Chart:
    """Return the returns over steps: of one run training and evaluation, else the IQM of each group and its seeds."""
    total = max((float(run.total or 0) for group in groups for run in group.runs), default=0.0)
    if len(groups) == 1 and len(groups[0].runs) == 1:
        return _of_one_run(groups[0], title, buckets, total)
    key = EVAL_MEAN if any(run.evaluation.steps.size for g in groups for run in g.runs) else TRAIN_RETURN
    lines: list[Line] = []
    bands: list[Band] = []
    legend = []
    for color, group in enumerate(groups):
        curves = [(_label(run), thin(run.log.series(key), buckets)) for run in group.runs]
        there = [curve for _, curve in curves if curve.steps.size]
        if not there:
            continue
        several = len(there) > 1
        name = group.name if len(groups) > 1 else "IQM" if several else _label(group.first)
        if several:
            lines += [
                Line(f"{_before(groups, group)}{seed}", c, color, "seed") for seed, c in curves[:_MOST_SEEDS]
            ]
            steps, center, low, high = summarize_seeds(there)
            lines.append(Line(name, Series(steps, center), color))
            bands.append(Band(steps, low, high, color))
        else:
            lines.append(Line(name, there[0], color))
        legend.append((color % COLORS, "main", f"{name}{_seeds(len(there))}"))
    few = any(1 < len(group.runs) < MIN_SCORES for group in groups)
    band = "95 % interval of the IQM" + (", or range of fewer than five seeds" if few else "")
    legend += [(COLORS, "band", band)] if bands else []
    legend += [(COLORS, "seed", "each seed")] if bands else []
    what = "Evaluation return" if key == EVAL_MEAN else "Training return: there are no evaluations"
    note = f"{what} over environment steps."
    return Chart(title, lines, bands, note, _bars(groups), legend, True, total)


def metric_charts(groups: Sequence[Group], buckets: int) -> tuple[list[Chart], list[Chart]]:
    """Return the charts of the metrics that matter, and those of all others."""
    keys = {key for group in groups for run in group.runs for key in run.log.curves}
    alone = len(groups) == 1 and len(groups[0].runs) == 1
    shown = ordered(keys - ({TRAIN_RETURN} if alone else set()))
    return (
        [_metric_chart(metric, groups, buckets) for metric in shown if metric.telling],
        [_metric_chart(metric, groups, buckets) for metric in shown if not metric.telling],
    )


def buckets_for(groups: Sequence[Group]) -> int:
    """Return how finely metrics are drawn so that the page stays small."""
    lines = sum(len(run.log.curves) for group in groups for run in group.runs[:_MOST_SEEDS])
    return max(20, min(160, _MOST_POINTS // (2 * max(lines, 1))))


def _of_one_run(group: Group, title: str, buckets: int, total: float) -> Chart:
    run = group.first
    evaluation, training = thin(run.evaluation, buckets), thin(run.training, buckets)
    bands = []
    spread_at = dict(zip(*run.log.series(EVAL_STD), strict=True))
    if evaluation.steps.size > 1 and spread_at:
        spread = np.array([spread_at.get(step, 0.0) for step in evaluation.steps])
        bands = [Band(evaluation.steps, evaluation.values - spread, evaluation.values + spread, 0)]
    lines = [Line("Training", training, 1, "side"), Line("Evaluation", evaluation, 0)]
    legend = (
        [(0, "main", "evaluation, mean and standard deviation over episodes")]
        if evaluation.steps.size
        else []
    )
    legend += [(1, "side", "training, mean of the latest episodes")] if training.steps.size else []
    empty = "No episode has ended yet, and there was no evaluation."
    marks = _bars([group])
    return Chart(title, lines, bands, "Return over environment steps.", marks, legend, True, total, empty)


def _metric_chart(metric: Metric, groups: Sequence[Group], buckets: int) -> Chart:
    lines: list[Line] = []
    for color, group in enumerate(groups):
        curves = [
            (_label(run), thin(run.log.series(metric.key), buckets)) for run in group.runs[:_MOST_SEEDS]
        ]
        there = [(seed, curve) for seed, curve in curves if curve.steps.size]
        if len(there) == 1:
            lines.append(Line(group.name if len(groups) > 1 else metric.title, there[0][1], color))
        elif there:
            lines += [Line(f"{_before(groups, group)}{seed}", curve, color, "seed") for seed, curve in there]
            name = group.name if len(groups) > 1 else "IQM"
            lines.append(Line(name, _center([curve for _, curve in there], buckets), color))
    return Chart(metric.title, lines, note=metric.note)


def _center(curves: Sequence[Series], buckets: int) -> Series:
    """Return the interquartile mean where all curves are."""
    first, last = max(c.steps[0] for c in curves), min(c.steps[-1] for c in curves)
    grid = np.unique(np.concatenate([curve.steps for curve in curves]))
    grid = grid[(grid >= first) & (grid <= last)]
    if not grid.size:
        return Series(np.empty(0), np.empty(0))
    grid = grid[np.linspace(0, grid.size - 1, min(grid.size, buckets)).round().astype(int)]
    return Series(grid, iqm(np.stack([np.interp(grid, *curve) for curve in curves]), axis=0))


def _bars(groups: Sequence[Group]) -> list[tuple[float, str]]:
    """Return what the benchmark asks of a group that stands alone."""
    if len(groups) != 1:
        return []
    bar = number(groups[0].entry.get("bar"))
    return [(bar, f"bar {bar:g}")] if bar is not None else []


def _label(run: Run) -> str:
    return f"seed {run.seed}" if run.seed is not None else run.path.name


def _before(groups: Sequence[Group], group: Group) -> str:
    return f"{group.name}, " if len(groups) > 1 else ""


def _seeds(count: int) -> str:
    return f", {count} seeds" if count > 1 else ""

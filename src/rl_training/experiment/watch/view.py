"""What the live page shows, in blocks that are exchanged one by one when they change."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rl_training.experiment.report.charts import sparkline
from rl_training.experiment.report.folders import Group, grouped, panels_of
from rl_training.experiment.report.html import Content, Html, tag
from rl_training.experiment.report.pictures import buckets_for, learning_chart, metric_charts
from rl_training.experiment.report.runs import newest_video
from rl_training.experiment.report.scale import duration, short
from rl_training.experiment.watch.watched import Watched, Watcher

MAX_VIDEO = 64 * 2**20
_POINTS = 120
_MOST_LINES = 8


def title_of(watcher: Watcher, watched: Watched | None) -> str:
    """Return the title of the page, which begins with what changes."""
    if watched is None:
        running = sum(run.running for run in watcher.runs.values())
        return f"{running} running · {watcher.path.resolve().name}"
    share = f"{watched.share:.0%} · " if watched.share is not None and watched.running else ""
    return f"{share}{watcher.name(watched)}"


def steady_blocks(watcher: Watcher, watched: Watched | None) -> dict[str, Html]:
    """Return the blocks that change with the runs only: curves, metrics, settings of the page."""
    if watched is not None:
        group = Group(watcher.name(watched), watched.run.path, [watched.run], False)
        main, others = metric_charts([group], buckets_for([group]))
        more = tag("div", [chart.render() for chart in others], class_="charts")
        return {
            "curve": learning_chart([group], buckets=_POINTS).render(),
            "metrics": _metrics(main),
            "more": tag("details", tag("summary", f"{len(others)} more metrics"), more)
            if others
            else Html(""),
        }
    groups = grouped(watcher.path, [run.run for run in watcher.runs.values()])
    for group in groups:
        group.name = group.name or watcher.path.resolve().name
    charts = []
    for panel in panels_of(groups):
        newest = sorted(panel.groups, key=lambda g: max(run.log.changed for run in g.runs))[-_MOST_LINES:]
        shown = [group for group in panel.groups if group in newest]
        charts.append(learning_chart(shown, panel.env or "Unknown environment", _POINTS // 2).render())
    return {"curve": Html("".join(charts))}


def moving_blocks(watcher: Watcher, watched: Watched | None) -> dict[str, Html]:
    """Return the blocks that change with time, too."""
    if watched is None:
        return {"head": _folder_head(watcher), "runs": _table(watcher), "video": Html("")}
    return {"head": _run_head(watcher, watched), "tiles": _tiles(watched), "video": _video(watched)}


def _run_head(watcher: Watcher, watched: Watched) -> Html:
    run, (state, kind) = watched.run, watched.state
    words = f"{run.title} on {run.env}" if run.env else run.title
    seed = f", seed {run.seed}" if run.seed is not None else ""
    back = tag("p", tag("a", "All runs", href="/")) if watcher.several else None
    reading = watched.reading
    notes = [
        f"Reading the log, {reading:.0%} done: some places of it are shown so far."
        if reading is not None
        else "",
        f"{run.log.damaged} damaged lines of the log are left out." if run.log.damaged else "",
        *run.problems,
    ]
    return Html(
        "".join(
            [
                *([back] if back else []),
                tag("h1", f"{words}{seed}"),
                tag(
                    "p",
                    tag("span", state, class_=f"state {kind}"),
                    " ",
                    tag("span", str(run.path), class_="dim"),
                ),
                *(tag("p", note, class_="note warn") for note in notes if note),
            ]
        )
    )


def _tiles(watched: Watched) -> Html:
    run, last = watched.run, watched.run.log.last
    total = f"of {run.total:,} steps" if run.total else "steps"
    found: list[tuple[Content, Content]] = [
        (
            f"{run.step:,}",
            [
                total,
                tag("progress", value=f"{watched.share:.4f}", max=1) if watched.share is not None else None,
            ],
        )
    ]
    if watched.running:
        left = watched.left
        found.append((duration(left) if left is not None else "-", "left"))
        found.append((f"{watched.rate:,.0f}" if watched.rate else "-", "steps per second"))
    elif run.outcome is not None:
        found.append((duration(run.outcome.seconds), "time of the run"))
    if "rollout/ep_rew_mean" in last:
        found.append((short(last["rollout/ep_rew_mean"], 5), "training return"))
    if run.evaluation.steps.size:
        values = run.evaluation.values
        found.append((short(float(values[-1]), 5), f"evaluation at step {int(run.evaluation.steps[-1]):,}"))
        found.append((short(float(values.max()), 5), "best evaluation"))
    if run.log.changed:
        found.append((time.strftime("%H:%M:%S", time.localtime(run.log.changed)), "last row of the log"))
    return tag(
        "div",
        [tag("div", tag("b", n), tag("span", text), class_="tile") for n, text in found],
        class_="tiles",
    )


def _video(watched: Watched) -> Html:
    path = newest_video(watched.run.path, MAX_VIDEO)
    if path is None:
        return Html("")
    stamp = path.stat(follow_symlinks=False).st_mtime_ns
    film = tag(
        "video",
        src=f"/video?run={watched.number}&at={stamp}",
        controls=True,
        muted=True,
        loop=True,
        playsinline=True,
        preload="metadata",
    )
    return Html(tag("h2", "Latest video") + tag("div", tag("h3", path.name), film, class_="card"))


def _metrics(charts: Sequence[object]) -> Html:
    if not charts:
        return Html("")
    drawn = [chart.render() for chart in charts]  # type: ignore[attr-defined]
    return Html(tag("h2", "Losses and diagnostics") + tag("div", drawn, class_="charts"))


def _folder_head(watcher: Watcher) -> Html:
    runs = watcher.runs.values()
    running = sum(run.running for run in runs)
    ended = sum(run.run.outcome is not None and not run.running for run in runs)
    words = f"{len(runs)} runs: {running} running, {ended} finished"
    return Html(tag("h1", str(watcher.path.resolve().name)) + tag("p", words, class_="dim"))


def _table(watcher: Watcher) -> Html:
    titles = ("Run", "State", "Progress", "Steps", "Left", "Steps/s", "Training", "Evaluation", "Best", "")
    numbers = ("Steps", "Left", "Steps/s", "Training", "Evaluation", "Best")
    head = tag("tr", [tag("th", title, class_="number" if title in numbers else None) for title in titles])
    # Those that go on stand above those that have ended, else in the order of their names.
    ordered = sorted(watcher.runs.values(), key=lambda run: not run.running)
    rows = [_row(watcher.name(watched), watched) for watched in ordered]
    return tag("div", tag("div", tag("table", head, rows), class_="scroll"), class_="card")


def _row(name: str, watched: Watched) -> Html:
    run, (state, kind) = watched.run, watched.state
    values = run.evaluation.values
    training = run.log.last.get("rollout/ep_rew_mean")
    cells = [
        f"{run.step:,}",
        duration(watched.left) if watched.left is not None else "",
        f"{watched.rate:,.0f}" if watched.rate else "",
        short(training) if training is not None else "",
        short(float(values[-1])) if values.size else "",
        short(float(values.max())) if values.size else "",
    ]
    share = watched.share
    return tag(
        "tr",
        tag("td", tag("a", name, href=f"/?run={watched.number}"), class_="name"),
        tag("td", tag("span", state, class_=f"state {kind}")),
        tag(
            "td",
            tag("progress", value=f"{share:.4f}", max=1) if share is not None else None,
            class_="bar-cell",
        ),
        [tag("td", cell, class_="number") for cell in cells],
        tag("td", sparkline(run.evaluation if values.size > 1 else run.training)),
    )

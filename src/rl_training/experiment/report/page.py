"""The report: one HTML file that needs nothing besides itself, and runs no script but its own."""

from __future__ import annotations

import base64
import functools
import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment.report.folders import Group, Panel, gather
from rl_training.experiment.report.html import Content, Html, tag
from rl_training.experiment.report.pictures import buckets_for, learning_chart, metric_charts
from rl_training.experiment.report.runs import read_object
from rl_training.experiment.report.scale import duration, short
from rl_training.experiment.report.scores import bar_verdict, score_line, score_section
from rl_training.experiment.report.sections import (
    commands_section,
    machine_section,
    settings_section,
    time_section,
    video_section,
)
from rl_training.experiment.results import MAX_RESULT_BYTES
from rl_training.plain_files import reason
from rl_training.runtime.console import notice
from rl_training.runtime.folder import write_whole
from rl_training.version import __version__

REPORT = "report.html"


def make_report(folders: Mapping[str, Path], out: Path) -> list[str]:
    """Write the report of the runs in folders, each with a name; return what was damaged or missing."""
    panels = gather(folders)
    write_whole(out, build(panels, list(folders.values())))
    return _problems(panels)


def add_report(folder: Path) -> None:
    """Write ``report.html`` into a folder of runs; one that cannot be written costs a warning."""
    try:
        make_report({folder.resolve().name or "results": folder}, folder / REPORT)
    except Exception as error:  # whatever it is, the results are there
        known = isinstance(error, RLTrainingError | OSError)
        notice(f"warning: no {REPORT}: {'' if known else f'{type(error).__name__}: '}{reason(error)}")


def build(panels: Sequence[Panel], given: Sequence[Path]) -> str:
    """Return the page."""
    groups = [group for panel in panels for group in panel.groups]
    suite = _suite(given)
    title = _title(panels, suite)
    style, script = asset("page.css"), asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )
    made = f"Made {time.strftime('%Y-%m-%d %H:%M')} by rl_training {__version__}."
    problems = _problems(panels)
    body: list[Content] = [
        tag("header", tag("h1", title), tag("p", _subtitle(groups, suite), class_="dim")),
        tag(
            "main",
            tag("div", [tag("p", text) for text in problems[:50]], class_="card problems")
            if problems
            else None,
            tiles(groups) if len(groups) == 1 else None,
            [_panel(panel, len(panels) > 1, buckets_for(groups)) for panel in panels],
            _headed("Video of an evaluation", video_section(groups)),
            _headed("Settings", settings_section(groups)),
            _headed("Versions and machine", [machine_section(groups, _facts(given))]),
            _headed("How to repeat it", [commands_section(given, groups, suite)]),
        ),
        tag("footer", tag("p", made)),
        tag("script", Html(script)),
    ]
    head = [
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Html(style)),
    ]
    return "<!DOCTYPE html>\n" + tag("html", tag("head", head), tag("body", body), lang="en") + "\n"


@functools.cache
def asset(name: str) -> str:
    """Return a style sheet or a script of this package."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def tiles(groups: Sequence[Group]) -> Html:
    """Return the numbers that sum up a group."""
    (group,) = groups
    score, about = score_line(group)
    found = [(score, f"final score, {about}")]
    best = [float(run.evaluation.values.max()) for run in group.runs if run.evaluation.steps.size]
    if best:
        found.append((short(max(best), 5), "best evaluation" + (" of any seed" if group.several else "")))
    steps, total = max(run.step for run in group.runs), group.first.total
    told = f"steps of {total:,}" if total and total != steps else "environment steps"
    found.append((f"{steps:,}", told + (", each seed" if group.several else "")))
    speeds = sorted(speed for run in group.runs if (speed := run.speed) is not None)
    seconds = sorted(run.outcome.seconds for run in group.runs if run.outcome is not None)
    if seconds:
        found.append(
            (duration(seconds[len(seconds) // 2]), "time of a run" + (", median" if len(seconds) > 1 else ""))
        )
    if speeds:
        found.append((f"{speeds[len(speeds) // 2]:,.0f}", "steps per second, evaluations included"))
    if group.several:
        found.append((f"{len(group.finished)} of {len(group.runs)}", "seeds finished"))
    bar = bar_verdict(group.entry)
    shown = [tag("div", tag("b", number), tag("span", text), class_="tile") for number, text in found]
    return tag(
        "div",
        shown,
        tag("div", tag("b", bar), tag("span", "bar"), class_="tile") if bar else None,
        class_="tiles",
    )


def _panel(panel: Panel, headed: bool, buckets: int) -> list[Content]:
    main, others = metric_charts(panel.groups, buckets)
    metrics: Content = tag("div", [chart.render() for chart in main], class_="charts")
    if headed:
        metrics = tag("details", tag("summary", f"{len(main)} metrics"), metrics)
    more = tag("div", [chart.render() for chart in others], class_="charts")
    spent = time_section(panel.groups)
    return [
        tag("h2", panel.env or "Unknown environment") if headed else None,
        learning_chart(panel.groups).render(),
        _headed("Final scores", score_section(panel), headed),
        _headed("Where the time went", [spent], headed) if spent is not None else None,
        _headed("Losses and diagnostics", [metrics], headed) if main else None,
        tag("details", tag("summary", f"{len(others)} more metrics"), more) if others else None,
    ]


def _headed(title: str, parts: Sequence[Content], inner: bool = False) -> list[Content]:
    return [tag("h3" if inner else "h2", title), *parts] if parts else []


def _title(panels: Sequence[Panel], suite: Mapping[str, object]) -> str:
    groups = [group for panel in panels for group in panel.groups]
    if isinstance(suite.get("suite"), str):
        return f"Benchmark {suite['suite']}"
    titles = list(dict.fromkeys(group.first.title for group in groups))
    what = (
        " and ".join([part for part in (", ".join(titles[:-1]), titles[-1]) if part])
        if len(titles) < 5
        else f"{len(groups)} results"
    )
    envs = [panel.env for panel in panels if panel.env]
    return f"{what} on {', '.join(envs)}" if envs and len(envs) < 4 else what


def _subtitle(groups: Sequence[Group], suite: Mapping[str, object]) -> str:
    if isinstance(suite.get("summary"), str):
        return str(suite["summary"])
    if len(groups) > 1:
        return f"{len(groups)} results, {sum(len(group.runs) for group in groups)} runs"
    group = groups[0]
    if group.several:
        seeds = [str(run.seed) if run.seed is not None else run.path.name for run in group.runs]
        more = ", ..." if len(seeds) > 20 else ""
        return f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}: {', '.join(seeds[:20])}{more}"
    run = group.first
    why = run.stop_reason
    state = f"stopped early: {why}" if why else "finished" if run.outcome is not None else "not finished"
    return f"Seed {run.seed}, {state}" if run.seed is not None else state.capitalize()


def _problems(panels: Sequence[Panel]) -> list[str]:
    runs = (run for panel in panels for group in panel.groups for run in group.runs)
    return [problem for run in runs for problem in run.problems]


def _suite(given: Sequence[Path]) -> dict[str, object]:
    return read_object(given[0] / "results.json", MAX_RESULT_BYTES) if len(given) == 1 else {}


def _facts(given: Sequence[Path]) -> dict[str, object]:
    return read_object(given[0] / "facts.json", MAX_RESULT_BYTES) if len(given) == 1 else {}


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def check_target(out: Path) -> None:
    """Refuse a file that cannot be written before anything is read."""
    if out.is_dir() or not out.parent.is_dir():
        raise ConfigError(f"--out: {out}: should be a file in a folder that exists")

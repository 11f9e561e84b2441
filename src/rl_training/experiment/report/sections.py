"""The parts of a report besides curves and scores: time, settings, machine, videos, commands."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rl_training.experiment.report.folders import Group
from rl_training.experiment.report.html import Content, Html, escaped, tag
from rl_training.experiment.report.runs import newest_video
from rl_training.experiment.report.scale import duration
from rl_training.experiment.report.settings import Setting, differences, settings_of
from rl_training.plain_files import read_plain
from rl_training.runtime.timing import ACCOUNTS
from rl_training.shell import command

MAX_VIDEO = 8 * 2**20
"""Bytes of a video in a report, and three times that of all of them."""


def time_section(groups: Sequence[Group]) -> Html | None:
    """Return where the time of finished runs went, and how many steps a second they made."""
    rows = [row for group in groups if (row := _time_row(group, len(groups) > 1)) is not None]
    if not rows:
        return None
    key = [tag("li", tag("i", class_=f"box c{n}"), name) for n, name in enumerate(ACCOUNTS)]
    titles = [
        *(["Result"] if len(groups) > 1 else []),
        "Share of the time",
        "Steps per second",
        "Time of a run",
    ]
    head = tag(
        "tr",
        [
            tag("th", t, class_="number" if t[0] in "ST" and t != "Share of the time" else None)
            for t in titles
        ],
    )
    table = tag("div", tag("table", head, rows), class_="scroll")
    return tag("div", table, tag("ul", key, class_="legend"), class_="card")


def _time_row(group: Group, named: bool) -> Html | None:
    splits = [split for run in group.runs if (split := run.time_split)]
    total = sum(sum(split.values()) for split in splits)
    if total <= 0:
        return None
    shares = {name: sum(split.get(name, 0.0) for split in splits) / total for name in ACCOUNTS}
    parts, left = [], 0.0
    for color, (name, share) in enumerate(shares.items()):
        title = f"<title>{name} {share:.1%}</title>"
        parts.append(
            Html(
                f'<rect x="{left:.2%}" y="0" width="{share:.2%}" height="100%" class="bar c{color}">{title}</rect>'
            )
        )
        left += share
    told = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)
    bar = tag("svg", parts, class_="split", role="img", aria_label=told)
    speeds = [speed for run in group.finished if (speed := run.speed) is not None]
    seconds = [run.outcome.seconds for run in group.runs if run.outcome is not None]
    return tag(
        "tr",
        tag("td", group.name, class_="name") if named else None,
        tag("td", bar, tag("span", told, class_="note"), class_="wide"),
        tag("td", f"{np.median(speeds):,.0f}" if speeds else "", class_="number"),
        tag("td", duration(float(np.median(seconds))) if seconds else "", class_="number"),
    )


def settings_section(groups: Sequence[Group]) -> list[Html]:
    """Return what the settings of groups are, and first of all in what they differ."""
    parts = []
    if len(groups) > 1:
        found = differences([group.first for group in groups])
        rows = [
            tag("tr", tag("td", _breakable(key)), [tag("td", tag("code", v)) for v in values])
            for key, values in found.items()
        ]
        head = tag("tr", tag("th", "Option"), [tag("th", group.name) for group in groups])
        table = (
            tag("div", tag("table", head, rows), class_="scroll")
            if rows
            else tag("p", "Nothing but their seeds.")
        )
        only = tag("p", "Options that only one of the algorithms has are listed below.", class_="note")
        parts.append(
            tag(
                "div",
                tag("h3", "In what they differ"),
                table,
                only if len({g.first.algo for g in groups}) > 1 else None,
                class_="card",
            )
        )
    for group in groups:
        settings = settings_of(group.first)
        changed = [setting for setting in settings if setting.changed]
        known = any(setting.default is not None for setting in settings)
        listed = (
            _settings_table(changed) if known else tag("p", "The defaults are not known here.", class_="note")
        )
        every = tag("details", tag("summary", f"All {len(settings)} options"), _settings_table(settings))
        body = [listed, every] if settings else [tag("p", "No config.yaml was found.", class_="note")]
        if len(groups) > 1:
            summary = f"{group.name}: {len(changed)} of {len(settings)} options differ from the defaults"
            parts.append(tag("details", tag("summary", summary), body, class_="card"))
        else:
            parts.append(tag("div", body, class_="card"))
    return parts


def _settings_table(settings: Sequence[Setting]) -> Html:
    rows = [
        tag(
            "tr",
            tag("td", _breakable(s.key), title=s.meaning or None),
            tag("td", tag("code", s.value), class_="changed" if s.changed else None),
            tag("td", tag("code", s.default or ""), class_="dim"),
        )
        for s in settings
    ]
    head = tag("tr", tag("th", "Option"), tag("th", "Value"), tag("th", "Default"))
    return tag("div", tag("table", head, rows), class_="scroll")


def _breakable(key: str) -> Html:
    """Return a key that a narrow column breaks between its words only."""
    words = [escaped(word) for word in re.split(r"(?<=[._])", key)]
    return tag("code", Html("<wbr/>".join(words)))


def machine_section(groups: Sequence[Group], suite: Mapping[str, object]) -> Html:
    """Return versions and machine, and where runs differ in them."""
    facts: dict[str, dict[str, None]] = {}
    for run in (run for group in groups for run in group.runs):
        for name, fact in run.facts.items():
            facts.setdefault(name, {})[fact] = None
    for name, value in suite.items():
        if isinstance(value, str | int | float):
            facts.setdefault(name, {str(value): None})
    if not facts:
        return tag("p", "No metadata.json was found.", class_="note")
    rows = [
        tag("tr", tag("td", name), tag("td", "; ".join(list(values)[:20]))) for name, values in facts.items()
    ]
    return tag("div", tag("table", rows), class_="card")


def video_section(groups: Sequence[Group]) -> list[Html]:
    """Return the newest video of each group, in the page itself."""
    parts: list[Html] = []
    left = 3 * MAX_VIDEO
    for group in groups:
        places = dict.fromkeys([*(run.path for run in group.runs), group.folder])
        path = next((found for place in places if (found := newest_video(place, min(MAX_VIDEO, left)))), None)
        if path is None:
            continue
        try:
            content = read_plain(path, MAX_VIDEO)
        except (OSError, ValueError):
            continue
        left -= len(content)
        source = Html("data:video/mp4;base64," + base64.b64encode(content).decode("ascii"))
        film = tag(
            "video", src=source, controls=True, muted=True, loop=True, playsinline=True, preload="metadata"
        )
        shown = path.relative_to(group.folder) if path.is_relative_to(group.folder) else path
        named = f"{group.name}: {shown}" if len(groups) > 1 else str(shown)
        parts.append(tag("div", tag("h3", named), film, class_="card screen"))
    return parts


def commands_section(given: Sequence[Path], groups: Sequence[Group], suite: Mapping[str, object]) -> Html:
    """Return the commands that make the same again."""
    lines: list[tuple[str, str]] = []
    source = suite.get("source")
    if isinstance(source, str):
        lines.append(("Run the benchmark again", command("rl-training", "benchmark", source)))
    else:
        lines += [(_named("Train again", group, groups), _train(group)) for group in groups[:12]]
    first = next((group for group in groups if group.runs), None)
    if first is not None:
        evaluate = command("rl-training", "eval", first.first.path, "--video", "evaluation.mp4")
        lines.append(("Evaluate, with a video", evaluate))
    for env in dict.fromkeys(group.env for group in groups):
        scored = [group.folder for group in groups if group.scores and group.env == env][:8]
        if len(scored) > 1:
            lines.append((f"Compare on {env}", command("rl-training", "compare", *scored)))
    lines.append(("Make this page again", command("rl-training", "report", *given)))
    rows: list[Content] = [[tag("h3", title), tag("pre", text)] for title, text in lines]
    return tag("div", rows, class_="card")


def _train(group: Group) -> str:
    seeds = [run.seed for run in group.runs if run.seed is not None]
    whole = (group.folder / "config.yaml").is_file()
    words: list[object] = ["rl-training", "train", "--config", group.folder if whole else group.first.path]
    if group.several:
        words += ["--seeds", len(group.runs), *([f"seed={min(seeds)}"] if seeds and not whole else [])]
    return command(*words)


def _named(what: str, group: Group, groups: Sequence[Group]) -> str:
    return f"{what}: {group.name}" if len(groups) > 1 else what

"""Final scores: the numbers, a strip on which every seed is a dot, and what can be told from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rl_training.experiment.report.charts import COLORS
from rl_training.experiment.report.folders import Group, Panel
from rl_training.experiment.report.html import Html, tag
from rl_training.experiment.report.runs import number
from rl_training.experiment.report.scale import Scale, duration, short, value_scale
from rl_training.statistics import MIN_SCORES, iqm, seeds_interval

_MOST_COMPARED = 10
_MOST_DOTS = 400


def score_section(panel: Panel) -> list[Html]:
    """Return the table of scores and the verdicts."""
    parts = [_table(panel)]
    scored = [group for group in panel.groups if group.scores]
    if len(scored) > _MOST_COMPARED:
        parts.append(
            tag(
                "p",
                f"More than {_MOST_COMPARED} results are not held against each other here.",
                class_="note",
            )
        )
    elif (comparison := panel.comparison()) is not None:
        told = [
            tag("li", f"P({pair.first} > {pair.second}) = {pair.probability:.2f}: ", tag("b", pair.verdict))
            for pair in comparison.pairs
        ]
        notes = [tag("li", note, class_="note") for note in comparison.notes]
        how = "P(a > b) is how often a seed of a beats one of b. Better means: a rank test over seeds finds p < 0.05."
        verdicts = tag("ul", told, notes, class_="verdicts")
        parts.append(tag("div", verdicts, tag("p", how, class_="note"), class_="card"))
    return parts


def score_line(group: Group) -> tuple[str, str]:
    """Return the score of a group, and what it is, in a few words."""
    scores = group.scores
    if not scores:
        return "none", "no final evaluation yet" if group.several else _state(group)
    if not group.several:
        return short(scores[0], 5), _episodes(group)
    interval = seeds_interval(scores)
    seeds = f"{len(scores)} seed{'s' if len(scores) > 1 else ''}"
    told = f"95 % interval {_pair(interval)}" if interval else f"too few for an interval (below {MIN_SCORES})"
    return short(iqm(scores), 5), f"IQM of {seeds}, {told}"


def bar_verdict(entry: Mapping[str, object]) -> Html | None:
    """Return whether a benchmark's bar was reached, none if there is no bar."""
    bar, below, reached = entry.get("bar"), entry.get("below"), entry.get("reached")
    limits = (("", number(bar)), ("below ", number(below)))
    aims = [f"{word}{limit:g}" for word, limit in limits if limit is not None]
    if not aims or not isinstance(reached, bool):
        return None
    worst = ", worst seed" if entry.get("score_is") == "worst" else ""
    kind = "good" if reached else "bad"
    return tag(
        "span", f"{' and '.join(aims)}{worst}: ", tag("b", "reached" if reached else "missed"), class_=kind
    )


def _table(panel: Panel) -> Html:
    groups, bars = panel.groups, [bar_verdict(group.entry) for group in panel.groups]
    scale = _scale(groups)
    head = ["Score", "95 % interval", "Seeds", "Steps", "Time of a run", *(["Bar"] if any(bars) else [])]
    ends = f"Each seed, {short(scale.low)} to {short(scale.high)}" if scale is not None else "Each seed"
    if all(not group.several for group in groups):
        ends = ends.replace("seed", "episode")
    titles = [tag("th", title, class_="number" if n < 5 else None) for n, title in enumerate(head)]
    rows = []
    for color, group in enumerate(groups):
        results = group.result()
        cells = [
            tag("td", tag("i", class_=f"key c{color % COLORS}"), group.name, class_="name"),
            tag("td", _strip(group, color, scale) if scale is not None else None, class_="strips"),
            _number(score_line(group)[0]),
            _number(_interval(group)),
            _number(f"{len(group.finished)} of {len(group.runs)}" if group.several else "1"),
            _number(f"{max(results.steps):,}" if results.steps else f"{group.first.step:,}"),
            _number(duration(float(np.median(results.seconds))) if results.seconds else ""),
            tag("td", bars[color]) if any(bars) else None,
        ]
        rows.append(tag("tr", cells))
    several = any(group.several for group in groups)
    of = "interquartile mean (IQM) over seeds of the mean return" if several else "mean return"
    score = f"Score: {of} of the final policy, greedy, in the evaluation at the end."
    table = tag("table", tag("tr", tag("th", "Result"), tag("th", ends), titles), rows)
    return tag("div", tag("div", table, class_="scroll"), tag("p", score, class_="note"), class_="card")


def _number(text: str) -> Html:
    return tag("td", text, class_="number")


def _interval(group: Group) -> str:
    return _pair(found) if (found := seeds_interval(group.scores) if group.scores else None) else "-"


def _pair(interval: tuple[float, float]) -> str:
    return f"{short(interval[0], 5)} to {short(interval[1], 5)}"


def _dots(group: Group) -> list[float]:
    """Return the scores of seeds; those of the episodes of a single run."""
    if group.several or not group.scores:
        return group.scores
    evaluation = group.first.held.get("evaluation")
    returns = evaluation.get("returns") if isinstance(evaluation, Mapping) else None
    numbers = [number(r) for r in returns[:_MOST_DOTS]] if isinstance(returns, list) else []
    return [r for r in numbers if r is not None] or group.scores


def _scale(groups: Sequence[Group]) -> Scale | None:
    found = [score for group in groups for score in (*_dots(group), *group.scores)]
    if not found:
        return None
    scale = value_scale(min(found), max(found))
    return Scale(min(found), max(found)) if scale.log and min(found) < max(found) else scale


def _strip(group: Group, color: int, scale: Scale) -> Html | None:
    dots = _dots(group)
    if not dots:
        return None
    places = scale.place(np.array(dots))
    found = seeds_interval(group.scores)
    ends = scale.place(np.array(found)) if found else None
    middle = float(scale.place(np.array([iqm(group.scores)]))[0])
    name = "score" if group.several else "return"
    parts = [
        tag("line", x1="0", x2="100%", y1="50%", y2="50%", class_="grid"),
        tag("line", x1=f"{ends[0]:.2%}", x2=f"{ends[1]:.2%}", y1="50%", y2="50%", class_="range")
        if ends is not None
        else None,
        [
            Html(
                f'<circle cx="{place:.2%}" cy="50%" r="4" class="dot"><title>{name} {short(value, 6)}</title></circle>'
            )
            for place, value in zip(places, dots, strict=True)
        ],
        tag(
            "svg",
            tag("polygon", points="0,-8 6,0 0,8 -6,0", class_="diamond"),
            x=f"{middle:.2%}",
            y="50%",
            overflow="visible",
        ),
    ]
    told = f"IQM {short(iqm(group.scores))}, from {short(min(dots))} to {short(max(dots))}"
    return tag("svg", parts, class_=f"strip c{color % COLORS}", role="img", aria_label=told)


def _episodes(group: Group) -> str:
    evaluation = group.first.held.get("evaluation")
    spread = number(evaluation.get("std")) if isinstance(evaluation, Mapping) else None
    outcome = group.first.outcome
    episodes = f"{outcome.episodes} episodes" if outcome is not None else "episodes"
    return f"± {short(spread)} over {episodes}" if spread is not None else f"mean of {episodes}"


def _state(group: Group) -> str:
    return "not evaluated at its end" if group.first.outcome is not None else "the run is not finished"

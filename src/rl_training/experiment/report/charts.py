"""Line charts as SVG that stretches to any width, for the report and for the live page.

Lines are drawn in a box of 1,000 by 1,000 that is stretched; labels lie around it at shares of its size, so that
they are as large on a phone as on a screen. ``page.js`` reads the values under the pointer from the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rl_training.experiment.report.html import Html, tag
from rl_training.experiment.report.scale import Scale, short, step_scale, tick_labels, value_scale
from rl_training.runtime.curves import Series

COLORS = 8
_BOX = 1_000.0


@dataclass(frozen=True)
class Line:
    """A curve; ``main`` ones are drawn strongly, those of single ``seed`` s thinly, ``side`` ones in between."""

    name: str
    series: Series
    color: int = 0
    kind: Literal["main", "side", "seed"] = "main"


@dataclass(frozen=True)
class Band:
    """An area around a curve."""

    steps: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    color: int = 0


@dataclass(frozen=True)
class Chart:
    """Curves over environment steps, with a title, a remark, and values that are marked by a line."""

    title: str
    lines: Sequence[Line]
    bands: Sequence[Band] = ()
    note: str = ""
    marks: Sequence[tuple[float, str]] = ()
    legend: Sequence[tuple[int, str, str]] = field(default=())
    """Colour, kind of line and text."""
    large: bool = False
    total: float = 0.0
    """Up to where the axis of steps goes at least."""
    when_empty: str = ""
    """What is said in place of a chart without data."""

    def render(self) -> Html:
        """Return the chart as HTML."""
        head = tag("figcaption", tag("span", self.title, class_="title"), " ", _small(self.note))
        drawn = [line for line in self.lines if line.series.steps.size]
        if not drawn:
            said = self.when_empty or "no data yet"
            return tag("figure", head, tag("p", said, class_="empty"), class_="chart")
        x = step_scale(max(self.total, *(float(line.series.steps[-1]) for line in drawn)))
        y = self._value_scale(drawn)
        inner = tag(
            "svg",
            [_band(band, x, y) for band in self.bands if band.steps.size > 1],
            [_path(line, x, y) for line in sorted(drawn, key=_strength) if line.series.steps.size > 1],
            class_="box",
            viewBox="0 0 1000 1000",
            preserveAspectRatio="none",
            width="100%",
            height="100%",
        )
        picture = tag(
            "svg",
            _y_axis(y, 8 if self.large else 6),
            _x_axis(x, 6 if self.large else 5),
            [_mark(value, text, y) for value, text in self.marks],
            inner,
            [_dot(line, x, y) for line in drawn if line.series.steps.size == 1],
            role="img",
            aria_label=_told(self.title, drawn),
            data_x=f"{x.low!r} {x.high!r}",
            data_y=f"{y.low!r} {y.high!r}{' log' if y.log else ''}",
        )
        key = [tag("li", tag("i", class_=f"c{color} {kind}"), text) for color, kind, text in self.legend]
        body = [head, tag("div", picture, class_="frame"), tag("ul", key, class_="legend") if key else None]
        return tag("figure", body, class_="chart large" if self.large else "chart")

    def _value_scale(self, drawn: Sequence[Line]) -> Scale:
        values = [line.series.values for line in drawn]
        values += [edge for band in self.bands for edge in (band.low, band.high)]
        values += [np.array([value]) for value, _ in self.marks]
        found = [part for part in values if part.size]
        low, high = min(float(part.min()) for part in found), max(float(part.max()) for part in found)
        return value_scale(low, high)


def sparkline(series: Series, color: int = 0) -> Html | None:
    """Return a curve without axes, none if there is none."""
    if series.steps.size < 2:
        return None
    x = Scale(float(series.steps[0]), float(series.steps[-1]))
    y = value_scale(float(series.values.min()), float(series.values.max()))
    line = _path(Line("", series, color), x, y)
    return tag(
        "svg", line, class_="spark", viewBox="0 0 1000 1000", preserveAspectRatio="none", aria_hidden="true"
    )


def _strength(line: Line) -> int:
    return ("seed", "side", "main").index(line.kind)


def _points(steps: NDArray[np.float64], values: NDArray[np.float64], x: Scale, y: Scale) -> list[str]:
    across = np.round(_BOX * x.place(steps), 2)
    down = np.round(_BOX * (1.0 - y.place(values)), 2)
    return [f"{a:g} {b:g}" for a, b in zip(across.tolist(), down.tolist(), strict=True)]


def _path(line: Line, x: Scale, y: Scale) -> Html:
    points = "L".join(_points(line.series.steps, line.series.values, x, y))
    name = tag("title", line.name) if line.name else None
    return tag("path", name, d=Html(f"M{points}"), class_=f"line c{line.color % COLORS} {line.kind}")


def _band(band: Band, x: Scale, y: Scale) -> Html:
    there = _points(band.steps, band.high, x, y)
    back = _points(band.steps, band.low, x, y)[::-1]
    return tag("path", d=Html(f"M{'L'.join([*there, *back])}Z"), class_=f"band c{band.color % COLORS}")


def _dot(line: Line, x: Scale, y: Scale) -> Html:
    """Return a point: a line through a single one has no length."""
    (across,), (down,) = x.place(line.series.steps), 1.0 - y.place(line.series.values)
    return tag(
        "circle",
        cx=_share(across),
        cy=_share(down),
        r=4,
        class_=f"dot c{line.color % COLORS}",
        data_name=line.name,
    )


def _y_axis(scale: Scale, count: int) -> list[Html]:
    ticks = scale.ticks(count)
    places = (1.0 - scale.place(np.array(ticks))).tolist()
    return [
        part
        for place, label in zip(places, tick_labels(ticks), strict=True)
        for part in (
            tag("line", x1="0", x2="100%", y1=_share(place), y2=_share(place), class_="grid"),
            tag("text", label, x="-8", y=_share(place), dy="0.32em", class_="ytick"),
        )
    ]


def _x_axis(scale: Scale, count: int) -> list[Html]:
    ticks = scale.ticks(count)
    places = scale.place(np.array(ticks)).tolist()
    return [
        tag("text", label, x=_share(place), y="100%", dy="1.5em", class_="xtick")
        for place, label in zip(places, tick_labels(ticks), strict=True)
    ]


def _mark(value: float, text: str, scale: Scale) -> list[Html]:
    place = _share(1.0 - float(scale.place(np.array([value]))[0]))
    return [
        tag("line", x1="0", x2="100%", y1=place, y2=place, class_="mark"),
        tag("text", text, x="100%", y=place, dx="-4", dy="-0.4em", class_="mark"),
    ]


def _share(place: float) -> str:
    return f"{100 * place:.2f}%"


def _small(text: str) -> Html | None:
    return tag("span", text, class_="note") if text else None


def _told(title: str, lines: Sequence[Line]) -> str:
    """Return what a chart shows, for those who do not see it."""
    strong = [line for line in lines if line.kind != "seed"] or list(lines)
    ends = [
        f"{line.name or title} ends at {short(float(line.series.values[-1]))}" for line in strong[:COLORS]
    ]
    return f"{title}: {'; '.join(ends)}"

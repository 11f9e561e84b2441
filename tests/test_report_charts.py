"""Axes, lines and texts of charts: values come back from where they are drawn, and every text is escaped."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_training.experiment.report.charts import Band, Chart, Line, sparkline
from rl_training.experiment.report.html import Html, escaped, tag
from rl_training.experiment.report.metrics import ordered
from rl_training.experiment.report.scale import Scale, duration, short, tick_labels, value_scale
from rl_training.runtime.curves import Series

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False)


@given(NUMBERS, NUMBERS)
def test_an_axis_shows_its_values_and_labels_that_differ(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    scale = value_scale(low, high)
    places = scale.place(np.array([low, high]))
    assert (places >= -1e-9).all()
    assert (places <= 1 + 1e-9).all()
    ticks = scale.ticks()
    assert len(ticks) <= 14
    assert len(set(tick_labels(ticks))) == len(ticks)
    assert all(-1e-6 <= place <= 1 + 1e-6 for place in scale.place(np.array(ticks)))


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 500, [0, 100, 200, 300, 400, 500]),
        (-1_800, -900, [-1_800, -1_600, -1_400, -1_200, -1_000]),
        (0.001, 5, [0.001, 0.01, 0.1, 1]),
        (7, 7, [6.5, 7, 7.5]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    scale = value_scale(low, high)
    assert scale.log == (low == 0.001)
    assert scale.ticks() == pytest.approx(ticks)


def test_the_largest_numbers_have_an_axis() -> None:
    scale = value_scale(-1.7e308, 1.7e308)
    assert scale.place(np.array([-1.7e308, 0.0, 1.7e308])) == pytest.approx([0, 0.5, 1])
    chart = Chart("t", [Line("x", Series(np.array([1.0, 2.0]), np.array([-1.7e308, 1.7e308])))])
    assert "nan" not in chart.render().lower().replace("nano", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (196.39, "196.4"),
        (-0.00001, "-1.00e-5"),
        (12_500, "12.5k"),
        (1_234, "1234"),
        (9_999.9, "10000"),
        (3.2e6, "3.2M"),
        (1e20, "1.00e20"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (1.25, "1.2 s"), (61, "1 min 1 s"), (7_200, "2 h"), (90_000, "1 d 1 h")]
)
def test_times_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def picture(chart: Chart) -> ElementTree.Element:
    """Parse a chart, which has to be well-formed."""
    return ElementTree.fromstring(chart.render())


def series(*values: float) -> Series:
    return Series(np.arange(1.0, len(values) + 1) * 100, np.array(values))


def test_lines_lie_where_their_values_are() -> None:
    curve = series(0.0, 250.0, 500.0, 125.0)
    found = picture(Chart("t", [Line("a", curve)]))
    svg = next(found.iter("svg"))
    (low, high), (first, last) = (map(float, svg.attrib[k].split()) for k in ("data-y", "data-x"))
    (path,) = found.iter("path")
    points = [tuple(map(float, p.split())) for p in path.attrib["d"][1:].split("L")]
    assert [first + (last - first) * x / 1000 for x, _ in points] == pytest.approx(curve.steps, abs=0.01)
    assert [low + (high - low) * (1 - y / 1000) for _, y in points] == pytest.approx(curve.values, abs=0.02)
    title = path.find("title")
    assert title is not None
    assert title.text == "a"
    # Labels stand at the height of what they say.
    for label in (t for t in svg.iter("text") if t.attrib["class"] == "ytick"):
        share = float(label.attrib["y"].rstrip("%")) / 100
        assert low + (high - low) * (1 - share) == pytest.approx(float(label.text or ""), abs=0.1)


def test_a_log_axis_says_so_and_is_one() -> None:
    found = picture(Chart("t", [Line("a", series(0.01, 1.0, 100.0))]))
    svg = next(found.iter("svg"))
    low, high = map(float, svg.attrib["data-y"].removesuffix(" log").split())
    assert svg.attrib["data-y"].endswith(" log")
    (path,) = found.iter("path")
    middle = float(path.attrib["d"].split("L")[1].split()[1]) / 1000
    assert low * (high / low) ** (1 - middle) == pytest.approx(1.0, rel=1e-3)


def test_seeds_lie_below_their_mean_and_bands_below_all() -> None:
    curve = series(1.0, 2.0)
    band = Band(curve.steps, curve.values - 1, curve.values + 1, 2)
    lines = [Line("main", curve, 2), Line("seed 1", curve, 2, "seed")]
    kinds = [path.attrib["class"] for path in picture(Chart("t", lines, [band])).iter("path")]
    assert kinds == ["band c2", "line c2 seed", "line c2 main"]


def test_a_single_point_is_a_dot_and_no_point_a_sentence() -> None:
    found = picture(Chart("t", [Line("a", series(5.0), 3)]))
    assert [dot.attrib["class"] for dot in found.iter("circle")] == ["dot c3"]
    assert not list(found.iter("path"))
    assert "no data yet" in Chart("t", [Line("a", series())]).render()
    assert sparkline(series(1.0)) is None
    assert "<path" in (sparkline(series(1.0, 2.0)) or "")


EVIL = "</title><script>alert(1)</script>\"'&\x00\u202e\n"


def test_every_text_is_escaped() -> None:
    chart = Chart(
        EVIL,
        [Line(EVIL, series(1.0, 2.0)), Line(EVIL, series(1.0))],
        (),
        EVIL,
        [(1.5, EVIL)],
        [(0, "main", EVIL)],
    )
    text = chart.render()
    assert "<script" not in text
    assert "\x00" not in text
    assert "\u202e" not in text
    assert "&lt;script&gt;" in text
    found = ElementTree.fromstring(text)
    assert not list(found.iter("script"))


def test_elements_are_built_of_escaped_parts() -> None:
    assert tag(
        "a", "<b>", Html("<i>x</i>"), None, [1, "&"], href='"x"', class_="k", hidden=True, title=None
    ) == ('<a href="&quot;x&quot;" class="k" hidden>&lt;b&gt;<i>x</i>1&amp;</a>')
    assert tag("meta", name="x") == '<meta name="x"/>'
    assert escaped("a\nb\tc") == "a\nb?c"


def test_telling_metrics_come_first() -> None:
    keys = {"zzz/own", "train/learning_rate", "train/loss", "rollout/ep_rew_mean", "eval/mean_reward"}
    found = ordered(keys)
    assert [m.key for m in found] == ["rollout/ep_rew_mean", "train/loss", "train/learning_rate", "zzz/own"]
    assert [m.telling for m in found] == [True, True, False, False]


def test_every_metric_of_the_algorithms_has_a_title() -> None:
    """What learners report is known here, so that none of it is shown by its bare key."""
    from helpers.contracts import ALGORITHMS, trained_run
    from rl_training.algorithms.catalogue import PACKAGED

    assert set(PACKAGED) <= set(ALGORITHMS)
    for algo in ("c51", "ppo", "sac", "trpo"):
        run = trained_run(algo)
        keys = {f"train/{key}" for key in (*run.algorithm.status(), *run.metrics.state_dict()["sums"])}
        titles = {m.key: m.title for m in ordered(keys)}
        assert len(titles) > 4
        assert [key for key, title in titles.items() if key == title] == []


def test_scales_are_monotone() -> None:
    for scale in (Scale(0, 10), Scale(1e-3, 10, log=True)):
        places = scale.place(np.array([0.001, 0.1, 5, 10]))
        assert all(a < b for a, b in itertools.pairwise(places))
        assert re.fullmatch(r"[\d.e+-]+", repr(float(places[0])))
